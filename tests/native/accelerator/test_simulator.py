"""The accelerator's C++ tests: one executable, with the address sanitizer; in a whole attack also
plain and with the thread sanitizer."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

import attacks
from command_line import COMPILED
from parts import needs, without
from units import unit

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parents[2] / "native"
ACCELERATOR = NATIVE / "accelerator"
TESTED = {"platform/sim": HERE, "tasks": HERE / "tasks"}
"""Folders of native/accelerator, and those of their tests."""

FLAGS = ("-std=gnu++20", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-O1", "-g1")
BUILDS = {"asan": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")}
if attacks.whole():
    BUILDS |= {"plain": (), "tsan": ("-fsanitize=thread",)}
_CASE = re.compile(r"^TEST\((\w+), (\w+)\)", re.M)
CASES = [
    f"{suite}.{name}"
    for folder in TESTED.values()
    for path in sorted(folder.glob("*_test.cpp"))
    for suite, name in _CASE.findall(path.read_text())
]


def includes() -> list[str]:
    folders = [*(ACCELERATOR / name for name in TESTED), ACCELERATOR / "include"]
    return [f"-I{folder}" for folder in (*folders, NATIVE / "include", HERE)]


def build(folder: Path, flags: tuple[str, ...]) -> Path:
    """A translation unit for each folder: parsing GoogleTest's headers costs more than all its
    tests."""
    folder.mkdir()
    parts = {}
    for name, tests in TESTED.items():
        part = name.replace("/", "_")
        parts[part] = sorted((ACCELERATOR / name).glob("*.cpp"))
        parts[f"{part}_tests"] = sorted(tests.glob("*_test.cpp"))
    objects = []
    for part, sources in parts.items():
        source = unit(folder / f"{part}.cpp", sources)
        objects.append(str(source.with_suffix(".o")))
        compiling = ["g++", *FLAGS, *flags, *includes(), "-c", str(source), "-o", objects[-1]]
        subprocess.run(compiling, check=True)
    program = folder / "check"
    libraries = ["-lgtest", "-lgtest_main", "-lpthread"]
    subprocess.run(["g++", *flags, *objects, *libraries, "-o", str(program)], check=True)
    return program


def run(program: Path) -> dict[str, str]:
    """Test case -> its failures, and for one that never ended why the whole program did."""
    report = program.with_name("report.json")
    done = subprocess.run(
        [program, f"--gtest_output=json:{report}"], capture_output=True, text=True, timeout=600
    )
    if not report.exists():
        ended = f"exit status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-8000:]}"
        return dict.fromkeys(CASES, ended)
    found = {}
    for suite in json.loads(report.read_text())["testsuites"]:
        for case in suite["testsuite"]:
            failures = [failure["failure"] for failure in case.get("failures", [])]
            found[f"{suite['name']}.{case['name']}"] = "\n".join(failures)
    if done.returncode != 0 and not any(found.values()):
        return dict.fromkeys(found, done.stderr[-8000:])
    return found


@pytest.fixture(scope="module", params=BUILDS)
def results(request: pytest.FixtureRequest) -> dict[str, str]:
    """Built and run once, also where several processes share the tests."""
    needs("g++")
    probe = ["g++", "-M", "-x", "c++", "-include", "gtest/gtest.h", os.devnull]
    if subprocess.run(probe, capture_output=True).returncode != 0:
        without("no GoogleTest (libgtest-dev)")
    folder = Path(os.environ[COMPILED]) / f"accelerator-{request.param}"
    known = folder.with_suffix(".json")
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not known.exists():
            known.write_text(json.dumps(run(build(folder, BUILDS[request.param]))))
    found: dict[str, str] = json.loads(known.read_text())
    return found


@pytest.mark.parametrize("case", CASES)
def test_native(results: dict[str, str], case: str) -> None:
    assert results[case] == ""
