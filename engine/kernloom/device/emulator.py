"""QEMU command lines, for every device that runs in an emulator."""

from __future__ import annotations

import shutil
from pathlib import Path

from kernloom.base.errors import ConfigError, UnavailableError
from kernloom.config.schema import Target


def emulator_command(target: Target) -> list[str]:
    """Path and options of the target's emulator."""
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
    """The QEMU option that loads the instruction counter."""
    # QEMU options escape a comma by doubling it.
    return "-plugin", f"{str(counter).replace(',', ',,')},{how}"


def supervised(supervisor: Path, scratch: int, data_limit: int = 0) -> list[str]:
    """The start of a supervised command: it ends with the engine, leaves nothing behind, runs in
    the open folder `scratch` and may take `data_limit` bytes of private memory (0: unlimited)."""
    limits = [f"--data-limit={data_limit}"] if data_limit else []
    return [str(supervisor), f"--scratch={scratch}", *limits]


def emulator_said(stderr: str, most: int = 3) -> str:
    """The emulator's reason for ending, found in the program's output: its first error message, or
    else the last lines. Empty if only the emulated program crashed."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if any("uncaught target signal" in line for line in lines):
        return ""
    own = [line for line in lines if line.startswith("qemu")]
    # The lines after it are often a register dump.
    return own[0] if own else " | ".join(lines[-most:])
