"""Compare two or more experiments, measured in the same rounds, and report which is faster.

Each is a set of overrides in quotes, a recipe file, or the id of a stored trial, whose own
artifacts are run again. All are compared with the first. The verdict is `faster` or `slower` if the
difference is significant (95%, with Holm's correction for several) and at least measure.floor,
`equivalent` if it is certainly smaller, and `inconclusive` otherwise. The measuring policy is
rigorous unless --with sets another.

  kernloom compare 'toolchain=gcc' 'toolchain=clang'
  kernloom compare --with 'workload=softmax case=large' '' 'target.variant=release arch=x86_64_v2'
  kernloom compare 3f2a81c09d47be61 'workload=axpy' --fail-if slower
  kernloom results baseline save main; git switch faster; kernloom compare --baseline main
"""

from __future__ import annotations

import os

from kernloom.base.errors import UsageError, nearest
from kernloom.cli.contender_words import contenders_of, parse_quoted
from kernloom.cli.hydra_flags import places_of
from kernloom.cli.invocation import Flag, Invocation, destination, without_output
from kernloom.cli.progress import Progress
from kernloom.cli.stores import split_store
from kernloom.measure.comparison import VERDICTS, Compared, Comparison
from kernloom.report.comparisons import github_lines
from kernloom.report.format import CompareReport
from kernloom.report.formats import format_for, write_file
from kernloom.report.results import parse_filters
from kernloom.run.assembly import Assembly
from kernloom.run.comparing import Contender, compare, unchanged
from kernloom.run.contenders import Contenders
from kernloom.run.fleets import check_on_this_machine
from kernloom.store.store import open_store

USAGE = "A B [C ...] | --baseline NAME [filter ...]"
READS_CONFIGS = True
REPORT = "compare"
FLAGS = {
    "with": Flag("overrides for all of them", "'WORDS'"),
    "baseline": Flag("each trial of a named baseline with what it is now", "NAME"),
    "control": Flag("also compare the first with itself"),
    "fail-if": Flag("exit code 1 on these verdicts: slower,inconclusive,...", "VERDICTS"),
    "junit": Flag("also write the outcome as JUnit XML", "FILE"),
    "github": Flag("annotations for GitHub Actions (there by itself)"),
}


def run(invocation: Invocation) -> int:
    assembly = Assembly(places_of(invocation))
    flags = invocation.flags
    common = parse_quoted(flags.get("with", ""), assembly.composer)
    place, given = split_store(without_output(invocation.words), assembly.places, common)
    failing = _verdicts(flags.get("fail-if", ""))
    file = destination(flags["junit"], "--junit") if "junit" in flags else None
    form = format_for(invocation.output, REPORT)
    progress = Progress(invocation.stderr, quiet=not form.for_people)
    both: list[tuple[Contender, Contender]] = []
    with open_store(place) as store:
        make = Contenders(assembly, store, common)
        if "baseline" in flags:
            both = make.from_baseline(flags["baseline"], parse_filters(given))
            groups = [list(pair) for pair in both if not unchanged(*pair)]
        else:
            if len(given) < 2:
                raise UsageError(
                    "compare needs at least two: sets of overrides, recipes or trials",
                    hint="For instance: kernloom compare 'toolchain=gcc' 'toolchain=clang'",
                )
            groups = [contenders_of(given, make, assembly.composer)]
        contenders = [contender for group in groups for contender in group]
        for plan in (contender.plan for contender in contenders if contender.plan):
            check_on_this_machine(plan.experiment.fleet, "compare")
        names = [[contender.name for contender in group] for group in groups]
        ignored = make.overrides_not_applied if any(c.fixed for c in contenders) else []
    found = compare(assembly, contenders, names, progress, control="control" in flags)
    if ignored:
        found.notes.append(f"recipes and stored trials do not take {' '.join(ignored)} of --with")
    if make.merged:
        found.notes.append(make.merged)
    same = [pair for pair in both if unchanged(*pair)]
    if same:
        which = f"{len(same)} of {len(both)}"
        found.notes.append(f"{which} would run just what they ran then: nothing to measure")
    for before, now in same:
        found.comparisons.append(Comparison(before.name, now.name, 1, 1, 1, "equivalent", 0))
    report = CompareReport(found, failing)
    if file:
        write_file("junit", report, file)
    if "github" in flags or os.environ.get("GITHUB_ACTIONS") == "true":
        for line in github_lines(found, failing):
            print(line, file=invocation.stderr)
    form.write(report, invocation.out_for(form))
    return exit_code(found, failing)


def exit_code(found: Compared, failing: set[str]) -> int:
    """1 if a contender failed or a verdict is in `failing`."""
    if any(entry.status != "ok" for entry in found.entries):
        unavailable = all(e.status in ("ok", "unavailable") for e in found.entries)
        return 3 if unavailable else 1
    return int(any(comparison.verdict in failing for comparison in found.comparisons))


def _verdicts(text: str) -> set[str]:
    names = {name.strip() for name in text.split(",") if name.strip()}
    for name in names:
        if name not in VERDICTS:
            raise UsageError(f"--fail-if {name}: no such verdict", hint=nearest(name, VERDICTS))
    return names
