"""Another CPU as a device: its runner under QEMU, which counts the instructions of each sample."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from kernloom.base.gauges import INSTRUCTIONS
from kernloom.device.contract import Device, DeviceSetup, Session
from kernloom.device.emulator import emulator_command, plugin_option, supervised
from kernloom.device.process import above_stdio
from kernloom.device.scratch import ScratchPool
from kernloom.device.window import WindowPool

COUNTER_BYTES = 4096
"""Size of the counter file: one page, the least that two processes can share."""
OWN_BYTES = 2 << 30
"""Memory of the emulator itself on top of a memory limit; half of it for translated code."""


class EmulatedDevice(Device):
    """Each session is a fresh emulator with a fresh runner; any number can be open at once.

    It has no clocks, because an emulator's time says nothing about the emulated CPU, and no
    threads, because their instructions are not counted exactly.
    """

    name = "emulated"
    programs = ("runner", "counter", "supervisor")
    capabilities = frozenset({"memory", "launch", "guards", "unaligned", "instructions"})
    gauges = (INSTRUCTIONS,)

    def __init__(
        self,
        emulator: Sequence[str],
        runner: Path,
        counter: Path,
        supervisor: Path,
        *,
        arch: str,
        index: int = 0,
        memory_limit: int = 0,
        scratch: Path | None = None,
    ) -> None:
        self.emulator = tuple(emulator)
        """The emulator's path and options."""
        self.runner = runner
        self.counter = counter
        self.supervisor = supervisor
        self.arch = arch
        self.index = index
        self.memory_limit = memory_limit
        """Limit in bytes for all buffers of a session plus the memory that kernels allocate; 0: the
        machine's memory."""
        self.scratch = ScratchPool(scratch)
        """The folders that kernels run in."""
        self._windows = WindowPool()

    @classmethod
    def from_setup(cls, setup: DeviceSetup) -> EmulatedDevice:
        return cls(
            emulator_command(setup.target),
            setup.programs["runner"],
            setup.programs["counter"],
            setup.programs["supervisor"],
            arch=setup.arch.name,
            index=setup.index,
            memory_limit=setup.memory_limit,
            scratch=setup.scratch,
        )

    def open(self, *, timeout: float = 60.0) -> Session:
        # Imported late: listing the devices does not need it.
        from kernloom.device.runner import RunnerSession, data_limit

        counter = above_stdio(os.memfd_create("kernloom-counter", os.MFD_CLOEXEC))
        try:
            os.ftruncate(counter, COUNTER_BYTES)
            scratch = self.scratch.take()
            limit = data_limit(self.memory_limit, OWN_BYTES)
            command = [
                *supervised(self.supervisor, scratch.descriptor, limit),
                *self.emulator,
                *plugin_option(self.counter, f"counter={counter}"),
                str(self.runner),
            ]
            if self.memory_limit:
                command.append(f"--memory-limit={self.memory_limit}")
            return RunnerSession(
                self,
                command,
                self._windows,
                timeout,
                scratch,
                counter=counter,
                # QEMU would load this machine's libraries into a program for another.
                environment={"LD_LIBRARY_PATH": ""},
            )
        finally:
            os.close(counter)
