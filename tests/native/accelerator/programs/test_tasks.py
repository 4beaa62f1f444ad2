"""Orchestrations on whole devices: both runtimes against a sequential execution, what is exhausted,
what is wrong, what fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import attacks

HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[2]
NATIVE = TESTS.parent / "native"
sys.path.append(str(TESTS / "device"))

from building import ACCELERATOR, SANITIZED, accelerator_programs, compiled  # noqa: E402

_FOLDERS = ("include", *(f"accelerator/{name}" for name in ("include", "control", "code", "tasks")))
INCLUDE = [f"-I{folder}" for folder in (*(NATIVE / name for name in _FOLDERS), HERE)]
OPTIONS = ("-std=gnu++20", "-Wall", "-Wextra", "-Werror", "-g1")
THREADS = ("-O1", "-fsanitize=thread")
GRAPHS = 10_000 if attacks.whole() else 300
KERNELS = {"MATRIX": (0, 1), "VECTOR": (1, 1), "LANE": (1, 2)}
"""Core type, and the output that the kernel computes."""


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
    programs = accelerator_programs(tmp_path, *flags)
    files = {
        "PLATFORM": programs["platform"],
        "HOST": programs["accelerator_host"],
        "HOSTGRAPH": programs["control-hostgraph"],
        "RINGMAP": programs["control-ringmap"],
        "CORE": programs["accelerator_core"],
        "ORCHESTRATION": tmp_path / "orchestration.so",
    }
    for name, (core_type, lane) in KERNELS.items():
        own = (f"-DCORE_TYPE={core_type}", f"-DLANE={lane}", "-shared", "-fPIC")
        source = HERE / "script_kernels.c"
        files[name] = compiled(tmp_path / f"{name.lower()}.so", [source], *flags, *own)
    command = ["g++", *OPTIONS, *flags, *INCLUDE]
    orchestration = [str(HERE / "script_orchestration.cpp"), "-o", str(files["ORCHESTRATION"])]
    subprocess.run([*command, "-shared", "-fPIC", *orchestration], check=True)
    test, libraries = tmp_path / "tasks_test", ["-lgtest_main", "-lgtest", "-ldl", "-lpthread"]
    sources = [str(HERE / name) for name in ("tasks_test.cpp", "why_test.cpp")]
    # The control program's types are in its library.
    linking = [*command, "-fno-sanitize=vptr", *sources, *libraries, "-o", str(test)]
    subprocess.run(linking, check=True)
    settings = "".join(f"{key}={value}\n" for key, value in ACCELERATOR.items())
    environment = os.environ | {key: str(path) for key, path in files.items()}
    environment |= {"SETTINGS": settings, "GRAPHS": str(graphs)}
    ended = subprocess.run(
        [test, "--gtest_brief=1"], env=environment, capture_output=True, text=True, timeout=1200
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]


def test_the_scheduler_without_messages_and_time(tmp_path: Path) -> None:
    accelerator, control = NATIVE / "accelerator", NATIVE / "accelerator" / "control"
    orders = [control / "runtimes" / name for name in ("hostgraph", "ringmap")]
    sources = [
        *(HERE / "scheduler_test.cpp", control / "scheduler.cpp", control / "peaks.cpp"),
        *(orders[0] / "graph_order.cpp", orders[1] / "ring_order.cpp", orders[1] / "ring.cpp"),
        *sorted((accelerator / "tasks").glob("*.cpp")),
    ]
    program, folders = tmp_path / "scheduler_test", [f"-I{folder}" for folder in orders]
    command = ["g++", *OPTIONS, "-O1", *SANITIZED, *INCLUDE, *folders, *map(str, sources)]
    subprocess.run([*command, "-lgtest_main", "-lgtest", "-o", str(program)], check=True)
    subprocess.run([program, "--gtest_brief=1"], check=True)
