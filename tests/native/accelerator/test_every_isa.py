"""Virtual time is the same on every ISA: the simulator, cross-built for riscv64, under qemu."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from parts import needs

HERE = Path(__file__).resolve().parent
ACCELERATOR = HERE.parents[2] / "native" / "accelerator"
FLAGS = ("-std=gnu++20", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror")
OVERRIDES = "trace=1\nhbm.bandwidth=101.7\nlinks.noc.bandwidth=33.3\ntopology.cubes=5\n"


def settings() -> str:
    """The small device of the C++ tests, with bandwidths that divide badly."""
    found = re.search(r'SMALL = R"\((.*?)\)"', (HERE / "device.hpp").read_text(), re.S)
    assert found
    return found.group(1) + OVERRIDES


def simulate(folder: Path, compiler: str, emulator: tuple[str, ...]) -> tuple[str, bytes]:
    """The report without the time it took, and the trace."""
    folder.mkdir()
    unit = folder / "unit.cpp"
    sources = sorted((ACCELERATOR / "platform" / "sim").glob("*.cpp"))
    sources += sorted((ACCELERATOR / "benchmark").glob("*.cpp"))
    unit.write_text("".join(f'#include "{path}"\n' for path in sources))
    includes = [ACCELERATOR / "platform" / "sim", ACCELERATOR / "include"]
    includes.append(ACCELERATOR.parent / "include")
    program = folder / "events"
    paths = [f"-I{path}" for path in includes]
    subprocess.run([compiler, *FLAGS, *paths, str(unit), "-o", str(program)], check=True)
    (folder / "settings").write_text(settings())
    ran = subprocess.run(
        [*emulator, program, folder / "settings", "8", "5", folder / "trace"],
        check=True,
        capture_output=True,
        text=True,
    )
    return ran.stdout.split("cpu_seconds=")[0], (folder / "trace").read_bytes()


def test_report_and_trace_are_equal_on_x86_64_and_riscv64(tmp_path: Path) -> None:
    needs("g++", "riscv64-linux-gnu-g++", "qemu-riscv64")
    native = simulate(tmp_path / "native", "g++", ())
    emulator = ("qemu-riscv64", "-L", "/usr/riscv64-linux-gnu")
    emulated = simulate(tmp_path / "riscv64", "riscv64-linux-gnu-g++", emulator)
    assert "limiter=" in native[0]
    assert len(native[1]) > 100_000
    assert emulated[0] == native[0]
    assert emulated[1] == native[1]
