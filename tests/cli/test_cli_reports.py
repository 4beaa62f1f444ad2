"""`check`, `results`, `targets` and `doctor`: what they show, in every form."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from command_line import KERNEL, WORKLOAD, Project

CASES = "cases:\n  tiny: {sizes: {n: 3}}\n  long: {sizes: {n: 5000}}\n"


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory, shared_project: Project) -> Project:
    """A workload with cases that verify, and one that is right for short vectors only."""
    project = Project(tmp_path_factory.mktemp("checked"))
    project.take_runner_from(shared_project)
    for name, body in {
        "good": "for (long i = 0; i < n; i++) y[i] = 2 * x[i];",
        "early": "for (long i = 0; i < n; i++) y[i] = (i < 2000 ? 2 : 3) * x[i];",
    }.items():
        workload = WORKLOAD.format(name=name, n=1000) + CASES
        project.add(name, body, kernel=KERNEL.format(name=name), workload=workload)
    return project


def test_results_reads_the_store_that_is_named(project: Project) -> None:
    project.add("good")
    project.json("run", "workload=good", "store.path=elsewhere.db")
    assert project.json("results").trials == []
    assert project.json("results", "store.path=elsewhere.db").trial["workload"] == "good"


def test_check_verifies_every_case_of_a_workload(checked: Project) -> None:
    done = checked.json("check", "workload=good")
    assert done.code == 0
    assert [trial["case"] for trial in done.trials] == ["default", "tiny", "long"]
    assert all(trial["verified"] for trial in done.trials)


def test_check_measures_and_stores_nothing(checked: Project) -> None:
    done = checked.json("check", "workload=good")
    assert all("median_ns" not in trial["metrics"] for trial in done.trials)
    assert not (checked.folder / ".kernloom" / "store.db").exists()


def test_check_fails_for_the_one_case_that_is_wrong(checked: Project) -> None:
    done = checked.run("check", "-m", "workload=good,early")
    assert done.code == 1
    header, good, early, *_ = done.stdout.splitlines()
    cases = header.split()[2:]
    assert dict(zip(cases, good.split()[2:], strict=False))["long"] == "verified"
    assert "wrong" in early
    assert "5 verified, 1 failed" in done.stdout


def test_check_of_one_case_checks_that_alone(checked: Project) -> None:
    done = checked.json("check", "workload=early", "case=tiny")
    assert (done.code, done.trial["case"]) == (0, "tiny")


def test_check_of_a_case_leaves_out_workloads_without_it(checked: Project) -> None:
    done = checked.json("check", "case=tiny")
    assert done.code == 0, done.stderr
    assert {trial["workload"] for trial in done.trials} == {"good", "early"}
    done = checked.json("check", "-m", "workload=axpy,early", "case=tiny")
    assert done.code == 1
    assert {t["workload"]: t["status"] for t in done.trials} == {"axpy": "refused", "early": "ok"}
    done = checked.run("check", "case=tyni")
    assert (done.code, done.stdout) == (2, "")
    assert "case: no workload has the case 'tyni'" in done.stderr
    assert "Did you mean 'tiny'?" in done.stderr


def test_check_writes_junit_xml_that_parses(checked: Project) -> None:
    done = checked.run("check", "-m", "workload=good,early", "--junit", "report.xml")
    assert done.code == 1
    path = checked.folder / "report.xml"
    root = ElementTree.parse(path).getroot()
    path.unlink()
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("6", "1", "0")
    cases = root.findall("testcase")
    assert len(cases) == 6
    (failed,) = [case for case in cases if case.find("failure") is not None]
    assert failed.get("classname") == "host.early"
    assert "long" in str(failed.get("name"))
    failure = failed.find("failure")
    assert failure is not None
    assert str(failure.get("message")).startswith("wrong: y[2000]")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("target=hots", "unknown target 'hots'\n  Did you mean 'host'?"),
        ("toolchain=gc", "unknown toolchain 'gc'\n  Did you mean 'gcc'?"),
        ("tolchain=gcc", "unknown key 'tolchain'\n  Did you mean 'toolchain'?"),
    ],
)
def test_check_says_once_what_is_wrong_with_its_words(
    checked: Project, word: str, said: str
) -> None:
    for words in ([word], ["-m", "workload=good,early", word]):
        done = checked.run("check", *words)
        assert done.code == 2
        assert done.stderr.count("unknown") == 1
        assert said in done.stderr
        assert done.stdout == ""


def test_check_names_target_and_case_of_a_workload_that_cannot_be_planned(
    checked: Project,
) -> None:
    checked.write("configs/workload/broken.yaml", "name: broken\nsteps: 7\n")
    try:
        words = ["workload=good,broken", "target=host,host_counted", "case=default"]
        done = checked.json("check", "-m", *words)
        refused = [t for t in done.trials if t["workload"] == "broken"]
        assert [(t["target"], t["case"]) for t in refused] == [
            ("host", "default"),
            ("host_counted", "default"),
        ]
        done = checked.run("check", "-m", "workload=good,broken", "case=default")
        assert "refused in stage plan: broken on host\n" in done.stdout
    finally:
        (checked.folder / "configs/workload/broken.yaml").unlink()


@pytest.mark.slow
def test_check_verifies_every_shipped_workload_in_every_case(project: Project) -> None:
    done = project.json("check", "-m", "case=default,small,ragged")
    failed = {(t["workload"], t["case"]): t["message"] for t in done.trials if not t["verified"]}
    assert failed == {}
    assert done.code == 0


@pytest.fixture(scope="module")
def queried(tmp_path_factory: pytest.TempPathFactory, shared_project: Project) -> Project:
    """A store with three sizes of one workload, and one trial that is wrong."""
    project = Project(tmp_path_factory.mktemp("queried"))
    project.take_runner_from(shared_project)
    project.add("good")
    project.add("wrong", "for (long i = 0; i < n; i++) y[i] = x[i];")
    project.run("run", "-m", "workload=good", "workload.sizes.n=10,2000,50000")
    project.run("run", "workload=wrong")
    return project


def workloads(project: Project, *words: str) -> list[Any]:
    return [trial["workload"] for trial in project.json("results", *words).trials]


def sizes(project: Project, *words: str) -> list[Any]:
    trials = project.json("results", "workload=good", *words).trials
    return [trial["config"]["workload"]["sizes"]["n"] for trial in trials]


def test_results_are_newest_first(queried: Project) -> None:
    assert workloads(queried) == ["wrong", "good", "good", "good"]
    assert sizes(queried) == [50000, 2000, 10]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["status=ok"], ["good"] * 3),
        (["status=wrong"], ["wrong"]),
        (["verified=false"], ["wrong"]),
        (["workload.sizes.n=2000"], ["good"]),
        (
            ["toolchain=gcc", "target=host", "case=default", "variant=release"],
            ["wrong", *["good"] * 3],
        ),
        (["seed=0", "status=wrong"], ["wrong"]),
        (["status=timeout"], []),
    ],
)
def test_results_are_filtered_by_columns_and_config_keys(
    queried: Project, words: list[str], found: list[str]
) -> None:
    assert workloads(queried, *words) == found


def test_results_are_sorted_and_limited(queried: Project) -> None:
    assert sizes(queried, "--sort", "metrics.median_ns") == [10, 2000, 50000]
    assert sizes(queried, "--sort=-metrics.median_ns", "--limit", "2") == [50000, 2000]
    assert sizes(queried, "--sort", "workload.sizes.n", "--limit=1") == [10]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["n=2000"], [2000]),
        (["n>10", "n<=2000"], [2000]),
        (["metrics.median_ns>0", "n!=10"], [50000, 2000]),
    ],
)
def test_results_are_filtered_by_short_names_and_comparisons(
    queried: Project, words: list[str], found: list[int]
) -> None:
    assert sizes(queried, *words) == found


def test_results_say_why_there_are_none(queried: Project) -> None:
    done = queried.run("results", "status=wrnog")
    assert (done.code, done.stdout) == (0, "0 trials\n")
    assert (
        done.stderr
        == "note: no trial has status=wrnog. Did you mean 'wrong'? There are: ok, wrong.\n"
    )
    assert queried.json("results", "status=wrnog").stderr == ""


def test_results_show_what_was_wrong(queried: Project) -> None:
    header, row, _ = queried.run("results", "status=wrong").stdout.splitlines()
    assert header.endswith("message")
    assert "y[0] is " in row


def test_a_limit_that_is_none_is_refused(queried: Project) -> None:
    done = queried.run("results", "--limit", "-1")
    assert done.code == 2
    assert "--limit -1 is not allowed" in done.stderr


def test_results_as_json_are_one_line(queried: Project) -> None:
    assert queried.json("results").stdout.count("\n") == 1


def test_results_as_csv_have_a_column_for_every_metric(queried: Project) -> None:
    for words in (("output=csv",), ("--csv",)):
        done = queried.run("results", "workload=good", *words)
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        assert len(rows) == 3
        assert all(float(row["metrics.median_ns"]) > 0 for row in rows)
        assert rows[0]["point.workload.sizes.n"] == "50000"


def test_results_trace_every_number_to_config_artifact_and_machine(queried: Project) -> None:
    trial = queried.json("results", "workload=wrong").trial
    assert trial["config"]["workload"]["name"] == "wrong"
    assert trial["machine"]
    assert trial["created"]
    assert all(artifact["key"] for artifact in trial["artifacts"])


def test_results_as_json_lines_are_one_trial_each(queried: Project) -> None:
    lines = queried.run("results", "output=jsonl").lines
    assert [line["workload"] for line in lines] == ["wrong", "good", "good", "good"]


def test_targets_are_a_list_of_what_can_be_run_here(shared_project: Project) -> None:
    done = shared_project.json("targets")
    assert done.code == 0
    kinds = {
        "name": str,
        "family": str,
        "arch": str,
        "variants": list,
        "available": bool,
        "reason": str,
        "hint": str,
    }
    for target in done.document:
        for key, kind in kinds.items():
            assert isinstance(target[key], kind), key
        assert target["available"] == (target["reason"] == "")
    (host,) = [target for target in done.document if target["name"] == "host"]
    assert (host["family"], host["available"]) == ("host", True)
    assert host["variants"] == ["release", "asan"]


def test_a_target_that_is_not_available_says_why_and_what_to_install(project: Project) -> None:
    project.write(
        "configs/toolchain/absent.yaml",
        "name: absent\nfamily: gcc\ntools: {cc: absent-gcc}\nflags: []\n"
        "variants: {release: []}\n"
        "install: {debian: apt-get install absent, ubuntu: apt-get install absent}\n",
    )
    project.write(
        "configs/target/board.yaml",
        "# @package _global_\ndefaults:\n  - /toolchain: absent\n  - /arch: native\n"
        "  - /runtime: none\n  - /pipeline: native\n  - _self_\n"
        "target: {name: board, family: host, device: host, sources: [host]}\n",
    )
    (board,) = [t for t in project.json("targets").document if t["name"] == "board"]
    assert board["available"] is False
    assert "absent-gcc" in board["reason"]
    assert "absent" in board["hint"]
    assert project.run("run", "target=board").code == 3
    mixed = project.json("run", "-m", "workload=axpy", "case=small", "target=host,board")
    assert [trial["status"] for trial in mixed.trials] == ["ok", "unavailable"]
    assert mixed.code == 3


def test_doctor_describes_the_machine(shared_project: Project) -> None:
    done = shared_project.json("doctor")
    assert done.code == 0
    document = done.document
    assert document["machine"]["cpu"]
    assert document["places"]["project"] == str(shared_project.folder)
    assert Path(document["places"]["graph"]).is_file()
    assert document["places"]["graph"] in shared_project.run("doctor").stdout
    (gcc,) = [tool for tool in document["toolchains"] if tool["name"] == "gcc"]
    assert gcc["available"] is True
    assert gcc["version"]
    assert set(document["noise"]) == {"wall_spread", "cpu_spread"}


@pytest.mark.parametrize("command", ["targets", "doctor"])
def test_people_get_tables(shared_project: Project, command: str) -> None:
    done = shared_project.run(command)
    assert done.code == 0
    assert "gcc" in done.stdout or "host" in done.stdout
    assert not done.stdout.startswith(("{", "["))
