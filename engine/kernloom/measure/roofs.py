"""The service that compares results with the roof of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from kernloom.base.expressions import evaluate
from kernloom.config.schema import Experiment
from kernloom.device.devices import DEVICES
from kernloom.measure.plausible import (
    ANY_DEVICE,
    Ceiling,
    calibrated_ceiling,
    coarse_ceiling,
    least_work,
    slowest_ns,
)
from kernloom.measure.roof import Calibration, load_calibration, roof_of
from kernloom.measure.sampler import threads_of
from kernloom.plan.inspect import sizes_of, tensors_of
from kernloom.plan.planned import StepArtifact


class Roofs:
    """Compares results with the roof of this machine; reads its calibration on first use."""

    def __init__(self, folder: Path, say: Callable[[str], None] = lambda note: None) -> None:
        self._folder = folder
        self._say = say

    @cached_property
    def calibration(self) -> Calibration | None:
        return load_calibration(self._folder, say=self._say)

    def fraction(
        self, experiment: Experiment, steps: Sequence[StepArtifact], median_ns: float
    ) -> tuple[float, str] | None:
        """The share of the roof that a time reaches, and the roof; only for kernels that run on
        this machine's cores without a sanitizer."""
        if not _runs_here(experiment) or median_ns <= 0 or self.calibration is None:
            return None
        workload = experiment.workload
        sizes, tensors = sizes_of(workload), tensors_of(workload)
        bound = [a for s in steps for a in s.step.arguments if a.kind == "tensor"]
        used = {str(argument.binding) for argument in bound}
        written = {str(argument.binding) for argument in bound if argument.access != "read"}
        roof = roof_of(
            self.calibration,
            experiment.arch,
            workload.dtype,
            evaluate(workload.cost.flops, sizes),
            evaluate(workload.cost.bytes, sizes),
            threads_of(steps),
            footprint=sum(tensors[name].nbytes for name in used),
            written=sum(tensors[name].nbytes for name in written),
            cold=experiment.measure.cache == "cold",
        )
        return (roof.ns / median_ns, roof.limit) if roof else None

    def doubt(
        self, experiment: Experiment, steps: Sequence[StepArtifact], metrics: Mapping[str, Any]
    ) -> str:
        """Why a time cannot be true on this machine; empty if it can."""
        work = experiment.workload.derive(least_work)
        return self._ceiling(experiment, steps).doubt(work, slowest_ns(metrics))

    def _ceiling(self, experiment: Experiment, steps: Sequence[StepArtifact]) -> Ceiling:
        if not _runs_here(experiment):
            return ANY_DEVICE
        dtype, threads = experiment.workload.dtype, threads_of(steps)
        found = calibrated_ceiling(self.calibration, dtype, threads) if self.calibration else None
        cores = len(os.sched_getaffinity(0))
        return found or coarse_ceiling(experiment.arch, dtype, threads, cores)


def _runs_here(experiment: Experiment) -> bool:
    """Whether kernels run on this machine's cores, at full speed."""
    target = experiment.target
    device = DEVICES.get(target.device, key="target.device")
    return device.runs_natively(target) and not target.is_sanitized
