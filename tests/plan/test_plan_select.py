"""Choosing parameters: who answers, what is checked, what is recorded."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from workbench import Workbench

from kernloom.base.places import share_folder
from kernloom.config.groups import Groups
from kernloom.config.validate import experiment as validated
from kernloom.pipeline.stage import Context
from kernloom.plan.inspect import Inspect
from kernloom.plan.select import PARAMETERS, Request, SelectOptions, model
from kernloom.plan.space import check_point, tunables_of, variables_of
from parsed import points_of

Project = Callable[..., Workbench]
GROUPS = Groups([share_folder() / "configs"])
OF_STEPS = [w for w in GROUPS.options("workload") if "steps" in GROUPS.read("workload", w)]
"""Workloads that every device can compute."""
ARCHES = [name for name in GROUPS.options("arch") if name.startswith("x86")]


def test_with_nothing_given_the_model_answers(toy: Workbench) -> None:
    plan = toy.plan("workload=toy")
    assert plan.point("first") == {"block": 16, "lanes": 4, "streaming": False}
    assert plan.outputs["choice"]["provider"] == "model"


def test_a_fixed_value_holds_for_all_steps(toy: Workbench) -> None:
    plan = toy.plan("workload=toy", "select.fixed.vectorize.lanes=2")
    assert [plan.point(step)["lanes"] for step in ("first", "second")] == [2, 2]


def test_a_fixed_value_may_hold_for_one_step(toy: Workbench) -> None:
    plan = toy.plan(
        "workload=toy", "select.fixed.vectorize.lanes=2", "select.fixed.vectorize.second.lanes=1"
    )
    assert [plan.point(step)["lanes"] for step in ("first", "second")] == [2, 1]


def test_who_chose_what_is_recorded(toy: Workbench) -> None:
    plan = toy.plan("workload=toy", "select.fixed.tile.first.block=64")
    assert plan.outputs["choice"]["provider"] == "fixed+model"
    assert plan.outputs["choice"]["provenance"] == {
        "first": {"block": "fixed", "lanes": "model", "streaming": "model"},
        "second": {"block": "model", "lanes": "model", "streaming": "model"},
    }


def test_the_model_chooses_around_what_is_pinned(toy: Workbench) -> None:
    plan = toy.plan("workload=toy", "select.fixed.vectorize.streaming=true")
    assert plan.point("first") == {"block": 16, "lanes": 4, "streaming": True}
    plan = toy.plan("workload=toy", "select.fixed.vectorize.lanes=1")
    assert plan.point("first")["streaming"] is False


def test_values_come_from_a_file(toy: Workbench, tmp_path: Path) -> None:
    path = tmp_path / "my choice, tuned.yaml"
    path.write_text(yaml.safe_dump({"tile": {"block": 64, "second": {"block": 32}}}))
    plan = toy.plan("workload=toy", f"select.file={path}")
    assert [plan.point(step)["block"] for step in ("first", "second")] == [64, 32]
    assert plan.outputs["choice"]["provider"] == "file+model"
    plan = toy.plan("workload=toy", f"select.file={path}", "select.fixed.tile.block=16")
    assert plan.point("second")["block"] == 16


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tile: {blok: 64}", ["unknown tunable 'blok'", "Did you mean 'block'?"]),
        ("tiel: {block: 64}", ["tunables for 'tiel'", "Did you mean 'tile'?"]),
        ("tile: {third: {block: 64}}", ["unknown step 'third'"]),
        (
            "tile: {block: 63}",
            ["tile.block=63 is not in the space of kernel 'scale'", "64, 32, 16"],
        ),
        ("tile: 64", ["expected tile.TUNABLE=VALUE"]),
        ("- tile", ["expected transforms with their tunables"]),
        ("tile: {", ["params.yaml:"]),
    ],
)
def test_a_mistake_in_the_file_is_named(
    toy: Workbench, tmp_path: Path, text: str, said: list[str]
) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(text)
    message = toy.refusal("workload=toy", f"select.file={path}")
    for part in said:
        assert part in message


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["select.fixed.tile.block=63"], ["tile.block=63 is not in the space of", "64, 32, 16"]),
        (["select.fixed.tile.block='64'"], ["is not in the space of kernel"]),
        (["select.fixed.tile.block=null"], ["is not in the space of kernel"]),
        (["select.fixed.tile.block=[64]"], ["is not in the space of kernel"]),
        (["select.fixed.tile.block=true"], ["is not in the space of kernel"]),
        (["select.fixed.vectorize.streaming=1"], ["is not in the space of kernel", "False, True"]),
        (["select.fixed.tiles.block=64"], ["select.fixed", "'tiles'", "Did you mean 'tile'?"]),
        (["select.fixed.tile.blok=64"], ["select.fixed.tile: unknown tunable 'blok'", "'block'?"]),
        (["select.fixed.tile.frist.block=64"], ["unknown step 'frist'", "'first'?"]),
        (["select.fixed.tile.first.blok=64"], ["select.fixed.tile.first: unknown tunable 'blok'"]),
        (["select.fixed.tile=64"], ["select.fixed: expected tile.TUNABLE=VALUE"]),
        (
            ["select.fixed.vectorize={lanes: 1, streaming: true}"],
            ["kernel 'scale' requires not streaming or lanes > 1", "lanes=1, streaming=True"],
        ),
        (
            ["select.fixed.vectorize.lanes=4", "workload.dtype=float64"],
            ["requires lanes <= lanes_max", "lanes=4, lanes_max=2"],
        ),
        (["select.providers=[fixd,model]"], ["unknown provider 'fixd'", "Did you mean 'fixed'?"]),
        (["select.providers=[fixed]"], ["no provider chose block, lanes", "Add 'model'"]),
        (["select.file=/no/such file"], ["select.file: '/no/such file' cannot be read"]),
        (["workload.kernels.scale.constraints=['lanes > 9']"], ["requires lanes > 9"]),
        (
            ["workload.kernels.scale.constraints=['block > 0', 'lanes > 2', 'lanes < 3']"],
            ["no point that satisfies lanes > 2 and lanes < 3", "Here lanes=4 or 2 or 1."],
        ),
        (["workload.kernels.scale.constraints=['lanes > zz']"], ["unknown name 'zz'"]),
        (["workload.kernels.scale.model=1 / 0"], ["workload.kernels.scale.model", "division"]),
        (["workload.kernels.scale.model='\"cheap\"'"], ["scale.model", "does not give a number"]),
        (["workload.kernels.scale.model=lnaes"], ["unknown name 'lnaes'", "Did you mean 'lanes'"]),
    ],
)
def test_what_lies_outside_the_space_is_named(
    toy: Workbench, words: list[str], said: list[str]
) -> None:
    message = toy.refusal("workload=toy", *words)
    for part in said:
        assert part in message


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"block": 63}, "tile.block=63 is not in the space of kernel 'scale'"),
        ({"block": "large"}, "tile.block=large is not in the space of kernel 'scale'"),
        ({"blok": 64}, "it chose 'blok', which is no tunable of kernel 'scale' | Did you mean"),
        ({"lanes": 1, "streaming": True}, "requires not streaming or lanes > 1"),
        ([64, 1], "it gave [64, 1] for step 'first', not a mapping of tunables to values"),
        (None, "it gave None for step 'first', not a mapping of tunables to values"),
        (ZeroDivisionError("today"), "it failed for step 'first': ZeroDivisionError: today"),
    ],
)
def test_a_function_of_another_package_is_checked_and_named(
    toy: Workbench, monkeypatch: pytest.MonkeyPatch, answer: Any, said: str
) -> None:
    def choose(request: Request) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setitem(PARAMETERS._known, "mine", choose)
    asked = ("select.providers=[python,model]", "select.python=mine")
    message = toy.refusal("workload=toy", *asked)
    for part in said.split(" | "):
        assert part in message
    if "requires" not in said:
        assert "select.python=mine" in message


def test_a_function_of_another_package_may_choose_some_values(
    toy: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PARAMETERS._known, "mine", lambda request: {"lanes": 2})
    plan = toy.plan("workload=toy", "select.providers=[python,model]", "select.python=mine")
    assert plan.point("first")["lanes"] == 2
    assert plan.outputs["choice"]["provider"] == "python+model"


def test_a_parameter_file_of_another_workload_says_whose_it_is(
    toy: Workbench, tmp_path: Path
) -> None:
    made_for = {"workload": "blur", "steps": {"rows": {"kernel": "blur1d"}}}
    file = tmp_path / "other.yaml"
    file.write_text(yaml.safe_dump({"for": made_for, "tile": {"rows": {"block": 64}}}))
    message = toy.refusal("workload=toy", f"select.file={file}")
    assert "for step 'rows' (kernel 'blur1d') of workload 'blur', and this workload" in message


def test_a_number_may_be_written_as_another_kind_of_number(toy: Workbench) -> None:
    chosen = toy.plan("workload=toy", "select.fixed.tile.block=64.0").point("first")["block"]
    assert chosen == 64
    assert isinstance(chosen, int)


def test_values_of_several_kinds_keep_their_kind(project: Project) -> None:
    bench = project()
    words = [
        "workload=toy",
        "+workload.kernels.scale.tunables.unroll.by={values: [1, 0.5], off: 1}",
    ]
    chosen = bench.plan(*words, "workload.kernels.scale.model=by").point("first")["by"]
    assert chosen == 0.5
    chosen = bench.plan(*words, "workload.kernels.scale.model=0 - by").point("first")["by"]
    assert isinstance(chosen, int)
    words[1] = "+workload.kernels.scale.tunables.unroll.by={values: [7, full], off: 7}"
    cost = "workload.kernels.scale.model='0 if by == \"full\" else 1'"
    assert bench.plan(*words, cost).point("first")["by"] == "full"
    cost = "workload.kernels.scale.model='1 if by == \"full\" else 0'"
    assert bench.plan(*words, cost).point("first")["by"] == 7


def test_a_cost_that_is_nowhere_finite_still_chooses_an_allowed_point(toy: Workbench) -> None:
    for cost in ("1 / (block - block)", "block % (block - block)"):
        plan = toy.plan(
            "workload=toy",
            f"workload.kernels.scale.model='{cost}'",
            "workload.kernels.scale.constraints=['lanes == 2', 'streaming']",
        )
        assert plan.point("first") == {"block": 64, "lanes": 2, "streaming": True}


def _cases(name: str) -> list[str]:
    return ["default", *GROUPS.read("workload", name).get("cases", {})]


@pytest.mark.parametrize("workload", OF_STEPS)
def test_the_model_answers_for_everything_that_ships(shipped: Workbench, workload: str) -> None:
    words = [
        f"workload={workload}",
        f"arch={','.join(ARCHES)}",
        f"case={','.join(_cases(workload))}",
        "workload.dtype=float32,float64",
    ]
    points = list(points_of(shipped.assembly.composer, words, multirun=True))
    assert len(points) == 2 * len(ARCHES) * len(_cases(workload))
    for point in points:
        experiment = validated(point.data)
        context = Context(experiment, {})
        steps = Inspect("shapes", None).run(context, {"workload": experiment.workload})["steps"]
        for record in steps:
            answer = model(Request(record, experiment.arch, SelectOptions(), {}))
            known = variables_of(record, experiment.arch)
            check_point(record.kernel, answer, known, key="select")


@pytest.mark.parametrize("workload", OF_STEPS)
def test_the_model_respects_every_pin_that_ships(shipped: Workbench, workload: str) -> None:
    plan = shipped.plan(f"workload={workload}", "arch=x86_64_v4")
    # As long as vectors get, so that every number of lanes is possible.
    arch = replace(plan.experiment.arch, vector_bytes=256)
    for record in plan.outputs["shapes"]["steps"]:
        for name, (_, values) in tunables_of(record.kernel).items():
            for value in values:
                pins = {name: value}
                if name == "into_producer" and value and not record.fusable:
                    continue
                answer = model(Request(record, arch, SelectOptions(), pins))
                assert answer[name] == value
                check_point(record.kernel, answer, variables_of(record, arch), key="select")


def test_pairs_of_pins_are_answered_or_refused_by_a_constraint(toy: Workbench) -> None:
    values = {"tile.block": (64, 16), "vectorize.lanes": (4, 1), "vectorize.streaming": (True,)}
    for first, second in itertools.combinations(values, 2):
        for a, b in itertools.product(values[first], values[second]):
            words = [f"select.fixed.{first}={a}", f"select.fixed.{second}={b}"]
            if (first, a) == ("vectorize.lanes", 1) and second == "vectorize.streaming":
                assert "requires not streaming or lanes > 1" in toy.refusal("workload=toy", *words)
            else:
                point = toy.plan("workload=toy", *words).point("first")
                assert point[first.split(".")[1]] == a
                assert point[second.split(".")[1]] == b
