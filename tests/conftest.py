"""Projects of a user, for every test that runs the command line."""

from __future__ import annotations

import faulthandler
import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

import attacks
import costs
import postgres
from command_line import COMPILED, Project
from kernloom.measure.trial import Trial
from parts import needs_module
from slow import is_slow

LEFT_OUT = pytest.StashKey[int]()
PATIENCE_S = 300
"""No test takes nearly as long; one that waits for ever must fail and not hold up the others.
tests/run ends the process of one that cannot be interrupted a little later."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--attack", action="store_true", help="try every case of those tests that try a small share"
    )
    parser.addoption(
        "--costs", action="store_true", help="show the CPU time of each folder and of the longest"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Shells let what they start in the background ignore Ctrl-C, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("attack"):
        os.environ[attacks.WHOLE] = "1"
    if config.getoption("costs"):
        config.pluginmanager.register(costs.Costs())
    if not hasattr(config, "workerinput"):
        folder = tempfile.mkdtemp(prefix="kernloom-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ[COMPILED] = folder


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_slow(item.path, item.name):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    before = signal.signal(signal.SIGALRM, _out_of_patience)
    signal.alarm(PATIENCE_S)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _out_of_patience(number: int, frame: object) -> NoReturn:
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        stacks = file.read()
    raise TimeoutError(f"the test took more than {PATIENCE_S} s; its threads were here:\n{stacks}")


def pytest_deselected(items: list[pytest.Item]) -> None:
    config = items[0].config
    config.stash[LEFT_OUT] = config.stash.get(LEFT_OUT, 0) + len(items)
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = config.stash[LEFT_OUT]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Of pytest-xdist: each of its processes leaves out the same tests."""
    left_out = getattr(node, "workeroutput", {}).get("left_out")
    if left_out:
        node.config.stash[LEFT_OUT] = left_out


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    ended = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    for line in attacks.table(ended):
        terminalreporter.write_line(line)
    if LEFT_OUT in config.stash:
        terminalreporter.write_line(f"{config.stash[LEFT_OUT]} tests were left out")


@pytest.fixture
def fresh_project(tmp_path: Path) -> Project:
    """A project in which nothing has ever been run."""
    return Project(tmp_path)


@pytest.fixture(scope="session")
def machine() -> Project:
    """A project that knows all compilers, emulators and devices of this machine, and nothing else;
    whichever process of the tests comes first asks them, for probing takes seconds."""
    folder = Path(os.environ[COMPILED]) / "machine"
    with (folder.parent / "machine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return Project(folder)
        project = Project(folder)
        done = project.run("doctor")
        assert done.code == 0, done.stderr
        return project


@pytest.fixture
def informed_project(tmp_path: Path, machine: Project) -> Project:
    """A project of the test's own that knows this machine, in which nothing is built or stored."""
    project = Project(tmp_path)
    project.take_facts_from(machine)
    return project


@pytest.fixture(scope="session")
def shared_project(tmp_path_factory: pytest.TempPathFactory, machine: Project) -> Project:
    """One project for all tests that leave it as they found it; its runner and axpy are built."""
    project = Project(tmp_path_factory.mktemp("shared"))
    project.take_facts_from(machine)
    project.add("good")
    done = project.run("run", "-m", "workload=axpy,good", "case=default")
    assert done.code == 0, done.stderr + done.stdout
    return project


@pytest.fixture
def project(tmp_path: Path, shared_project: Project) -> Project:
    """A project of the test's own that has a built runner and no results."""
    project = Project(tmp_path)
    project.take_runner_from(shared_project)
    return project


@pytest.fixture
def sharing_project(informed_project: Project) -> Project:
    """A project of the test's own without results, in which the artifacts that others built are."""
    project = informed_project
    project.share_artifacts()
    return project


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Server]:
    """A PostgreSQL server, stopped after the last test."""
    needs_module("psycopg")
    with postgres.postgres() as server:
        yield server


@pytest.fixture
def make_trial() -> Callable[..., Trial]:
    def make(**changes: Any) -> Trial:
        values: dict[str, Any] = {
            "id": "0123456789abcdef" * 4,
            "workload": "matmul",
            "case": "default",
            "target": "host",
            "status": "ok",
            "verified": True,
            "params": {
                "tile": {"multiply": {"mr": 6, "kc": 512}},
                "pack": {"multiply": {"b": True}},
            },
            "provider": "model",
            "metrics": {
                "median_ns": 12345.0,
                "ci_low_ns": 12300.0,
                "ci_high_ns": 12500.0,
                "gflops": 88.123,
                "deterministic": [],
            },
            "artifacts": ({"name": "matmul.multiply", "key": "k1", "cached": True},),
            "config": {"arch": {"name": "zen4"}, "toolchain": {"name": "gcc"}},
            "created": "2025-01-02T03:04:05.678+00:00",
        }
        return Trial(**(values | changes))

    return make
