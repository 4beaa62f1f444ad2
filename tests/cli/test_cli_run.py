"""`kernloom run`: verified and measured, stored and reused, told in JSON and by exit codes."""

from __future__ import annotations

import pytest

from command_line import DOUBLE, PATIENCE_S, Project, listing
from kernloom.report.formats import formats_for

TRIAL = {
    "id": str,
    "workload": str,
    "case": str,
    "target": str,
    "point": dict,
    "params": dict,
    "provider": str,
    "status": str,
    "verified": bool,
    "metrics": dict,
    "artifacts": list,
    "stage": str,
    "message": str,
}
SMALL = ("workload.sizes.M=16", "workload.sizes.N=24", "workload.sizes.K=32")


def test_the_very_first_start_prints_one_document_and_nothing_else(fresh_project: Project) -> None:
    # A new interpreter, as for whoever starts it first.
    done = fresh_project.json("run", *SMALL, before=["env"])
    assert done.code == 0
    assert "kernloom:" not in done.stderr
    assert set(done.document) == {"trials", "build"}
    assert done.trial["verified"] is True


def test_the_document_has_the_documented_keys_and_types(shared_project: Project) -> None:
    done = shared_project.json("run", "workload=axpy", "rerun=all")
    trial = done.trial
    for key, kind in TRIAL.items():
        assert isinstance(trial[key], kind), key
    assert (trial["workload"], trial["case"], trial["target"]) == ("axpy", "default", "host")
    assert (trial["status"], trial["verified"], trial["stage"]) == ("ok", True, "")
    assert trial["point"] == {}
    assert trial["provider"] == "model"
    for artifact in trial["artifacts"]:
        assert {key: type(value) for key, value in artifact.items()} == {
            "name": str,
            "key": str,
            "cached": bool,
        }
    build = done.document["build"]
    assert isinstance(build["built"], int)
    assert isinstance(build["cached"], int)
    assert isinstance(build["seconds"], float | int)


def test_metrics_are_flat_numbers_and_a_list_of_deterministic_ones(shared_project: Project) -> None:
    metrics = shared_project.json("run", "workload=axpy", "rerun=all").trial["metrics"]
    assert metrics.pop("deterministic") == []
    assert all(type(value) in (int, float) for value in metrics.values())
    assert metrics["ci_low_ns"] <= metrics["median_ns"] <= metrics["ci_high_ns"]
    assert metrics["gflops"] > 0
    assert metrics["gbytes_per_s"] > 0


def test_a_second_run_builds_nothing_and_reuses_the_trial(project: Project) -> None:
    project.add("good")
    first = project.json("run", "workload=good")
    again = project.json("run", "workload=good")
    assert first.code == again.code == 0
    assert again.document["build"]["built"] == 0
    assert again.trial["id"] == first.trial["id"]
    assert again.trial["metrics"] == first.trial["metrics"]
    assert all(artifact["cached"] for artifact in again.trial["artifacts"])
    assert len(project.json("results").trials) == 1


def test_rerun_all_measures_again_without_building(project: Project) -> None:
    project.add("good")
    first = project.json("run", "workload=good")
    again = project.json("run", "workload=good", "rerun=all")
    assert again.document["build"]["built"] == 0
    assert again.document["build"]["cached"] == 2
    assert again.trial["id"] == first.trial["id"]
    assert len(project.json("results", "--history").trials) == 2


def test_rerun_failed_repeats_only_what_failed(project: Project) -> None:
    project.add("good")
    project.add("wrong", "for (long i = 0; i < n; i++) y[i] = x[i];")
    sweep = ("run", "-m", "workload=good,wrong")
    project.json(*sweep)
    project.json(*sweep, "rerun=failed")
    stored = [trial["workload"] for trial in project.json("results", "--history").trials]
    assert sorted(stored) == ["good", "wrong", "wrong"]


def test_a_changed_kernel_is_never_answered_by_the_old_trial(project: Project) -> None:
    project.add("good")
    first = project.json("run", "workload=good")
    project.add("good", "for (long i = 0; i < n; i++) y[i] = 3 * x[i];")
    second = project.json("run", "workload=good")
    assert first.trial["status"] == "ok"
    assert second.trial["status"] == "wrong"
    assert second.trial["id"] != first.trial["id"]


def test_json_lines_are_one_trial_each(shared_project: Project) -> None:
    done = shared_project.run("run", "-m", "workload=axpy,good", "output=jsonl")
    assert done.code == 0
    assert [line["workload"] for line in done.lines] == ["axpy", "good"]
    assert [line["point"] for line in done.lines] == [{"workload": "axpy"}, {"workload": "good"}]


def test_csv_has_a_header_and_a_line_for_each_trial(shared_project: Project) -> None:
    done = shared_project.run("run", "-m", "workload=axpy,good", "output=csv")
    header, *rows = done.stdout.splitlines()
    assert "median_ns" in header
    assert len(rows) == 2


def test_points_come_in_the_order_of_the_axes_with_the_last_one_fastest(
    shared_project: Project,
) -> None:
    done = shared_project.json("run", "-m", "workload=axpy,good", "seed=1,2")
    points = [trial["point"] for trial in done.trials]
    assert points == [
        {"workload": workload, "seed": seed} for workload in ("axpy", "good") for seed in (1, 2)
    ]


def test_the_table_goes_to_stdout_and_ends_with_a_count(shared_project: Project) -> None:
    done = shared_project.run("run", "workload=axpy")
    assert done.stdout.splitlines()[0].startswith("workload")
    assert "1 verified, 0 failed" in done.stdout.splitlines()[-1]
    assert "\x1b" not in done.stdout


def test_exit_code_1_when_something_did_not_verify(project: Project) -> None:
    project.add("wrong", "for (long i = 0; i < n; i++) y[i] = x[i];")
    assert project.run("run", "workload=wrong").code == 1


def test_exit_code_3_when_the_tool_is_not_there(shared_project: Project) -> None:
    assert shared_project.run("run", "toolchain.tools.cc=nonexistent-cc").code == 3


@pytest.mark.parametrize("words", [("--help",), ("run", "--help"), ("--version",)])
def test_help_is_not_an_error(shared_project: Project, words: tuple[str, ...]) -> None:
    done = shared_project.run(*words)
    assert done.code == 0
    assert done.stdout
    assert done.stderr == ""


def test_the_help_of_a_command_lists_its_output_formats(shared_project: Project) -> None:
    (line,) = (
        line
        for line in shared_project.run("run", "--help").stdout.splitlines()
        if "=FORMAT" in line
    )
    names = line.split(maxsplit=1)[1].split(", ")
    assert names == formats_for("run")


def test_nothing_is_written_outside_the_projects_own_folder(fresh_project: Project) -> None:
    fresh_project.add("good")
    inside = fresh_project.folder / ".kernloom"
    before = listing(fresh_project.folder.parent)
    fresh_project.run("run", "-m", "workload=good,axpy")
    fresh_project.run("check", "workload=good")
    fresh_project.run("targets")
    fresh_project.run("doctor")
    after = listing(fresh_project.folder.parent)
    assert {path: after[path] for path in before} == before
    assert all(path.startswith(str(inside)) for path in after.keys() - before.keys())


@pytest.mark.slow
def test_a_folder_below_the_project_belongs_to_it(project: Project) -> None:
    project.add("good")
    below = project.folder / "notes" / "deep"
    below.mkdir(parents=True)
    assert project.run("run", "workload=good", cwd=below).code == 0
    assert list(below.iterdir()) == []
    assert len(project.json("results").trials) == 1


@pytest.mark.slow
def test_sizes_and_seed_from_the_command_line_reach_the_trial(project: Project) -> None:
    project.add("good", DOUBLE)
    trial = project.json("run", "workload=good", "workload.sizes.n=77", "seed=5").trial
    stored = project.json("results", "workload.sizes.n=77", "seed=5").trial
    assert stored["id"] == trial["id"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("toolchain", ["gcc", "clang"])
@pytest.mark.slow
def test_matmul_verifies_with_every_compiler_and_dtype(
    project: Project, dtype: str, toolchain: str
) -> None:
    words = (f"workload.dtype={dtype}", f"toolchain={toolchain}", "case=ragged")
    done = project.json("run", "workload=matmul", *words)
    assert done.trial["status"] == "ok", done.trial["message"]


def test_a_target_with_one_session_queues_the_next_run(project: Project) -> None:
    words = ("run", "workload=axpy", "target.sessions=1", "rerun=all")
    first, second = project.start(*words), project.start(*words)
    for process in (first, second):
        assert process.wait(PATIENCE_S) == 0
        for stream in (process.stdout, process.stderr):
            if stream:
                stream.close()
    assert list((project.build / "sessions").rglob("0"))
    assert not list((project.build / "sessions").rglob("1"))


TUNED = """\
name: tuned
arguments:
  n: {kind: size}
  x: {kind: tensor, shape: [n]}
  y: {kind: tensor, access: write, shape: [n]}
sources:
  host: {file: tuned.c, function: tuned, macros: {U: u}}
tunables:
  unroll:
    u: {values: [1, 2], "off": 1}
"""


def test_a_stored_trial_shows_who_chose_its_parameters_now(project: Project) -> None:
    body = "for (long i = 0; i < n; i++) y[i] = 2 * x[i] + 0 * U;"
    project.add("tuned", body, kernel=TUNED)
    words = ("run", "workload=tuned")
    assert project.json(*words, "select.fixed.unroll.u=1").trial["provider"] == "fixed"
    again = project.json(*words).trial
    assert (again["provider"], again["params"]) == ("model", {"unroll": {"call": {"u": 1}}})
    (stored,) = project.json("results").trials
    assert (stored["id"], stored["provider"]) == (again["id"], "fixed")
