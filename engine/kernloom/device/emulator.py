"""QEMU as targets ask for it, for every device that runs in one."""

from __future__ import annotations

import shutil
from pathlib import Path

from kernloom.base.errors import ConfigError, UnavailableError
from kernloom.config.schema import Target


def emulator_command(target: Target) -> list[str]:
    """The target's emulator, by its path, and its options."""
    emulator = target.emulator
    if emulator is None:
        raise ConfigError(
            f"target '{target.name}' has device '{target.device}', but names no emulator",
            key="target.emulator",
        )
    program = shutil.which(emulator.program)
    if program is None:
        raise UnavailableError(
            f"no emulator '{emulator.program}' (target.emulator.program)",
            hint="; ".join(emulator.install.values()),
        )
    return [str(Path(program).absolute()), *emulator.args]


def plugin_option(counter: Path, how: str) -> tuple[str, str]:
    """What has QEMU count instructions."""
    # In QEMU's options a comma is written twice.
    return "-plugin", f"{str(counter).replace(',', ',,')},{how}"


def supervised(supervisor: Path, scratch: int, data_limit: int = 0) -> list[str]:
    """How a command begins that ends with the engine and leaves nothing behind: it runs in an open
    folder and may take so many bytes of private memory (0: any number)."""
    limits = [f"--data-limit={data_limit}"] if data_limit else []
    return [str(supervisor), f"--scratch={scratch}", *limits]


def emulator_said(stderr: str, most: int = 3) -> str:
    """Why an emulator ended, in its own words, among what its program printed: its first complaint,
    or else the last lines. Empty where only the emulated program crashed."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if any("uncaught target signal" in line for line in lines):
        return ""
    own = [line for line in lines if line.startswith("qemu")]
    # What follows is often a dump of registers.
    return own[0] if own else " | ".join(lines[-most:])
