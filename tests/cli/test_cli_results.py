"""`results`: groups, pivot tables and exports, of a file or a server; damaged stores."""

from __future__ import annotations

import csv
import io
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from command_line import Project
from kernloom.measure.trial import Trial
from kernloom.store.backups import backups_of
from kernloom.store.store import open_store
from parts import needs_module
from postgres import PASSWORD, QUOTED, Server


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, shared_project: Project) -> Project:
    """A project with four trials of a sweep."""
    project = Project(tmp_path_factory.mktemp("swept"))
    project.take_runner_from(shared_project)
    project.add("good")
    done = project.run("run", "-m", "workload=good", "workload.sizes.n=100,200", "seed=1,2")
    assert done.code == 0, done.stderr
    assert project.run("results", "baseline", "save", "first").code == 0
    return project


def test_trials_are_grouped(swept: Project) -> None:
    rows = swept.json("results", "--group", "n,toolchain").document["rows"]
    assert [(row["n"], row["toolchain"], row["trials"]) for row in rows] == [
        (100, "gcc", 2),
        (200, "gcc", 2),
    ]
    assert all(0 < row["best"] <= row["median"] for row in rows)
    shown = swept.run("results", "--group", "n", "--sort", "-best", "--limit", "1").stdout
    assert len(shown.splitlines()) == 3


def test_a_counted_trial_does_not_change_the_metric_of_timed_ones(
    informed_project: Project, make_trial: Callable[..., Trial]
) -> None:
    counts = {"instructions": 87555, "median_ns": 2.0}
    failed = {"status": "crashed", "verified": False, "metrics": {}, "target": "riscv64"}
    with open_store(informed_project.folder / ".kernloom/store.db") as store:
        store.add(make_trial(id="a" * 64))
        store.add(make_trial(id="b" * 64, target="riscv64", metrics=counts))
        store.add(make_trial(id="c" * 64, **failed))
    rows = informed_project.json("results", "--group", "target").document["rows"]
    assert [(row["metric"], row["best"]) for row in rows] == [
        ("median_ns", 12345.0),
        ("instructions", 87555),
    ]
    mixed = informed_project.run("results", "--group", "workload")
    assert mixed.stderr.startswith("note: 1 group has trials that are ranked by different metrics")
    done = informed_project.run("results", "output=t4", "--sort", "id")
    said = [result["objectives"] for result in json.loads(done.stdout)["results"]]
    assert said == [["median_ns"], ["instructions"], ["instructions"]]
    assert "different objectives (instructions, median_ns)" in done.stderr


def test_trials_with_a_sanitizer_are_not_exported_for_autotuners(
    informed_project: Project, make_trial: Callable[..., Trial]
) -> None:
    with open_store(informed_project.folder / ".kernloom/store.db") as store:
        store.add(make_trial(id="a" * 64))
        store.add(make_trial(id="b" * 64, config={"target": {"variant": "asan"}}))
    done = informed_project.run("results", "output=t4")
    assert len(json.loads(done.stdout)["results"]) == 1
    said = "note: 1 trial with a sanitizer is not ranked: such times mean nothing\n"
    assert done.stderr == said
    assert informed_project.run("results", "--group", "workload").stderr == said


@pytest.mark.parametrize("axes", [["n", "seed"], ["n,seed"], ["n", "seed", "min_ns"]])
def test_a_metric_is_shown_by_two_keys(swept: Project, axes: list[str]) -> None:
    done = swept.run("results", "status=ok", "--pivot", *axes, "output=csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["n"] for row in rows] == ["100", "200"]
    assert all(float(row["seed=1"]) > 0 and float(row["seed=2"]) > 0 for row in rows)


def test_a_pivot_table_may_have_several_keys_for_its_columns(swept: Project) -> None:
    done = swept.json("results", "--pivot", "workload", "toolchain,n,seed")
    (row,) = done.document["rows"]
    assert list(row) == [
        "workload",
        *(f"toolchain=gcc n={n} seed={s}" for n in (100, 200) for s in (1, 2)),
    ]
    done = swept.json("results", "--pivot", "n,seed", "toolchain", "min_ns")
    assert [(row["n"], row["seed"]) for row in done.document["rows"]] == [
        (100, 1),
        (100, 2),
        (200, 1),
        (200, 2),
    ]


def test_either_of_several_values_is_asked_for_with_commas(swept: Project) -> None:
    assert len(swept.json("results", "status=ok,wrong", "n=200,300").trials) == 2
    assert len(swept.json("results", "n!=200,300").trials) == 2


def test_a_metric_that_no_trial_has_is_said(swept: Project, tmp_path: Path) -> None:
    note = "note: no trial has gflops: the workload states no cost\n"
    assert swept.run("results", "--group", "toolchain", "--metric", "gflops").stderr == note
    file = tmp_path / "x.json"
    done = swept.run("results", "output=t4", "--to", str(file), "--metric", "gflops")
    assert done.stderr == f"{note}4 trials written: {file}\n"


def test_a_filter_that_no_trial_fits_is_told_what_there_is(swept: Project) -> None:
    done = swept.run("results", "n=300")
    assert done.stderr == "note: no trial has n=300. There are: 100, 200.\n"


def test_a_store_that_is_not_there_is_said_not_to_be(swept: Project) -> None:
    done = swept.run("results", "store.path=nope.db")
    assert done.code == 2
    assert "store.path: there is no store nope.db" in done.stderr


def test_a_run_makes_no_folders_for_a_mistyped_store(project: Project) -> None:
    project.add("good")
    done = project.run("run", "workload=good", "store.path=no/such/x.db")
    assert done.code == 2
    assert "store.path: there is no folder no/such for x.db" in done.stderr
    assert not (project.folder / "no").exists()


def test_the_folder_for_stores_of_a_project_is_made(informed_project: Project) -> None:
    informed_project.add("good")
    done = informed_project.run("plan", "workload=good", "store.path=.kernloom/other.db")
    assert done.code == 0, done.stderr


def test_only_the_asked_columns_are_shown(swept: Project) -> None:
    done = swept.run(
        "results", "--columns", "n,seed,status", "--sort", "n", "--limit", "1", "output=jsonl"
    )
    (row,) = done.lines
    assert row["n"] == 100 and row["status"] == "ok" and list(row) == ["n", "seed", "status"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--group", "toolchian"], "Did you mean 'toolchain'?"),
        (["--columns", "n,statsu"], "Did you mean 'status'?"),
        (["--pivot", "n", "sede"], "Did you mean 'seed'?"),
        (["--pivot", "n"], "--pivot needs a key for the rows and one for the columns"),
        (["--group", "n", "--metric", "gflosp"], "Did you mean 'gflops'?"),
        (["median_ns=abc"], "median_ns=abc: expected a number"),
        (["--group", "n", "--sort", "wurst"], "the answer has no such column"),
        (["--group", "n", "--pivot", "n", "seed"], "do not go together"),
        (["output=parquet"], "--to trials.parquet"),
        (["output=t4", "--group", "n"], "has trials, not --group"),
        (["--to", "no/such/folder/x.csv"], "there is no folder"),
        (["store.url=postgres"], "is not the URL of a store"),
        (["store.url=127.0.0.1:5977/db"], "'127.0.0.1:5977/db' is not the URL of a store"),
        (["store=postgres"], "needs a URL"),
        (["store=postgers"], "Did you mean 'postgres'?"),
        (["store.pat=x"], "Did you mean 'path'?"),
        (["repiar"], "Did you mean 'repair'?"),
        (["baselin", "list"], "Did you mean 'baseline'?"),
        (["baseline", "shwo", "first"], "Did you mean 'show'?"),
        (["baseline", "show", "frist"], "Did you mean 'first'?"),
        (["baseline", "remove", "frist"], "Did you mean 'first'?"),
    ],
)
def test_a_mistake_is_answered_with_what_was_meant(
    swept: Project, words: list[str], said: str
) -> None:
    done = swept.run("results", *words)
    assert done.code == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_trials_are_exported_to_files(swept: Project, tmp_path: Path) -> None:
    t4, table = tmp_path / "t4.json", tmp_path / "trials.csv"
    assert swept.run("results", "output=t4", "--to", str(t4)).code == 0
    results = json.loads(t4.read_text())["results"]
    assert len(results) == 4
    assert all(len(result["times"]["runtimes"]) >= 7 for result in results)
    done = swept.run("results", "output=csv", "--to", str(table))
    assert (done.stdout, done.stderr) == ("", f"4 trials written: {table}\n")
    assert len(table.read_text().splitlines()) == 5


def test_trials_are_exported_to_parquet(swept: Project, tmp_path: Path) -> None:
    parquet = needs_module("pyarrow.parquet")
    file = tmp_path / "trials.parquet"
    done = swept.run("results", "output=parquet", "--to", str(file))
    assert done.code == 0, done.stderr
    assert parquet.read_table(file).column("point.seed").to_pylist().count(2) == 2


def test_each_attempt_is_exported_with_its_own_samples(project: Project) -> None:
    project.add("good")
    for _ in range(2):
        assert project.run("run", "workload=good", "rerun=all").code == 0
    results = json.loads(project.run("results", "--history", "output=t4").stdout)["results"]
    first, second = (result["times"]["runtimes"] for result in results)
    assert first and second and first != second


def test_a_missing_package_for_parquet_is_named(swept: Project, tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ImportError('No module named pyarrow')")
    path = f"{tmp_path}:{Path(__file__).resolve().parents[2] / 'engine'}"
    words = ("results", "output=parquet", "--to", str(tmp_path / "x.parquet"))
    done = swept.run(*words, env={"PYTHONPATH": path})
    assert done.code == 3
    assert "-m pip install pyarrow" in done.stderr


def test_a_damaged_store_is_said_and_repaired(project: Project) -> None:
    project.add("good")
    project.run("run", "-m", "workload=good", "seed=1,2,3")
    store = project.folder / ".kernloom" / "store.db"
    data = bytearray(store.read_bytes())
    data[:100] = bytes(100)
    store.write_bytes(data)
    for words in (["results"], ["run", "workload=good"]):
        done = project.run(*words)
        assert done.code == 1
        assert "kernloom results repair" in done.stderr
    done = project.run("results", "repair")
    assert done.code == 0, done.stderr
    assert "3 trials saved, none known to be lost\n" in done.stdout
    assert done.stderr == ""
    again = project.json("run", "-m", "workload=good", "seed=1,2,3")
    assert [trial["reused"] for trial in again.trials] == [True] * 3
    assert "nothing to repair: 3 trials" in project.run("results", "repair").stdout


def test_a_trial_with_a_changed_digit_is_said_and_measured_again(project: Project) -> None:
    project.add("good")
    project.run("run", "-m", "workload=good", "seed=1,2,3")
    with closing(sqlite3.connect(project.folder / ".kernloom" / "store.db")) as database, database:
        found = database.execute("SELECT id, metrics FROM trials LIMIT 1").fetchone()
        digit = re.search(r"\d", found[1])
        assert digit
        other = str((int(digit[0]) + 1) % 10)
        metrics = found[1][: digit.start()] + other + found[1][digit.end() :]
        database.execute("UPDATE trials SET metrics = ? WHERE id = ?", [metrics, found[0]])
    shown = project.json("results")
    assert found[0] not in [trial["id"] for trial in shown.trials]
    assert f"1 trial does not match its digest and is left out ({found[0]})" in shown.stderr
    again = project.json("run", "-m", "workload=good", "seed=1,2,3")
    assert {t["id"] for t in again.trials if not t["reused"]} == {found[0]}
    assert again.stderr.count("does not match its digest") == 1
    last = project.json("run", "-m", "workload=good", "seed=1,2,3")
    assert all(trial["reused"] for trial in last.trials)
    assert "digest" not in last.stderr


def test_trials_that_a_killed_run_had_in_a_lost_log_are_said(project: Project) -> None:
    project.add("good")
    words = ("run", "-m", "workload=good", "seed=range(0,400)")
    running = project.start(*words, "output=jsonl")
    assert running.stdout
    for _ in range(5):
        running.stdout.readline()
    running.kill()
    running.communicate()
    log = project.folder / ".kernloom" / "store.db-wal"
    assert log.stat().st_size > 0
    log.write_bytes(b"")
    done = project.json("results")
    assert re.search(r"\d+ trials? (was|were) lost", done.stderr), done.stderr
    assert "lost" not in project.json("results").stderr


def test_what_a_torn_file_has_lost_is_said_to_be_unknown(project: Project) -> None:
    project.add("good")
    project.run("run", "-m", "workload=good", "seed=range(1,13)")
    store = project.folder / ".kernloom" / "store.db"
    backups_of(store)[0].unlink()
    data = store.read_bytes()
    store.write_bytes(data[: len(data) * 3 // 4])
    done = project.run("results", "repair")
    assert done.code == 0, done.stderr
    assert "; an unknown number may be lost: a part of the file is missing" in done.stdout
    assert "what is lost is measured again" in done.stderr


def test_a_team_works_with_one_server_and_nobody_sees_its_password(
    project: Project, server: Server, tmp_path: Path
) -> None:
    server.execute("CREATE DATABASE team")
    url = server.url(database="team")
    chosen = ("store=postgres", f"store.url={url}")
    project.add("good")
    done = project.json("run", "-m", "workload=good", "seed=1,2", "recipe=r.yaml", *chosen)
    assert done.code == 0, done.stderr
    assert not (project.folder / ".kernloom" / "store.db").exists()
    other = Project(tmp_path / "other")
    other.take_runner_from(project)
    other.add("good")
    # A colleague keeps the URL in a file, and the password elsewhere.
    without = server.url(database="team", password="")
    other.write("configs/store/team.yaml", f"name: postgres\npath: null\nurl: {without}\n")
    env = {"PGPASSWORD": PASSWORD}
    reused = other.json("run", "workload=good", "seed=2", "store=team", env=env)
    assert reused.trial["reused"]
    assert len(other.json("results", "store=team", env=env).trials) == 2
    shown = project.json("results", *chosen)
    assert len(shown.trials) == 2
    recipe = (project.folder / "r.yaml").read_text()
    plan = project.json("plan", "workload=good", *chosen)
    wrong = project.json("run", "workload=good", f"{chosen[1]}x", "store=postgres")
    assert wrong.code == 2
    bad = project.json("run", "workload=good", "store=postgres", f"store.url={url}", "nosuch=1")
    # A password in a file of the project stays there.
    project.write("configs/store/ours.yaml", f"name: postgres\npath: null\nurl: {url}\n")
    ours = project.json("run", "workload=good", "seed=2", "store=ours")
    assert ours.trial["reused"]
    (project.folder / "configs" / "store" / "ours.yaml").unlink()
    said = [done, reused, shown, plan, wrong, bad, ours]
    everything = recipe + "".join(item.stdout + item.stderr for item in said)
    assert PASSWORD not in everything and QUOTED not in everything
    written = [file for file in project.folder.rglob("*") if file.is_file()]
    assert not [file for file in written if QUOTED.encode() in file.read_bytes()]


def test_a_server_that_is_down_is_said_before_anything_is_built(project: Project) -> None:
    needs_module("psycopg")
    project.add("good")
    url = "postgresql+psycopg://me:hunter2@127.0.0.1:1/db"
    done = project.json("run", "workload=good", "store=postgres", f"store.url={url}")
    assert done.code == 3
    assert "cannot be reached" in done.document["error"]["message"]
    assert "hunter2" not in done.stdout + done.stderr
    assert not (project.build / "kernels").exists()


def test_results_show_how_often_a_trial_was_reused(project: Project) -> None:
    project.add("good")
    for _ in range(3):
        assert project.run("run", "workload=good").code == 0
    assert project.json("results").trials[0]["reuses"] == 2
    assert "2×" in project.run("results").stdout


def test_attempts_over_time_are_shown(swept: Project) -> None:
    again = ("run", "workload=good", "workload.sizes.n=100", "seed=1", "rerun=all")
    assert swept.run(*again).code == 0
    found = swept.json("results", "stability").document["trials"]
    assert [len(item["attempts"]) for item in found] == [2, 1, 1, 1]
    shown = swept.run("results", "stability", "n=100", "seed=1").stdout
    assert "2 attempts" in shown and "intervals include the median of all attempts" in shown
    assert "4 trials, 5 attempts" in swept.run("results", "stability").stdout
    refused = swept.run("results", "stability", "--limit", "3")
    assert refused.code == 2 and "takes no --limit" in refused.stderr
    nothing = swept.run("results", "stability", "workload=god")
    assert nothing.code == 0 and "Did you mean 'good'" in nothing.stderr
