"""An accelerator as a device: a runner process that hosts its platform and its programs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from kernloom.base.gauges import VIRTUAL_TIME
from kernloom.config.accelerator import flattened, settings_of
from kernloom.config.schema import Arch, Target
from kernloom.device.accelerator.options import (
    SIMULATED,
    check_dead,
    faults_text,
    settings_of_options,
)
from kernloom.device.contract import PLATFORM, Device, DeviceSetup, Session
from kernloom.device.emulator import emulator_command, supervised
from kernloom.device.fitting import check_accelerator_arch, check_hbm
from kernloom.device.sandbox import sandbox_options
from kernloom.device.scratch import ScratchPool
from kernloom.device.window import WindowPool

RUNNER = "runner"
SUPERVISOR = "supervisor"
LIBRARIES = {
    PLATFORM: "platform",
    "accelerator_host": "host",
    "accelerator_control": "control",
    "accelerator_core": "core",
}
"""Role of a library -> the runner's option `--accelerator-...` for it."""
OWN_BYTES = 512 << 20
"""Memory of the platform and the programs on top of a memory limit: events, SRAM, the trace,"""
EMULATOR_BYTES = 2 << 30
"""and of an emulator."""
RUNTIME_SECTIONS = ("ring", "graph", "queue")
"""Settings of a task runtime that the programs read."""


class AcceleratorDevice(Device):
    """Each session is a fresh process with a device of its own; any number can be open at once."""

    name = "accelerator"
    programs = (RUNNER, *LIBRARIES, SUPERVISOR)
    capabilities = frozenset({"memory", "launch", "guards", "virtual_time", "mmu", "dma", "tasks"})
    gauges = (VIRTUAL_TIME,)
    runtimes = ("hostgraph", "ringmap")

    def __init__(
        self,
        programs: Mapping[str, Path],
        settings: Mapping[str, str],
        *,
        arch: str,
        index: int = 0,
        emulator: Sequence[str] = (),
        memory_limit: int = 0,
        sanitized: bool = False,
        scratch: Path | None = None,
        sandbox: tuple[str, ...] | None = None,
    ) -> None:
        self.paths = dict(programs)
        """Role -> built file."""
        self.settings = dict(settings)
        """What the device is: configs/arch, flattened, and options."""
        self.arch = arch
        self.index = index
        self.emulator = tuple(emulator)
        """The emulator's path and options, for a variant that runs in one."""
        self.memory_limit = memory_limit
        """Limit in bytes for all tensors of a session, copies included; 0: the machine's memory."""
        self.sanitized = sanitized
        """Whether the programs have a sanitizer, which reserves terabytes of address space."""
        self.sandbox = sandbox
        """Groups of system calls that kernels may make; None: no sandbox."""
        self.scratch = ScratchPool(scratch)
        """The folders that kernels run in."""
        self._windows = WindowPool()

    @classmethod
    def from_setup(cls, setup: DeviceSetup) -> AcceleratorDevice:
        target = setup.target
        settings: dict[str, str] = {}
        for section in RUNTIME_SECTIONS:
            given = getattr(setup.runtime, section, None)
            if given is not None:
                settings |= flattened(section, given)
        settings |= settings_of(setup.arch)
        settings |= settings_of_options(target)
        look = setup.look
        if look.trace:
            settings |= {"trace": "1", "trace.level": str(max(look.level, 1))}
        if look.deps:
            settings["deps"] = "1"
        if look.replay:
            settings["replay"] = look.replay
        if target.machine.platform == SIMULATED:
            settings["times"] = "1"
        settings |= setup.settings
        return cls(
            setup.programs,
            settings,
            arch=setup.arch.name,
            index=setup.index,
            emulator=emulator_command(target) if target.emulator else (),
            memory_limit=setup.memory_limit,
            sanitized=target.is_sanitized,
            scratch=setup.scratch,
            sandbox=setup.sandbox,
        )

    @classmethod
    def check(
        cls, target: Target, dtypes: Collection[str] = (), *, cache: Path | None = None
    ) -> None:
        settings_of_options(target)

    @classmethod
    def injected_faults(cls, target: Target) -> str:
        return faults_text(target)

    @classmethod
    def check_arch(cls, arch: Arch) -> None:
        check_accelerator_arch(arch)

    @classmethod
    def check_options(cls, target: Target, arch: Arch) -> None:
        check_dead(target, arch)

    @classmethod
    def check_tensors(cls, arch: Arch, nbytes: Mapping[str, int]) -> None:
        check_hbm(arch, nbytes)

    @classmethod
    def takes_host_tensors(cls, target: Target) -> bool:
        # Tasks reach tensors by virtual address only.
        return False

    def _command(self, scratch: int) -> list[str]:
        from kernloom.device.runner import data_limit

        own = OWN_BYTES + (EMULATOR_BYTES if self.emulator else 0)
        limit = 0 if self.sanitized else data_limit(self.memory_limit, own)
        command = [str(self.paths[RUNNER])]
        if self.emulator:
            supervisor = supervised(self.paths[SUPERVISOR], scratch, limit)
            command = [*supervisor, *self.emulator, *command, "--emulated"]
        else:
            command.append(f"--scratch={scratch}")
            command += [f"--data-limit={limit}"] if limit else []
            command += sandbox_options(self.sandbox)
        return command + [
            f"--accelerator-{option}={self.paths[role]}" for role, option in LIBRARIES.items()
        ]

    def open(self, *, timeout: float = 60.0) -> Session:
        # Imported late: listing the devices does not need it.
        from kernloom.device.accelerator.session import AcceleratorSession

        limit = {"memory.limit": str(self.memory_limit)} if self.memory_limit else {}
        scratch = self.scratch.take()
        return AcceleratorSession(
            self,
            self._command(scratch.descriptor),
            self._windows,
            timeout,
            scratch,
            settings=self.settings | limit,
            # QEMU would load this machine's libraries into a program for another.
            environment={"LD_LIBRARY_PATH": ""} if self.emulator else None,
        )
