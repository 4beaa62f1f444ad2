"""Unit tests of the host and the core program, and malformed messages for the host program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[3]
NATIVE = TESTS.parent / "native"
sys.path.append(str(TESTS / "device"))

from building import (  # noqa: E402
    ACCELERATOR,
    CORE_KERNELS,
    LIBRARY,
    SANITIZED,
    accelerator_programs,
    compiled,
)

SMALL = ACCELERATOR | {"hbm.bytes": str(1 << 20), "timeout_ns": "1000000"}
OPTIONS = ("-std=c++20", "-Wall", "-Wextra", "-Werror")


def include(*folders: str) -> list[str]:
    common = ("include", "accelerator/include")
    return [f"-I{NATIVE / folder}" for folder in (*common, *(f"accelerator/{f}" for f in folders))]


@pytest.mark.parametrize(
    ("tested", "folder", "sources"),
    [
        ("host_free_list_test", "host", ["free_list"]),
        ("host_tensors_test", "host", ["free_list", "tensors"]),
        ("core_recorder_test", "core", ["recorder", "sram"]),
    ],
)
def test_units_of_the_programs(
    tested: str, folder: str, sources: list[str], tmp_path: Path
) -> None:
    program = tmp_path / tested
    files = [NATIVE / "accelerator" / folder / f"{name}.cpp" for name in sources]
    test = Path(__file__).with_name(f"{tested}.cpp")
    command = ["g++", *OPTIONS, "-O1", *SANITIZED, *include(folder), str(test), *map(str, files)]
    subprocess.run([*command, "-lgtest_main", "-lgtest", "-o", str(program)], check=True)
    subprocess.run([program], check=True)


@pytest.mark.parametrize("flags", [("-O1",), ("-O0", *SANITIZED)], ids=["plain", "sanitized"])
def test_a_hundred_thousand_malformed_messages_get_responses_and_crash_nothing(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    programs = accelerator_programs(tmp_path, *flags)
    kernels = compiled(tmp_path / "kernels.so", [CORE_KERNELS], *flags, *LIBRARY)
    fuzz, source = tmp_path / "fuzz", Path(__file__).with_name("host_fuzz.cpp")
    command = ["g++", *OPTIONS, *flags, *include(), str(source), "-ldl", "-o", str(fuzz)]
    subprocess.run(command, check=True)
    settings = "".join(f"{key}={value}\n" for key, value in SMALL.items())
    roles = ("platform", "accelerator_host", "control-ringmap", "accelerator_core")
    arguments = [*(str(programs[role]) for role in roles), settings, str(kernels)]
    ended = subprocess.run(
        [fuzz, *arguments, "100000", "1"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert ended.stdout.startswith("100000 messages, ")
