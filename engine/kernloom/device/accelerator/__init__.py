"""Accelerators: separately built programs on a platform, with memory of their own and virtual
time."""

from kernloom.device.accelerator.device import AcceleratorDevice

__all__ = ["AcceleratorDevice"]
