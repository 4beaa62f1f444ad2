"""The cost model of tasks on all PEs: rounds, submissions, and bandwidth that tasks share."""

from __future__ import annotations

import pytest
from workbench import Workbench

from kernloom.base.expressions import evaluate
from kernloom.plan.space import variables_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # 10 tasks of 50 + 5 ns on 4 PEs: three rounds; the last 4 completions; 7 ns of submitting.
        ("distributed(500, 10, 4, 5, 1, 7)", 3 * 55 + 4 + 7),
        # The scheduler takes longer to handle the tasks of a round than the PEs to execute them.
        ("distributed(0, 8, 4, 1, 10, 0)", 2 * 40 + 40),
        # A tensor of four stripes in four memories, one of a single stripe, and both.
        ("spread(100, 4, 10, 40, 40, 40)", 400),
        ("spread(100, 4, 10, 40, 10, 10)", 100),
        ("spread(100, 4, 10, 40, 40, 40, 40, 10, 10)", 160),
        # Tiles of half a stripe use half of the channels.
        ("spread(100, 4, 10, 40, 40, 5)", 200),
        # A PE alone; two on the link of their cube; many on all memories.
        ("shared(96, 1, 8, 400, 2, 128)", 96),
        ("shared(96, 2, 8, 400, 2, 128)", 64),
        ("shared(96, 100, 8, 400, 2, 128)", 50),
    ],
)
def test_functions_of_the_model(text: str, value: float) -> None:
    assert evaluate(text, {}) == value


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    folder = tmp_path_factory.mktemp("costs")
    (folder / "kernloom.yaml").write_text("", encoding="utf-8")
    return Workbench(folder, folder)


def cost(bench: Workbench, *words: str) -> float:
    """What the model expects of a product of 1024 x 1024 x 1024, in ns."""
    size = "workload.sizes={M: 1024, N: 1024, K: 1024}"
    plan = bench.plan("pipeline=core", "target=a5", "arch=a5", size, *words)
    (record,) = plan.outputs["distributing"]["schedule"]
    point = {
        name: value
        for group in plan.params.values()
        for name, value in group.get("multiply", {}).items()
    }
    known = {**variables_of(record, plan.experiment.arch), **point}
    return float(evaluate(record.kernel.model, known))


def test_tasks_share_the_bandwidth_of_all_memories(bench: Workbench) -> None:
    tile = "select.fixed={tile: {m: 64, n: 64, k: 64}, distribute: {group: 1, spmd: true}}"
    wide = ("arch.hbm.bandwidth=16", tile)
    few = cost(bench, *wide, "arch.topology={cubes: 16, pes: {matrix: 1, vector: 2}}")
    many = cost(bench, *wide, "arch.topology={cubes: 4, pes: {matrix: 4, vector: 2}}")
    assert many > 3 * few  # as many PEs, a quarter of the memories


def test_copies_overlap_with_computing_only_within_a_task(bench: Workbench) -> None:
    fixed = "select.fixed={{tile: {{m: 64, n: 64, k: {}, buffers: {}}}, distribute: {{group: 1}}}}"
    whole = ("workload.sizes.K=256", "arch.hbm.bandwidth=1024", "arch.dma.bandwidth=16")
    single, double = (cost(bench, fixed.format(256, n), *whole) for n in (1, 2))
    assert single == double
    single, double = (cost(bench, fixed.format(32, n), *whole) for n in (1, 2))
    assert single > double
