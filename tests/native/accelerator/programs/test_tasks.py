"""Orchestrations on whole devices: both runtimes against a sequential execution, what is exhausted,
what is wrong, what fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import attacks
from units import unit

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parents[2] / "device")]

from building import SANITIZED  # noqa: E402
from script_programs import INCLUDE, NATIVE, OPTIONS, run_scripts  # noqa: E402

THREADS = ("-O1", "-fsanitize=thread")
GRAPHS = 10_000 if attacks.whole() else 300


@pytest.mark.parametrize(
    ("flags", "graphs"),
    [
        pytest.param(("-O1",), GRAPHS, id="plain"),
        pytest.param(("-O0", *SANITIZED), GRAPHS // 10, id="asan"),
        # Its programs take a minute to build.
        *([pytest.param(THREADS, GRAPHS // 10, id="tsan")] if attacks.whole() else []),
    ],
)
def test_tasks_on_whole_devices(flags: tuple[str, ...], graphs: int, tmp_path: Path) -> None:
    run_scripts(["tasks_test", "why_test"], tmp_path, flags, GRAPHS=graphs)


def test_the_scheduler_without_messages_and_time(tmp_path: Path) -> None:
    accelerator, control = NATIVE / "accelerator", NATIVE / "accelerator" / "control"
    orders = [control / "runtimes" / name for name in ("hostgraph", "ringmap")]
    tested = [
        *(control / "scheduler.cpp", control / "peaks.cpp", orders[0] / "graph_order.cpp"),
        *(orders[1] / "ring_order.cpp", orders[1] / "ring.cpp"),
    ]
    tasks = sorted((accelerator / "tasks").glob("*.cpp"))
    sources = [
        *(unit(tmp_path / "scheduler.cpp", tested), unit(tmp_path / "tasks.cpp", tasks)),
        HERE / "scheduler_test.cpp",
    ]
    program, folders = tmp_path / "scheduler_test", [f"-I{folder}" for folder in orders]
    command = ["g++", *OPTIONS, "-O1", *SANITIZED, *INCLUDE, *folders, *map(str, sources)]
    subprocess.run([*command, "-lgtest_main", "-lgtest", "-o", str(program)], check=True)
    subprocess.run([program, "--gtest_brief=1"], check=True)
