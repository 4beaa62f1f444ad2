"""Timelines of runs in virtual time: committed as text, and compared to the first divergence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernloom.base.errors import ConfigError, UsageError
from kernloom.measure.trial import Trial
from kernloom.scene import committed
from kernloom.scene.committed import Committed, Recorded, read_committed, text_of, write_committed
from kernloom.scene.timeline import Slice, Timeline, first_difference, task_of, timeline_of

HOST = Slice(0, "host", "submit", 750)
HOP = Slice(750, "0.0 noc in", "control 0 to pe 0.0.1, 164 bytes", 40)
LATENCY = Slice(800, "0.0.1 dma 0", "latency", 118)
LOAD = Slice(790, "0.0.1 dma 0", "load, 64 bytes", 200)
TASK = Slice(790, "0.0.1 vector", "softmax 3", 400)
SLICES = (HOST, HOP, LATENCY, LOAD, TASK)
METRICS = {"virtual_ns": "1190", "noc_bytes": "164", "limiter": "control"}
BEFORE = Committed(METRICS, Timeline((TASK,), SLICES))


def longer(slice: Slice, by: int) -> Slice:
    return replace(slice, length=slice.length + by)


def scattered(count: int) -> tuple[Slice, ...]:
    """Slices that are hard to compress."""
    random = np.random.default_rng(1)
    starts = np.cumsum(random.integers(1, 1_000_000, count)).tolist()
    lengths = random.integers(1, 1_000_000, count).tolist()
    return tuple(
        Slice(start, "host", "submit", length)
        for start, length in zip(starts, lengths, strict=True)
    )


def write_file(path: Path, results: Mapping[committed.Key, Committed]) -> None:
    write_committed(path, text_of("mine", results))


def explained(before: Committed, now: Timeline) -> list[str]:
    """What is said if the second run took as long as the first."""
    return committed.explain(before, trial(), Recorded("1190", now))


def trial(**metrics: float) -> Trial:
    found = {"virtual_ns": 1190, "noc_bytes": 164, **metrics}
    return Trial(
        id="",
        workload="softmax",
        case="short",
        target="a5",
        status="ok",
        verified=True,
        metrics={**found, "deterministic": list(found)},
        conditions={"limiter": "control"},
    )


def event(pid: int, tid: int, ts: float, dur: float, name: str, **args: object) -> dict:
    return {"ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "name": name, "args": args}


def name(pid: int, tid: int, what: str, said: str) -> dict:
    return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": {"name": said}}


def test_the_last_launch_of_a_trace_becomes_a_timeline() -> None:
    events = [
        name(1, 0, "process_name", "host"),
        name(1, 1, "thread_name", "host"),
        name(3, 0, "process_name", "sip 0 cube 2"),
        name(3, 1, "thread_name", "pe 1 vector"),
        name(3, 2, "thread_name", "noc in"),
        event(1, 1, 0.0, 0.5, "submit"),
        event(1, 1, 10.0, 0.75, "submit"),
        event(3, 2, 10.75, 0.04, "control 0 to pe 0.2.1", bytes=72),
        event(3, 1, 10.8, 0.2, "add", task="add"),
        {"ph": "s", "pid": 3, "tid": 1, "ts": 10.8, "name": "dependency", "id": 1},
    ]
    found = timeline_of(json.dumps({"traceEvents": events}).encode(), 1000)
    assert found.slices == (
        Slice(0, "host", "submit", 750_000),
        Slice(750_000, "0.2 noc in", "control 0 to pe 0.2.1, 72 bytes", 40_000),
        Slice(800_000, "0.2.1 vector", "add", 200_000),
    )
    assert found.tasks == (found.slices[-1],)


def test_tasks_are_known_by_the_name_in_their_arguments() -> None:
    events = [
        name(3, 0, "process_name", "sip 0 cube 0"),
        name(3, 1, "thread_name", "pe 0 matrix"),
        event(3, 1, 0.0, 0.1, "gemm", task="gemm 0"),
        event(3, 1, 0.1, 0.2, "gemm", task="gemm 1"),
    ]
    found = timeline_of(json.dumps({"traceEvents": events}).encode(), 300)
    assert [task.what for task in found.tasks] == ["gemm 0", "gemm 1"]


def test_of_slices_in_each_other_the_innermost_diverged_first() -> None:
    now = sorted(
        (HOST, HOP, longer(LATENCY, 1), longer(LOAD, 1), longer(TASK, 1)), key=lambda s: s.order
    )
    assert first_difference(SLICES, now) == (LATENCY, longer(LATENCY, 1))


def test_a_slice_that_is_new_or_gone_is_found() -> None:
    new = Slice(760, "0.0.1 dma 1", "translate", 2)
    assert first_difference(SLICES, (HOST, new, *SLICES[1:])) == (None, new)
    assert first_difference(SLICES, (HOST, *SLICES[2:])) == (HOP, None)
    assert first_difference(SLICES, SLICES[:-1]) == (TASK, None)
    assert first_difference(SLICES[:-1], SLICES) == (None, TASK)
    assert first_difference(SLICES[:-1], SLICES, whole=False) is None
    assert first_difference(SLICES, SLICES) is None


def test_a_slice_belongs_to_the_task_of_its_pe() -> None:
    later = Slice(2000, "0.0.1 vector", "softmax 4", 10)
    other = Slice(0, "0.3.0 matrix", "gemm", 5000)
    again = replace(HOP, start=785)
    complete = Slice(1190, "0.0.1 vector", "complete", 900)
    timeline = Timeline((TASK, later, other), (HOST, HOP, again, LATENCY, LOAD, TASK, complete))
    assert task_of(LATENCY, timeline) == TASK
    assert task_of(HOP, timeline) == TASK
    assert task_of(again, timeline) == later, "sent before the first task began"
    assert task_of(complete, timeline) == TASK, "not of the task that follows"
    assert task_of(HOST, timeline) is None, "a submission is not of one PE"


def test_a_message_that_only_starts_later_names_its_sender() -> None:
    moved = (HOST, *(replace(one, start=one.start + 1) for one in SLICES[1:]))
    _, hop, why = explained(BEFORE, Timeline((moved[-1],), moved))
    assert "control 0 to pe 0.0.1, 164 bytes on 0.0 noc in starts at 0.751 ns" in hop
    assert why == "nothing before it diverged: control 0 sent it later"


def test_one_picosecond_names_task_resource_and_hop() -> None:
    assert committed.divergence(BEFORE, trial()) == ""
    said = committed.divergence(BEFORE, trial(virtual_ns=1190.001))
    assert said == "virtual_ns is 1190.001, but 1190 is committed (+0.001)"
    now = Timeline((longer(TASK, 1),), (HOST, HOP, longer(LATENCY, 1), *SLICES[3:]))
    task, hop = explained(BEFORE, now)
    assert task.startswith(
        "first task that diverged: softmax 3 on 0.0.1 vector, at 0.790 ns, takes"
    )
    assert "latency on 0.0.1 dma 0, at 0.800 ns, takes 0.119 ns, not 0.118 ns (+0.001 ns)" in hop
    assert hop.endswith("of task softmax 3 on 0.0.1 vector")


def test_a_number_that_is_new_does_not_diverge_but_one_that_changed_does() -> None:
    assert committed.divergence(BEFORE, trial(critical_path_ns=7)) == ""
    said = committed.divergence(BEFORE, trial(noc_bytes=165))
    assert said == "noc_bytes is 165, but 164 is committed (+1)"


def test_committed_results_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "expected" / "mine.txt"
    both = {("a case", "a5", "ringmap"): BEFORE, ("other", "a5", "none"): Committed(METRICS)}
    write_file(path, both)
    assert read_committed(path) == both
    first = path.read_bytes()
    write_file(path, dict(reversed(both.items())))
    assert path.read_bytes() == first


def test_a_long_timeline_is_committed_as_far_as_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    many = scattered(60_000)
    write_file(path, {("a", "a5", "x"): Committed(METRICS, Timeline((), many))})
    assert path.stat().st_size <= committed.MAX_BYTES
    (found,) = read_committed(path).values()
    kept = len(found.timeline.slices)
    assert 1000 < kept < 60_000
    assert found.left_out == 60_000 - kept
    (said,) = explained(found, Timeline((), (*many[:-1], longer(many[-1], 1))))
    assert said.startswith(f"the first {kept} slices are as committed")
    changed = Timeline((), (longer(many[0], 1), *many[1:]))
    assert "submit on host, at " in explained(found, changed)[0]


def test_small_results_leave_their_room_to_a_large_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    large = Committed(METRICS, Timeline((TASK,), scattered(6000)))
    results = {(f"case {n}", "a5", "x"): BEFORE for n in range(9)} | {("large", "a5", "x"): large}
    write_file(path, results)
    assert path.stat().st_size <= committed.MAX_BYTES
    assert read_committed(path) == results


def test_many_tasks_leave_no_file_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    tasks = tuple(Slice(n, "0.0.1 vector", f"task {n}", 1) for n in range(20_000))
    write_file(path, {("a", "a5", "x"): Committed(METRICS, Timeline(tasks, tasks))})
    assert path.stat().st_size <= committed.MAX_BYTES
    (found,) = read_committed(path).values()
    assert found.metrics == METRICS
    assert found.left_out > 0
    assert len(explained(found, Timeline(tasks, tasks))) == 1


def test_more_results_than_a_file_can_have_are_refused() -> None:
    many = {(f"case {n}", "a5", "x"): BEFORE for n in range(4000)}
    with pytest.raises(UsageError, match="the 4000 results of the scene 'mine' do not fit"):
        text_of("mine", many)
    assert len(text_of("mine", dict(list(many.items())[:1500]))) <= committed.MAX_BYTES


def test_a_second_run_that_takes_another_time_explains_nothing() -> None:
    now = trial(virtual_ns=1191)
    (said,) = committed.explain(BEFORE, now, Recorded("1190", BEFORE.timeline))
    assert said.startswith("virtual_ns is 1190 in a second run: virtual time must be the same")
    same = committed.explain(BEFORE, now, Recorded("1191", BEFORE.timeline))
    assert same == ["the timeline is as committed"]


@pytest.mark.parametrize(
    "line", ["task 1 x", "packed nothing", "packed eA==", "left out many", "alone", "[two words]"]
)
def test_a_damaged_file_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "mine.txt"
    path.write_text(f"# comment\n[a a5 x]\n{line}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mine\.txt:3: this line is damaged"):
        read_committed(path)


def test_accepting_says_what_changes() -> None:
    assert committed.changes(None, BEFORE) == "new: virtual_ns 1190"
    assert committed.changes(BEFORE, BEFORE) == ""
    now = Committed({**METRICS, "virtual_ns": "1191"}, BEFORE.timeline)
    assert committed.changes(BEFORE, now) == "virtual_ns 1190 -> 1191 (+1)"
