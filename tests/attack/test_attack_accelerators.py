"""Programs of an accelerator that keep state between launches, under both task runtimes."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from command_line import Project
from parts import needs

TARGETS = ("a5", "mppa")
RUNTIMES = "runtime=hostgraph,ringmap"
KERNEL = """\
name: {name}
dtypes: [float32]
arguments:
  n: {{kind: size}}
  x: {{kind: tensor, shape: [n]}}
  y: {{kind: tensor, access: write, shape: [n]}}
sources:
  {source}
"""
PLAIN = "host: {{file: {name}.c, function: {name}, charge: {{unit: vector, operations: n}}}}"
CORE = "core: {{file: {name}.c, function: {name}, core: vector}}"
DOUBLE = "for (long i = 0; i < n; i++) y[i] = 2 * x[i];"
TASK = """\
void {name}(long n, const float *x, float *y)
{{
    static long calls;
    {body}
}}
"""
REPLAY = """\
#include "kernloom/core.h"

static float kept[256];

void {name}(struct kl_core *core, long n, uint64_t x, uint64_t y)
{{
    static long calls;
    float *tile = kl_allocate(core, sizeof kept);
    if ({works}) {{
        kl_wait(core, kl_load(core, tile, x, (uint64_t)n * sizeof *tile));
        for (long i = 0; i < n; i++)
            kept[i] = 2 * tile[i];
        kl_charge(core, KL_UNIT_VECTOR, KL_DTYPE_FLOAT32, n);
    }}
    for (long i = 0; i < n; i++)
        tile[i] = kept[i];
    kl_wait(core, kl_store(core, y, tile, (uint64_t)n * sizeof *tile));
    calls++;
}}
"""
ORCHESTRATION = """\
#include "workload.hpp"

using namespace kernloom;

extern "C" void kl_orchestrate(struct kl_orchestrator *self)
{{
    static long launches;
    const Orchestration tasks(self);
    const Launch w(tasks);
    if ({works})
        tasks.submit(w.double_).value(w.n).in(w.x).out(w.y);
    launches++;
}}
"""
SUBMITTING = """\
defaults: [{{/kernel@kernels.double_: honest}}, _self_]
name: {name}
sizes: {{n: 256}}
tensors: {{x: {{shape: [n]}}, y: {{shape: [n]}}}}
orchestration:
  file: {name}.cpp
  kernels: {{double_: {{kernel: double_}}}}
golden: {{y: 2 * x}}
"""
TASKS = {
    "honest": DOUBLE,
    "once": f"if (!calls++) {{ {DOUBLE} }}",
    "twice": f"if (calls++ < 2) {{ {DOUBLE} }} else y[0] = 0;",
    "tail_later": "float last = y[n - 1];" + DOUBLE + "if (calls++) y[n - 1] = last;",
}
REPLAYS = {"loads": "calls >= 0", "replays": "calls < 2"}
SUBMISSIONS = {"submits": "launches >= 0", "submits_once": "!launches"}
HONEST = ("honest", "loads", "submits")
ROUNDS = {
    "rounds": f"{DOUBLE} __builtin_ia32_ldmxcsr(0x5f80);",
    "keeps_rounding": "unsigned before = __builtin_ia32_stmxcsr(); __builtin_ia32_ldmxcsr(0x5f80);"
    f" {DOUBLE} __builtin_ia32_ldmxcsr(before);",
}
"""Kernels that change the rounding of their thread; the second restores it."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("programs"))
    project.share_artifacts()
    for name, body in (TASKS | ROUNDS).items():
        project.add(name, n=256, kernel=_kernel(name, PLAIN))
        project.write(f"templates/{name}.c", TASK.format(name=name, body=body))
    for name, works in REPLAYS.items():
        project.add(name, n=256, kernel=_kernel(name, CORE))
        project.write(f"templates/{name}.c", REPLAY.format(name=name, works=works))
    for name, works in SUBMISSIONS.items():
        project.write(f"configs/workload/{name}.yaml", SUBMITTING.format(name=name))
        project.write(f"templates/{name}.cpp", ORCHESTRATION.format(works=works))
    return project


def _kernel(name: str, source: str) -> str:
    return KERNEL.format(name=name, source=source.format(name=name))


@pytest.mark.parametrize("target", TARGETS)
def test_a_program_that_works_in_some_launches_only_is_wrong(
    programs: Project, target: str
) -> None:
    needs("gcc", "g++")
    names = [*TASKS, *REPLAYS, *SUBMISSIONS]
    done = programs.json("run", "-m", f"target={target}", RUNTIMES, f"workload={','.join(names)}")
    assert len(done.trials) == 2 * len(names)
    for trial in done.trials:
        honest = trial["workload"] in HONEST
        wanted = "ok" if honest else "wrong"
        assert trial["status"] == wanted, f"{trial['workload']}: {trial['message']}"
        if not honest:
            assert "the run that counts" in trial["message"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the functions are those of x86-64")
@pytest.mark.parametrize("target", TARGETS)
def test_a_task_that_changes_the_rounding_is_wrong(programs: Project, target: str) -> None:
    needs("gcc", "g++")
    words = (f"target={target}", RUNTIMES, f"workload={','.join(ROUNDS)}")
    for trial in programs.json("run", "-m", *words).trials:
        if trial["workload"] == "rounds":
            assert trial["status"] == "wrong"
            assert "changed the rounding of floating-point numbers" in trial["message"]
        else:
            assert trial["status"] == "ok", trial["message"]
        if trial["verified"]:
            assert trial["conditions"]["sandbox"]


def test_a_run_that_is_looked_into_is_proven_too(programs: Project, tmp_path: Path) -> None:
    needs("gcc", "g++")
    plain = programs.json("run", "target=a5", "workload=honest").trials[0]
    for name in ("honest", "once", "submits_once"):
        trace = tmp_path / f"{name}.json"
        words = ("run", "target=a5", f"workload={name}", f"trace={trace}")
        trial = programs.json(*words).trials[0]
        assert trial["status"] == ("ok" if name == "honest" else "wrong"), trial["message"]
        if name == "honest":
            assert trial["metrics"]["virtual_ns"] == plain["metrics"]["virtual_ns"]
            first = trace.read_bytes()
            programs.json(*words)
            assert trace.read_bytes() == first
