"""Builds the programs of a small accelerator, and a C++ test that runs scripts of tasks on it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[2]
NATIVE = TESTS.parent / "native"
sys.path.append(str(TESTS / "device"))

from building import ACCELERATOR, accelerator_programs, compiled  # noqa: E402

_FOLDERS = ("include", *(f"accelerator/{name}" for name in ("include", "control", "code", "tasks")))
INCLUDE = [f"-I{folder}" for folder in (*(NATIVE / name for name in _FOLDERS), HERE)]
OPTIONS = ("-std=gnu++20", "-Wall", "-Wextra", "-Werror", "-g1")
KERNELS = {"MATRIX": (0, 1), "VECTOR": (1, 1), "LANE": (1, 2)}
"""Core type, and the output that the kernel computes."""


def run_scripts(
    tests: Sequence[str], folder: Path, flags: tuple[str, ...], **settings: int
) -> None:
    """Run the tests of some sources with both runtimes; settings are variables of their
    environment."""
    programs = accelerator_programs(folder, *flags)
    files = {
        "PLATFORM": programs["platform"],
        "HOST": programs["accelerator_host"],
        "HOSTGRAPH": programs["control-hostgraph"],
        "RINGMAP": programs["control-ringmap"],
        "CORE": programs["accelerator_core"],
        "ORCHESTRATION": folder / "orchestration.so",
    }
    for name, (core_type, lane) in KERNELS.items():
        own = (f"-DCORE_TYPE={core_type}", f"-DLANE={lane}", "-shared", "-fPIC")
        source = HERE / "script_kernels.c"
        files[name] = compiled(folder / f"{name.lower()}.so", [source], *flags, *own)
    command = ["g++", *OPTIONS, *flags, *INCLUDE]
    orchestration = [str(HERE / "script_orchestration.cpp"), "-o", str(files["ORCHESTRATION"])]
    subprocess.run([*command, "-shared", "-fPIC", *orchestration], check=True)
    program, libraries = folder / tests[0], ["-lgtest_main", "-lgtest", "-ldl", "-lpthread"]
    sources = [str(HERE / f"{test}.cpp") for test in tests]
    # The control program's types are in its library.
    linking = [*command, "-fno-sanitize=vptr", *sources, *libraries, "-o", str(program)]
    subprocess.run(linking, check=True)
    arch = "".join(f"{key}={value}\n" for key, value in ACCELERATOR.items())
    environment = os.environ | {key: str(path) for key, path in files.items()}
    environment |= {"SETTINGS": arch, **{key: str(value) for key, value in settings.items()}}
    ended = subprocess.run(
        [program, "--gtest_brief=1"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
