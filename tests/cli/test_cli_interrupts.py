"""Ctrl-C, SIGTERM, kill -9, a full disk, a read-only folder: what is finished is kept, and no
process lingers."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Sequence

import pytest

from command_line import DOUBLE, Project, in_group, unshare, working_in
from parts import needs_module
from postgres import postgres

PATIENCE_S = 60
SLOW = pytest.mark.slow
WAITS = """\
int started = open("{folder}/started", O_WRONLY);
if (started >= 0 && write(started, "!", 1) == 1)
    close(open("{folder}/gate", O_RDONLY));
"""
SWEEP = ("run", "-m", "workload=good,waits,last", "output=json")


class Gate:
    """Two pipes: something that runs says by one that it has started, and waits at the other."""

    def __init__(self, project: Project) -> None:
        self.paths = [project.folder / "started", project.folder / "gate"]
        for path in self.paths:
            os.mkfifo(path)
        self._started = os.open(self.paths[0], os.O_RDONLY | os.O_NONBLOCK)

    def wait(self, process: subprocess.Popen[str]) -> None:
        ready, _, _ = select.select([self._started], [], [], PATIENCE_S)
        assert ready, process.poll()

    def let_through(self) -> None:
        """Let it run on, and whatever comes after it."""
        with self.paths[1].open("wb"):
            for path in self.paths:
                path.unlink()

    def remove(self) -> None:
        os.close(self._started)
        for path in self.paths:
            path.unlink(missing_ok=True)


@pytest.fixture
def sweep(project: Project) -> Project:
    """A project whose sweep stays in its second point while there is a gate."""
    project.add("good")
    head = "#include <fcntl.h>\n#include <unistd.h>"
    project.add("waits", WAITS.format(folder=project.folder) + DOUBLE, head=head)
    project.add("last")
    return project


def signalled(
    project: Project, words: Sequence[str], number: int, *, group: bool = True
) -> tuple[int, str, str]:
    """Signal a command when it stands at the gate; its exit code, stdout and stderr."""
    gate = Gate(project)
    process = project.start(*words)
    try:
        gate.wait(process)
        (os.killpg if group else os.kill)(process.pid, number)
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
        assert in_group(process.pid) == []
    finally:
        process.kill()
        gate.remove()
    return process.returncode, stdout, stderr


def stored(project: Project) -> list[str]:
    trials = project.json("results", "--history").trials
    return sorted(trial["workload"] for trial in trials)


@pytest.mark.parametrize(
    ("number", "group", "code"),
    [
        (signal.SIGINT, True, 130),
        pytest.param(signal.SIGINT, False, 130, marks=SLOW),
        (signal.SIGTERM, True, 143),
        pytest.param(signal.SIGTERM, False, 143, marks=SLOW),
        pytest.param(signal.SIGKILL, True, -9, marks=SLOW),
    ],
)
def test_an_interrupted_sweep_keeps_what_it_finished_and_the_next_run_does_the_rest(
    sweep: Project, number: int, group: bool, code: int
) -> None:
    ended, _, stderr = signalled(sweep, SWEEP, number, group=group)
    assert ended == code
    assert "Traceback" not in stderr
    assert ("kept" in stderr) == (number != signal.SIGKILL)
    assert stored(sweep) == ["good"]
    if number != signal.SIGKILL:
        assert working_in(sweep.folder) == []

    rest = sweep.run(*SWEEP)
    assert rest.code == 0, rest.stderr
    assert [trial["status"] for trial in rest.trials] == ["ok", "ok", "ok"]
    assert rest.document["build"]["built"] == 0
    assert stored(sweep) == ["good", "last", "waits"]
    assert working_in(sweep.folder) == []


@pytest.mark.slow
def test_the_document_of_an_interrupted_sweep_holds_the_finished_trials(sweep: Project) -> None:
    _, stdout, _ = signalled(sweep, SWEEP, signal.SIGINT)
    assert [trial["workload"] for trial in json.loads(stdout)["trials"]] == ["good"]


@pytest.mark.slow
@pytest.mark.parametrize("output", ["table", "json", "jsonl"])
def test_a_sweep_whose_server_is_stopped_shows_what_it_finished(
    sweep: Project, output: str
) -> None:
    needs_module("psycopg")
    with postgres() as server:
        chosen = ("store=postgres", f"store.url={server.url()}", f"output={output}")
        gate = Gate(sweep)
        process = sweep.start(*SWEEP[:3], *chosen)
        try:
            gate.wait(process)
            server.stop()
            gate.let_through()
            stdout, stderr = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
            gate.remove()
    assert process.returncode == 1
    assert "cannot be reached" in stderr
    assert "kernloom: ended early; 1 finished trial is kept" in stderr
    assert "Traceback" not in stderr
    if output == "table":
        assert "good" in stdout and "waits" not in stdout
    elif output == "json":
        document = json.loads(stdout)
        assert [trial["workload"] for trial in document["trials"]] == ["good"]
        assert document["error"]["exit_code"] == 1
    else:
        trial, error = map(json.loads, stdout.splitlines())
        assert (trial["workload"], list(error)) == ("good", ["error"])
    assert working_in(sweep.folder) == []


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=SLOW)]
)
def test_interrupting_a_build_ends_the_compilers(project: Project, number: int, code: int) -> None:
    project.add("good")
    script = (
        "#!/bin/sh\n"
        f'if [ -p "{project.folder}/gate" ]; then\n'
        '  for word in "$@"; do\n'
        f'    [ "$word" = kernel.so ] && echo > "{project.folder}/started" && '
        f'read line < "{project.folder}/gate"\n'
        "  done\n"
        "fi\n"
        'exec gcc "$@"\n'
    )
    cc = project.write("slow-cc", script)
    cc.chmod(0o755)
    words = ("run", "workload=good", f"toolchain.tools.cc={cc}", "output=json")
    ended, _, stderr = signalled(project, words, number)
    assert ended == code
    assert "Traceback" not in stderr
    assert working_in(project.folder) == []
    assert list((project.build / "tmp").iterdir()) == []
    again = project.run(*words)
    assert (again.code, again.trial["status"]) == (0, "ok")


@pytest.mark.parametrize("output", ["table", "json"])
def test_a_read_only_project_is_said_to_be_one(project: Project, output: str) -> None:
    project.add("good")
    read_only = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0"'
    done = project.run(
        "run", "workload=good", f"output={output}", before=unshare(project, read_only)
    )
    assert done.code == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("kernloom: error: cannot ")
    assert "Read-only file system" in done.stderr
    assert str(project.folder) in done.stderr
    if output == "json":
        assert done.document["error"]["exit_code"] == 1


def test_a_read_only_project_can_still_be_planned_and_queried(project: Project) -> None:
    project.add("good")
    project.run("run", "workload=good")
    read_only = unshare(project, 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0"')
    plan = project.json("plan", "workload=good", before=read_only)
    assert [artifact["state"] for artifact in plan.document["artifacts"]] == ["cached", "cached"]
    assert len(project.json("results", before=read_only).trials) == 1


@pytest.mark.parametrize(
    "size", ["120k", pytest.param("16k", marks=SLOW), pytest.param("320k", marks=SLOW)]
)
def test_a_full_disk_is_said_to_be_full(fresh_project: Project, size: str) -> None:
    fresh_project.add("good")
    (fresh_project.folder / ".kernloom").mkdir()
    small = unshare(fresh_project, f'mount -t tmpfs -o size={size} none "$0/.kernloom"')
    done = fresh_project.run("run", "workload=good", before=small)
    assert done.code == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("kernloom: error: ")
    assert "No space left" in done.stderr or "full" in done.stderr
    assert working_in(fresh_project.folder) == []
