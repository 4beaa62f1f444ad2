"""`kernloom check --fuzz`: its flags, and the workloads to draw from."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from kernloom.base.errors import ConfigError, KernloomError, UsageError
from kernloom.base.units import count
from kernloom.cli.invocation import Invocation
from kernloom.cli.progress import Progress
from kernloom.config.overrides import Overrides
from kernloom.measure.trial import Trial
from kernloom.plan.planned import Planned
from kernloom.run.assembly import Assembly
from kernloom.run.fleets import check_on_this_machine
from kernloom.run.fuzzing.cases import FLAG, read_case
from kernloom.run.fuzzing.running import Fuzzer, FuzzResults, run_case
from kernloom.run.refused import refused_trial

FUZZ_FLAGS = ("fuzz", "seed", "fuzz-case")
NOT_TOGETHER = ("scene", "manual", "rounds", "skip-golden", "accept")
"""Flags about scenes."""
MAX_DRAWS = 1_000_000
_SEEDS = 1 << 31


class PlanWorkloads(Protocol):
    """Plans the workloads of a command line."""

    def __call__(
        self, assembly: Assembly, overrides: Overrides, *, every_case: bool
    ) -> tuple[list[Planned], dict[str, KernloomError]]: ...


def fuzz(
    assembly: Assembly,
    overrides: Overrides,
    invocation: Invocation,
    progress: Progress,
    plan_workloads: PlanWorkloads,
) -> FuzzResults:
    """The trials of the draws, or of a saved failure."""
    flags = invocation.flags
    for name in NOT_TOGETHER:
        if name in flags:
            raise UsageError(
                f"--{name} is about scenes, and scenes are not fuzzed",
                hint="Leave out one of the two.",
            )
    if "fuzz-case" in flags:
        return _run_saved(assembly, overrides, flags, progress)
    if "fuzz" not in flags:
        raise UsageError("--seed is the seed of --fuzz, which is missing", hint="Add --fuzz N.")
    draws = _number(flags["fuzz"], "--fuzz", 1, MAX_DRAWS)
    seed = _number(flags["seed"], "--seed", 0, _SEEDS) if "seed" in flags else None
    seed = secrets.randbelow(_SEEDS) if seed is None else seed
    plans, errors = plan_workloads(assembly, overrides, every_case=False)
    for plan in plans:
        check_on_this_machine(plan.experiment.fleet, "check")
    results = Fuzzer(assembly, progress, draws, seed).run(plans)
    results.trials += refused_trials(assembly, overrides, errors)
    progress.say(f"{_told(results)}; the same again: --seed {seed}")
    return results


def _told(results: FuzzResults) -> str:
    draws = count(results.draws, "draw")
    failed = f"{results.failed:,} failed" if results.failed else "none failed"
    if results.interrupted:
        return f"interrupted after {draws}, of which {failed}"
    return f"{draws} run, {failed}" if results.failed else f"{draws} verified"


def _run_saved(
    assembly: Assembly, overrides: Overrides, flags: Mapping[str, str], progress: Progress
) -> FuzzResults:
    if "fuzz" in flags or "seed" in flags or len(overrides.without("output")):
        raise UsageError(
            f"a saved failure has its own draws and overrides: {FLAG} stands alone",
            hint="Leave out the other words.",
        )
    path = Path(flags["fuzz-case"])
    if not path.is_file():
        raise ConfigError(f"there is no file '{path}'", key=FLAG)
    return run_case(assembly, progress, read_case(path))


def _number(text: str, flag: str, low: int, high: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not low <= value <= high:
        raise UsageError(
            f"{flag}={text} is not a whole number from {low} to {high:,}", hint="As in --fuzz 200."
        )
    return value


def refused_trials(
    assembly: Assembly, overrides: Overrides, errors: Mapping[str, KernloomError]
) -> list[Trial]:
    """A refused trial for every workload with an error, on each selected target and case."""
    cases = [str(case) for case in overrides.values("case")] or ["default"]
    return [
        refused_trial(workload, case, target, error)
        for workload, error in errors.items()
        for target in assembly.composer.chosen(overrides, "target")
        for case in cases
    ]
