"""Bare-metal parts: firmware in QEMU's system emulation."""

from kernloom.device.embedded.device import EmbeddedDevice

__all__ = ["EmbeddedDevice"]
