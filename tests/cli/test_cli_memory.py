"""Memory grows little with the number of points of a sweep, and not at all for exports."""

from __future__ import annotations

import gc
import io
import re
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pytest

from command_line import Project
from kernloom.base import digest, spool
from kernloom.base.places import find_places
from kernloom.base.spool import Spool
from kernloom.build import driver_inputs, headers, stage
from kernloom.measure.trial import Trial
from kernloom.plan import render, texts
from kernloom.report import results, rows
from kernloom.report.documents import stored_document, to_json
from kernloom.report.formats.csv import write_csv
from kernloom.report.questions import Summary
from kernloom.report.results import streamed
from kernloom.report.streaming import write_list
from kernloom.report.tables import print_run
from kernloom.run import planning
from kernloom.run.assembly import Assembly
from kernloom.store import lookups, open_store, shared, statements
from kernloom.store.keys import parse_key
from kernloom.store.store import Store
from parsed import plans_of

FEW, MANY = 200, 600


@pytest.fixture
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a sweep of some hundred points were one of many thousands."""
    monkeypatch.setattr(planning, "MAX_PLANS_IN_MEMORY", 50)
    monkeypatch.setattr(digest, "LIMIT", 50)
    for module in (render, texts):
        monkeypatch.setattr(module, "TEXTS", 50)
    monkeypatch.setattr(stage, "MAX_CACHED", 50)
    monkeypatch.setattr(shared, "MAX_CACHED", 50)
    monkeypatch.setattr(spool, "IN_MEMORY", 64)
    monkeypatch.setattr(spool, "BLOCK", 32)
    monkeypatch.setattr(rows, "BLOCK", 32)
    for module, name in ((headers, "included"), (driver_inputs, "_reached")):
        smaller = lru_cache(maxsize=20)(getattr(module, name).__wrapped__)
        monkeypatch.setattr(module, name, smaller)
    for module in (lookups, results, statements):
        monkeypatch.setattr(module, "CHUNK", 50)


def sizes(number: int) -> tuple[str, ...]:
    return ("workload=axpy", f"workload.sizes.N=range(1024,{1024 + number})")


def traced(work: Callable[[], Any]) -> tuple[int, int]:
    """Bytes that are held while the result of some work is, and the most there were meanwhile."""
    tracemalloc.start()
    try:
        result = work()
        _, peak = tracemalloc.get_traced_memory()
        gc.collect()  # else cycles that nothing refers to count as held, or do not, by chance
        held, _ = tracemalloc.get_traced_memory()
        del result
    finally:
        tracemalloc.stop()
    return held, peak


@pytest.mark.usefixtures("small_caches")
def test_a_point_of_a_large_sweep_keeps_little(shared_project: Project) -> None:
    assembly = Assembly(find_places(shared_project.folder))
    plans_of(assembly, sizes(60), multirun=True)
    few, _ = traced(lambda: plans_of(assembly, sizes(100), multirun=True))
    many, _ = traced(lambda: plans_of(assembly, sizes(300), multirun=True))
    again, _ = traced(lambda: plans_of(assembly, sizes(300), multirun=True))
    # The smaller one: Python's table of names grows at times, by megabytes at once.
    assert (min(many, again) - few) / 200 < 2_000


def tunables(number: int) -> tuple[str, ...]:
    """Words of a sweep in which every point has a source of its own."""
    return (
        *("workload=matmul", "select.fixed.tile.mr=6,4", "select.fixed.tile.nv=2,1"),
        *("select.fixed.pack.b=false,true", "select.fixed.unroll.k=1,4"),
        *("select.fixed.vectorize.lanes=8,4,2,1", "select.fixed.tile.kc=512,256"),
        f"select.fixed.tile.nc={','.join(['512', '256', '1024'][:number])}",
    )


@pytest.mark.usefixtures("small_caches")
def test_a_point_with_a_source_of_its_own_keeps_little_more(shared_project: Project) -> None:
    assembly = Assembly(find_places(shared_project.folder))
    plans_of(assembly, tunables(1), multirun=True)
    few, _ = traced(lambda: plans_of(assembly, tunables(1), multirun=True))
    many, _ = traced(lambda: plans_of(assembly, tunables(3), multirun=True))
    assert (many - few) / 256 < 15_000


@pytest.mark.usefixtures("small_caches")
def test_a_point_that_was_dropped_is_planned_again_just_so(shared_project: Project) -> None:
    assembly = Assembly(find_places(shared_project.folder))
    plans = plans_of(assembly, sizes(120), multirun=True)
    whole = plans_of(Assembly(find_places(shared_project.folder)), sizes(1), multirun=True)[0]
    first = plans[0]
    assert first.kept is not None and "experiment" not in vars(first)
    assert first.named_artifacts[0][1].key == whole.named_artifacts[0][1].key
    assert (first.params, first.provider, first.brief) == (whole.params, "model", whole.brief)
    assert "experiment" not in vars(first), "what is brief needs no planning"
    assert first.experiment == whole.experiment
    assert first.point.data == whole.point.data and first.point.words == whole.point.words
    assert first.steps == whole.steps and first.outputs.keys() == whole.outputs.keys()


@pytest.mark.usefixtures("small_caches")
def test_a_point_that_came_to_be_another_trial_is_not_measured(shared_project: Project) -> None:
    plans = plans_of(Assembly(find_places(shared_project.folder)), sizes(120), multirun=True)
    plans[0].id = "another"
    with pytest.raises(Exception, match="has changed while the sweep was running"):
        _ = plans[0].experiment


def test_a_sweep_of_dropped_points_is_carried_out_as_any_other(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("run", "-m", "workload=axpy", "workload.sizes.N=range(1024,1048)")
    env = {"PYTHONPATH": str(_engine_that_keeps(project.folder, 3))}
    first = project.json(*words, env=env)
    again = project.json(*words, env=env)
    usual = project.json(*words)
    assert first.code == 0, first.stderr
    assert [t["status"] for t in first.trials] == ["ok"] * 24
    assert [t["point"] for t in first.trials] == [t["point"] for t in usual.trials]
    assert [t["id"] for t in first.trials] == [t["id"] for t in usual.trials]
    assert all(t["reused"] for t in [*again.trials, *usual.trials])


@pytest.mark.parametrize("output", ["table", "json", "jsonl", "csv"])
def test_a_run_tells_the_same_of_trials_that_waited_on_disk(project: Project, output: str) -> None:
    """Good ones, some that are the same at several points, and some that are refused."""
    sizes = [*range(1024, 1048), 0, 1024, 1030, -1]
    words = ("run", "-m", "workload=axpy", f"workload.sizes.N={','.join(map(str, sizes))}")
    env = {"PYTHONPATH": str(_engine_that_keeps(project.folder, 3))}
    first = project.run(*words, f"output={output}", env=env)
    assert first.code == 1, first.stderr
    again = project.run(*words, f"output={output}", env=env)
    usual = project.run(*words, f"output={output}")
    # Points that are refused are so each time anew.
    again_untimed, usual_untimed = (re.sub(r"T[\d:.]+", "", one.stdout) for one in (again, usual))
    assert again_untimed == usual_untimed
    lines = {"table": 28, "json": 1, "jsonl": 28, "csv": 29}
    assert len(first.stdout.splitlines()) >= lines[output]


@pytest.mark.slow
def test_points_that_were_dropped_are_screened_as_any_other(project: Project) -> None:
    words = (
        *("run", "-m", "workload=matmul", "case=small", "screen.keep=2"),
        *("select.fixed.tile.mr=6,8,4", "select.fixed.tile.nv=2,1"),
    )
    env = {"PYTHONPATH": str(_engine_that_keeps(project.folder, 2))}
    first = project.json(*words, env=env)
    again = project.json(*words, env=env)
    usual = project.json(*words)
    assert first.code == 0 and len(first.trials) == 2, first.stderr
    assert [t["id"] for t in again.trials] == [t["id"] for t in usual.trials]
    assert all(t["reused"] for t in [*again.trials, *usual.trials])


def _engine_that_keeps(folder: Path, kept: int) -> str:
    """An import path under which the engine keeps fewer points and trials in memory."""
    from command_line import ENGINE

    place = folder / "fewer"
    place.mkdir()
    (place / "sitecustomize.py").write_text(
        f"from kernloom.run import planning\nplanning.MAX_PLANS_IN_MEMORY = {kept}\n"
        f"from kernloom.base import spool\nspool.BLOCK, spool.IN_MEMORY = {kept}, {kept}\n"
    )
    return f"{place}:{ENGINE}"


def stored(path: Path, number: int) -> Path:
    """A store with trials that have configs of the usual length."""
    pipeline = {f"stage{n}": {"use": "x" * 20, "in": {"a": {"ref": "b"}}} for n in range(10)}
    trial = Trial("", "axpy", "default", "host", "ok", True, params={"unroll": {"add": {"v": 4}}})
    with open_store(path) as store:
        store._database().connect = _unsynced(store)  # type: ignore[method-assign]
        for n in range(number):
            config = {"workload": {"sizes": {"N": n}}, "pipeline": {"stages": pipeline}}
            metrics = {f"metric{m}": m + n / 3 for m in range(20)}
            store.add(replace(trial, id=f"{n:016}", point={"N": n}, config=config, metrics=metrics))
    return path


def _unsynced(store: Store) -> Callable[[], Any]:
    """Connections that do not wait for the disk: this is about memory."""
    connect = store._database().connect

    def connected() -> Any:
        connection = connect()
        connection.run("PRAGMA synchronous=OFF")
        return connection

    return connected


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("stores")
    return stored(folder / "few.db", FEW), stored(folder / "many.db", MANY)


class Nowhere(io.TextIOBase):
    """Takes any text and keeps none."""

    def write(self, text: str) -> int:
        return len(text)


def waiting_on_disk(number: int) -> Spool[Trial]:
    """Trials of a sweep over sizes, with configs and metrics of the usual length."""
    pipeline = {f"stage{n}": {"use": "x" * 20, "in": {"a": {"ref": "b"}}} for n in range(10)}
    trial = Trial("", "axpy", "default", "host", "ok", True, params={"unroll": {"add": {"v": 4}}})
    return Spool(
        replace(
            trial,
            id=f"{n:032}",
            point={"workload.sizes.N": n},
            config={"workload": {"sizes": {"N": n}}, "pipeline": {"stages": pipeline}},
            metrics={"median_ns": 100.0 + n} | {f"metric{m}": m + n / 3 for m in range(20)},
        )
        for n in range(number)
    )


@pytest.mark.usefixtures("small_caches")
def test_the_table_of_a_run_needs_little_for_each_trial() -> None:
    few, many = waiting_on_disk(FEW), waiting_on_disk(MANY)
    _, less = traced(lambda: print_run(few, {}, Nowhere()))  # type: ignore[arg-type]
    _, more = traced(lambda: print_run(many, {}, Nowhere()))  # type: ignore[arg-type]
    assert (more - less) / (MANY - FEW) < 1_500


EXPORTS: dict[str, Callable[[Store], int]] = {
    "csv": lambda store: write_csv(streamed(store, []), Nowhere()),  # type: ignore[arg-type]
    "json": lambda store: write_list(
        "trials",
        map(to_json, map(stored_document, streamed(store, []))),
        {},
        Nowhere(),  # type: ignore[arg-type]
    ),
    "group": lambda store: _summary(store, ["workload", "toolchain"]).trials,
    "pivot": lambda store: _summary(store, ["target", "case"], only_verified=True).trials,
}


def _summary(store: Store, keys: list[str], *, only_verified: bool = False) -> Summary:
    asked = parse_key("metric0")
    by = [parse_key(key) for key in keys]
    return Summary(streamed(store, []), by, asked, only_verified=only_verified)


@pytest.mark.usefixtures("small_caches")
@pytest.mark.parametrize("export", EXPORTS)
def test_an_export_needs_the_same_memory_for_any_number_of_trials(
    stores: tuple[Path, Path], export: str
) -> None:
    peaks = []
    for path in stores:
        with open_store(path) as store:
            store.query(limit=1)
            _, peak = traced(partial(EXPORTS[export], store))
            peaks.append(peak)
    assert (peaks[1] - peaks[0]) / (MANY - FEW) < 500


def test_a_trial_from_the_store_shares_what_others_have_too(stores: tuple[Path, Path]) -> None:
    with open_store(stores[1]) as store:
        store.query(limit=1)
        few, _ = traced(lambda: store.query(limit=FEW))
        many, _ = traced(lambda: store.query())
    assert (many - few) / (MANY - FEW) < 6_000
