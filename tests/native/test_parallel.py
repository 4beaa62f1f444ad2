"""kl_parallel runs every task exactly once, without a race."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
NATIVE = TOP / "native"


@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
@pytest.mark.parametrize("arguments", [(), ("spin",)], ids=["sleeping", "spinning"])
def test_every_task_runs_once_and_without_a_race(
    compiler: str, sanitizer: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    program = tmp_path / "check"
    sources = [Path(__file__).with_name("parallel_check.c"), NATIVE / "runner" / "parallel.c"]
    includes = [f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'runner'}"]
    flags = ["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-fsanitize={sanitizer}"]
    subprocess.run(
        [compiler, *flags, *includes, *map(str, sources), "-lpthread", "-o", str(program)],
        check=True,
    )
    ran = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
