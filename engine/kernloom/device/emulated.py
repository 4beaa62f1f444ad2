"""Another CPU as a device: its runner under QEMU, which counts the instructions of every sample."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kernloom.device.contract import Device, DeviceSetup, Session
from kernloom.device.emulator import emulator_command, plugin_option
from kernloom.device.host import data_limit
from kernloom.device.process import above_stdio
from kernloom.device.runner import RunnerSession
from kernloom.device.window import WindowPool

COUNTER_BYTES = 4096
"""A page: the least that two processes can share."""
OWN_BYTES = 2 << 30
"""What an emulator may take for itself on top of a memory limit; half of it for translated code."""


_limits = threading.Lock()


@contextmanager
def _no_core_files() -> Iterator[None]:
    """QEMU writes the core file of a program it emulates to the current folder, by itself and
    whatever the system is set to; only this limit, which a child inherits, keeps it from that."""
    with _limits:
        soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


class EmulatedDevice(Device):
    """Each session is a fresh emulator with a fresh runner in it; any number can be open at once.

    There are no clocks, for the time an emulator takes says nothing about the CPU it emulates, and
    no threads, for their instructions are not counted exactly.
    """

    name = "emulated"
    programs = ("runner", "counter")
    capabilities = frozenset({"memory", "launch", "guards", "instructions"})

    def __init__(
        self,
        emulator: Sequence[str],
        runner: Path,
        counter: Path,
        *,
        arch: str,
        index: int = 0,
        memory_limit: int = 0,
    ) -> None:
        self.emulator = tuple(emulator)
        """The program, by its path, and its options."""
        self.runner = runner
        self.counter = counter
        self.arch = arch
        self.index = index
        self.memory_limit = memory_limit
        """Bytes that all buffers of a session, and what kernels allocate themselves, may take;
        0: the machine's memory."""
        self._windows = WindowPool()

    @classmethod
    def made(cls, setup: DeviceSetup) -> EmulatedDevice:
        return cls(
            emulator_command(setup.target),
            setup.programs["runner"],
            setup.programs["counter"],
            arch=setup.arch.name,
            index=setup.index,
            memory_limit=setup.memory_limit,
        )

    def open(self, *, timeout: float = 60.0) -> Session:
        counter = above_stdio(os.memfd_create("kernloom-counter", os.MFD_CLOEXEC))
        try:
            os.ftruncate(counter, COUNTER_BYTES)
            plugin = plugin_option(self.counter, f"counter={counter}")
            command = [*self.emulator, *plugin, str(self.runner)]
            if self.memory_limit:
                command.append(f"--memory-limit={self.memory_limit}")
            with _no_core_files():
                return RunnerSession(
                    self,
                    command,
                    self._windows,
                    timeout,
                    counter=counter,
                    # QEMU would hand this machine's libraries to a program for another.
                    environment={"LD_LIBRARY_PATH": ""},
                    data_limit=data_limit(self.memory_limit, OWN_BYTES),
                )
        finally:
            os.close(counter)
