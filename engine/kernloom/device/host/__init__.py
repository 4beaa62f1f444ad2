"""The machine itself."""

from kernloom.device.host.device import HostDevice

__all__ = ["HostDevice"]
