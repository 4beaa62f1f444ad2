"""The machine itself as a device: kernels run in a native runner process."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from kernloom.device.contract import Device, DeviceSetup, Session
from kernloom.device.runner import RunnerSession
from kernloom.device.window import WindowPool
from kernloom.errors import DeviceError


class HostDevice(Device):
    """Each session is a fresh process; any number can be open at once."""

    name = "host"
    programs = ("runner",)
    capabilities = frozenset(
        {
            "memory",
            "launch",
            "calibrate",
            "wall_clock",
            "cpu_clock",
            "context_switches",
            "threads",
            "guards",
        }
    )

    def __init__(
        self,
        runner: Path,
        *,
        arch: str = "",
        index: int = 0,
        pin: int | None = None,
        memory_limit: int = 0,
    ) -> None:
        self.runner = runner
        self.arch = arch or platform.machine()
        self.index = index
        self.pin = pin
        """The core kernels run on; worker threads take the ones after it."""
        self.memory_limit = memory_limit
        """Bytes all buffers of a session may take; 0: the machine's memory."""
        self._windows = WindowPool()

    @classmethod
    def made(cls, setup: DeviceSetup) -> HostDevice:
        return cls(setup.programs["runner"], arch=setup.arch.name, index=setup.index, pin=setup.pin)

    def open(self, *, timeout: float = 60.0) -> Session:
        command = [str(self.runner)]
        if self.pin is not None:
            allowed = sorted(os.sched_getaffinity(0))
            if self.pin not in allowed:
                raise DeviceError(
                    f"kernels cannot be pinned to core {self.pin}. "
                    f"Allowed: {', '.join(map(str, allowed))}.",
                    status="refused",
                )
            command.append(f"--pin={self.pin}")
        if self.memory_limit:
            command.append(f"--memory-limit={self.memory_limit}")
        return RunnerSession(self, command, self._windows, timeout)
