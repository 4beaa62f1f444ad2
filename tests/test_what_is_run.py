"""No test is left out by mistake."""

from __future__ import annotations

import re
import signal
import threading
from fnmatch import fnmatch
from pathlib import Path

import pytest

from slow import SLOW_FILES, SLOW_FOLDERS, SLOW_TESTS, TWICE

HERE = Path(__file__).parent
FILES = [path for path in HERE.rglob("test_*.py") if path.parent.name != "__pycache__"]


def test_every_folder_of_tests_is_collected(pytestconfig: pytest.Config) -> None:
    folders = {part for path in FILES for part in path.relative_to(HERE).parts[:-1]}
    patterns = pytestconfig.getini("norecursedirs")
    assert not [f for f in folders for pattern in patterns if fnmatch(f, pattern)]


def test_whatever_is_called_slow_exists() -> None:
    assert {path.name for path in FILES} >= SLOW_FILES | TWICE
    assert {path.parent.name for path in FILES} >= {*SLOW_FOLDERS}
    names = {
        name
        for path in FILES
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert not {name.partition("[")[0] for name in SLOW_TESTS} - names


def test_a_test_that_hangs_is_ended_and_shows_where_it_was() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    with pytest.raises(TimeoutError, match=r"test_what_is_run\.py.* in test_a_test_that_hangs"):
        threading.Event().wait(60)
