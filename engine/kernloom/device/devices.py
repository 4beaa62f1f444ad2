"""Device classes by the name that a target gives them."""

from __future__ import annotations

from importlib import import_module

from kernloom.base.registry import Registry
from kernloom.device.contract import Device

_SHIPPED = {
    "host": ("kernloom.device.host", "HostDevice"),
    "emulated": ("kernloom.device.emulated", "EmulatedDevice"),
    "embedded": ("kernloom.device.embedded", "EmbeddedDevice"),
    "opencl": ("kernloom.device.opencl.device", "OpenClDevice"),
}


class Devices(Registry[type[Device]]):
    """A device class that ships is imported when it is first asked for."""

    def names(self) -> list[str]:
        return sorted([*_SHIPPED, *super().names()])

    def get(self, name: str, *, key: str) -> type[Device]:
        if name in _SHIPPED:
            module, cls = _SHIPPED[name]
            device: type[Device] = getattr(import_module(module), cls)
            return device
        if name not in self.names():
            raise self.unknown(name, key=key)
        return super().get(name, key=key)


DEVICES = Devices("device", {}, group="kernloom.devices")
