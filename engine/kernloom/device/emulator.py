"""QEMU as targets ask for it, for every device that runs in one."""

from __future__ import annotations

import shutil
from pathlib import Path

from kernloom.config.schema import Target
from kernloom.errors import ConfigError, UnavailableError


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
