"""Odd paths, odd streams, damaged files, other processes: the command line copes or says so."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from command_line import KERNEL, PATIENCE_S, Project, command, environment


def redirected(project: Project, how: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command with its streams redirected as a shell would."""
    return subprocess.run(
        ["sh", "-c", f'"$@" {how}', "sh", *command(*words)],
        cwd=project.folder,
        env=environment(project.home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_any_folder_name_will_do(tmp_path: Path, shared_project: Project) -> None:
    project = Project(tmp_path / "mein 'Projekt' \"ü\" #1 $HOME; `x` & co")
    project.take_runner_from(shared_project)
    project.add("good")
    done = project.json("run", "workload=good", "recipe=it's a, b.yaml")
    assert (done.code, done.trial["status"]) == (0, "ok"), done
    assert project.json("recipe", "run", "it's a, b.yaml").code == 0


@pytest.mark.slow
def test_a_project_reached_by_a_link_is_the_same_project(project: Project, tmp_path: Path) -> None:
    project.add("good")
    project.run("run", "workload=good")
    link = tmp_path / "link"
    link.symlink_to(project.folder)
    done = project.json("run", "workload=good", cwd=link)
    assert done.document["build"]["built"] == 0
    assert len(project.json("results", "--history").trials) == 1


def test_a_terminal_without_unicode_gets_a_table_all_the_same(shared_project: Project) -> None:
    done = shared_project.run("run", "workload=axpy", env={"PYTHONIOENCODING": "ascii"})
    assert done.code == 0
    assert done.stderr == ""


@pytest.mark.slow
def test_closed_streams_change_nothing_but_what_is_said(shared_project: Project) -> None:
    words = ("run", "workload=axpy", "output=json")
    assert redirected(shared_project, ">&-", *words).returncode == 0
    without_stderr = redirected(shared_project, "2>&-", *words)
    assert without_stderr.returncode == 0
    assert without_stderr.stdout.startswith('{"trials"')
    failed = redirected(shared_project, "2>&-", "run", "workload=nope")
    assert (failed.returncode, failed.stdout) == (2, "")


@pytest.mark.parametrize("output", ["jsonl", "json", "csv", "table"])
def test_a_reader_that_goes_away_costs_no_trial_and_no_exit_code(
    project: Project, output: str
) -> None:
    project.add("good")
    project.add("bad", "y[0] = x[n - 1];")
    sweep = ("run", "-m", "workload=good,bad", "seed=range(6)", f"output={output}")
    process = project.start(*sweep)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(PATIENCE_S), "Error" in said) == (1, False)
    assert len(project.json("results").trials) == 12


def test_a_reader_of_stderr_that_goes_away_costs_no_exit_code(project: Project) -> None:
    project.add("bad", "y[0] = x[n - 1];")
    process = project.start("run", "workload=bad", "recipe=bad.yaml", "output=json")
    assert process.stdout is not None and process.stderr is not None
    process.stderr.close()
    assert '"status": "wrong"' in process.stdout.read()
    process.stdout.close()
    assert process.wait(PATIENCE_S) == 1


def test_a_reader_that_goes_away_is_no_error(shared_project: Project) -> None:
    done = redirected(shared_project, "| true", "run", "workload=axpy", "output=json")
    assert done.stderr == ""


@pytest.mark.slow
def test_a_full_disk_behind_stdout_is_said(shared_project: Project) -> None:
    for output in ("json", "table"):
        done = redirected(shared_project, "> /dev/full", "results", f"output={output}")
        assert done.returncode == 1
        assert "No space left on device" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_folder_that_is_gone_is_said(shared_project: Project, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = shared_project.run(
        "run", "workload=axpy", cwd=gone, before=["sh", "-c", 'rmdir "$0" && exec "$@"', str(gone)]
    )
    assert done.code == 3
    assert "current folder" in done.stderr


def test_damaged_caches_cost_time_and_nothing_else(project: Project) -> None:
    project.add("good")
    first = project.json("run", "workload=good")
    for damage in (b"not json", b"\xff\xfe", b"[]"):
        for path in (project.build / "cache").rglob("*.json"):
            path.write_bytes(damage)
        done = project.json("run", "workload=good")
        assert (done.code, done.trial["id"]) == (0, first.trial["id"])


@pytest.mark.slow
@pytest.mark.parametrize("words", [("run", "workload=good"), ("results",), ("plan",)])
def test_a_damaged_store_is_named_and_left_alone(project: Project, words: tuple[str, ...]) -> None:
    project.add("good")
    store = project.folder / ".kernloom" / "store.db"
    store.write_text("not a database " * 100, encoding="utf-8")
    before = store.read_bytes()
    done = project.json(*words)
    assert done.code == 1
    assert done.document["error"]["kind"] == "DamagedError"
    assert str(store) in done.stderr
    assert store.read_bytes() == before


def test_a_broken_config_does_not_hide_the_others(project: Project) -> None:
    project.write("configs/target/broken.yaml", "target: [\n")
    project.write("configs/toolchain/odd.yaml", "name: odd\nfoo: 1\n")
    targets = {target["name"]: target for target in project.json("targets").document}
    assert targets["host"]["available"] is True
    assert targets["broken"]["available"] is False
    assert "broken.yaml:2" in targets["broken"]["reason"]
    tools = {tool["name"]: tool for tool in project.json("doctor").document["toolchains"]}
    assert tools["gcc"]["available"] is True
    assert "'foo'" in tools["odd"]["reason"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("templates/odd.c", "odd.c"),
        ("templates/odd.c.j2", "odd.c.j2"),
        ("configs/workload/odd.yaml", "odd.yaml"),
    ],
)
def test_a_file_that_is_not_text_is_named(project: Project, path: str, name: str) -> None:
    kernel = KERNEL.format(name="odd")
    if path.endswith(".j2"):
        kernel = kernel.replace("file: odd.c, function: odd", "template: odd.c.j2")
    project.add("odd", kernel=kernel)
    (project.folder / path).write_bytes(b"name: \xff\xfe\n")
    done = project.run("run", "workload=odd")
    assert done.code == 2
    assert name in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "word",
    [
        "~arch",
        "~toolchain",
        "~target",
        "arch.caches=3",
        "arch.flags=3",
        "workload.kernels=3",
        "workload.cases=3",
        "pipeline.stages=3",
        "pipeline.stages.choice.in=3",
        "toolchain.flags=3",
        "select.fixed.tile=3",
    ],
)
@pytest.mark.slow
def test_a_section_that_is_nonsense_is_named(shared_project: Project, word: str) -> None:
    done = shared_project.run("run", "case=small", word)
    assert done.code == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("kernloom: error: ")


@pytest.mark.slow
def test_two_runs_at_once_share_the_work_and_the_store(fresh_project: Project) -> None:
    names = [f"k{i}" for i in range(6)]
    for name in names:
        fresh_project.add(name)
    sweep = ("run", "-m", f"workload={','.join(names)}", "output=json")
    runs = [fresh_project.start(*sweep) for _ in range(2)]
    for run in runs:
        stdout, stderr = run.communicate(timeout=120)
        assert run.returncode == 0, stdout + stderr
    assert len(fresh_project.json("results").trials) == 6


@pytest.mark.slow
def test_a_long_timeout_is_as_good_as_none(project: Project) -> None:
    project.add("good")
    assert project.json("run", "workload=good", "timeout=1e300").trial["status"] == "ok"
