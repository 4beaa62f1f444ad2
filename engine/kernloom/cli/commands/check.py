"""Correctness only: every case of the workloads on the target, verified against the golden.

Nothing is measured and nothing is stored. With no workload named, all of them are checked.

  kernloom check
  kernloom check workload=matmul toolchain=clang
  kernloom check -m toolchain=gcc,clang --junit report.xml
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from kernloom.cli.assembly import Assembly
from kernloom.cli.carry_out import Workshop, exit_code
from kernloom.cli.fleets import check_local
from kernloom.cli.invocation import Flag, Invocation, destination
from kernloom.cli.planning import Planned, plan_points
from kernloom.cli.progress import Progress
from kernloom.config.overrides import spelled
from kernloom.errors import ConfigError, KernloomError, UnavailableError
from kernloom.files import write_atomically
from kernloom.measure.trial import Trial
from kernloom.report.checks import junit, print_checks
from kernloom.report.documents import run_document

SWEEPS = True
FLAGS = {"junit": Flag("also write the outcome as JUnit XML", "FILE")}


def run(invocation: Invocation) -> int:
    file = invocation.flags.get("junit")
    report = destination(file, "--junit") if file is not None else None
    assembly = Assembly()
    plans: list[Planned] = []
    refused: list[Trial] = []
    for workload, words in _workloads(assembly, invocation.words):
        try:
            cases = _with_cases(assembly, words)
            plans += plan_points(assembly, cases, multirun=True, without=["measure"])
        except (ConfigError, UnavailableError) as error:
            if not workload:
                raise
            refused.append(_refused(workload, error))
    for plan in plans:
        check_local(plan.experiment.fleet, "check")
    progress = Progress(invocation.stderr)
    results = Workshop(assembly, None, progress).carry_out(plans)
    results.trials += refused
    build = vars(results.build)
    if report:
        write_atomically(report, junit(results.trials))
    if invocation.for_people:
        print_checks(results.trials, build, invocation.stdout)
    else:
        print(json.dumps(run_document(results.trials, build)), file=invocation.stdout)
    return exit_code(results.trials, interrupted=results.interrupted)


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


def _refused(workload: str, error: KernloomError) -> Trial:
    status = "unavailable" if isinstance(error, UnavailableError) else "refused"
    return Trial(
        id="",
        workload=workload,
        case="default",
        target="",
        status=status,
        verified=False,
        stage="plan",
        message=str(error),
    )
