"""Every kernel of the table ends in its own status and is not ranked; its honest twin is good."""

from __future__ import annotations

import platform
import subprocess

import pytest
from closed_door import CHEATS, TWINS, add, ends, verdict

from command_line import DOUBLE, WORKLOAD, Project, command, environment

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the numbers of system calls are those of x86-64"
)


def test_cheats_end_in_their_status_and_twins_are_good(project: Project) -> None:
    trials = ends(project, CHEATS, "quick")
    problems = {name: problem for name in CHEATS if (problem := verdict(name, trials))}
    assert problems == {}


def test_descriptors_of_the_caller_are_closed(project: Project) -> None:
    body = f'{DOUBLE} syscall(1, 9, "leaked", 6);'
    workload = WORKLOAD.format(name="leaks", n=512) + "allow: [syscall]\n"
    project.add("leaks", body, head="long syscall(long, ...);", workload=workload)
    taken = project.folder / "taken.txt"
    words = command("run", "workload=leaks", "measure=quick")
    shell = ["bash", "-c", f'exec "$@" 9>{taken.name}', "bash", *words]
    env = environment(project.home)
    subprocess.run(shell, cwd=project.folder, env=env, check=True, capture_output=True)
    assert taken.read_text() == ""


@pytest.mark.parametrize("allow", ["syscall", "everything"])
def test_all_threads_have_the_scheduling_class_that_is_asked_for(
    project: Project, allow: str
) -> None:
    """Also those of the pool, and also in the sandbox."""
    head = """\
long syscall(long, ...);
void kl_parallel(long, long, void (*)(void *, long), void *);
struct work { long n; const float *x; float *y; volatile long classes[2]; };
static void part(void *c, long task) {
    struct work *w = c; long half = w->n / 2;
    for (long i = task * half; i < (task ? w->n : half); i++) w->y[i] = 2 * w->x[i];
    w->classes[task] = syscall(145, 0);
}"""
    body = (
        "struct work w = {n, x, y, {-1, -1}}; kl_parallel(2, 2, part, &w);"
        " if (w.classes[0] != w.classes[1]) y[0] = 1e9;"
    )
    text = WORKLOAD.format(name="classes", n=512) + f"allow: [{allow}]\n"
    project.add("classes", body, head=head, workload=text)
    words = ("workload=classes", "measure=quick", "measure.scheduling=fifo")
    trial = project.json("run", *words).trial
    assert trial["status"] == "ok", trial["message"]


ALLOWED = {
    "files": (
        "#include <stdio.h>",
        'FILE *f = fopen("/proc/self/maps", "r"); float got = 2; if (f) { got = 0; fclose(f); }'
        f" {DOUBLE} y[0] += got;",
        (),
    ),
    "processes": (
        "#include <sys/wait.h>\n#include <unistd.h>",
        f"static int calls; if (!calls++) {{ int child = fork(); if (!child) _exit(0);"
        f" waitpid(child, 0, 0); }} {DOUBLE}",
        ("workload.allow=[processes,_exit]",),
    ),
    "clock": (
        "#include <time.h>",
        f"struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); {DOUBLE}",
        (),
    ),
    "openmp": (
        "",
        "\n#pragma omp parallel for num_threads(2)\n" + DOUBLE,
        ("toolchain.extra_flags=[-fopenmp]",),
    ),
}
"""Group -> head, body and further words of a kernel that needs it, and is refused without."""


def test_a_workload_allows_groups(project: Project) -> None:
    for name, (head, body, _) in ALLOWED.items():
        workload = WORKLOAD.format(name=f"uses_{name}", n=512)
        project.add(f"uses_{name}", body, head=head, workload=workload)
    for name, (_, _, words) in ALLOWED.items():
        shut = [word for word in words if "allow" not in word]
        refused = project.json("run", f"workload=uses_{name}", "measure=quick", *shut).trial
        assert (refused["status"], f"[{name}]" in refused["message"]) == ("refused", True), refused
        allow = f"workload.allow=[{name}]"
        allowed = project.json("run", f"workload=uses_{name}", "measure=quick", allow, *words).trial
        # Threads beside the runner's own are no secret here, but hide work all the same.
        expected = ("suspicious",) if name == "openmp" else ("ok", "unconverged")
        assert allowed["status"] in expected, allowed


@pytest.mark.slow
@pytest.mark.parametrize("words", [("toolchain=clang",), ("target.variant=asan",)])
def test_other_compilers_and_variants_know_them_too(
    project: Project, words: tuple[str, ...]
) -> None:
    names = ["constructs", "shadows_pool", "forks", "connects_quietly", "calls_by_itself", "rounds"]
    for name in names:
        add(project, name)
    for name in ("threads", "unmaps", "loads"):
        project.add(f"honest_{name}", TWINS[name][1], head=TWINS[name][0])
    wanted = [*names, "honest_threads", "honest_unmaps", "honest_loads"]
    done = project.json("run", "-m", f"workload={','.join(wanted)}", "measure=quick", *words)
    statuses = {trial["workload"]: trial["status"] for trial in done.trials}
    expected = {name: CHEATS[name].status for name in names}
    expected |= {name: "ok" for name in wanted if name.startswith("honest")}
    assert statuses == expected, {trial["workload"]: trial["message"] for trial in done.trials}
