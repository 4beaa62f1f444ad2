"""Where tensors are when the clock starts, and what a device makes of it.

On an accelerator a tensor on the host is copied inside the measured region; where kernels run in
the host's own memory it is read in place, whatever the workload says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernloom.config.schema import Experiment, Target
from kernloom.errors import ConfigError
from kernloom.measure.statistics import median
from kernloom.measure.trial import Samples

COPIED = "copied"
IN_PLACE = "in_place"
ON_DEVICE = "device"
_HOST = {"host": IN_PLACE, "accelerator": COPIED}
"""What becomes of a tensor on the host, by the target's family."""
_PLACE = re.compile(r"host|device(:\d{1,6})?", re.ASCII)


def placement_of(experiment: Experiment) -> dict[str, str]:
    """Tensor -> copied, in_place or device, for those that say where they are; what the target
    cannot honour is refused by name."""
    placed = {
        name: tensor.place
        for name, tensor in experiment.workload.tensors.items()
        if tensor.place is not None
    }
    return {name: _meant(name, place, experiment.target) for name, place in placed.items()}


def _meant(name: str, place: str, target: Target) -> str:
    key = f"workload.tensors.{name}.place"
    index = target.options.get("index", 0)
    allowed = [*(["host"] if target.family in _HOST else []), "device", f"device:{index}"]
    hint = f"Allowed: {', '.join(allowed)}."
    if not _PLACE.fullmatch(place):
        raise ConfigError(f"'{place}' is not a place", key=key, hint=hint)
    if place not in allowed:
        raise ConfigError(
            f"target '{target.name}' cannot have a tensor on '{place}'", key=key, hint=hint
        )
    return _HOST[target.family] if place == "host" else ON_DEVICE


def transfer_metrics(
    samples: Sequence[Samples], transfer_bytes: int, placement: Mapping[str, str]
) -> dict[str, Any]:
    """What the copies of one run move and take, and what is left for the kernels."""
    metrics: dict[str, Any] = {"transfer_bytes": transfer_bytes}
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
    if placement:
        metrics["placement"] = dict(placement)
    return metrics
