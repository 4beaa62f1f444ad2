"""The measure stage: rounds of fresh processes until the interval is narrow enough.

A stage yields between rounds, so that the trials of a sweep take turns: each round measures all of
them once, and a temporary disturbance affects them alike.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kernloom.base.expressions import evaluate
from kernloom.base.gauges import ROOF_FRACTION, TIME
from kernloom.config.schema import Policy as Policy
from kernloom.measure import noise
from kernloom.measure.bench import Bench
from kernloom.measure.drift import LOOKED, disturbed, drift_metrics, seconds_of, times_text
from kernloom.measure.hidden import confirmed, hidden_work
from kernloom.measure.launch_report import report_conditions, report_metrics
from kernloom.measure.looking import keep
from kernloom.measure.peers import Peers
from kernloom.measure.placement import transfer_metrics
from kernloom.measure.roofs import Roofs
from kernloom.measure.sampler import Sampler
from kernloom.measure.statistics import metrics_of, readings_of, timing
from kernloom.measure.trial import Samples
from kernloom.measure.turns import Order
from kernloom.pipeline.stage import SUSPICIONS, Context, Stage, Turns
from kernloom.plan.inspect import sizes_of
from kernloom.plan.planned import StepArtifact

STATEFUL = (
    "its kernels keep state between calls (workload.stateful): only their first call is verified"
)


FASTER = 3
"""How many times closer rounds follow each other after the least number of them."""


class Measure(Stage):
    """Artifacts -> metrics, raw samples, and whether the policy's bound was reached."""

    phase = "run"
    inputs = {"artifacts": "artifacts"}
    outputs = {
        "metrics": "metrics",
        "samples": "samples",
        "converged": "converged",
        "warnings": "warnings",
        "conditions": "conditions",
        "suspicions": SUSPICIONS,
    }

    def run(self, context: Context, inputs: Mapping[str, Any]) -> Turns:
        steps: Sequence[StepArtifact] = inputs["artifacts"]
        bench, peers = context.need(Bench), context.need(Peers)
        sampler = Sampler(bench, steps, context.experiment.measure)
        gauge = sampler.gauge
        if gauge.exact:
            metrics = exact(sampler, peers)
            return _outputs(metrics, (), True, peers.warnings(), _exact_conditions(sampler))
        load, begun = noise.load(), datetime.now(UTC)
        processes, unconverged = yield from _rounds(sampler, peers)
        look = (begun, datetime.now(UTC))
        experiment, clock = context.experiment, sampler.clock
        sizes, cost = sizes_of(experiment.workload), experiment.workload.cost
        metrics = metrics_of(
            processes, clock, evaluate(cost.flops, sizes), evaluate(cost.bytes, sizes)
        )
        if bench.placement or "transfers" in bench.device.capabilities:
            metrics |= transfer_metrics(processes, sampler.transfer_bytes)
        metrics |= readings_of(processes, bench.device.gauges)
        if gauge == TIME:
            if sampler.policy.drift:
                unconverged = unconverged or disturbed(processes, clock)
            metrics |= drift_metrics(
                processes, clock, sampler.policy.drift, seconds=seconds_of(look)
            )
        if ratios := peers.metrics(processes, sampler.ranked_by, gauge):
            metrics["peers"] = ratios
        warnings = [
            *([unconverged] if unconverged else []),
            *([STATEFUL] if experiment.workload.stateful else []),
            *noise.warnings_of(processes, clock, sampler.threads, max(load, noise.load())),
            *peers.warnings(),
        ]
        conditions = _conditions(sampler, load) | {LOOKED: times_text(*look)}
        roofs: Roofs | None = context.services.get(Roofs)
        if roofs and (found := roofs.fraction(experiment, steps, metrics.get(TIME.name, 0.0))):
            metrics[ROOF_FRACTION.name], conditions["roof"] = found
        suspicions = confirmed(hidden_work(processes, sampler), sampler, sampler.sample)
        if roofs and (doubt := roofs.doubt(experiment, steps, metrics)):
            suspicions.append(doubt)
        return _outputs(
            metrics, tuple(processes), not unconverged, warnings, conditions, tuple(suspicions)
        )


def _outputs(
    metrics: Mapping[str, Any],
    samples: tuple[Samples, ...],
    converged: bool,
    warnings: Sequence[str],
    conditions: Mapping[str, Any],
    suspicions: tuple[str, ...] = (),
) -> dict[str, Any]:
    return {
        "metrics": metrics,
        "samples": samples,
        "converged": converged,
        "warnings": tuple(warnings),
        "conditions": conditions,
        "suspicions": suspicions,
    }


def _conditions(sampler: Sampler, load: float) -> dict[str, Any]:
    """The actual conditions of the measurement."""
    last = sampler.last
    return {
        "clock": sampler.clock,
        "threads": sampler.threads,
        "load": round(load, 2),
        "scheduling": "fifo" if last and last.realtime else "normal",
        "cache": "cold" if last and last.cold else "warm",
        "aslr": not last or last.aslr,
        "sandbox": bool(last and last.sandboxed),
    }


def _exact_conditions(sampler: Sampler) -> dict[str, Any]:
    """What limited a run in virtual time, and what else was seen of it; files are written here."""
    last = sampler.last
    conditions = report_conditions(last.report) | {"sandbox": last.sandboxed} if last else {}
    return conditions | keep(sampler.seen, sampler.bench.experiment)


def exact(sampler: Sampler, peers: Peers) -> dict[str, Any]:
    """Exact gauges need one run; an emulator's time means nothing and is not reported."""
    found = sampler.exact()
    if sampler.last:
        found |= report_metrics(sampler.last.report)
    metrics: dict[str, Any] = {**found, "deterministic": list(found)}
    ratios = peers.exact(found[sampler.gauge.name], sampler.gauge)
    return metrics | ({"peers": ratios} if ratios else {})


def _rounds(sampler: Sampler, peers: Peers) -> Generator[float, None, tuple[list[Samples], str]]:
    """Samples of each process, and why they are less precise than the policy asks, if they are."""
    processes: list[Samples] = []
    spent = 0.0
    # A policy of one process may measure in the process that verified; rounds need fresh ones.
    fresh = sampler.policy.max_rounds > 1 or bool(peers.named)
    if fresh:
        sampler.bench.close()
    order = Order(["", *peers.named])
    while True:
        number = len(processes)
        for name in order.next():
            if name:
                peers.named[name].of_round(number)
                continue
            start = time.monotonic()
            processes.append(sampler.sample(fresh=fresh))
            spent += time.monotonic() - start
        if (reason := ended(processes, sampler, spent)) is not None:
            return processes, reason
        yield pace(sampler.policy, len(processes))


def pace(policy: Policy, rounds: int) -> float:
    """Seconds from the start of a round to the start of the next one: the least rounds are spread
    over the policy's span, further ones come faster."""
    even = policy.span_s / max(1, policy.min_rounds - 1)
    return even if rounds < policy.min_rounds else even / FASTER


def ended(processes: Sequence[Samples], sampler: Sampler, spent: float) -> str | None:
    """None while more rounds are needed; then '', or why the bound was not reached."""
    policy, rounds = sampler.policy, len(processes)
    if rounds >= policy.min_rounds:
        if policy.bound <= 0:
            return ""
        half = timing(processes, sampler.ranked_by).relative_half_width
        if half <= policy.bound:
            return ""
        if rounds >= policy.max_rounds:
            return _unconverged(half, policy, f"{rounds} rounds (measure.max_rounds)")
        if spent >= policy.budget_s:
            return _unconverged(half, policy, f"{policy.budget_s:g} s (measure.budget_s)")
    elif spent >= policy.budget_s:
        return too_short(policy, rounds, spent)
    return None


def too_short(policy: Policy, rounds: int, spent: float) -> str:
    """The message for a budget that ended before the least number of rounds."""
    return (
        f"the budget of {policy.budget_s:g} s ended after {rounds} of at least "
        f"{policy.min_rounds} rounds; a round takes {spent / max(1, rounds):.2g} s: raise "
        "measure.budget_s, or lower measure.samples or measure.min_sample_us"
    )


def _unconverged(half: float, policy: Policy, after: str) -> str:
    return (
        f"the interval of the rounds is still ±{half:.2%}, wider than ±{policy.bound:.2%} "
        f"(measure.bound), after {after}: quieten the machine or allow more, and repeat it with "
        "rerun=failed"
    )
