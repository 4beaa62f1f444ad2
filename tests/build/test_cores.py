"""Compilers leave a core alone while something is measured on it, and use it otherwise."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from kernloom.build.cores import Cores, MeasuredCore, smt_siblings

USABLE = os.sched_getaffinity(0)

pytestmark = pytest.mark.skipif(
    len(USABLE - smt_siblings(max(USABLE))) == 0, reason="needs a second core"
)


class Compiler(threading.Thread):
    """Takes a core and notes which, until it is told to end."""

    def __init__(self, cores: Cores) -> None:
        super().__init__(daemon=True)
        self._cores = cores
        self.there, self.end = threading.Event(), threading.Event()
        self.on: set[int] = set()
        self.start()

    def run(self) -> None:
        with self._cores.for_child():
            self.on = os.sched_getaffinity(0)
            self.there.set()
            self.end.wait()


def test_no_compiler_is_where_something_is_measured(tmp_path: Path) -> None:
    measured = MeasuredCore(max(USABLE), tmp_path)
    cores = Cores(measured.number, tmp_path)
    others = USABLE - smt_siblings(measured.number)
    compilers = []
    with measured.taken():
        compilers = [Compiler(cores) for _ in others]
        for compiler in compilers:
            assert compiler.there.wait(10)
            assert compiler.on == others
        one_more = Compiler(cores)
        # Nothing tells that it never will; that it has not yet is all one can see.
        assert not one_more.there.is_set()
    assert one_more.there.wait(10)
    assert one_more.on == USABLE & smt_siblings(measured.number)
    for compiler in (*compilers, one_more):
        compiler.end.set()
        compiler.join()


def test_measuring_waits_for_the_compiler_on_its_core(tmp_path: Path) -> None:
    measured = MeasuredCore(max(USABLE), tmp_path)
    cores = Cores(measured.number, tmp_path)
    compilers = [Compiler(cores) for _ in range(len(USABLE - smt_siblings(measured.number)) + 1)]
    for compiler in compilers:
        assert compiler.there.wait(10)
    taken = threading.Event()

    def measure() -> None:
        with measured.taken():
            taken.set()

    thread = threading.Thread(target=measure, daemon=True)
    thread.start()
    assert not taken.is_set()
    for compiler in compilers:
        compiler.end.set()
    assert taken.wait(10)


def test_without_a_measured_core_compilers_go_anywhere(tmp_path: Path) -> None:
    with Cores(None, tmp_path).for_child():
        assert os.sched_getaffinity(0) == USABLE
