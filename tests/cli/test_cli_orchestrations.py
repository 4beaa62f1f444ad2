"""Workloads of tasks from the command line: those that ship and a user's own. Orchestrations that
are wrong end with the task, what is allowed and the key, under both runtimes, and leave nothing
behind."""

from __future__ import annotations

import re
from typing import Any

import pytest

from command_line import Project, working_in
from doc_pages import files
from parts import needs

OWN = files("docs/guide/orchestration.md")
SOURCE = """\
#include <cstdlib>
#include <stdexcept>
#include "workload.hpp"

using namespace kernloom;

extern "C" void kl_orchestrate(struct kl_orchestrator *self)
{
    const Orchestration tasks(self);
    const Launch w(tasks);
    const auto begin = [self] { self->functions->begin_scope(self, KL_SCOPE_DERIVED); };
    const auto end = [self] { self->functions->end_scope(self); };
    const auto big = [&](uint64_t bytes) {
        tasks.submit(w.add).name("big").value(w.cols).value(Launch::Element(w.factor))
            .in(part(w.x, {{0, 1}, {0, w.cols}})).output<uint8_t>({bytes});
    };
    (void)begin, (void)end, (void)big;
    BEFORE;
    for (uint64_t row = 0; row < w.rows; row++)
        tasks.submit(w.add).name("add").value(w.cols).value(Launch::Element(w.factor))
            .in(part(w.x, {{row, row + 1}, {0, w.cols}}))
            .inout(part(w.y, {{row, row + 1}, {0, w.cols}}))MORE;
    AFTER;
}
"""
ARGUMENTS = "kernel 'add' takes 4 arguments, not"
STILL = "a scope that began after 0 tasks does not end"
OTHER = "the orchestration threw something that is no std::exception after 0 tasks"
LOST = r"of orchestration 'stripes\.orchestration' and its tasks"
ELEMENT = "{w.x.id(), KL_DTYPE_FLOAT32, 1 << 20, KL_EQUAL, 0, {0}}"
BAD: dict[str, tuple[dict[str, str], str, str]] = {
    "itself": ({"MORE": ".after(row + 1)"}, "refused", "task 0 'add': it waits for task 0, which"),
    "later": ({"MORE": ".after(row + 2)"}, "refused", "task 0 'add': it waits for task 1, which"),
    "unknown": ({"MORE": ".after(1000)"}, "refused", "task 0 'add': it waits for task 999, which"),
    "wide": (
        {"MORE": ".blocks(1000).sync_start()"},
        "refused",
        r"task 0 'add': 1000 blocks cannot start .* the arch has 72 vector PEs \(arch\.topology\)",
    ),
    "open_scope": ({"BEFORE": "begin()"}, "refused", STILL),
    "closed_scope": ({"AFTER": "end()"}, "refused", "after 3 tasks: a scope ends that did not"),
    "open_graph": ({"BEFORE": 'tasks.begin_graph("g")'}, "refused", "graph 'g' begins and does"),
    "no_graph": ({"AFTER": "tasks.submit_graph(3)"}, "refused", "task 3 .* no recorded graph 3"),
    "kernel_number": ({"AFTER": 'tasks.submit(7).name("x")'}, "refused", "task 3 'x': .* kernel 7"),
    "kernel_name": ({"AFTER": 'tasks.kernel("sub")'}, "refused", "no kernel 'sub'; it has: add"),
    "few": ({"AFTER": 'tasks.submit(w.add).name("x")'}, "refused", f"task 3 'x': {ARGUMENTS} 0"),
    "many": ({"MORE": ".value(1)"}, "refused", f"task 0 'add': {ARGUMENTS} 5"),
    "order": (
        {
            "AFTER": 'tasks.submit(w.add).name("x").value(w.cols).in(part(w.x, {{0, 1}, {0, 1}}))'
            ".value(Launch::Element(w.factor)).inout(part(w.y, {{0, 1}, {0, 1}}))"
        },
        "refused",
        "task 3 'x': argument 1 of kernel 'add' is a value, not a tensor",
    ),
    "predicate": (
        {"MORE": f".only_if({ELEMENT})"},
        "out_of_bounds",
        "task 0 'add': predicate: its region ends at byte 4194308 of tensor 0, which has 1200",
    ),
    "outside": (
        {
            "AFTER": 'tasks.submit(w.add).name("x").value(w.cols).value(Launch::Element(w.factor))'
            ".in(part(w.x, {{0, w.rows + 1}, {0, w.cols}})).inout(part(w.y, {{0, 1}, {0, w.cols}}))"
        },
        "out_of_bounds",
        "task 3 'x': argument 2",
    ),
    "mixed": ({"MORE": ".vectors(2, w.add)"}, "refused", "task 0 'add': a mixed task takes a "),
    "spelling": ({"BEFORE": "tasks.submt(0)"}, "build_failed", "'submit'"),
    "throwing": (
        {"AFTER": 'throw std::runtime_error("no luck")'},
        "refused",
        "the orchestration threw after 3 tasks: no luck",
    ),
    "endless": (
        {"BEFORE": "for (;;) tasks.dummy().submit()"},
        "out_of_memory",
        "more than 1048576",
    ),
    "stuck": ({"BEFORE": "for (volatile int i = 0;;) i = 0"}, "timeout", LOST),
    "other_throw": ({"BEFORE": "throw 3"}, "refused", OTHER),
    "failing": ({"BEFORE": 'tasks.fail("odd")'}, "refused", "the orchestration failed: odd"),
    "heap": (
        {"AFTER": "for (int i = 0; i < 40; i++) big(1 << 22)"},
        "out_of_memory",
        r"runtime\.(graph|ring)\.heap",
    ),
    "scopes": ({"BEFORE": "for (;;) begin()"}, "out_of_memory", "more than 1048576 scopes"),
    "caught": (
        {"BEFORE": "for (;;) try { tasks.dummy().submit(); } catch (...) {}"},
        "timeout",
        f"no answer to KernelLaunch {LOST} within 3 s \\(timeout=3\\)",
    ),
    "null": ({"BEFORE": "*(volatile int *)nullptr = 1"}, "crashed", f"SIGSEGV .* {LOST}"),
    "abort": ({"BEFORE": "std::abort()"}, "crashed", f"SIGABRT .* {LOST}"),
    "exit": ({"BEFORE": "std::exit(0)"}, "refused", "imports 'exit'"),
}
"""Name -> what replaces parts of the source, the status of its trial, and its message."""


def source(**parts: str) -> str:
    text = SOURCE
    for name in ("BEFORE", "MORE", "AFTER"):
        text = text.replace(name, parts.get(name, ""))
    return text


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    needs("gcc", "g++")
    project = Project(tmp_path_factory.mktemp("orchestrations"))
    project.share_artifacts()
    for name, text in OWN.items():
        project.write(name, text)
    project.write("templates/nothing.cpp", source(BEFORE="if (w.rows) return"))
    for name, (parts, _, _) in BAD.items():
        project.write(f"templates/{name}.cpp", source(**parts))
    return project


def trials(project: Project, files: str, *words: str) -> list[dict[str, Any]]:
    chosen = (f"workload.orchestration.file={files}", "workload=stripes", "case=small")
    done = project.json("run", "-m", "target=a5", "timeout=3", *chosen, *words)
    assert "Traceback" not in done.stderr
    return list(done.trials)


@pytest.mark.parametrize("runtime", ["hostgraph", "ringmap"])
def test_each_mistake_is_named_and_leaves_nothing_behind(project: Project, runtime: str) -> None:
    listed = ",".join(f"{name}.cpp" for name in BAD)
    found = trials(project, listed, f"runtime={runtime}")
    for (name, (_, status, said)), trial in zip(BAD.items(), found, strict=True):
        assert (name, trial["status"]) == (name, status), trial["message"]
        assert re.search(said, trial["message"]), f"{name}: {trial['message']}"
    assert working_in(project.folder) == []


def test_an_orchestration_may_submit_nothing_and_is_verified_like_any(project: Project) -> None:
    for trial in trials(project, "nothing.cpp", "runtime=hostgraph,ringmap"):
        assert trial["status"] == "wrong" and "golden" in trial["message"]


def test_a_heap_that_deadlocks_names_a_size_that_works(project: Project) -> None:
    (refused,) = trials(project, "heap.cpp", "runtime=ringmap")
    message = refused["message"]
    assert re.search(r"^deadlock at \d+ ps of virtual time: task 19 'big' cannot", message), message
    least = re.search(r"The least that works is (runtime\.ring\.heap)=(\d+)$", message)
    assert least is not None, message
    size = int(least[2])
    sizes = f"{least[1]}={size},{size - 1}"
    works, fails = trials(project, "heap.cpp", "runtime=ringmap", sizes)
    assert (works["status"], fails["status"]) == ("ok", "out_of_memory")


@pytest.mark.parametrize("runtime", ["hostgraph", "ringmap"])
def test_a_dead_pe_ends_the_trial_by_name(project: Project, runtime: str) -> None:
    words = ("workload=mlp", "case=small", "target.options.dead=0.0.1")
    done = project.json("run", "target=a5", f"runtime={runtime}", *words)
    assert done.trial["status"] == "timeout"
    assert "PE 0.0.1 did not answer" in done.trial["message"]


def test_an_own_orchestration_runs_under_both_runtimes(project: Project) -> None:
    words = ("target=a2a3,mppa", "runtime=hostgraph,ringmap", "workload=stripes", "case=small")
    found = project.json("run", "-m", *words).trials
    assert [trial["verified"] for trial in found] == [True] * 4
    names = {artifact["name"] for artifact in found[0]["artifacts"]}
    assert {"stripes.add", "stripes.orchestration"} <= names


def test_a_target_without_pes_refuses_it_by_name(project: Project) -> None:
    done = project.run("run", "workload=stripes")
    assert done.code == 2
    assert "workload 'stripes' submits tasks by its own orchestration, stripes.cpp" in done.stderr


def test_workloads_of_tasks_replay_from_a_recipe(project: Project) -> None:
    names = "workload=mlp,softmax_pipeline,batched_gemm,paged_attention,reduction_tree"
    runs = ("runtime=hostgraph,ringmap", "case=small", "recipe=tasks.yaml")
    found = project.json("run", "-m", "target=a5", names, *runs).trials
    assert {trial["status"] for trial in found} == {"ok"}
    again = project.json("recipe", "run", "tasks.yaml")
    assert again.code == 0, again.stderr
    times = [trial["metrics"]["virtual_ns"] for trial in found]
    assert [trial["metrics"]["virtual_ns"] for trial in again.trials] == times


@pytest.mark.parametrize(
    "large",
    [
        ("workload=reduction_tree", "case=large"),
        ("workload=paged_attention", "workload.sizes.length=300", "workload.sizes.batch=1"),
    ],
    ids=["reduction_tree", "paged_attention"],
)
def test_more_tasks_than_a_ring_has_slots(project: Project, large: tuple[str, ...]) -> None:
    trial = project.json("run", "target=a5", "runtime=ringmap", *large).trial
    assert trial["verified"], trial["message"]
    peaks = trial["conditions"]["why"]["peaks"]
    assert max(peak[0] for name, peak in peaks.items() if name.endswith(".slots")) < 100


def test_partial_results_are_verified_on_the_device(project: Project) -> None:
    chosen = "select.fixed={tile: {m: 32, n: 32, k: 16}, distribute: {splits: 2, group: 2}}"
    assert project.json("run", "target=mppa", "case=ragged", chosen).trial["verified"]


def test_a_stored_trial_is_compared_with_the_orchestration_that_it_ran(project: Project) -> None:
    project.write("templates/changing.cpp", source())
    chosen = ("workload=stripes", "workload.orchestration.file=changing.cpp", "case=small")
    (stored,) = project.json("run", "target=a5", *chosen).trials
    idle = "for (int i = 0; i < 40; i++) tasks.dummy().submit()"
    project.write("templates/changing.cpp", source(AFTER=idle))
    done = project.json("compare", stored["id"][:12], " ".join(("target=a5", *chosen)))
    assert done.code == 0, done.stderr
    assert "slower" in done.stdout


def test_kernels_go_to_the_core_type_that_the_arch_has(project: Project) -> None:
    words = ("target=a5", "workload=stripes", "case=small", "arch.topology.pes.vector=0")
    assert project.json("run", *words, "runtime=hostgraph").trial["verified"]
