"""Parts of the system that not every machine has."""

from __future__ import annotations

import importlib
import os
import shutil
from types import ModuleType
from typing import NoReturn

import pytest

from kernloom.base.errors import UnavailableError
from kernloom.device.opencl.probe import devices

REQUIRE_ALL = "KERNLOOM_REQUIRE_ALL"
"""Set where everything is installed: there, what is missing is a failure."""

BARE_METAL = {
    "cortex_m4": ("arm-none-eabi-gcc", "qemu-system-arm", "gcc"),
    "cortex_m7": ("arm-none-eabi-gcc", "qemu-system-arm", "gcc"),
    "riscv_bare": ("riscv64-unknown-elf-gcc", "qemu-system-riscv64", "gcc"),
}
"""Bare-metal targets -> the programs that each needs."""


def needs(*programs: str) -> None:
    """Skip the test, visibly, where a program is missing."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        without(f"not on the PATH: {', '.join(missing)}")


def needs_opencl() -> None:
    """Skip the test, visibly, where no OpenCL device is found."""
    try:
        found = devices()
    except UnavailableError as error:
        without(str(error))
    if not found:
        without("no OpenCL device")


def needs_module(name: str) -> ModuleType:
    """The module; skip the test, visibly, where its Python package is missing."""
    try:
        return importlib.import_module(name)
    except ImportError:
        without(f"no Python package {name}")


def without(reason: str) -> NoReturn:
    if os.environ.get(REQUIRE_ALL):
        pytest.fail(f"{reason} ({REQUIRE_ALL} is set)")
    pytest.skip(reason)
