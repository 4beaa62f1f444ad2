"""Transforms: what each decides shows in the source, and each can be left out."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from workbench import Plan, Workbench, write

from kernloom.base.errors import ConfigError, PipelineError
from kernloom.base.places import share_folder
from kernloom.config.groups import Groups
from kernloom.pipeline.stage import Context
from kernloom.plan.render import Renderer
from kernloom.plan.schedule import StepRecord
from kernloom.plan.select import Request, SelectOptions, model
from kernloom.plan.space import check_point, tunables_of, variables_of
from kernloom.plan.transforms import Fuse, TransformOptions

GROUPS = Groups([share_folder() / "configs"])
OF_STEPS = [w for w in GROUPS.options("workload") if "steps" in GROUPS.read("workload", w)]
"""Workloads that every device can compute."""
CHAIN = [
    "shapes",
    "fusing",
    "blocking",
    "packing",
    "unrolling",
    "vectors",
    "catching",
    "threads",
    "source",
]
"""The stages that hand the schedule on, in the pipeline that ships."""


def without(stage: str) -> list[str]:
    """The overrides that take a stage out of the chain."""
    i = CHAIN.index(stage)
    return [
        f"~pipeline.stages.{stage}",
        f"pipeline.stages.{CHAIN[i + 1]}.in.schedule.ref={CHAIN[i - 1]}.schedule",
    ]


def body(renderer: Renderer, record: StepRecord, plan: Plan, point: dict[str, Any]) -> str:
    """The rendered code of a point, without the comment that lists its decisions."""
    for name, (transform, _) in tunables_of(record.kernel).items():
        record = record.decided(transform, {name: point[name]})
    source = renderer.source("x", record, plan.experiment.arch, plan.experiment.target)
    return source.files[source.main].split(" */\n", 1)[1]


def variations(record: StepRecord, plan: Plan, name: str) -> Iterator[list[dict[str, Any]]]:
    """Allowed points that differ in one tunable alone."""
    arch = plan.experiment.arch
    tunables = tunables_of(record.kernel)
    known = variables_of(record, arch)
    for pinned in [
        {},
        *({other: value} for other, (_, values) in tunables.items() for value in values),
    ]:
        if name in pinned:
            continue
        try:
            base = model(Request(record, arch, SelectOptions(), pinned))
        except ConfigError:
            continue
        points = []
        for value in tunables[name][1]:
            point = {**base, name: value}
            try:
                check_point(record.kernel, point, known, key="")
            except ConfigError:
                continue
            points.append(point)
        if len(points) > 1:
            yield points


@pytest.mark.parametrize("workload", OF_STEPS)
def test_every_tunable_that_ships_changes_the_source(shipped: Workbench, workload: str) -> None:
    plan = shipped.plan(f"workload={workload}", "arch=x86_64_v4")
    renderer = shipped.assembly.planning_services[Renderer]
    for record in plan.outputs["shapes"]["steps"]:
        for name, (transform, _) in tunables_of(record.kernel).items():
            if transform == "fuse":
                continue  # changes the source of the step before
            assert any(
                body(renderer, record, plan, a) != body(renderer, record, plan, b)
                for points in variations(record, plan, name)
                for a, b in itertools.pairwise(points)
            ), f"{record.kernel.name}: {transform}.{name}"


@pytest.mark.parametrize("stage", CHAIN[1:-1])
@pytest.mark.parametrize("workload", ["matmul", "mlp", "softmax"])
def test_without_a_stage_its_tunables_are_off(
    shipped: Workbench, workload: str, stage: str
) -> None:
    plan = shipped.plan(f"workload={workload}", *without(stage))
    transform = plan.experiment.pipeline.stages  # what is left
    assert stage not in transform
    kept = shipped.plan(f"workload={workload}")
    name = kept.experiment.pipeline.stages[stage]["use"]
    for item in plan.outputs["source"]["sources"]:
        off = {n: t.off for n, t in item.step.kernel.tunables.get(name, {}).items()}
        assert item.step.decisions.get(name, {}) == off
        text = item.source.files[item.source.main]
        checked = subprocess.run(
            ["gcc", "-std=gnu11", "-fsyntax-only", "-march=x86-64-v2", "-x", "c", "-"],
            input=text,
            text=True,
            capture_output=True,
        )
        assert checked.returncode == 0, checked.stderr


def test_a_stage_may_take_some_steps_only(toy: Workbench) -> None:
    plan = toy.plan(
        "workload=toy", "pipeline.stages.blocking.steps=[second]", "select.fixed.tile.block=64"
    )
    assert [record.decisions["tile"]["block"] for record in plan.schedule] == [0, 64]
    assert "unknown step 'thrid'" in toy.refusal(
        "workload=toy", "pipeline.stages.blocking.steps=[thrid]"
    )


def test_a_stage_takes_the_params_it_refers_to(toy: Workbench) -> None:
    """The answer to: which stage gets the parameters?"""
    plan = toy.plan(
        "workload=toy",
        "pipeline.stages.again={use: tile, in: {schedule: {ref: blocking.schedule}, "
        "params: {first: {block: 32}}}}",
        "pipeline.stages.packing.in.schedule.ref=again.schedule",
        "select.fixed.tile.block=64",
    )
    assert [record.decisions["tile"]["block"] for record in plan.schedule] == [32, 64]
    assert "4 lanes in blocks of 32" in plan.text


def test_fusing_drops_a_step_and_binds_its_output(shipped: Workbench) -> None:
    plan = shipped.plan("workload=mlp", "select.fixed.fuse.into_producer=true")
    apart = shipped.plan("workload=mlp", "select.fixed.fuse.into_producer=false")
    assert [record.name for record in plan.schedule] == ["fc1", "fc2", "fc3"]
    assert len(apart.schedule) == 6
    first = plan.schedule[0]
    bound = {argument.name: argument.binding for argument in first.arguments}
    assert bound["C"] == "z1"
    assert "h1" not in bound.values()
    assert first.epilogue is not None
    assert first.epilogue.kernel == "bias_relu"
    assert [bound[name] for name in first.epilogue.arguments] == ["b1"]
    assert " * epilogue: bias_relu" in plan.text


def test_one_step_may_be_fused_alone(shipped: Workbench) -> None:
    plan = shipped.plan(
        "workload=mlp",
        "select.fixed.fuse.into_producer=false",
        "select.fixed.fuse.act2.into_producer=true",
    )
    assert [record.name for record in plan.schedule] == ["fc1", "act1", "fc2", "fc3", "act3"]


def test_a_tensor_that_is_seen_elsewhere_is_not_fused_away(shipped: Workbench) -> None:
    words = ["workload=mlp", "++workload.golden.h1='x @ w1'"]
    assert "act1" in [record.name for record in shipped.plan(*words).schedule]
    message = shipped.refusal(*words, "select.fixed.fuse.act1.into_producer=true")
    assert "requires not into_producer or fusable" in message
    assert "Step 'act1' is not fusable: it must read a tensor that step 'fc1' writes" in message


PAIR: Mapping[str, str] = {
    "configs/kernel/first.yaml": """
name: first
arguments:
  n: {kind: size}
  x: {kind: tensor, shape: [n]}
  y: {kind: tensor, access: write, shape: [n]}
sources: {host: {template: first.c.j2}}
epilogues: [second]
""",
    "configs/kernel/second.yaml": """
name: second
arguments:
  n: {kind: size}
  t: {kind: tensor, shape: [n]}
  y: {kind: tensor, access: write, shape: [n]}
sources: {host: {template: first.c.j2}}
tunables: {fuse: {into_producer: {values: [true, false], "off": false}}}
constraints: [not into_producer or fusable]
model: 0 if into_producer else 1
epilogues: [second]
""",
    "configs/workload/pair.yaml": """
defaults: [{/kernel@kernels.first: first}, {/kernel@kernels.second: second}, _self_]
name: pair
sizes: {n: 64}
scalars: {lo: 0.5}
tensors: {x: {shape: [n]}, y: {shape: [n]}, z: {shape: [n]}, u: {shape: [n]}}
steps: {first: {kernel: first}, second: {kernel: second, args: {t: y, y: z}}}
golden: {z: x}
""",
    "templates/first.c": "void first(long n, const float *x, float *y) {}",
    "templates/first.c.j2": "static void {{ function }}() {}",
}
UPDATED = "workload.kernels.second.arguments.more={kind: tensor, access: update, shape: [n]}"
THIRD = "+workload.steps.third={kernel: second, args: {t: z, y: u}}"


@pytest.fixture
def pair(tmp_path: Path) -> Workbench:
    """A kernel that can take another as its epilogue."""
    write(tmp_path, {"kernloom.yaml": "", **PAIR})
    return Workbench(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("words", "step", "reason"),
    [
        (
            ["+workload.kernels.second.arguments.lo={kind: scalar}"],
            "second",
            "it takes the scalar 'lo'",
        ),
        (
            [f"+{UPDATED}", "+workload.steps.second.args.more=u", "+workload.golden.u=x"],
            "second",
            "an epilogue writes one tensor, and updates none",
        ),
        (
            ["workload.steps.second.args.y=x", "~workload.golden.z", "+workload.golden.x=x"],
            "second",
            "it writes 'x', which step 'first' uses",
        ),
        (
            [
                "+workload.kernels.first.arguments.q={kind: tensor, access: write, shape: [n]}",
                "+workload.kernels.second.arguments.q={kind: tensor, shape: [n]}",
                "+workload.tensors.q={shape: [n]}",
                "+workload.golden.q=x",
            ],
            "second",
            "it reads 'q', which step 'first' writes as well",
        ),
        (
            [
                "~workload.kernels.first.sources.host.template",
                "+workload.kernels.first.sources.host.file=first.c",
                "+workload.kernels.first.sources.host.function=first",
            ],
            "second",
            "kernel 'first' is a plain file",
        ),
        (
            [THIRD, "+workload.golden.u=x", "~workload.golden.z"],
            "third",
            "step 'second' can itself be fused",
        ),
        (["workload.kernels.first.epilogues=[]"], "second", "among its epilogues"),
    ],
)
def test_the_model_never_fuses_what_the_fuse_stage_would_refuse(
    pair: Workbench, words: list[str], step: str, reason: str
) -> None:
    assert [record.name for record in pair.plan("workload=pair").schedule] == ["first"]
    changed = pair.plan("workload=pair", *words)
    assert step in [record.name for record in changed.schedule]
    chosen = f"select.fixed.fuse.{step}.into_producer=true"
    message = pair.refusal("workload=pair", *words, chosen)
    assert f"Step '{step}' is not fusable: " in message
    assert reason in message


def _fuse(plan: Plan, steps: tuple[StepRecord, ...]) -> Any:
    stage = Fuse("fusing", TransformOptions())
    params = {record.name: {"into_producer": True} for record in steps if "act" in record.name}
    return stage.run(Context(plan.experiment, {}), {"schedule": steps, "params": params})


def test_fuse_itself_refuses_what_cannot_be_fused(shipped: Workbench) -> None:
    plan = shipped.plan("workload=mlp")
    steps = plan.outputs["shapes"]["steps"]
    alone = tuple(replace(record, unfusable="it is alone") for record in steps)
    with pytest.raises(
        PipelineError, match="'act1' cannot be fused into the one before it: it is alone"
    ):
        _fuse(plan, alone)
    twice = (steps[0], steps[1], replace(steps[3], name="act_more"))
    with pytest.raises(PipelineError, match="second epilogue"):
        _fuse(plan, twice)
