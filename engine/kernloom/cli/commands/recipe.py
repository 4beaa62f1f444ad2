"""Replay a recipe file: build, verify and measure the same configs and parameters again.

kernloom run workload=mlp recipe=mlp.yaml    # writes one
kernloom recipe run mlp.yaml                 # replays it
"""

from __future__ import annotations

from pathlib import Path

from kernloom.base.errors import UsageError, nearest
from kernloom.cli.commands.run import execute_and_report
from kernloom.cli.hydra_flags import places_of
from kernloom.cli.invocation import Invocation, without_output
from kernloom.recipe.recipe import differences, read_recipe
from kernloom.run.assembly import Assembly
from kernloom.run.execution import exit_code
from kernloom.run.planning import plan_each

USAGE = "run FILE [output=json]"
READS_CONFIGS = True
REPORT = "run"
ACTIONS = {"run": "replay a recipe file"}


def run(invocation: Invocation) -> int:
    words = without_output(invocation.words)
    if not words or words[0] not in ACTIONS:
        given = words[0] if words else ""
        raise UsageError(f"unknown recipe command '{given}'", hint=nearest(given, ACTIONS))
    if len(words) != 2:
        raise UsageError("name one recipe file: kernloom recipe run FILE")
    assembly = Assembly(places_of(invocation))
    # Tasks of a cluster compose their points from overrides, which a recipe does not have.
    here = assembly.composer.choose({"output": invocation.output, "fleet": "local"})
    local = next(iter(assembly.composer.points(here))).data
    entries = read_recipe(Path(words[1]), assembly.composer, local)
    plans = plan_each(assembly, [entry.point for entry in entries], alone=len(entries) == 1)
    for note in dict.fromkeys(note for entry in entries for note in entry.notes):
        print(f"note: {note}", file=invocation.stderr)
    results = execute_and_report(assembly, plans, invocation)
    notes = [
        note
        for entry, trial in zip(entries, results.trials, strict=False)
        for note in differences(entry, trial)
    ]
    for note in dict.fromkeys(notes):
        print(f"note: {note}: its source, compiler or flags differ", file=invocation.stderr)
    return exit_code(
        results.trials, interrupted=results.interrupted, failed=results.failure is not None
    )
