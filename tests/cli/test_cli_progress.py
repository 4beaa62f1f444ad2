"""What a run says while it goes on: a view on a terminal, lines elsewhere, trials as JSON lines."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Callable

import pytest

from command_line import DOUBLE, PATIENCE_S, Project, command, environment
from kernloom.cli.main import main
from kernloom.cli.progress.live import view
from kernloom.cli.progress.tally import Tally, duration
from kernloom.measure.trial import Trial

WRONG = "y[0] = x[n - 1];"
WAITS = """\
int gate = open("{folder}/gate", O_RDONLY);
close(gate);
"""
"""Kernels run in a folder of their own."""
Make = Callable[..., Trial]


@pytest.fixture
def make() -> Make:
    def made(number: int, status: str = "ok", **changed: object) -> Trial:
        given = {
            "id": f"{number}",
            "workload": "axpy",
            "case": "default",
            "target": "host",
            "status": status,
            "verified": status == "ok",
            "point": {"select.fixed.tile.block": number},
            "metrics": {"median_ns": 1000.0 * number} if status == "ok" else {},
        }
        return Trial(**{**given, **changed})  # type: ignore[arg-type]

    return made


def half_way(make: Make, total: int = 40) -> Tally:
    tally = Tally()
    tally.reached("measuring", 0, total, "", 0.0, 100.0)
    for number in range(1, total // 2):
        tally.add(make(number))
    tally.add(make(0, "wrong"))
    tally.reached("measuring", total // 2, total, "", 0.0, 110.0)
    return tally


def drawn(tally: Tally, width: int, height: int = 24) -> list[str]:
    from rich.console import Console

    file = io.StringIO()
    Console(file=file, width=width, height=height).print(view(tally, width, height))
    return file.getvalue().splitlines()


def test_a_line_tells_rate_rest_best_and_failures(make: Make) -> None:
    line = half_way(make).line()
    assert line == "measuring 20/40; 2/s, 0:10 left; best 1.00 µs: block=1; failed: 1 wrong"


def test_the_view_has_a_table_of_the_best_points_in_a_long_sweep(make: Make) -> None:
    bar, head, *rows, failed = drawn(half_way(make), 80)
    assert re.match(r"measuring  ━+.* 20/40  2/s, 0:10 left", bar)
    assert head.split() == ["best", "point"]
    assert [row.split()[-1] for row in rows] == [f"block={n}" for n in range(1, 6)]
    assert failed == "failed 1 wrong"


@pytest.mark.parametrize("width", [20, 40, 59, 60, 80, 200])
@pytest.mark.parametrize("height", [3, 24])
def test_the_view_fits_every_terminal(make: Make, width: int, height: int) -> None:
    lines = drawn(half_way(make), width, height)
    assert all(len(line) <= width for line in lines)
    assert len(lines) <= (8 if height == 24 else 2)


def test_points_that_do_different_work_are_not_ranked_together(make: Make) -> None:
    tally = Tally()
    tally.reached("measuring", 0, 4, "", 0.0, 0.0)
    for number in range(1, 5):
        tally.add(make(number, workload="axpy" if number % 2 else "softmax"))
    assert tally.best() == [
        ("1.00 µs", "axpy on host, block=1"),
        ("2.00 µs", "softmax on host, block=2"),
    ]


def test_a_sweep_over_different_work_alone_has_no_best(make: Make) -> None:
    tally = Tally()
    tally.reached("measuring", 0, 2, "", 0.0, 0.0)
    tally.add(make(1, workload="axpy"))
    assert tally.best() == []
    tally.add(make(2, workload="softmax"))
    assert tally.best() == []
    assert "best" not in tally.line()


def test_the_rate_of_one_phase_says_nothing_about_the_next(make: Make) -> None:
    tally = half_way(make)
    tally.reached("building", 0, 7, "", 0.0, 111.0)
    assert tally.speed == ""


def test_unfinished_rounds_count_for_what_is_left(make: Make) -> None:
    tally = Tally()
    tally.reached("verifying", 0, 10, "round 1", 0.0, 0.0)
    tally.reached("measuring", 0, 10, "round 3", 5.0, 20.0)
    assert tally.fraction == 0.5
    assert tally.speed == "0:20 left"
    tally.reached("measuring", 4, 10, "round 7", 1.0, 21.0)
    assert tally.speed == "4.2 s each, 0:21 left"


@pytest.mark.parametrize(
    ("seconds", "text"), [(6.6, "0:07"), (754, "12:34"), (7500, "2:05:00"), (-1, "0:00")]
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def on_terminal(project: Project, *words: str) -> tuple[str, str]:
    """stdout, a file, and what a terminal got as stderr."""
    ours, theirs = pty.openpty()
    stdout = project.folder / "stdout"
    with stdout.open("wb") as file:
        process = subprocess.Popen(
            command(*words),
            cwd=project.folder,
            env=environment(project.home, TERM="xterm", COLUMNS="80", LINES="24"),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=theirs,
        )
    os.close(theirs)
    seen = bytearray()
    try:
        while data := os.read(ours, 1 << 16):
            seen += data
    except OSError:  # The other side has closed it.
        pass
    process.wait(PATIENCE_S)
    os.close(ours)
    return stdout.read_text(encoding="utf-8"), seen.decode()


@pytest.mark.slow
def test_on_a_terminal_the_view_is_gone_when_the_table_comes(project: Project) -> None:
    seeds = ",".join(map(str, range(60)))
    project.add("good")
    project.add("bad", WRONG)
    stdout, stderr = on_terminal(project, "run", "-m", "workload=good,bad", f"seed={seeds}")
    assert "60 verified, 60 failed (60 wrong)" in stdout
    assert "measuring" in stderr
    assert "/120" in stderr
    assert "measuring" not in stdout
    assert stderr.endswith("\x1b[J")
    assert "\x1b[?25l" not in stderr, "the cursor is hidden"


@pytest.mark.slow
@pytest.mark.parametrize(("command", "phase"), [("run", "measuring"), ("check", "verifying")])
def test_a_document_on_stdout_leaves_the_view_on_a_terminal(
    project: Project, command: str, phase: str
) -> None:
    project.add("good")
    seeds = ",".join(map(str, range(120)))
    words = (command, "-m", "workload=good", f"seed={seeds}", "output=json")
    stdout, stderr = on_terminal(project, *words)
    assert len(json.loads(stdout)["trials"]) == 120
    assert phase in stderr
    assert "/120" in stderr


def test_a_document_on_stdout_leaves_the_lines_elsewhere(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project.add("good")
    project.add("also")
    monkeypatch.chdir(project.folder)
    monkeypatch.setattr("kernloom.cli.progress._EVERY_S", 0.0)
    before = signal.getsignal(signal.SIGTERM)
    try:
        for command, phase in (("build", "building"), ("run", "measuring"), ("check", "verifying")):
            assert main([command, "-m", "workload=good,also", "output=json"]) == 0
            said = capsys.readouterr()
            assert json.loads(said.out)
            assert f"{phase} 0/2" in said.err
    finally:
        signal.signal(signal.SIGTERM, before)


def test_nothing_but_the_table_is_written_where_there_is_no_terminal(project: Project) -> None:
    project.add("good")
    done = project.run("run", "-m", "workload=good", "seed=1,2,3")
    assert done.code == 0
    # On a very busy machine it takes long enough for a line or two.
    assert all(line.startswith(("building", "measuring")) for line in done.stderr.splitlines())


def test_json_lines_come_while_the_sweep_goes_on(project: Project) -> None:
    project.add("good")
    waits = WAITS.format(folder=project.folder)
    project.add("waits", waits + DOUBLE, head="#include <fcntl.h>\n#include <unistd.h>")
    os.mkfifo(project.folder / "gate")
    process = project.start("run", "-m", "workload=good,waits", "output=jsonl", "timeout=100")
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert (first["workload"], first["status"]) == ("good", "ok")
        assert process.poll() is None
        # The kernel waits for this side, then finds no file and waits no more.
        gate = os.open(project.folder / "gate", os.O_WRONLY)
        (project.folder / "gate").unlink()
        os.close(gate)
        rest, stderr = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert [json.loads(line)["workload"] for line in rest.splitlines()] == ["waits"], stderr
    assert process.returncode == 0


def test_json_lines_tell_each_point_once_stored_ones_first(project: Project) -> None:
    project.add("good")
    project.run("run", "workload=good", "seed=2")
    done = project.run("run", "-m", "workload=good", "seed=1,2,3", "output=jsonl")
    assert [(line["point"]["seed"], line["reused"]) for line in done.lines] == [
        (2, True),
        (1, False),
        (3, False),
    ]
