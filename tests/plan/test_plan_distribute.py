"""The transform `distribute`: how steps become tasks, what may not be said, and what the plan
contains."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from workbench import Plan, Workbench, write

from kernloom.base.errors import ConfigError
from kernloom.plan.cpp import cpp_of
from kernloom.plan.schedule import StepRecord
from kernloom.plan.tiling import Tiling, tiling_of

A5 = ("pipeline=core", "target=a5", "arch=a5")
CORE = "workload.kernels.matmul.sources.core"
MANY = ("select.fixed={tile: {m: 16, n: 16, k: 16}, distribute: {group: 1, spmd: false}}",)
TOY: Mapping[str, str] = {
    "kernloom.yaml": "",
    "configs/kernel/whole.yaml": """
name: whole
arguments:
  n: {kind: size}
  x: {kind: tensor, shape: [n]}
  y: {kind: tensor, access: write, shape: [n]}
sources:
  core: {file: whole.c, function: whole, core: vector}
""",
    "configs/workload/own.yaml": """
defaults: [{/kernel@kernels.whole: whole}, _self_]
name: own
sizes: {n: 64, parts: 4}
scalars: {factor: 2.0}
tensors: {x: {shape: [parts, n]}, y: {shape: [parts, n]}}
orchestration: {file: own.cpp, kernels: {copy: {kernel: whole}}}
golden: {y: factor * x}
""",
    "configs/workload/whole.yaml": """
defaults: [{/kernel@kernels.whole: whole}, _self_]
name: whole
sizes: {n: 64}
tensors: {x: {shape: [n]}, y: {shape: [n]}}
steps: {call: {kernel: whole}}
golden: {y: x}
""",
    "templates/whole.c": """
#include "kernloom/core.h"
void whole(struct kl_core *core, long n, uint64_t x, uint64_t y)
{
    (void)core, (void)n, (void)x, (void)y;
}
""",
    "templates/own.cpp": """
#include "workload.hpp"
extern "C" void kl_orchestrate(struct kl_orchestrator *self)
{
    Launch launch{kernloom::Orchestration(self)};
}
""",
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    folder = tmp_path_factory.mktemp("distributing")
    write(folder, TOY)
    return Workbench(folder, folder)


def reports(plan: Plan) -> dict[str, Any]:
    found: dict[str, Any] = plan.outputs["distributing"]["distributed"]
    return found


def records(plan: Plan) -> dict[str, StepRecord]:
    return {record.name: record for record in plan.outputs["distributing"]["schedule"]}


def test_the_report_says_tasks_and_regions(bench: Workbench) -> None:
    distribute = "{group: 2, spmd: false, splits: 1}"
    tile = f"select.fixed={{tile: {{m: 64, n: 32, k: 64}}, distribute: {distribute}}}"
    plan = bench.plan(*A5, "workload.sizes={M: 256, N: 128, K: 100}", tile)
    assert reports(plan) == {
        "multiply": {
            "tasks": 8,
            "core": "matrix",
            "tiles": {"rows": "4 of 64", "cols": "4 of 32"},
            "tiles of a task": 2,
            "regions": {"A": "rows, all", "B": "all, cols", "C": "rows, cols"},
        }
    }
    together = bench.plan(*A5, tile.replace("spmd: false", "spmd: true"))
    report = reports(together)["multiply"]
    assert (report["tasks"], report["submissions"]) == (16, 1)
    assert report["regions"] == {"A": "all", "B": "all", "C": "all"}
    split = bench.plan(*A5, tile.replace("splits: 1", "splits: 2"))
    report = reports(split)["multiply"]
    assert report["splits"] == {"depth": 2}
    assert report["tasks"] == 3 * report["tasks that add partial results"]
    assert report["regions"]["A"] == "rows, depth"


@pytest.mark.parametrize(
    ("group", "tiles", "of_task"),
    [
        (1, (4, 6), 1),
        (4, (4, 6), 3),  # the largest part of a row that all tasks can have
        (6, (4, 6), 6),
        (12, (4, 6), 12),
        (16, (4, 6), 12),  # whole rows
        (16, (3, 7), 7),
        (5, (1, 7), 1),
        (16, (2, 2), 4),
    ],
)
def test_tasks_are_boxes_of_tiles(
    bench: Workbench, group: int, tiles: tuple[int, int], of_task: int
) -> None:
    down, across = tiles
    sizes = f"workload.sizes={{M: {16 * down}, N: {16 * across}, K: 16}}"
    plan = bench.plan(*A5, sizes, "select.fixed.tile={m: 16, n: 16, k: 16}")
    record = records(plan)["multiply"].decided("distribute", {"group": group})
    tiling = tiling_of(record, plan.experiment.target)
    assert isinstance(tiling, Tiling)
    assert (tiling.tiles, tiling.tiles_of_task) == (down * across, of_task)


def test_distribute_off_calls_the_steps(bench: Workbench) -> None:
    plan = bench.plan(*A5, "workload=mlp", "distribute=off")
    assert plan.outputs["source"]["orchestration"] is None
    assert "kl_orchestrate" not in plan.text
    assert {report["because"] for report in reports(plan).values()} == {"distribute=off"}
    assert {record.decisions["distribute"]["group"] for record in records(plan).values()} == {1}


def test_the_stage_s_own_switch_chooses_the_same_tiles(bench: Workbench) -> None:
    chosen = [
        records(bench.plan(*A5, word))["multiply"].decisions["tile"]
        for word in ("distribute=off", "pipeline.stages.distributing.enabled=off")
    ]
    alone = bench.plan(*A5, "workload=mlp", "pipeline.stages.distributing.steps=[fc1]")
    off = bench.plan(*A5, "workload=mlp", "distribute=off")
    assert chosen[0] == chosen[1]
    assert records(alone)["fc2"].decisions["tile"] == records(off)["fc2"].decisions["tile"]


def test_a_tensor_of_any_shape_is_touched_as_a_whole(bench: Workbench) -> None:
    words = ("+workload.kernels.axpy.arguments.lut={kind: tensor}",)
    plan = bench.plan(*A5, "workload=axpy", *words, "+workload.tensors.lut={shape: [4]}")
    (report,) = reports(plan).values()
    assert report["regions"]["lut"] == "all"


def test_some_steps_may_be_single_tasks(bench: Workbench) -> None:
    plan = bench.plan(*A5, "workload=mlp", "pipeline.stages.distributing.steps=[fc1]")
    assert "because" not in reports(plan)["fc1"]
    assert reports(plan)["fc2"]["because"] == "the step is not among the `steps` of the stage"
    assert reports(plan)["fc2"]["tasks"] == 1


def test_a_plain_file_is_a_single_task(bench: Workbench) -> None:
    report = reports(bench.plan(*A5, "workload=whole"))["call"]
    assert report == {
        "tasks": 1,
        "core": "vector",
        "because": "kernel 'whole' is a plain file, which has no tiles",
        "regions": {"x": "all", "y": "all"},
    }


def test_the_number_of_tiles_of_a_task_is_not_compiled_into_kernels(bench: Workbench) -> None:
    tile = "tile: {m: 16, n: 16, k: 64, buffers: 2}"
    sources = [
        bench.plan(*A5, f"select.fixed={{{tile}, distribute: {{group: {group}}}}}")
        for group in (1, 4)
    ]
    kernels = {plan.outputs["source"]["sources"][0].source.files for plan in sources}
    tasks = {plan.outputs["source"]["orchestration"].source.files for plan in sources}
    assert (len(kernels), len(tasks)) == (1, 2)


def test_more_pes_get_more_tasks(bench: Workbench) -> None:
    """The model weighs rounds against the cost of each task."""

    def tasks(*words: str) -> int:
        large = ("workload.sizes={M: 1024, N: 1024, K: 1024}", *words)
        return int(reports(bench.plan(*A5, *large))["multiply"]["tasks"])

    counts = [tasks(f"arch.topology.cubes={cubes}") for cubes in (1, 4, 36)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]
    dear = ("arch.control.submit_ns=1000000", "select.fixed.distribute.spmd=false")
    assert tasks(*dear) == 1


def chosen(plan: Plan) -> Mapping[str, Any]:
    (params,) = plan.params["distribute"].values()
    return dict(params)


def test_one_submission_serves_where_submitting_costs(bench: Workbench) -> None:
    large = (*A5, "workload.sizes={M: 1024, N: 1024, K: 1024}")
    assert chosen(bench.plan(*large))["spmd"] is True
    free = bench.plan(*large, "arch.control.submit_ns=0")
    assert chosen(free)["spmd"] is False
    both = bench.refusal(*large, "select.fixed.distribute={spmd: true, splits: 2}")
    assert "requires splits == 1 or not spmd" in both


def test_partial_results_and_an_epilogue_exclude_each_other(bench: Workbench) -> None:
    mlp = (*A5, "workload=mlp", "select.fixed.tile={k: 16}")
    split = bench.plan(*mlp, "select.fixed.distribute.fc1.splits=2")
    assert split.params["fuse"]["act1"] == {"into_producer": False}
    assert split.params["fuse"]["act2"] == {"into_producer": True}
    both = bench.refusal(
        *mlp, "select.fixed.distribute.fc1.splits=2", "select.fixed.fuse.act1.into_producer=true"
    )
    assert "requires not into_producer or fusable" in both
    assert "step 'fc1' has partial results (distribute.splits)" in both
    unchosen = bench.plan(*mlp)
    assert {unchosen.params["distribute"][f"fc{i}"]["splits"] for i in (1, 2, 3)} == {1}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([f"{CORE}.distribute.regions.A=[row, all]"], "unknown axis 'row'"),
        ([f"{CORE}.distribute.regions.A=[rows]"], "1 parts, but the tensor has 2 dimensions"),
        ([f"+{CORE}.distribute.regions.D=[rows]"], "has no tensor argument 'D'"),
        ([f"+{CORE}.distribute.regions.M=[rows]"], "has no tensor argument 'M'"),
        ([f"{CORE}.distribute.axes.rows.tile=mm"], "unknown name 'mm'"),
        ([f"{CORE}.distribute.axes.rows.size=m"], "unknown name 'm'"),
        ([f"{CORE}.distribute.regions.A=['rows~', all]"], "'rows~' is no part of a dimension"),
        ([f"{CORE}.distribute.regions.A=['rows~1:2:3', all]"], "is no part of a dimension"),
        ([f"{CORE}.distribute.regions.A=['rows~q', all]"], "unknown name 'q'"),
        ([f"{CORE}.distribute.regions.A=['all~1', all]"], "`all` has no halo"),
        (
            [f"{CORE}.distribute.regions.A=['rows~K - 9999', all]", *MANY],
            "is -9743 here, but it cannot be less than 0",
        ),
        ([f"{CORE}.distribute.regions.C=['rows~1', cols]"], "would be written by several tasks"),
        ([f"{CORE}.distribute.regions.C=[rows, depth]"], "would be written by several tasks"),
        ([f"~{CORE}.distribute.regions.C"], "'C' is written, so it needs a region"),
        (
            [f"~{CORE}.distribute.axes.rows", f"~{CORE}.distribute.axes.cols"],
            "has no axis of output tiles",
        ),
        ([f"{CORE}.distribute.axes={{A: {{size: M, tile: m}}}}"], "is also an argument"),
        ([f"{CORE}.distribute.axes.rows.tile='0 * m'"], "0 is no length of a tile"),
        ([f"~{CORE}.tunables.distribute.group"], "has no tunable 'group'"),
        ([f"{CORE}.tunables.distribute.group.values=[0]"], "0 is no number of tiles"),
        ([f"{CORE}.tunables.distribute.spmd.values=[1]"], "1 is neither true nor false"),
        (
            [f"+{CORE}.tunables.distribute.x.{word}" for word in ("values=[1]", "off=1")],
            "has no parameter 'x'",
        ),
        (
            ["pipeline.stages.tasks.in.source.ref=workload.name"],
            "is of type config; expected orchestration_source",
        ),
        (
            ["pipeline.stages.tasks.in.source.ref=source.orchestration.launch"],
            "there is nothing inside",
        ),
        (["distribute=maybe"], "distribute: 'maybe' is not allowed"),
        (["pipeline.stages.distributing.placement=here"], "placement: 'here' is not allowed"),
        (["pipeline.stages.distributing.steps=[x]"], "unknown step 'x'"),
        (["select.fixed.distribute.group=3"], "not in the space of kernel 'matmul'"),
        (["select.fixed={tile: {k: 256}, distribute: {splits: 8}}"], "splits <= ceil_div(K, k)"),
        (["distribute=off", "select.fixed.distribute.splits=2"], "Allowed: 1."),
    ],
)
def test_bad_declarations_are_refused(bench: Workbench, words: list[str], said: str) -> None:
    assert said in bench.refusal(*A5, *words)


def test_the_launch_of_an_own_orchestration_has_the_names_of_the_config(bench: Workbench) -> None:
    plan = bench.plan(*A5, "workload=own")
    found = plan.outputs["source"]["orchestration"]
    assert found.launch.tensors == ("x", "y")
    assert [one.value for one in found.launch.values] == [64, 4, 2.0]
    assert found.launch.kernels == ("copy",)
    header = found.source.files["workload.hpp"]
    assert "kernloom::Tensor x;" in header
    assert "x(kl_tasks.tensor<float>(0, {parts, n}))" in header
    assert reports(plan) == {"copy": {"because": "submitted by own.cpp"}}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["target=host"], "submits tasks by its own orchestration, own.cpp, and target 'host'"),
        (["+workload.steps={call: {kernel: whole}}"], "either steps or an orchestration"),
        (["~workload.orchestration.kernels.copy"], "names no kernel"),
        (["workload.orchestration.kernels.copy.kernel=hole"], "Did you mean 'whole'?"),
        (["+workload.orchestration.kernels.copy.sizes={m: 1}"], "has no size 'm'"),
        (["+workload.orchestration.access={z: read}"], "unknown tensor 'z'"),
        (["+workload.orchestration.access={x: write}"], "'x' has no golden"),
        (["workload.orchestration.kernels={n: {kernel: whole}}"], "'n' is the name of a size"),
        (["workload.orchestration.kernels={Element: {kernel: whole}}"], "'Element' is the name of"),
        (["+workload.sizes.kl_n=3"], "'kl_n' begins like a name of Kernloom's own"),
        (["workload.orchestration.file=../own.cpp"], "leaves"),
        (["workload.orchestration.file=none.cpp"], "does not exist"),
        (["workload.orchestration.file=whole.c"], "does not define kl_orchestrate()"),
        (["~workload.sizes.n", "workload.tensors.x.shape=[4]"], "unknown name 'n'"),
    ],
)
def test_bad_orchestrations_are_refused(bench: Workbench, words: list[str], said: str) -> None:
    place = () if words == ["target=host"] else A5
    assert said in bench.refusal(*place, "workload=own", *words)


def test_members_of_the_launch_have_their_names(bench: Workbench) -> None:
    kernels = "workload.orchestration.kernels={sum: {kernel: whole}}"
    plan = bench.plan(*A5, "workload=own", kernels, "+workload.sizes.tasks=3")
    header = plan.outputs["source"]["orchestration"].source.files["workload.hpp"]
    assert "uint32_t sum;" in header and "uint64_t tasks;" in header


def test_a_difference_that_may_be_negative_is_computed_here() -> None:
    names = {"n": "n", "m": "m"}
    assert cpp_of("n - 1", names) == "(n - 1u)"
    for text in ("max(n - 2, 0)", "(n - m) // 2", "(n - m) % 2", "ceil_div(n - 3, 2)"):
        assert cpp_of(text, names) is None


def test_a_name_of_a_cpp_keyword_is_no_problem(tmp_path: Path) -> None:
    kernel = TOY["configs/kernel/whole.yaml"].replace(" n:", " new:").replace("[n]", "[new]")
    write(tmp_path, {**TOY, "configs/kernel/whole.yaml": kernel})
    bench = Workbench(tmp_path, tmp_path)
    plan = bench.plan(*A5, "workload=whole", "workload.steps.call.args={new: n}")
    assert "const uint64_t new_ = tasks.value<uint64_t>(0);" in plan.text


def test_an_orchestration_is_not_left_out_silently(bench: Workbench) -> None:
    from kernloom.run.planning import plan_each
    from parsed import points_of

    words = ["target=a5", "~pipeline.stages.tasks"]
    points = list(points_of(bench.assembly.composer, words, multirun=False))
    with pytest.raises(ConfigError, match="no stage compiles the orchestration"):
        plan_each(bench.assembly, points, alone=True)
