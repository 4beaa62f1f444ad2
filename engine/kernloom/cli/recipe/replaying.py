"""Runs a recipe, and verifies one."""

from __future__ import annotations

from pathlib import Path

from kernloom.base.errors import UnavailableError, UsageError, nearest
from kernloom.cli.commands.run import execute_and_report
from kernloom.cli.hydra_flags import places_of
from kernloom.cli.invocation import Invocation
from kernloom.cli.progress import Progress
from kernloom.cli.recipe.common import files_of, local_config
from kernloom.recipe.entries import differences
from kernloom.recipe.levels import LEVELS
from kernloom.recipe.page import cost_text
from kernloom.recipe.recipe import read_recipe
from kernloom.report.documents import to_json, trial_document
from kernloom.run.assembly import Assembly
from kernloom.run.execution import exit_code
from kernloom.run.planning import plan_each
from kernloom.run.verifying import NOT_LOCKED, Verification, Verifying

MAX_ROUNDS = 10


def run(invocation: Invocation) -> int:
    """`recipe run FILE`"""
    [file] = files_of(invocation, ["FILE"])
    assembly = Assembly(places_of(invocation))
    recipe = read_recipe(Path(file))
    entries = recipe.entries(assembly.composer, local_config(assembly, invocation))
    plans = plan_each(assembly, [entry.point for entry in entries], alone=len(entries) == 1)
    notes = [note for entry in entries for note in entry.notes]
    if recipe.edited:
        notes.append(
            f"{file}: {', '.join(recipe.edited)} changed since it was locked; the lock is run"
        )
    for note in dict.fromkeys(notes):
        print(f"note: {note}", file=invocation.stderr)
    results = execute_and_report(assembly, plans, invocation)
    different = [
        note
        for entry, trial in zip(entries, results.trials, strict=False)
        for note in differences(entry, trial)
    ]
    for note in dict.fromkeys(different):
        print(f"note: {note}: its source, compiler or flags differ", file=invocation.stderr)
    return exit_code(
        results.trials, interrupted=results.interrupted, failed=results.failure is not None
    )


def verify(invocation: Invocation) -> int:
    """`recipe verify FILE [--require L1|L2|L3] [--rounds N] [--proxy]`"""
    [file] = files_of(invocation, ["FILE"])
    flags = invocation.flags
    required = flags.get("require", "")
    if required and required not in LEVELS:
        raise UsageError(f"--require {required}: no such level", hint=nearest(required, LEVELS))
    rounds = _rounds(flags.get("rounds", "1"))
    if "proxy" in flags and (required or "rounds" in flags):
        raise UsageError("--proxy is a first look, in which no level is checked")
    assembly = Assembly(places_of(invocation))
    recipe = read_recipe(Path(file))
    progress = Progress(invocation.stderr, quiet=not invocation.for_people)
    local = local_config(assembly, invocation)
    verifying = Verifying(assembly, recipe, local, progress)
    if invocation.for_people:
        try:
            whole = cost_text(verifying.cost())
            print(f"the whole recipe: {whole}", file=invocation.stderr)
        except UnavailableError as error:
            print(f"note: {error.message}", file=invocation.stderr)
    found = verifying.first_look() if "proxy" in flags else verifying.verify(rounds=rounds)
    if invocation.for_people:
        _print(found, invocation, look="proxy" in flags)
    else:
        print(to_json(_document(file, found)), file=invocation.data_out)
    if required:
        return int(LEVELS.index(required) >= len(LEVELS[: _height(found.reached)]))
    return int(found.failed)


def _height(reached: str) -> int:
    return LEVELS.index(reached) + 1 if reached else 0


def _rounds(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= MAX_ROUNDS:
        raise UsageError(f"--rounds {text} is not allowed", hint=f"Allowed: 1 to {MAX_ROUNDS}.")
    return int(text)


def _print(found: Verification, invocation: Invocation, *, look: bool) -> None:
    out = invocation.stdout
    locked = not any(level.reason == NOT_LOCKED for level in found.levels)
    if not locked:
        print("L1, L2 not checked: not locked; `kernloom recipe lock FILE` adds a lock", file=out)
    for level in found.levels:
        if level.reason != NOT_LOCKED:
            print(level.line, file=out)
    for claim in found.claims:
        print(claim.line, file=out)
    for note in dict.fromkeys(found.notes):
        print(f"note: {note}", file=invocation.stderr)
    trials = found.results.trials
    if look:
        good = sum(trial.good for trial in trials)
        print(f"first look: {good} of {len(trials)} verified; no level is claimed", file=out)
    else:
        reached = found.reached or ("none" if locked else "none, for it is not locked")
        print(f"level reached: {reached}", file=out)


def _document(file: str, found: Verification) -> dict[str, object]:
    return {
        "recipe": file,
        "level": found.reached or None,
        "levels": [vars(level) for level in found.levels],
        "claims": [claim.document() for claim in found.claims],
        "notes": list(dict.fromkeys(found.notes)),
        "trials": [trial_document(trial) for trial in found.results.trials],
    }
