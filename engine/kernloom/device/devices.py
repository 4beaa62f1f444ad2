"""Device classes by the name that a target gives them."""

from __future__ import annotations

from kernloom.device.contract import Device
from kernloom.device.embedded import EmbeddedDevice
from kernloom.device.emulated import EmulatedDevice
from kernloom.device.host import HostDevice
from kernloom.device.opencl.device import OpenClDevice
from kernloom.registry import Registry

_SHIPPED: tuple[type[Device], ...] = (HostDevice, EmulatedDevice, EmbeddedDevice, OpenClDevice)
DEVICES: Registry[type[Device]] = Registry(
    "device", {cls.name: cls for cls in _SHIPPED}, group="kernloom.devices"
)
