"""The machine itself as a device: kernels run in a native runner process."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection
from functools import cached_property
from pathlib import Path

from kernloom.base.errors import ConfigError, DeviceError
from kernloom.config.schema import Target
from kernloom.device.contract import Device, DeviceSetup, Session
from kernloom.device.sandbox import sandbox_options
from kernloom.device.scratch import ScratchPool
from kernloom.device.window import WindowPool

FLUSHES = ("aarch64", "x86_64")
"""ISAs for which native/runner/cache.c can flush the caches."""


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
            "unaligned",
            "realtime",
            "libraries",
            "variation",
        }
    ) | ({"cold_cache"} if platform.machine() in FLUSHES else frozenset())

    def __init__(
        self,
        runner: Path,
        *,
        arch: str = "",
        index: int = 0,
        pin: int | None = None,
        memory_limit: int = 0,
        aslr: bool = True,
        libraries: tuple[Path, ...] = (),
        sanitized: bool = False,
        scratch: Path | None = None,
        sandbox: tuple[str, ...] | None = None,
    ) -> None:
        self.runner = runner
        self.arch = arch or platform.machine()
        self.index = index
        self.pin = pin
        """The core for kernels; worker threads take the cores after it."""
        self.memory_limit = memory_limit
        """Limit in bytes for all buffers of a session plus the memory that kernels allocate; 0: the
        machine's memory."""
        self.sanitized = sanitized
        """Whether the runner has a sanitizer, which reserves terabytes of address space."""
        self.aslr = aslr
        """False: the same addresses in every session, where the system permits it."""
        self.libraries = tuple(path.absolute() for path in libraries)
        """Loaded first, so that the kernels' undefined symbols resolve to them."""
        self.sandbox = sandbox
        """Groups of system calls that kernels may make; None: no sandbox."""
        self.scratch = ScratchPool(scratch)
        """The folders that kernels run in."""
        self._windows = WindowPool()

    @classmethod
    def from_setup(cls, setup: DeviceSetup) -> HostDevice:
        return cls(
            setup.programs["runner"],
            arch=setup.arch.name,
            index=setup.index,
            pin=setup.pin,
            aslr=setup.aslr,
            memory_limit=setup.memory_limit,
            libraries=setup.libraries,
            sanitized=setup.target.is_sanitized,
            scratch=setup.scratch,
            sandbox=setup.sandbox,
        )

    @classmethod
    def check(
        cls, target: Target, dtypes: Collection[str] = (), *, cache: Path | None = None
    ) -> None:
        if target.emulator:
            raise ConfigError(
                f"target '{target.name}' has device '{target.device}', which uses no emulator",
                key="target.emulator",
            )

    @classmethod
    def runs_natively(cls, target: Target) -> bool:
        return target.device == HostDevice.name

    @cached_property
    def _command(self) -> list[str]:
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
        if self.memory_limit and not self.sanitized:
            from kernloom.device.runner import data_limit

            command.append(f"--data-limit={data_limit(self.memory_limit)}")
        if not self.aslr:
            command.append("--no-aslr")
        command += sandbox_options(self.sandbox)
        return command + [f"--library={path}" for path in self.libraries]

    def open(self, *, timeout: float = 60.0) -> Session:
        # Imported late: listing the devices does not need it.
        from kernloom.device.runner import RunnerSession

        environment = _sanitizer_options(self.memory_limit) if self.sanitized else None
        command = self._command
        scratch = self.scratch.take()
        return RunnerSession(
            self,
            [*command, f"--scratch={scratch.descriptor}"],
            self._windows,
            timeout,
            scratch,
            environment=environment,
        )


def _sanitizer_options(memory_limit: int) -> dict[str, str]:
    """The sanitizer enforces the memory limit, because the system's limit does not suit it."""
    if not memory_limit:
        return {}
    return {"ASAN_OPTIONS": f"max_allocation_size_mb={max(1, memory_limit >> 20)}"}
