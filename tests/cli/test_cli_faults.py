"""Kernels that misbehave end as trials with a status; the others of the sweep are unharmed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from command_line import DOUBLE, Project, working_in

UNUSED = "(void)n; (void)x; (void)y;"
FAULTS = {
    "oob": "for (long i = 0; i <= n; i++) y[i] = 2 * x[i < n ? i : 0];",
    "hang": f"{UNUSED} volatile int go = 1; while (go) {{}}",
    "div0": "volatile int zero = 0; y[0] = x[0] + (float)((int)n / zero);",
    "wrong": "for (long i = 0; i < n; i++) y[i] = 3 * x[i];",
}
LATE = f"static int calls; for (volatile int go = ++calls == 5; go;) ; {DOUBLE}"
ENDS = {
    "illegal": (f'{UNUSED} __asm__ volatile("ud2");', "SIGILL"),
    "segv": (f"{UNUSED} *(volatile int *)8 = 1;", "SIGSEGV"),
    "aborts": (f"{UNUSED} abort();", "SIGABRT"),
    "exits": (f"{UNUSED} exit(0);", "exit"),
    "deep": (
        "volatile char room[65536]; room[n % 65536] = 1; y[0] = x[0];"
        "if (room[n % 65536]) deep(n, x, y); y[1] = room[0];",
        "SIGSEGV",
    ),
}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, shared_project: Project) -> Any:
    """Five kernels, four of them faulty, in one sweep."""
    project = Project(tmp_path_factory.mktemp("faults"))
    project.take_runner_from(shared_project)
    project.add("good")
    for name, body in FAULTS.items():
        project.add(name, body)
    names = ",".join(["good", *FAULTS])
    return project, project.json("run", "-m", f"workload={names}", "timeout=1")


@pytest.mark.parametrize(
    ("name", "status", "says"),
    [
        ("good", "ok", ""),
        ("oob", "out_of_bounds", "'y'"),
        ("hang", "timeout", "1 s"),
        ("div0", "crashed", "SIGFPE"),
        ("wrong", "wrong", "golden"),
    ],
)
def test_each_fault_of_a_sweep_ends_in_its_own_status(
    swept: Any, name: str, status: str, says: str
) -> None:
    _, done = swept
    trial = {trial["workload"]: trial for trial in done.trials}[name]
    assert (trial["status"], trial["verified"]) == (status, status == "ok")
    assert says in trial["message"]
    assert trial["stage"] == ("" if status == "ok" else "correct")


def test_a_sweep_with_faults_ends_with_exit_code_1_and_is_stored_whole(swept: Any) -> None:
    project, done = swept
    assert done.code == 1
    stored = {t["workload"]: t["status"] for t in project.json("results").trials}
    assert stored == {trial["workload"]: trial["status"] for trial in done.trials}
    assert working_in(project.folder) == []


def test_the_table_of_a_sweep_with_faults_says_what_failed_and_where(swept: Any) -> None:
    project, _ = swept
    names = ",".join(["good", *FAULTS])
    done = project.run("run", "-m", f"workload={names}", "timeout=1")
    assert done.code == 1
    assert "1 verified, 4 failed" in done.stdout
    assert "crashed in stage correct: div0" in done.stdout


def test_every_way_to_end_the_process_is_a_trial(project: Project) -> None:
    for name, (body, _) in ENDS.items():
        head = f"#include <stdlib.h>\nvoid {name}(long n, const float *x, float *y);"
        project.add(name, body, head=head)
    done = project.json("run", "-m", f"workload={','.join(ENDS)}", "timeout=20")
    assert done.code == 1
    for trial in done.trials:
        assert trial["status"] == "crashed", trial
        assert ENDS[trial["workload"]][1] in trial["message"]


def test_a_hang_while_measuring_ends_after_about_the_timeout_and_names_it(
    project: Project,
) -> None:
    project.add("late", LATE)
    trial = project.json("run", "workload=late", "timeout=1").trial
    assert (trial["status"], trial["stage"]) == ("timeout", "timing")
    waited = re.search(r"within ([\d.]+) s \(timeout=1\)", trial["message"])
    assert waited, trial["message"]
    # One run may take 1 s; what the launch has of them does not multiply that.
    assert 1 < float(waited[1]) < 7


def test_a_kernel_that_prints_does_not_disturb_the_document(project: Project) -> None:
    body = DOUBLE + ' puts("{\\"trials\\": []}"); fflush(stdout); fputs("psst\\n", stderr);'
    project.add("prints", body, head="#include <stdio.h>")
    done = project.json("run", "workload=prints")
    assert done.code == 0
    assert done.trial["status"] == "ok"
    assert done.stderr == ""


@pytest.mark.slow
def test_the_last_words_of_a_kernel_are_kept(project: Project) -> None:
    body = f'{UNUSED} fputs("these are my last words\\n", stderr); abort();'
    project.add("speaks", body, head="#include <stdio.h>\n#include <stdlib.h>")
    project.json("run", "workload=speaks")
    assert "these are my last words" in project.json("results").trial["stderr"]


def test_a_compile_error_names_the_compilers_words_and_a_source_that_exists(
    project: Project,
) -> None:
    project.add("broken", "y[0] = x[0] + nothing; (void)n;")
    done = project.json("run", "workload=broken")
    trial = done.trial
    assert (done.code, trial["status"], trial["stage"]) == (1, "build_failed", "library")
    assert "'nothing' undeclared" in trial["message"]
    assert "broken.c:4" in trial["message"]
    source = Path(trial["message"].split(" does not compile")[0])
    assert source.is_file()
    assert (source.parent / "broken.c").is_file()


@pytest.mark.slow
def test_a_compile_error_is_mended_by_mending_the_source(project: Project) -> None:
    project.add("broken", "y[0] = x[0] + nothing; (void)n;")
    assert project.run("run", "workload=broken").code == 1
    project.add("broken")
    assert project.run("run", "workload=broken").code == 0


def test_outputs_that_are_never_written_are_wrong(project: Project) -> None:
    project.add("lazy", "for (long i = 0; i + 1 < n; i++) y[i] = 2 * x[i];")
    trial = project.json("run", "workload=lazy").trial
    assert trial["status"] == "wrong"
    assert "never written" in trial["message"]


@pytest.mark.slow
def test_a_kernel_cannot_signal_the_engine(project: Project) -> None:
    project.add("rude", f"{UNUSED} kill(0, SIGKILL);", head="#include <signal.h>")
    done = project.json("run", "workload=rude")
    assert (done.code, done.trial["status"]) == (1, "crashed")
    assert "SIGKILL" in done.trial["message"]


@pytest.mark.slow
def test_asan_finds_the_overread_that_release_does_not(project: Project) -> None:
    project.add("good")
    project.add(
        "peeks",
        "float sum = x[n]; for (long i = 0; i < n; i++) y[i] = 2 * x[i];"
        " if (sum == 12345.0f) y[0] = sum;",
    )
    release = project.json("run", "workload=peeks")
    assert release.trial["status"] == "ok"
    asan = project.json("run", "-m", "workload=good,peeks", "target.variant=asan")
    good, peeks = asan.trials
    assert good["status"] == "ok", good["message"]
    assert peeks["status"] == "out_of_bounds" or "Sanitizer" in peeks["message"], peeks
    assert asan.code == 1
