"""A look into one run on an accelerator: hazards, dependencies, a task again, levels of the
trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import KERNEL, WORKLOAD, Project
from parts import needs
from trace_events import checked_slices

CORE = """\
static void {{ function }}(struct kl_core *core, long n, uint64_t from, uint64_t to)
{
    float *x = kl_allocate(core, n * sizeof *x), *y = kl_allocate(core, n * sizeof *y);
    kl_wait(core, kl_load(core, x, from, n * sizeof *x));
    for (long i = 0; i < n; i++)
        y[i] = 2 * x[i];
    kl_charge(core, KL_UNIT_VECTOR, KL_DTYPE_FLOAT32, n);
    kl_wait(core, kl_store(core, to, y, n * sizeof *y));
}
"""
HALVES = """\
#include "workload.hpp"
using namespace kernloom;
extern "C" void kl_orchestrate(struct kl_orchestrator *self)
{
    const Orchestration tasks(self);
    const Launch w(tasks);
    const uint64_t half = w.n / 2;
    const Range low{0, half}, high{half, w.n};
    MANUAL
    tasks.submit(w.twice).name("low").value(COUNT).in(part(w.x, {low})).out(part(w.y, {low}));
    tasks.submit(w.twice).name("high").value(half).in(part(w.x, {high})).out(part(w.y, {high}));
    tasks.submit(w.twice).name("again").value(half).in(part(w.x, {low})).out(part(w.y, {low}));
}
"""
"""The halves of a vector as tasks, the lower one twice."""
WORDS = ("run", "target=a5", "workload=halves")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    needs("gcc", "g++")
    project = Project(tmp_path_factory.mktemp("looking"))
    project.share_artifacts()
    kernel = KERNEL.format(name="twice").replace(
        "host: {file: twice.c, function: twice}", "core: {template: twice.c.j2}"
    )
    project.write("configs/kernel/twice.yaml", kernel)
    project.write("templates/twice.c.j2", CORE)
    manual = "const Scope scope(tasks, KL_SCOPE_MANUAL);"
    for name, count, scope in (
        ("halves", "half", ""),
        ("greedy", "half + 16", ""),
        ("racing", "half", manual),
    ):
        text = WORKLOAD.format(name="twice", n=4096).replace("name: twice", f"name: {name}")
        own = f"orchestration:\n  file: {name}.cpp\n  kernels:\n    twice: {{kernel: twice}}\n"
        text = text.replace("steps:\n  call: {kernel: twice}\n", own)
        project.write(f"configs/workload/{name}.yaml", text)
        source = HALVES.replace("COUNT", count).replace("MANUAL", scope)
        project.write(f"templates/{name}.cpp", source)
    return project


def found(project: Project, *words: str) -> dict[str, Any]:
    trial: dict[str, Any] = project.json(*WORDS, *words).trial
    return trial


def test_a_task_that_leaves_its_regions_is_a_hazard(project: Project) -> None:
    trial = found(project, "workload=greedy")
    assert trial["status"] == "wrong" and not trial["verified"]
    message = trial["message"]
    assert "hazard: task 0 'low' reads bytes 8192 to 8255" in message, message
    assert "no region that it declares covers" in message


@pytest.mark.parametrize("runtime", ["hostgraph", "ringmap"])
def test_tasks_that_are_not_ordered_race(project: Project, runtime: str) -> None:
    trial = found(project, "workload=racing", f"runtime={runtime}")
    assert trial["status"] == "wrong"
    both = "task 0 'low' writes and task 2 'again' writes bytes 0 to 8191 of tensor 1"
    assert both in trial["message"], trial["message"]
    assert "'y'" in trial["message"]
    assert found(project, "workload=racing", "target.options.hazards=false")["status"] == "ok"


@pytest.mark.parametrize("runtime", ["hostgraph", "ringmap"])
def test_dependencies_are_written_with_tasks_and_bytes(project: Project, runtime: str) -> None:
    file = project.folder / "deps.json"
    trial = found(project, f"deps={file}", f"runtime={runtime}")
    assert trial["status"] == "ok", trial["message"]
    assert trial["conditions"]["deps"] == {"tasks": 3, "WAW": 1}
    first = file.read_bytes()
    document = json.loads(first)
    edge = {"from": 0, "to": 2, "kind": "WAW", "tensor": "y", "bytes": [0, 8192]}
    assert document["edges"] == [edge]
    assert [task["name"] for task in document["tasks"]] == ["low", "high", "again"]
    found(project, f"deps={file}", f"runtime={runtime}")
    assert file.read_bytes() == first


@pytest.mark.parametrize("task", ["1", "again"])
def test_a_task_runs_again_alone_and_is_equal(project: Project, task: str) -> None:
    trial = found(project, f"replay={task}")
    assert trial["status"] == "ok", trial["message"]
    replay = trial["conditions"]["replay"]
    assert replay["equal"] and replay["regions"] == 2 and replay["bytes"] == 2 * 4 * 2048
    assert replay["name"] == {"1": "high", "again": "again"}[task]


def test_what_was_written_and_found_is_said(project: Project) -> None:
    done = project.run(*WORDS, "replay=again", "deps=d.json", "trace=t.json")
    assert done.stderr.splitlines()[-3:] == [
        "trace written: t.json",
        "dependencies written: d.json (tasks: 3, edges: 1)",
        "task 2 'again' ran again, with equal results",
    ]


def test_an_unknown_task_is_named_with_those_there_are(project: Project) -> None:
    done = project.run(*WORDS, "replay=hihg")
    assert done.code != 0
    assert "the run has no task 'hihg'" in done.stdout + done.stderr
    assert "Did you mean 'high'?" in done.stdout + done.stderr


def test_each_level_of_a_trace_adds_something(project: Project) -> None:
    def traced(level: int) -> bytes:
        file = project.folder / f"{level}.json"
        trial = found(project, f"trace={file}", f"trace_level={level}")
        assert trial["status"] == "ok" and trial["conditions"]["trace"]["slices"] >= 1
        assert file.exists() == (level > 0)
        return file.read_bytes() if level else b""

    traces = [traced(level) for level in range(5)]
    assert [len(trace) for trace in traces] == sorted({len(trace) for trace in traces})
    # Of the measured launch, not of those that warm up.
    assert [one["name"] for one in checked_slices(traces[1])].count("again") == 1
    events = json.loads(traces[2])["traceEvents"]
    assert sum(event["ph"] == "s" for event in events) == 1
    assert {"ready matrix", "ready vector", "ready any"} & {
        event["name"] for event in events if event["ph"] == "C"
    }
    for trace in traces[2:]:
        checked_slices(trace)


@pytest.mark.parametrize("key", ["deps", "replay"])
def test_only_devices_with_tasks_can_be_looked_into(project: Project, key: str) -> None:
    done = project.run("run", "workload=axpy", f"{key}=x")
    assert done.code == 2 and "has no tasks" in done.stderr


def test_a_file_that_cannot_be_written_is_refused_first(project: Project) -> None:
    done = project.run(*WORDS, "deps=none/there/d.json")
    assert done.code == 2 and "there is no folder" in done.stderr
    assert not Path("none").exists()
