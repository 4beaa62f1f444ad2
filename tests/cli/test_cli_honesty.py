"""`verified` is never said of what was not shown to be right, nor parameters of what was built."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from command_line import DOUBLE, KERNEL, WORKLOAD, Project
from source_tree import copy_tree

DISHONEST = {
    "clobbers": (
        f"{DOUBLE} ((float *)x)[0] += 1;",
        "x was changed, but no kernel may write it",
    ),
    "tires": (
        "static int calls; float factor = calls++ ? 3 : 2;"
        "for (long i = 0; i < n; i++) y[i] = factor * x[i];",
        "golden",
    ),
    "skips": ("for (long i = 0; i + 1 < n; i++) y[i] = 2 * x[i];", "1 never written"),
}


def test_kernels_that_only_seem_right_are_wrong(project: Project) -> None:
    for name, (body, _) in DISHONEST.items():
        project.add(name, body)
    done = project.json("run", "-m", f"workload={','.join(DISHONEST)}")
    assert done.code == 1
    for trial in done.trials:
        assert (trial["status"], trial["verified"]) == ("wrong", False)
        assert DISHONEST[trial["workload"]][1] in trial["message"]


def test_a_golden_of_nan_or_infinity_is_not_met_by_just_anything(project: Project) -> None:
    project.add("idle", "(void)n; (void)x; (void)y;")
    project.add("good")
    golden = "workload.golden.y"
    nan = project.json("run", "workload=idle", f'{golden}="log(x)"')
    infinite = project.json("run", "workload=good", f'{golden}="where(x<0, x/(x-x), 2*x)"')
    assert nan.trial["status"] == infinite.trial["status"] == "wrong"


@pytest.mark.parametrize(
    ("golden", "said"), [("log(x-1000)", "NaN"), ("x/(x-x)", "NaN or infinite")]
)
def test_a_golden_without_a_finite_element_is_refused(
    project: Project, golden: str, said: str
) -> None:
    project.add("not_a_number", "for (long i = 0; i < n; i++) y[i] = 0.0f / (x[i] - x[i]);")
    done = project.json("run", "workload=not_a_number", f'workload.golden.y="{golden}"')
    assert done.code == 1
    assert (done.trial["status"], done.trial["verified"]) == ("refused", False)
    proves_nothing = "workload.golden.y: the golden of 'y' proves nothing"
    assert f"{proves_nothing}: all of its 1000 elements are {said}\n" in done.trial["message"]


def test_a_golden_with_some_nan_gives_a_warning(project: Project) -> None:
    # A NaN that is computed has other bits than the poison, so these elements count as written.
    project.add("positive", "for (long i = 0; i < n; i++) y[i] = x[i] < 0 ? 0.0f / 0.0f : x[i];")
    golden = 'workload.golden.y="where(x < 0, log(x), x)"'
    trial = project.json("run", "workload=positive", golden).trial
    assert trial["status"] == "ok"
    (warning,) = [text for text in trial["warnings"] if "golden" in text]
    assert re.match(r"\d+ of 1000 elements of the golden of 'y' are NaN", warning)
    checked = project.run("check", "workload=positive", golden)
    assert checked.code == 0
    assert warning in " ".join(checked.stdout.split())


def test_integers_are_not_all_zero_unless_that_is_asked_for(project: Project) -> None:
    integers = {
        "kernel": KERNEL.format(name="whole") + "dtypes: [int32]\n",
        "workload": WORKLOAD.format(name="whole", n=100).replace("2 * x", "3 * x")
        + "dtype: int32\n",
    }
    project.add("whole", **integers)
    text = (project.folder / "templates/whole.c").read_text().replace("float", "int")
    project.write("templates/whole.c", text)
    assert project.json("run", "workload=whole").trial["status"] == "wrong"
    right = project.json("run", "workload=whole", 'workload.golden.y="2*x"')
    assert right.trial["status"] == "ok"


def test_a_parameter_that_no_stage_applies_is_refused(shared_project: Project) -> None:
    removed = [
        "~pipeline.stages.unrolling",
        "pipeline.stages.vectors.in.schedule.ref=packing.schedule",
    ]
    done = shared_project.run("plan", "workload=axpy", *removed, "select.fixed.unroll.vectors=8")
    assert done.code == 2
    assert "unroll.vectors=8 has no effect on step 'add'" in done.stderr
    plain = shared_project.json("plan", "workload=axpy", *removed)
    assert plain.trial["params"]["unroll"]["add"]["vectors"] == 1


def test_a_pipeline_that_verifies_nothing_is_refused(shared_project: Project) -> None:
    done = shared_project.run(
        "run", "workload=axpy", "~pipeline.stages.correct", "~pipeline.stages.timing.after"
    )
    assert done.code == 2
    assert "no stage verifies" in done.stderr


def test_a_tensor_cannot_be_read_and_written_by_one_call(project: Project) -> None:
    project.add("good")
    done = project.run("run", "workload=good", "+workload.steps.call.args={y: x}")
    assert done.code == 2
    assert "tensor 'x' is written as 'y' and is also 'x'" in done.stderr


def test_a_failed_build_is_tried_again(project: Project) -> None:
    project.add("late", "y[0] = later(x[0]); (void)n;")
    assert project.json("run", "workload=late").trial["status"] == "build_failed"
    assert project.json("run", "workload=late").trial["reused"] is False


@pytest.mark.slow
def test_undefined_behaviour_is_found_by_the_sanitizers(project: Project) -> None:
    body = f"{DOUBLE} int most = 0x7fffffff; most += (int)n; if (most == 3) y[0] = 0;"
    project.add("overflows", body)
    trial = project.json("run", "workload=overflows", "target.variant=asan").trial
    assert trial["status"] == "crashed"


def test_python_files_in_the_current_folder_are_not_run(tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("raise SystemExit('the stranger ran')\n")
    done = copy_tree(tmp_path / "clone").type("kernloom targets", cwd=tmp_path)
    assert (done.code, done.stderr) == (0, "")


def test_the_work_of_the_pools_threads_counts(project: Project) -> None:
    head = """\
#include <time.h>
void kl_parallel(long, long, void (*)(void *, long), void *);
static void part(void *unused, long task) {
    struct timespec t, start; (void)unused;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    while (task && (t.tv_sec - start.tv_sec) * 1000000000L + t.tv_nsec - start.tv_nsec < 3000000);
}
"""
    workload = WORKLOAD.format(name="shares", n=100) + "allow: [clock]\n"
    project.add("shares", f"{DOUBLE} kl_parallel(2, 2, part, 0);", head=head, workload=workload)
    trial = project.json("run", "workload=shares", "measure=quick", "measure.clock=cpu").trial
    # The calling thread waits for the other one, which takes 3 ms of CPU time.
    assert trial["metrics"]["median_ns"] > 3e6, trial["message"]
