"""The measure stage: rounds of fresh processes until the interval is narrow enough."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernloom.build.stage import StepArtifact
from kernloom.config.schema import Measure as Policy
from kernloom.device.contract import Device, LaunchSettings
from kernloom.expressions import evaluate
from kernloom.measure.bench import Bench
from kernloom.measure.placement import transfer_metrics
from kernloom.measure.statistics import metrics_of, timing
from kernloom.measure.trial import Samples
from kernloom.measure.verify import verify_tensors
from kernloom.pipeline.stage import Context, Stage
from kernloom.plan.inspect import sizes_of

CALIBRATIONS = 4
"""Runs that finding the inner count of a slow kernel takes at most."""


class Measure(Stage):
    """Artifacts -> metrics, raw samples, and whether the policy's bound was reached."""

    phase = "run"
    inputs = {"artifacts": "artifacts"}
    outputs = {"metrics": "metrics", "samples": "samples", "converged": "converged"}

    def run(self, context: Context, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        experiment = context.experiment
        steps: Sequence[StepArtifact] = inputs["artifacts"]
        bench = context.need(Bench)
        policy = with_clock(experiment.measure, bench.device)
        if "instructions" in bench.device.capabilities:
            return {"metrics": counted(bench, steps), "samples": (), "converged": True}
        threads = threads_of(steps)
        samples, converged = measured(bench, steps, policy, threads)
        sizes = sizes_of(experiment.workload)
        cost = experiment.workload.cost
        metrics = metrics_of(
            samples,
            policy.clock,
            evaluate(cost.flops, sizes),
            evaluate(cost.bytes, sizes),
            threads=threads,
        )
        setup = bench.setup(steps, fresh=False)
        if bench.placement or "transfers" in bench.device.capabilities:
            metrics |= transfer_metrics(samples, setup.transfer_bytes)
        return {"metrics": metrics, "samples": tuple(samples), "converged": converged}


def counted(bench: Bench, steps: Sequence[StepArtifact]) -> dict[str, Any]:
    """Exact counts need one run; the time an emulator takes means nothing and is not reported."""
    setup = bench.setup(steps, fresh=False)
    result = setup.launch(LaunchSettings(warmup=1, inner=1, samples=1))
    return {"instructions": result.instructions[0], "deterministic": ["instructions"]}


def with_clock(policy: Policy, device: Device) -> Policy:
    """The policy with `auto` resolved to the only clock of a device that has no other."""
    if policy.clock == "auto" and "cpu_clock" not in device.capabilities:
        return replace(policy, clock="wall")
    return policy


def threads_of(steps: Sequence[StepArtifact]) -> int:
    """How many threads the kernels use at most."""
    return max(int(step.step.decisions.get("parallelize", {}).get("threads", 1)) for step in steps)


def measured(
    bench: Bench, steps: Sequence[StepArtifact], policy: Policy, threads: int
) -> tuple[list[Samples], bool]:
    """Samples of each process, and whether they agree as well as the policy asks."""
    start = time.monotonic()
    processes: list[Samples] = []
    has_cpu = "cpu_clock" in bench.device.capabilities
    has_transfers = "transfers" in bench.device.capabilities
    inner = 0
    while True:
        # A policy of one process may measure where it verified; rounds need fresh ones.
        setup = bench.setup(steps, fresh=policy.max_rounds > 1)
        settings = LaunchSettings(
            warmup=policy.warmup,
            inner=inner,
            samples=policy.samples,
            min_sample_ns=int(policy.min_sample_us * 1000),
            # Each run may take as long as the one that was verified might have.
            timeout=bench.experiment.timeout * (policy.warmup + policy.samples + CALIBRATIONS),
        )
        result = setup.launch(settings)
        inner = result.inner
        processes.append(
            Samples(
                inner,
                tuple(total / inner for total in result.wall_ns),
                tuple(total / inner for total in result.cpu_ns) if has_cpu else (),
                result.involuntary,
                tuple(total / inner for total in result.transfer_ns) if has_transfers else (),
            )
        )
        # Kernels that start from the same inputs each time must still be right after many runs.
        if not setup.written & setup.inputs.keys():
            verify_tensors(bench, setup)
        if len(processes) < policy.min_rounds:
            continue
        if policy.bound <= 0 and len(processes) >= policy.min_rounds:
            return processes, True
        if timing(processes, policy.clock, threads).relative_half_width <= policy.bound:
            return processes, True
        spent = time.monotonic() - start
        if len(processes) >= policy.max_rounds or spent > policy.budget_s:
            return processes, False
