"""The runner compiles without a warning."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[2] / "native"


@pytest.mark.parametrize("flags", [("-O2",), ("-O1", "-fsanitize=address,undefined")], ids=str)
def test_the_runner_compiles_without_a_warning(
    compiler: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    sources = sorted(map(str, (NATIVE / "runner").glob("*.c")))
    include = [f"-I{NATIVE / folder}" for folder in ("include", "accelerator/include")]
    command = [compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror", *include]
    libraries = ["-rdynamic", "-ldl", "-lpthread"]
    subprocess.run(
        [*command, *flags, *sources, *libraries, "-o", str(tmp_path / "runner")], check=True
    )
