"""Device classes by the name that a target gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from kernloom.device.contract import Device
from kernloom.device.host import HostDevice
from kernloom.registry import Registry


class DeviceClass(Protocol):
    """How the engine makes a device; `runner` is the program that was built for it."""

    def __call__(
        self, runner: Path, *, arch: str = ..., index: int = ..., pin: int | None = ...
    ) -> Device: ...


DEVICES: Registry[DeviceClass] = Registry(
    "device", {HostDevice.name: HostDevice}, group="kernloom.devices"
)
