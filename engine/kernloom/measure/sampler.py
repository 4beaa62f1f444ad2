"""Takes the samples of one process at a time, on a bench."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace

from kernloom.base.gauges import TIME, leading_gauge
from kernloom.config.schema import Policy as Policy
from kernloom.device.contract import Device, LaunchResult, LaunchSettings
from kernloom.measure.bench import Bench
from kernloom.measure.looking import Seen, look_into
from kernloom.measure.statistics import RankingClock, chosen_clock
from kernloom.measure.trial import Samples, Watch
from kernloom.measure.variation import Proven, named, varied_launch
from kernloom.measure.verify import check_results
from kernloom.plan.planned import StepArtifact

CALIBRATIONS = 4
"""Limit of runs for finding the inner count of a slow kernel."""
WARMING = 2
"""Launches of a session before the one whose virtual time counts, which depends on what a TLB
holds."""
SLOWER = 10
"""Limit of a run's duration as a multiple of the verified run's, on a machine shared with
others."""


class Sampler:
    """One workload's kernels, a fresh process at a time; the first finds the inner count."""

    def __init__(self, bench: Bench, steps: Sequence[StepArtifact], policy: Policy) -> None:
        self.bench = bench
        self.steps = steps
        self.policy = with_clock(policy, bench.device)
        self.threads = threads_of(steps)
        self.gauge = leading_gauge(bench.device.gauges)
        """The gauge that its trial is ranked by."""
        self.last: LaunchResult | None = None
        """The launch result of the last process."""
        self.transfer_bytes = 0
        """Bytes that one run copies between host and device."""
        self.seen = Seen()
        """What the experiment asks for of the last run beside its results."""
        self._inner = 0
        self._processes = 0

    @property
    def clock(self) -> RankingClock:
        """The clock for timing: the policy's choice, or the one that suits the number of
        threads."""
        return chosen_clock(self.policy.clock, self.threads)

    @property
    def ranked_by(self) -> RankingClock:
        """The series of samples to rank by: the clock, or a gauge other than time."""
        return self.clock if self.gauge == TIME else self.gauge.name

    def sample(self, *, fresh: bool = True) -> Samples:
        """Samples of one process, a new one or the one that verified, which is then ended."""
        try:
            if self.bench.experiment.workload.stateful:
                setup = self.bench.setup(self.steps, fresh=fresh)
                result = setup.launch(self._settings())
            else:
                setup = self.bench.setup(self.steps, fresh=fresh, seed=self._seed(fresh))
                proven = Proven.choose(setup, self._processes, self.bench.proof_cost)
                result = varied_launch(self.bench, setup, self._settings(), proven)
                self._processes += 1
        finally:
            # Free the device for the next turn.
            self.bench.close()
        self._inner, self.last, self.transfer_bytes = result.inner, result, setup.transfer_bytes
        found = samples_of(result, self.bench.device)
        if found.watch and setup.left_processes:
            found = replace(found, watch=replace(found.watch, left="a process"))
        return found

    def _seed(self, fresh: bool) -> int:
        """A data set that the kernels cannot know: in the process that verified, another one."""
        own = self.bench.experiment.seed
        other = self.bench.other_seed(own)
        return other if not fresh else secrets.choice((own, other))

    def exact(self) -> dict[str, float]:
        """Name and value of the device's exact gauges for one run."""
        experiment = self.bench.experiment
        try:
            own = experiment.seed
            plain = experiment.workload.stateful
            # Warm-ups are in a trace's instants, and have to be the same in every run.
            same = plain or experiment.observed
            # A process that has not seen the data that counts: its results cannot be replayed.
            seed = own if same else self.bench.other_seed(own)
            setup = self.bench.setup(self.steps, fresh=True, seed=seed)
            # Launches of their own: the report of a launch covers all of its runs, and between them
            # the data changes.
            for _ in range(WARMING if "virtual_time" in self.bench.device.capabilities else 1):
                setup.launch(LaunchSettings())
            if not plain:
                setup.renew(own)
            result = setup.launch(LaunchSettings())
            # Before the proof, which a trace does not show.
            self.last, self.seen = result, look_into(setup, experiment)
            if not plain:
                with named(setup, "the run that counts"):
                    check_results(self.bench, setup)
        finally:
            self.bench.close()
        gauges = [gauge for gauge in self.bench.device.gauges if gauge.exact]
        return {gauge.name: result.per_run(gauge)[0] for gauge in gauges}

    def _settings(self) -> LaunchSettings:
        policy = self.policy
        cold = policy.cache == "cold"
        return LaunchSettings(
            warmup=policy.warmup,
            inner=1 if cold else self._inner,
            samples=policy.samples,
            min_sample_ns=int(policy.min_sample_us * 1000),
            timeout=self._timeout(),
            cold=cold,
            realtime=policy.scheduling == "fifo",
        )

    def _timeout(self) -> float:
        """Time limit of a launch: that of all its runs, estimated from the verified one, plus the
        limit of a single run."""
        policy, timeout, run_s = self.policy, self.bench.experiment.timeout, self.bench.run_s
        runs = policy.warmup + policy.samples + CALIBRATIONS
        if run_s is None:
            return timeout * (runs + 1)
        return timeout + runs * min(timeout, SLOWER * (run_s + policy.min_sample_us / 1e6))


def samples_of(result: LaunchResult, device: Device) -> Samples:
    """Samples per run, for the clocks and gauges that the device has."""
    inner = result.inner
    has = device.capabilities
    return Samples(
        inner,
        tuple(total / inner for total in result.wall_ns),
        tuple(total / inner for total in result.cpu_ns) if "cpu_clock" in has else (),
        result.involuntary,
        tuple(total / inner for total in result.transfer_ns) if "transfers" in has else (),
        watch=Watch(
            result.others_ns,
            result.voluntary,
            result.varied,
            max(1, int(result.report.get("stride", 1))),
            int(result.report.get("queued_ns", 0)),
            result.elapsed_ns if "delays_ns" in result.report else 0,
            int(result.report.get("delays_ns", 0)) + result.delays_ns,
            result.report.get("left", ""),
        ),
        readings={g.name: result.per_run(g) for g in device.gauges if g.name != TIME.name},
    )


def with_clock(policy: Policy, device: Device) -> Policy:
    """The policy with `auto` resolved, for a device with only one clock."""
    if policy.clock == "auto" and "cpu_clock" not in device.capabilities:
        return replace(policy, clock="wall")
    return policy


def threads_of(steps: Sequence[StepArtifact]) -> int:
    """The largest number of threads of any kernel."""
    return max(int(step.step.decisions.get("parallelize", {}).get("threads", 1)) for step in steps)
