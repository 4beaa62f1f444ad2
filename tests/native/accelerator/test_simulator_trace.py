"""The trace of a whole load: valid, and the same on every ISA (riscv64 under qemu)."""

from __future__ import annotations

import json
import re
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest

from parts import needs

HERE = Path(__file__).resolve().parent
ACCELERATOR = HERE.parents[2] / "native" / "accelerator"
BENCHMARK = HERE.parents[2] / "benchmarks" / "accelerator_events.cpp"
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
    sources.append(BENCHMARK)
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


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    needs("g++")
    return simulate(tmp_path_factory.mktemp("events") / "native", "g++", ())


def test_report_and_trace_are_equal_on_x86_64_and_riscv64(
    native: tuple[str, bytes], tmp_path: Path
) -> None:
    needs("riscv64-linux-gnu-g++", "qemu-riscv64")
    emulator = ("qemu-riscv64", "-L", "/usr/riscv64-linux-gnu")
    emulated = simulate(tmp_path / "riscv64", "riscv64-linux-gnu-g++", emulator)
    assert "limiter=" in native[0]
    assert emulated[0] == native[0]
    assert emulated[1] == native[1]


def test_the_trace_is_json_whose_slices_nest_on_named_threads(native: tuple[str, bytes]) -> None:
    events = json.loads(native[1], parse_float=Decimal)["traceEvents"]
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    processes = {event["pid"] for event in events if event["name"] == "process_name"}
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) > 1000
    threads: dict[tuple[int, int], list[Decimal]] = {}
    for event in slices:
        thread = (event["pid"], event["tid"])
        assert thread in named
        assert event["pid"] in processes
        begin, end = event["ts"], event["ts"] + event["dur"]
        enclosing = threads.setdefault(thread, [])
        while enclosing and enclosing[-1] <= begin:
            enclosing.pop()
        assert not enclosing or end <= enclosing[-1], event
        enclosing.append(end)
