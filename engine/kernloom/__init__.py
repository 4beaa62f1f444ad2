"""Kernloom: describe a kernel, a target and a toolchain; build, run, verify, measure, replay."""

from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`kernloom.Scene` and `kernloom.Case`, imported on first use."""
    if name in ("Scene", "Case"):
        from kernloom.scene import scene

        return getattr(scene, name)
    raise AttributeError(f"module 'kernloom' has no attribute '{name}'")
