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
from kernloom.cli.invocation import Flag, Invocation, destination
from kernloom.cli.planning import plan_points
from kernloom.cli.progress import Progress
from kernloom.files import write_atomically
from kernloom.report.checks import junit, print_checks
from kernloom.report.documents import run_document

SWEEPS = True
FLAGS = {"junit": Flag("also write the outcome as JUnit XML", "FILE")}


def run(invocation: Invocation) -> int:
    file = invocation.flags.get("junit")
    report = destination(file, "--junit") if file is not None else None
    assembly = Assembly()
    plans = [
        plan
        for words in _cases(assembly, invocation.words)
        for plan in plan_points(assembly, words, multirun=True, without=["measure"])
    ]
    progress = Progress(invocation.stderr, quiet=not invocation.for_people)
    results = Workshop(assembly, None, progress).carry_out(plans)
    build = vars(results.build)
    if report:
        write_atomically(report, junit(results.trials))
    if invocation.for_people:
        print_checks(results.trials, build, invocation.stdout)
    else:
        print(json.dumps(run_document(results.trials, build)), file=invocation.stdout)
    return exit_code(results.trials, interrupted=results.interrupted)


def _cases(assembly: Assembly, words: Sequence[str]) -> list[list[str]]:
    """The words once for every workload with all of its cases, where they name neither."""
    named = {word.lstrip("+").partition("=")[0] for word in words}
    chosen = [list(words)]
    if "workload" not in named:
        chosen = [[*words, f"workload={name}"] for name in assembly.composer.options("workload")]
    if "case" in named:
        return chosen
    found = []
    for one in chosen:
        cases = {
            case
            for point in assembly.composer.points(one, multirun=True)
            for case in point.data["workload"].get("cases") or {}
        }
        found.append([*one, f"case=choice({','.join(['default', *sorted(cases)])})"])
    return found
