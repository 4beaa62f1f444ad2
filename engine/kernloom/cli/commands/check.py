"""Correctness only: every case of the workloads on the target, verified against the golden.

Nothing is measured and nothing is stored. With no workload named, all of them are checked.

  kernloom check
  kernloom check workload=matmul toolchain=clang
  kernloom check -m toolchain=gcc,clang --junit report.xml
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from kernloom.base.errors import ConfigError, KernloomError, UnavailableError
from kernloom.base.files import write_atomically
from kernloom.cli.invocation import Flag, Invocation, destination
from kernloom.cli.progress import Progress
from kernloom.config.overrides import spelled
from kernloom.config.settings import Fleet
from kernloom.fleet.fleets import check_local
from kernloom.fleet.local import Local
from kernloom.measure.trial import Trial
from kernloom.report.checks import junit, print_checks
from kernloom.report.documents import run_document
from kernloom.run.assembly import Assembly
from kernloom.run.execution import Workshop, exit_code
from kernloom.run.planning import Planned, plan_points

SWEEPS = True
FLAGS = {"junit": Flag("also write the outcome as JUnit XML", "FILE")}


def run(invocation: Invocation) -> int:
    file = invocation.flags.get("junit")
    report = destination(file, "--junit") if file is not None else None
    assembly = Assembly()
    plans, errors = _plan_workloads(assembly, invocation.words)
    refused = _refused(assembly, invocation.words, errors)
    for plan in plans:
        check_local(plan.experiment.fleet, "check")
    progress = Progress(invocation.stderr)
    here = Local(assembly, progress, Fleet("local"))
    results = Workshop(assembly, None, progress, here).carry_out(plans)
    trials = [*results.trials, *refused]
    build = vars(results.build)
    if report:
        write_atomically(report, junit(trials))
    if invocation.for_people:
        print_checks(trials, build, invocation.stdout)
    else:
        print(json.dumps(run_document(trials, build)), file=invocation.stdout)
    return exit_code(trials, interrupted=results.interrupted)


def _plan_workloads(
    assembly: Assembly, words: Sequence[str]
) -> tuple[list[Planned], dict[str, KernloomError]]:
    """The plans of every workload, and the error of each workload that cannot be planned."""
    plans: list[Planned] = []
    errors: dict[str, KernloomError] = {}
    workloads = _workloads(assembly, words)
    for workload, own in workloads:
        try:
            cases = _with_cases(assembly, own)
            plans += plan_points(assembly, cases, multirun=True, without=["measure"])
        except (ConfigError, UnavailableError) as error:
            if not workload:
                raise
            errors[workload] = error
    if len(errors) == len(workloads) and len({str(error) for error in errors.values()}) == 1:
        first = next(iter(errors.values()))
        if isinstance(first, ConfigError):
            # The same error for every workload: the mistake is in the words, not in a workload.
            raise first
    return plans, errors


def _workloads(assembly: Assembly, words: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The words once for each workload, with its name where there are several."""
    named = assembly.composer.choices(words, "workload")
    if len(named) == 1:
        return [("", list(words))]
    rest = [word for word in words if not word.startswith("workload=")]
    chosen = named or assembly.composer.options("workload")
    return [(name, [*rest, f"workload={name}"]) for name in chosen]


def _with_cases(assembly: Assembly, words: Sequence[str]) -> list[str]:
    """The words with every case of their workload, unless they choose one."""
    if assembly.composer.choices(words, "case"):
        return list(words)
    point = next(assembly.composer.points(words, multirun=True))
    cases = ["default", *(point.data["workload"].get("cases") or {})]
    return [*words, f"case=choice({','.join(spelled(str(case)) for case in cases)})"]


def _refused(
    assembly: Assembly, words: Sequence[str], errors: Mapping[str, KernloomError]
) -> list[Trial]:
    """A trial for every workload with an error, on each target and case that the words choose."""
    cases = [str(case) for case in assembly.composer.choices(words, "case")] or ["default"]
    return [
        Trial(
            id="",
            workload=workload,
            case=case,
            target=target,
            status="unavailable" if isinstance(error, UnavailableError) else "refused",
            verified=False,
            stage="plan",
            message=str(error),
        )
        for workload, error in errors.items()
        for target in assembly.composer.chosen(words, "target")
        for case in cases
    ]
