"""Runs of the same artifacts on changed hardware: bounds of what-if, and the time of every PE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

from kernloom.base.errors import ConfigError, DeviceError, UsageError, nearest
from kernloom.base.gauges import VIRTUAL_TIME
from kernloom.config.schema import Experiment
from kernloom.device.accelerator.infinite import RESOURCES, resources_of, settings_without
from kernloom.device.devices import DEVICES
from kernloom.measure.sampler import Sampler
from kernloom.measure.trial import Trial
from kernloom.measure.why import WHY, Bound, Insight, spent_by_pe
from kernloom.plan.planned import Planned
from kernloom.run.assembly import Assembly
from kernloom.run.trials import Trials

ALL = "all"
PES = "pes"
SHOWN = (WHY, PES)
"""Values of `show` that `run` knows."""
SIMULATED = "sim"


def asked(experiment: Experiment) -> bool:
    return bool(experiment.whatif or experiment.show)


def has_virtual_time(experiment: Experiment) -> bool:
    target = experiment.target
    device = DEVICES.get(target.device, key="target.device")
    return "virtual_time" in device.capabilities and target.machine.platform == SIMULATED


def check_insight(experiment: Experiment) -> None:
    """Refuse what-if and explanations by name where there is no virtual time."""
    if has_virtual_time(experiment):
        return
    key = "whatif" if experiment.whatif else "show"
    raise ConfigError(
        f"target '{experiment.target.name}' has no virtual time, which {key} is about",
        key=key,
        hint="Simulated accelerators have it: target=a5.",
    )


def check_values(experiment: Experiment) -> None:
    """Refuse unknown values of `show` and `whatif`."""
    if experiment.show and experiment.show not in SHOWN:
        raise UsageError(
            f"show={experiment.show}: `run` cannot show this", hint=nearest(experiment.show, SHOWN)
        )
    resources_asked(experiment)


def resources_asked(experiment: Experiment) -> tuple[str, ...]:
    """The resources of `whatif`, each once; `all`: those that the device has."""
    given = experiment.whatif or ()
    names = [given] if isinstance(given, str) else list(given)
    wanted = [name.strip() for text in names for name in text.split(",") if name.strip()]
    found: dict[str, None] = {}
    for name in wanted:
        if name == ALL:
            found |= dict.fromkeys(resources_of(experiment.arch, experiment.runtime))
        elif name in RESOURCES:
            found[name] = None
        else:
            raise ConfigError(
                f"there is no resource '{name}'",
                key="whatif",
                hint=nearest(name, (ALL, *RESOURCES)),
            )
    return tuple(found)


def find_insight(assembly: Assembly, plans: Sequence[Planned], trials: Sequence[Trial]) -> Insight:
    """Repeats the good trials of a run, as `whatif` and `show` ask. Settings of the platform are
    changed, and nothing else: the artifacts are those of the trials."""
    measured = {
        trial.id: float(trial.metrics[VIRTUAL_TIME.name])
        for trial in trials
        if trial.good and VIRTUAL_TIME.name in trial.metrics
    }
    wanted = {plan.id: plan for plan in plans if plan.id in measured}
    experiment = plans[0].experiment
    why = experiment.show == WHY
    if not wanted or not (experiment.whatif or experiment.show == PES):
        return Insight({}, {}, why)
    needed = {item.key: item for plan in wanted.values() for _, item in plan.named_artifacts}
    with closing(assembly.ahead):
        outcomes = assembly.builder(experiment).build(list(needed.values()))
    shared = Trials(assembly, outcomes)
    bounds: dict[str, Sequence[Bound]] = {}
    pes: dict[str, Mapping[str, Any]] = {}
    for id, plan in wanted.items():
        shared.check_built(plan)
        found = []
        for name in resources_asked(plan.experiment):
            try:
                virtual_ns, _ = _repeated(shared, plan, settings_without(name))
            except DeviceError as error:
                # The trials themselves are good, and are still reported.
                found.append(Bound(name, measured[id], 0.0, error.message))
                continue
            found.append(Bound(name, virtual_ns, _factor(measured[id], virtual_ns)))
        if found:
            bounds[id] = sorted(found, key=lambda bound: bound.virtual_ns)
        if experiment.show == PES:
            pes[id] = spent_by_pe(_repeated(shared, plan, {"pes": "1"})[1])
    return Insight(bounds, pes, why)


def _repeated(
    trials: Trials, plan: Planned, settings: Mapping[str, str]
) -> tuple[float, Mapping[str, str]]:
    """The virtual time of a plan on changed hardware, and the platform's report."""
    with trials.bench(plan, settings=settings) as bench:
        sampler = Sampler(bench, plan.steps, plan.experiment.measure)
        virtual_ns = sampler.exact()[VIRTUAL_TIME.name]
    return virtual_ns, sampler.last.report if sampler.last else {}


def _factor(before: float, after: float) -> float:
    return round(before / after, 4) if after else 0.0
