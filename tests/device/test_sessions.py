"""A target's sessions are bounded: the next one waits until there is room."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from command_line import ENGINE, PATIENCE_S
from kernloom.base.errors import DeviceError
from kernloom.device.sessions import SessionSlots

HOLDER = """
import sys
from pathlib import Path
from kernloom.device.sessions import SessionSlots
with SessionSlots(int(sys.argv[2]), Path(sys.argv[1])).held():
    log = (Path(sys.argv[1]) / "log").open("a", buffering=1)
    log.write("open\\n")
    print("open", flush=True)
    sys.stdin.read()
    log.write("closed\\n")
"""


def holder(folder: Path, sessions: int) -> subprocess.Popen[str]:
    """A process that takes a place, says so, and keeps it until its stdin ends."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), str(sessions)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(ENGINE)},
    )


@pytest.mark.parametrize("sessions", [1, 2, 3])
def test_no_more_are_open_at_once_than_there_are_places(tmp_path: Path, sessions: int) -> None:
    slots = SessionSlots(sessions, tmp_path)
    counting = threading.Lock()
    now: list[int] = []
    most = 0

    def work(number: int) -> None:
        nonlocal most
        with slots.held():
            with counting:
                now.append(number)
                most = max(most, len(now))
            sum(range(20_000))
            with counting:
                now.remove(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(60)))
    assert 1 <= most <= sessions


def test_the_next_process_waits_for_the_one_before(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with holder(tmp_path, 1) as first:
        assert first.stdout and first.stdin
        assert first.stdout.readline() == "open\n"
        others = [holder(tmp_path, 1) for _ in range(3)]
        for other in others:
            assert other.stdin
            other.stdin.close()
        first.stdin.close()
    for other in others:
        assert other.wait(PATIENCE_S) == 0
        assert other.stdout
        other.stdout.close()
    assert log.read_text().split() == ["open", "closed"] * 4


def test_a_process_that_is_killed_leaves_its_place(tmp_path: Path) -> None:
    with holder(tmp_path, 1) as process:
        assert process.stdout
        assert process.stdout.readline() == "open\n"
        process.kill()
    with SessionSlots(1, tmp_path).held():
        pass


def test_whoever_holds_all_places_is_refused_instead_of_waiting_for_itself(tmp_path: Path) -> None:
    slots = SessionSlots(1, tmp_path)
    with slots.held(), pytest.raises(DeviceError, match=r"target\.sessions") as error:
        slots.held().__enter__()
    assert error.value.status == "refused"
    with slots.held():
        pass


def test_zero_is_any_number(tmp_path: Path) -> None:
    slots = SessionSlots(0, tmp_path / "none")
    with slots.held(), slots.held(), slots.held():
        assert not (tmp_path / "none").exists()
