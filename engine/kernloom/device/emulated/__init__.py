"""Other CPUs, under QEMU's user-mode emulation."""

from kernloom.device.emulated.device import EmulatedDevice

__all__ = ["EmulatedDevice"]
