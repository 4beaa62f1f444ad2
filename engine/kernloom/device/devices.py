"""Device classes by the name that a target gives them."""

from __future__ import annotations

from kernloom.base.errors import ConfigError, nearest
from kernloom.base.gauges import VIRTUAL_TIME
from kernloom.base.registry import Registry
from kernloom.config.schema import Experiment
from kernloom.device.contract import Device

DEVICES: Registry[type[Device]] = Registry(
    "device",
    {},
    later={
        "host": "kernloom.device.host:HostDevice",
        "emulated": "kernloom.device.emulated:EmulatedDevice",
        "embedded": "kernloom.device.embedded:EmbeddedDevice",
        "opencl": "kernloom.device.opencl.device:OpenClDevice",
        "accelerator": "kernloom.device.accelerator:AcceleratorDevice",
    },
    group="kernloom.devices",
)


def check_supported(experiment: Experiment) -> None:
    """Refuse a task runtime or a trace that the target's device does not have."""
    target, runtime = experiment.target, experiment.runtime.name
    device = DEVICES.get(target.device, key="target.device")
    if runtime not in device.runtimes:
        raise ConfigError(
            f"target '{target.name}' has no task runtime '{runtime}'"
            if runtime != "none"
            else f"target '{target.name}' needs a task runtime",
            key="runtime",
            hint=nearest(runtime, device.runtimes),
        )
    if experiment.trace and VIRTUAL_TIME not in device.gauges:
        raise ConfigError(f"target '{target.name}' keeps no virtual time to trace", key="trace")
    for key in ("deps", "replay"):
        if getattr(experiment, key) is not None and "tasks" not in device.capabilities:
            raise ConfigError(f"target '{target.name}' has no tasks", key=key)
