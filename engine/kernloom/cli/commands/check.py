"""Verify every case of the workloads and every scene on the target, without measuring.

Nothing is stored. Without a named workload or experiment, all workloads are checked; with a chosen
case, all that have it. Scenes of the project and of Kernloom run on the targets that they name;
where time is virtual, it must be the committed one.

  kernloom check
  kernloom check workload=matmul toolchain=clang
  kernloom check -m toolchain=gcc,clang --junit report.xml
  kernloom check target=a5 --scene matmul::tall
  kernloom check --fuzz 200 workload=matmul target=host

With --fuzz, workloads are verified for drawn seeds, sizes, contents and alignments instead of their
cases; a failure is shrunk and saved, and --fuzz-case runs it again.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernloom.base.errors import (
    ConfigError,
    KernloomError,
    UnavailableError,
    UnsuitableError,
    nearest,
)
from kernloom.cli.fuzzing import FUZZ_FLAGS, fuzz, refused_trials
from kernloom.cli.invocation import Flag, Invocation, destination
from kernloom.cli.progress import Progress
from kernloom.cli.scenes import ChosenScenes, only_scenes
from kernloom.config.naming import EXPERIMENT
from kernloom.config.overrides import Override, Overrides
from kernloom.fleet.local import Local, LocalSettings
from kernloom.plan.planned import Planned
from kernloom.report.format import CheckReport
from kernloom.report.formats import format_for, write_file
from kernloom.run.assembly import Assembly
from kernloom.run.execution import Execution, exit_code
from kernloom.run.fleets import check_on_this_machine
from kernloom.run.planning import plan_points

SWEEPS = True
REPORT = "check"
FLAGS = {
    "junit": Flag("also write the outcome as JUnit XML", "FILE"),
    "scene": Flag("only scenes: this one, its case NAME::CASE, or all", "SCENE"),
    "manual": Flag("manual cases of scenes: left out by default", "exclude|include|only"),
    "rounds": Flag("run each case of a scene so many times", "N"),
    "skip-golden": Flag("run scenes without comparing with goldens"),
    "fuzz": Flag("verify so many draws of each workload on each target", "N"),
    "seed": Flag("with --fuzz: repeat the draws of that seed", "SEED"),
    "fuzz-case": Flag("run a failure again that --fuzz has saved", "FILE"),
    "accept": Flag("commit the virtual times of the scenes from now on, and show the changes"),
}


def run(invocation: Invocation) -> int:
    file = invocation.flags.get("junit")
    beside = destination(file, "--junit") if file is not None else None
    form = format_for(invocation.output, REPORT)
    assembly = Assembly()
    # Every case is a point, with or without -m.
    overrides = assembly.composer.parse(invocation.words, multirun=True)
    progress = Progress(invocation.stderr)
    if any(name in invocation.flags for name in FUZZ_FLAGS):
        fuzzed = fuzz(assembly, overrides, invocation, progress, plan_workloads)
        report = CheckReport(fuzzed.trials, vars(fuzzed.build))
        if beside:
            write_file("junit", report, beside)
        form.write(report, invocation.out_for(form))
        return exit_code(fuzzed.trials, interrupted=fuzzed.interrupted)
    plans, errors = list[Planned](), dict[str, KernloomError]()
    if not only_scenes(invocation.flags):
        plans, errors = plan_workloads(assembly, overrides)
    for plan in plans:
        check_on_this_machine(plan.experiment.fleet, "check")
    # A mistake in a scene is named before anything runs.
    scenes = ChosenScenes.of(assembly, overrides, invocation.flags)
    here = Local(assembly, progress, LocalSettings("local"), "verifying")
    results = Execution(assembly, None, progress, here).execute(plans)
    trials = [*results.trials, *refused_trials(assembly, overrides, errors)]
    build, interrupted = results.build, results.interrupted
    if not interrupted and scenes.picks:
        found = scenes.run(assembly, progress, invocation.stderr)
        trials += found.trials
        build, interrupted = build.plus(found.build), found.interrupted
    report = CheckReport(trials, vars(build))
    if beside:
        write_file("junit", report, beside)
    form.write(report, invocation.out_for(form))
    return exit_code(trials, interrupted=interrupted)


def plan_workloads(
    assembly: Assembly, overrides: Overrides, *, every_case: bool = True
) -> tuple[list[Planned], dict[str, KernloomError]]:
    """The plans of all workloads, and the error of each workload that cannot be planned."""
    plans: list[Planned] = []
    errors: dict[str, KernloomError] = {}
    workloads = _workloads(assembly, overrides)
    named = bool(overrides.values("workload"))
    known: set[str] = set()
    for workload, own in workloads:
        try:
            chosen = _with_cases(assembly, own, known, named=named, every=every_case)
            if chosen:
                plans += plan_points(
                    assembly, chosen, without=["measure"], refresh=not (plans or errors)
                )
        except UnsuitableError as error:
            if not workload:
                raise
            # Without names, every workload is checked where it can run.
            if named:
                errors[workload] = error
        except (ConfigError, UnavailableError) as error:
            if not workload:
                raise
            errors[workload] = error
    if not named:
        plans = [plan for plan in plans if not _is_unsuitable(plan)]
    _check_case(overrides.values("case"), known)
    if len(errors) == len(workloads) and len({str(error) for error in errors.values()}) == 1:
        first = next(iter(errors.values()))
        if isinstance(first, ConfigError):
            # The same error for every workload: the mistake is in the overrides, not in a workload.
            raise first
    return plans, errors


def _is_unsuitable(plan: Planned) -> bool:
    return plan.refusal is not None and isinstance(plan.refusal.error, UnsuitableError)


def _workloads(assembly: Assembly, overrides: Overrides) -> list[tuple[str, Overrides]]:
    """The overrides for each workload, with its name if there are several."""
    named = overrides.values("workload")
    if len(named) == 1 or (not named and any(overrides.values(EXPERIMENT))):
        return [("", overrides)]
    rest = overrides.where(lambda override: override.key != "workload")
    names = named or assembly.composer.options("workload")
    return [(name, rest.then(assembly.composer.choose({"workload": name}))) for name in names]


def _with_cases(
    assembly: Assembly, overrides: Overrides, known: set[str], *, named: bool, every: bool
) -> Overrides | None:
    """The overrides with all cases of their workload, or the selected cases; None for a workload
    that was not named and has no such case. Adds the workload's cases to `known`."""
    given = overrides.where(lambda override: override.key == "case" and override.kind != "delete")
    if given and named:
        return overrides
    rest = overrides.where(lambda override: override not in given)
    point = next(assembly.composer.points(rest))
    cases = ["default", *map(str, point.data["workload"].get("cases") or {})]
    known.update(cases)
    if given:
        chosen = [str(case) for case in given.values("case")]
        cases = [case for case in chosen if case in cases]
    elif not every:
        cases = cases[:1]
    return rest.then([Override.axis("case", cases)]) if cases else None


def _check_case(chosen: Sequence[object], known: set[str]) -> None:
    """Refuse a case that none of the workloads has, if their cases are known."""
    for case in map(str, chosen):
        if known and case not in known:
            raise ConfigError(
                f"no workload has the case '{case}'", key="case", hint=nearest(case, known)
            )
