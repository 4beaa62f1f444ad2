"""Which trials ran the newest source of their kernels."""

from __future__ import annotations

from typing import Any

from kernloom.measure.trial import Trial
from kernloom.report.source_versions import NEWEST, SourceVersions
from kernloom.store.lookups import SourceUse

MATMUL = "matmul:host"
CONFIG = {
    "workload": {
        "steps": {"multiply": {"kernel": "matmul"}},
        "kernels": {"matmul": {"name": "matmul", "sources": {"plain": {}, "host": {}}}},
    },
    "target": {"sources": ["host"]},
}


BUILT = ({"name": "matmul.multiply", "key": "k1", "cached": False},)


def trial(id: str, created: str = "2026-01-05", **changes: Any) -> Trial:
    return Trial(id, "matmul", "default", "host", "ok", True, created=created, **changes)


def use(document: str, last: str, first: str = "", **files: dict[str, str]) -> SourceUse:
    named = {name.replace("_", ":"): found for name, found in files.items()}
    return SourceUse(document, named, first or last, last)


def ages(uses: list[SourceUse], *trials: Trial, of: dict[str, str] | None = None) -> list[int]:
    versions = SourceVersions(uses, of or {trial.id: trial.id for trial in trials})
    return [versions.age(trial) for trial in trials]


def test_the_source_that_was_used_last_is_the_newest() -> None:
    uses = [
        use("a", "2026-01-03", matmul_host={"m.j2": "1"}),
        use("b", "2026-01-02", matmul_host={"m.j2": "2"}),
        use("c", "2026-01-01", matmul_host={"m.j2": "3"}),
    ]
    assert ages(uses, trial("a"), trial("b"), trial("c")) == [0, 1, 2]
    back = [*uses[:2], use("c", "2026-01-04", matmul_host={"m.j2": "3"})]
    assert ages(back, trial("a"), trial("b"), trial("c")) == [1, 2, 0]


def test_files_that_only_some_points_include_make_no_other_version() -> None:
    uses = [
        use("a", "2026-01-03", matmul_host={"m.j2": "1", "pack.j2": "7"}),
        use("b", "2026-01-02", matmul_host={"m.j2": "1"}),
        use("c", "2026-01-01", matmul_host={"m.j2": "1", "pack.j2": "6"}),
    ]
    assert ages(uses, trial("a"), trial("b"), trial("c")) == [0, 0, 1]


def test_a_kernel_that_changed_in_one_workload_is_older_in_the_others() -> None:
    uses = [
        use("mlp", "2026-01-03", matmul_host={"m.j2": "2"}, gelu_host={"g.j2": "1"}),
        use("alone", "2026-01-02", matmul_host={"m.j2": "1"}),
        use("gelu", "2026-01-01", gelu_host={"g.j2": "1"}),
    ]
    assert ages(uses, trial("mlp"), trial("alone"), trial("gelu")) == [0, 1, 0]


def test_sources_of_different_families_do_not_compete() -> None:
    uses = [
        use("a", "2026-01-03", matmul_host={"m.j2": "1"}),
        use("b", "2026-01-02", matmul_opencl={"m.cl.j2": "9"}),
    ]
    assert ages(uses, trial("a"), trial("b")) == [0, 0]


def test_a_trial_of_unknown_source_counts_if_it_is_not_older_than_the_newest() -> None:
    uses = [use("a", "2026-01-09", first="2026-01-05", matmul_host={"m.j2": "1"})]
    old = trial("old", "2026-01-04", config=CONFIG, artifacts=BUILT)
    new = trial("new", "2026-01-06", config=CONFIG, artifacts=BUILT)
    unrelated = trial("unrelated", "2026-01-01", artifacts=BUILT)
    assert ages(uses, old, new, unrelated, of={}) == [1, 0, 0]


def test_a_trial_that_never_had_a_source_is_not_older() -> None:
    uses = [use("a", "2026-01-09", first="2026-01-05", matmul_host={"m.j2": "1"})]
    unavailable = trial("unavailable", "2026-01-04", config=CONFIG)
    assert ages(uses, unavailable, of={}) == [0]


def test_a_store_in_which_no_source_was_noted_leaves_nothing_out() -> None:
    versions = SourceVersions([], {})
    (labelled,) = versions.labelled([trial("a", config=CONFIG)])
    assert labelled.source == NEWEST
