"""Steps as tasks: every shipped kernel gives its golden, each task touches what it declares, and
together they write each element once."""

from __future__ import annotations

from pathlib import Path

import pytest
from task_harness import assembly_in, executed, planned, recorded, written_once

from kernloom.base.places import share_folder
from kernloom.measure.data import DataSets
from kernloom.measure.verify import compare
from kernloom.plan.inspect import tensors_of
from kernloom.plan.planned import Planned
from kernloom.run.assembly import Assembly

STEPS = {
    "axpy": "select.fixed.tile.block=1024",
    "conv2d": "select.fixed.tile={filters: 4, height: 2}",
    "gelu": "select.fixed.tile.block=1024",
    "layernorm": "select.fixed.tile.height=2",
    "matmul": "select.fixed.tile={m: 16, n: 16, k: 16}",
    "softmax": "select.fixed.tile.height=2",
    "stencil5": "select.fixed.tile={height: 8, width: 64}",
    "transpose": "select.fixed.tile={height: 16, width: 16}",
}
"""Workload -> small tiles, so that there are many tasks."""


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return assembly_in(tmp_path_factory.mktemp("tasks"))


def check_golden(plan: Planned, built: Path) -> int:
    """The number of tasks of a plan whose results are right."""
    tasks = recorded(plan, built)
    found = executed(tasks)
    workload = plan.experiment.workload
    for name, golden in DataSets([share_folder()]).goldens(workload, 0).items():
        compare(name, found[name], golden, workload)
    return len(tasks.tasks)


@pytest.mark.parametrize("case", ["small", "ragged"])
@pytest.mark.parametrize("name", sorted(STEPS))
def test_the_tasks_of_a_kernel_give_its_golden(
    name: str, case: str, assembly: Assembly, built: Path
) -> None:
    for group, spmd in ((1, False), (4, False), (4, True)):
        words = ["target=a5", f"workload={name}", f"case={case}", STEPS[name]]
        chosen = f"select.fixed.distribute={{group: {group}, spmd: {str(spmd).lower()}}}"
        plan = planned(assembly, *words, chosen)
        submitted = check_golden(plan, built)
        reports = plan.outputs["distributing"]["distributed"].values()
        assert submitted == sum(1 if spmd else report["tasks"] for report in reports)
        if case == "ragged" and group == 1:
            assert submitted > 1


@pytest.mark.parametrize("splits", [2, 4])
@pytest.mark.parametrize("buffers", [1, 2])
def test_a_split_product_gives_its_golden(
    splits: int, buffers: int, assembly: Assembly, built: Path
) -> None:
    tile = f"select.fixed.tile={{m: 32, n: 16, k: 16, buffers: {buffers}}}"
    chosen = f"select.fixed.distribute={{splits: {splits}, group: 2}}"
    sizes = "workload.sizes={M: 61, N: 67, K: 107}"
    plan = planned(assembly, "target=a5", tile, chosen, sizes)
    report = plan.outputs["distributing"]["distributed"]["multiply"]
    assert report["splits"] == {"depth": splits}
    assert check_golden(plan, built) == report["tasks"]


@pytest.mark.parametrize("splits", [2, 16])
@pytest.mark.parametrize("n", [16 * 1024, 20_011])
def test_a_split_sum_gives_its_golden(splits: int, n: int, assembly: Assembly, built: Path) -> None:
    chosen = [f"select.fixed.distribute.splits={splits}", "select.fixed.tile.block=1024"]
    plan = planned(assembly, "target=a5", "workload=sum", f"workload.sizes.N={n}", *chosen)
    assert check_golden(plan, built) == splits + 1


def test_mlp_with_and_without_epilogues(assembly: Assembly, built: Path) -> None:
    words = ["workload=mlp", "case=ragged", "select.fixed.tile={m: 16, n: 16, k: 16, width: 64}"]
    words.append("select.fixed.distribute.spmd=false")
    fused = planned(assembly, "target=a5", *words)
    assert [item.step.name for item in fused.steps] == ["fc1", "fc2", "fc3"]
    check_golden(fused, built)
    alone = planned(assembly, "target=mppa", *words, "select.fixed.fuse.into_producer=false")
    assert len(alone.steps) == 6
    check_golden(alone, built)


def test_tasks_write_each_element_once(assembly: Assembly, built: Path) -> None:
    words = ["workload.sizes={M: 70, N: 90, K: 20}", "select.fixed.tile={m: 16, n: 16, k: 16}"]
    for group in (1, 2, 16):
        chosen = f"select.fixed.distribute={{group: {group}, spmd: false}}"
        plan = planned(assembly, "target=a5", *words, chosen)
        tasks = recorded(plan, built)
        assert plan.orchestration
        place = plan.orchestration.launch.tensors.index("C")
        assert written_once(tasks.tasks, place, tensors_of(plan.experiment.workload)["C"].nbytes)


def test_the_source_does_not_depend_on_sizes(assembly: Assembly) -> None:
    fixed = (
        "select.fixed={tile: {m: 16, n: 16, k: 16, buffers: 1}, distribute: {group: 1, splits: 1}}"
    )
    keys = set()
    for sizes in ("{M: 64, N: 64, K: 64}", "{M: 7, N: 200, K: 13}"):
        plan = planned(assembly, "target=a5", f"workload.sizes={sizes}", fixed)
        assert plan.orchestration
        keys.add(plan.orchestration.artifact.key)
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("name", "cases"),
    [
        ("batched_gemm", ["small", "chains"]),
        ("paged_attention", ["small", "default", "manual", "spmd"]),
        ("reduction_tree", ["small", "ragged"]),
        ("softmax_pipeline", ["small", "ragged"]),
    ],
)
def test_the_tasks_of_a_workload_give_its_golden(
    name: str, cases: list[str], assembly: Assembly, built: Path
) -> None:
    for case in cases:
        for target in ("a5", "mppa"):
            check_golden(
                planned(assembly, f"target={target}", f"workload={name}", f"case={case}"), built
            )
