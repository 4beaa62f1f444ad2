"""Flags choose among the cases, targets and runtimes of scenes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernloom.base.errors import ConfigError, UsageError
from kernloom.run.assembly import Assembly
from kernloom.scene.choosing import check_named, make_choice
from kernloom.scene.reading import SceneSpec
from kernloom.scene.scene import Case
from kernloom.scene.selection import chosen_picks

SCENE = SceneSpec(
    "rows",
    "softmax",
    (
        Case("any", targets=("host", "a5", "mppa")),
        Case("rings", targets=("a5",), runtimes=("ringmap",)),
        Case("long", targets=("host",), manual=True),
    ),
    Path("rows.yaml"),
)
RINGS = "rings on a5-ringmap"


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        (
            {},
            ["any on host", "any on a5-hostgraph", "any on mppa-hostgraph", "rings on a5-ringmap"],
        ),
        ({"targets": "a5"}, ["any on a5-hostgraph", "rings on a5-ringmap"]),
        ({"targets": "a5, host", "cases": "any"}, ["any on host", "any on a5-hostgraph"]),
        ({"targets": "a5", "runtimes": "hostgraph"}, ["any on a5-hostgraph"]),
        ({"targets": "a5", "runtimes": "ringmap"}, ["any on a5-ringmap", "rings on a5-ringmap"]),
        (
            {"targets": "a5", "runtimes": "hostgraph,ringmap", "cases": "rows::any"},
            ["any on a5-hostgraph", "any on a5-ringmap"],
        ),
        ({"targets": "host", "runtimes": "ringmap"}, ["any on host"]),
        ({"manual": "only"}, ["long on host"]),
        ({"manual": "include", "targets": "host"}, ["any on host", "long on host"]),
        ({"cases": "other::any"}, []),
    ],
)
def test_flags_choose(flags: dict[str, str], names: list[str], assembly: Assembly) -> None:
    picks = chosen_picks([SCENE], make_choice(**flags), assembly)
    assert [pick.name for pick in picks] == [f"rows::{name}" for name in names]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"targets": "a6"}, "Did you mean 'a5'?"),
        ({"runtimes": "ringmop"}, "Did you mean 'ringmap'?"),
        ({"manual": "onyl"}, "Did you mean 'only'?"),
        ({"rounds": "0"}, "Allowed: 1 to 10000"),
        ({"rounds": "-1"}, "no number of rounds"),
        ({"cases": "rows::rngs"}, "Did you mean 'rows::rings'?"),
    ],
)
def test_wrong_flags_are_named(flags: dict[str, str], said: str, assembly: Assembly) -> None:
    with pytest.raises(UsageError) as error:
        choice = make_choice(**flags)
        check_named(choice, [SCENE])
        chosen_picks([SCENE], choice, assembly)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"cases": (Case("far", targets=("a55",)),)}, "rows.yaml: far: unknown target 'a55'"),
        ({"workload": "softmaxx"}, "rows.yaml: workload: unknown workload 'softmaxx'"),
        (
            {"cases": (Case("far", targets=("a5",), runtimes=("rings",)),)},
            "rows.yaml: far: unknown runtime 'rings'",
        ),
    ],
)
def test_a_name_that_does_not_exist_is_refused_in_scenes_that_are_not_chosen(
    wrong: dict[str, Any], named: str, assembly: Assembly
) -> None:
    scenes = [SCENE, replace(SCENE, **wrong)]
    with pytest.raises(ConfigError) as error:
        chosen_picks(scenes, make_choice(targets="host"), assembly, workloads=["matmul"])
    assert named in str(error.value)
