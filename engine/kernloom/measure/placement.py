"""Placement of tensors when the clock starts, and how a device honours it.

On an accelerator a tensor on the host is copied inside the measured region, or only mapped there if
the device can read it in place. Where kernels run in host memory it is read in place, whatever the
workload says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from kernloom.base.errors import ConfigError
from kernloom.config.schema import Experiment, Target
from kernloom.device.devices import DEVICES
from kernloom.measure.statistics import median
from kernloom.measure.trial import Samples

COPIED = "copied"
IN_PLACE = "in_place"
ON_DEVICE = "device"
_PLACE = re.compile(r"host|device(:\d{1,6})?", re.ASCII)


def placement_of(experiment: Experiment, cache: Path | None = None) -> dict[str, str]:
    """Tensor -> copied, in_place or device, for tensors with a declared placement; refuses by name
    what the target cannot honour. Detected devices may be cached in `cache`."""
    placed = {
        name: tensor.place
        for name, tensor in experiment.workload.tensors.items()
        if tensor.place is not None
    }
    target = experiment.target
    for name, place in placed.items():
        _check(name, place, target)
    on_host = ""
    if "host" in placed.values():
        device = DEVICES.get(target.device, key="target.device")
        on_host = IN_PLACE if device.reads_in_place(target, cache=cache) else COPIED
    return {name: on_host if place == "host" else ON_DEVICE for name, place in placed.items()}


def _check(name: str, place: str, target: Target) -> None:
    key = f"workload.tensors.{name}.place"
    index = target.options.get("index", 0)
    device = DEVICES.get(target.device, key="target.device")
    on_host = ["host"] if device.takes_host_tensors(target) else []
    allowed = [*on_host, "device", f"device:{index}"]
    hint = f"Allowed: {', '.join(allowed)}."
    if not _PLACE.fullmatch(place):
        raise ConfigError(f"'{place}' is not a place", key=key, hint=hint)
    if place not in allowed:
        raise ConfigError(
            f"target '{target.name}' cannot have a tensor on '{place}'", key=key, hint=hint
        )


def transfer_metrics(samples: Sequence[Samples], transfer_bytes: int) -> dict[str, float]:
    """Bytes and time of one run's transfers, and the time left for the kernels."""
    metrics: dict[str, float] = {"transfer_bytes": transfer_bytes}
    timed = [process for process in samples if process.transfer_ns]
    if timed:
        metrics["transfer_ns"] = median(median(process.transfer_ns) for process in timed)
        metrics["kernel_ns"] = median(
            median(
                both - copying
                for both, copying in zip(process.wall_ns, process.transfer_ns, strict=True)
            )
            for process in timed
        )
    return metrics
