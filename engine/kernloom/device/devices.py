"""Device classes by the name that a target gives them."""

from __future__ import annotations

from kernloom.base.registry import Registry
from kernloom.device.contract import Device

DEVICES: Registry[type[Device]] = Registry(
    "device",
    {},
    later={
        "host": "kernloom.device.host:HostDevice",
        "emulated": "kernloom.device.emulated:EmulatedDevice",
        "embedded": "kernloom.device.embedded:EmbeddedDevice",
        "opencl": "kernloom.device.opencl.device:OpenClDevice",
    },
    group="kernloom.devices",
)
