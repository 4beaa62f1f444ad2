"""QEMU's plugin counts what lies between two markers, and says when it was asked wrongly."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from parts import needs

NATIVE = Path(__file__).resolve().parents[2] / "native"
PROGRAM = """\
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "kernloom/marker.h"

static void region(long turns) {
    syscall(KL_MARKER_CALL, KL_MARKER_BEGIN);
    for (volatile long i = 0; i < turns; i++)
        ;
    syscall(KL_MARKER_CALL, KL_MARKER_END);
}

int main(int count, char **words) {
    (void)count;
    volatile uint64_t *page = mmap(NULL, 8, PROT_READ, MAP_SHARED, atoi(words[1]), 0);
    syscall(KL_MARKER_CALL, KL_MARKER_END);
    printf("%lu\\n", (unsigned long)*page);
    for (long turns = 1000; turns <= 3000; turns += 1000) {
        region(turns);
        for (volatile long i = 0; i < 12345; i++)
            ;
        printf("%lu\\n", (unsigned long)*page);
    }
    return 0;
}
"""


def build(folder: Path) -> tuple[Path, Path]:
    source = folder / "program.c"
    source.write_text(PROGRAM)
    common = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", f"-I{NATIVE / 'include'}"]
    program, counter = folder / "program", folder / "counter.so"
    subprocess.run([*common, "-o", program, source], check=True)
    plugin = [*common, "-shared", "-fPIC", "-o", counter, NATIVE / "qemu" / "counter.c"]
    subprocess.run(plugin, check=True)
    return program, counter


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    needs("qemu-x86_64")
    return build(tmp_path_factory.mktemp("counter"))


def run(built: tuple[Path, Path], option: str, page: int) -> subprocess.CompletedProcess[str]:
    program, counter = built
    return subprocess.run(
        ["qemu-x86_64", "-plugin", f"{counter}{option}", program, str(page)],
        pass_fds=[page],
        capture_output=True,
        text=True,
        timeout=60,
    )


def counted(built: tuple[Path, Path]) -> list[int]:
    page = os.memfd_create("counter")
    try:
        os.ftruncate(page, 4096)
        done = run(built, f",counter={page}", page)
    finally:
        os.close(page)
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


def test_the_last_region_alone_is_counted_and_exactly(built: tuple[Path, Path]) -> None:
    unbegun, one, two, three = counted(built)
    assert unbegun == 0
    assert three - two == two - one > 1000
    assert counted(built) == [unbegun, one, two, three]


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("", "qemu-user needs counter=FD"),
        (",counter=1,counter=2", "and nothing else"),
        (",counter=nothing", "cannot be mapped"),
        (",counter=99", "cannot be mapped"),
        (",out=file", "qemu-user needs counter=FD"),
    ],
)
def test_wrong_options_are_explained(built: tuple[Path, Path], option: str, why: str) -> None:
    page = os.memfd_create("counter")
    try:
        done = run(built, option, page)
    finally:
        os.close(page)
    assert done.returncode != 0
    assert why in done.stderr


@pytest.fixture(scope="module", params=[1, 2, 3, 4])
def emulator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stand-in for QEMU with that version of its interface."""
    needs("gcc")
    host = tmp_path_factory.mktemp("host") / "host"
    source = Path(__file__).with_name("plugin_host.c")
    common = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE / 'include'}"]
    version = f"-DAPI={request.param}"
    subprocess.run([*common, version, "-rdynamic", "-o", host, source, "-ldl"], check=True)
    return host


def test_programs_are_counted_with_every_version_of_the_interface(
    emulator: Path, built: tuple[Path, Path]
) -> None:
    page = os.memfd_create("counter")
    try:
        os.ftruncate(page, 4096)
        command = [emulator, built[1], "user", f"counter={page}"]
        done = subprocess.run(command, pass_fds=[page], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert int.from_bytes(os.pread(page, 8, 0), "little") == 10
    finally:
        os.close(page)


def test_machines_are_counted_with_every_version_of_the_interface(
    emulator: Path, built: tuple[Path, Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = [emulator, built[1], "system", f"out={out}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert out.read_text() == "6\n"
