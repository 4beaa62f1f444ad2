"""A transform from another package: its parameters by ref, its decisions in the source."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from workbench import TOY, Workbench

Project = Callable[..., Workbench]

PACKAGE = '''
"""A transform that only its users know."""

from dataclasses import dataclass

from kernloom.plan.transforms import Transform, TransformOptions


@dataclass(frozen=True)
class FoobarOptions(TransformOptions):
    louder: int = 0


class Foobar(Transform):
    transform = "foobar"
    Options = FoobarOptions

    def apply(self, schedule, context):
        return tuple(
            record.decided("foobar", {"level": level + self.options.louder}) if level else record
            for record in schedule
            for level in [record.decisions.get("foobar", {}).get("level")]
        )
'''
KERNEL = TOY["configs/kernel/scale.yaml"].replace(
    "tunables:\n", "tunables:\n  foobar:\n    level: {values: [1, 2], off: 0}\n"
)
TEMPLATE = TOY["templates/kernels/scale.c.j2"] + "/* foobar at level {{ foobar.level }} */\n"
STAGE = (
    "pipeline.stages.foo={use: foobar, in: {schedule: {ref: threads.schedule}, "
    "params: {ref: choice.params.foobar}}}"
)
WORDS = ("workload=toy", STAGE, "pipeline.stages.source.in.schedule.ref=foo.schedule")


@pytest.fixture
def bench(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    """A project whose kernel knows foobar, and a distribution that brings it."""
    site = tmp_path / "site"
    (site / "foobar_pkg").mkdir(parents=True)
    (site / "foobar_pkg" / "__init__.py").write_text(PACKAGE)
    info = site / "foobar-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: foobar\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kernloom.stages]\nfoobar = foobar_pkg:Foobar\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "foobar_pkg", raising=False)
    return project({"configs/kernel/scale.yaml": KERNEL, "templates/kernels/scale.c.j2": TEMPLATE})


def test_it_gets_its_parameters_by_ref_and_shows_in_the_source(bench: Workbench) -> None:
    plan = bench.plan(*WORDS)
    assert plan.params["foobar"] == {"first": {"level": 1}, "second": {"level": 1}}
    assert "/* foobar at level 1 */" in plan.text
    assert " * foobar: level=1" in plan.text
    plan = bench.plan(*WORDS, "select.fixed.foobar.second.level=2")
    assert "foobar at level 1" in plan.text
    assert "foobar at level 2" in plan.text


def test_its_options_are_checked_like_any_other(bench: Workbench) -> None:
    assert "foobar at level 11" in bench.plan(*WORDS, "pipeline.stages.foo.louder=10").text
    message = bench.refusal(*WORDS, "pipeline.stages.foo.luoder=10")
    assert "pipeline.stages.foo: unknown key 'luoder'" in message
    assert "Did you mean 'louder'?" in message


def test_without_its_stage_it_is_off(bench: Workbench) -> None:
    assert "foobar at level 0" in bench.plan("workload=toy").text


def test_without_its_package_the_stage_is_unknown(project: Project) -> None:
    message = project().refusal(*WORDS)
    assert "pipeline.stages.foo.use: unknown stage 'foobar'" in message


def test_its_params_exist_even_where_no_kernel_has_any(bench: Workbench) -> None:
    assert bench.plan(*WORDS[1:], "workload=sum").params["foobar"] == {}
