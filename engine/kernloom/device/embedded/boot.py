"""One boot of a bare-metal part: QEMU runs one image with one launch until it is done."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernloom.device.embedded import firmware
from kernloom.device.embedded.firmware import Image, Report
from kernloom.device.emulator import plugin_option, supervised
from kernloom.device.process import Process, above_stdio
from kernloom.device.scratch import Scratch

_OPTIONS = ("-display", "none", "-monitor", "none", "-serial", "null", "-no-reboot")


@dataclass(frozen=True)
class Boot:
    """The outcome of a boot."""

    returncode: int
    report: Report | None
    memory: bytes
    instructions: int | None
    stderr: str


def boot_part(
    emulator: Sequence[str],
    counter: Path,
    supervisor: Path,
    image: Image,
    launch: Sequence[bytes | bytearray],
    deadline: float,
    scratch: Path | None = None,
) -> Boot:
    """Run an image until it is done; TimeoutError if that is later than the deadline.

    All files are in memory, so nothing is left behind however the engine ends. QEMU runs in a
    folder below `scratch`, because semihosting opens files in its current folder.
    """
    with _memory_file() as given, _memory_file() as reported, _memory_file() as counted:
        for part in launch:
            _write_all(given, part)
        files = (given, reported, counted)
        folder = Scratch(scratch)
        try:
            command = [
                *supervised(supervisor, folder.descriptor),
                *_command(emulator, counter, image, *files),
            ]
            process = Process(command, (*files, folder.descriptor))
        except BaseException:
            folder.remove()
            raise
        try:
            if not process.wait(deadline - time.monotonic()):
                raise TimeoutError
            returncode = process.end()
            data = _read_all(reported)
            count = _read_all(counted).strip()
            return Boot(
                returncode,
                firmware.unpack_report(data),
                data[firmware.REPORT.size :],
                int(count) if count.isdigit() else None,
                process.tail(),
            )
        finally:
            process.end()
            process.release()
            folder.remove()


def _command(
    emulator: Sequence[str], counter: Path, image: Image, given: int, reported: int, counted: int
) -> list[str]:
    names = ",".join(f"arg=/proc/self/fd/{file}" for file in (given, reported))
    return [
        *emulator,
        *_OPTIONS,
        "-semihosting-config",
        f"enable=on,target=native,{names}",
        *plugin_option(counter, f"out=/proc/self/fd/{counted}"),
        "-kernel",
        str(image.path.absolute()),
    ]


@contextlib.contextmanager
def _memory_file() -> Iterator[int]:
    descriptor = above_stdio(os.memfd_create("kernloom-part", os.MFD_CLOEXEC))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes | bytearray) -> None:
    with memoryview(data) as view:
        written = 0
        while written < len(view):
            written += os.write(descriptor, view[written:])


def _read_all(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    data = b""
    while len(data) < size:
        piece = os.pread(descriptor, size - len(data), len(data))
        if not piece:
            break
        data += piece
    return data
