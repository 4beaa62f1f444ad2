"""Writes recipes: of a run, of stored trials, and the lock of a request."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from kernloom.base.errors import UsageError
from kernloom.base.units import count
from kernloom.cli.hydra_flags import places_of
from kernloom.cli.invocation import Invocation, destination, without_output
from kernloom.cli.progress import Progress
from kernloom.cli.recipe.common import files_of, local_config
from kernloom.cli.stores import split_store
from kernloom.config.compose import Point
from kernloom.config.overrides import Overrides
from kernloom.measure.trial import Trial
from kernloom.plan.planned import Planned
from kernloom.recipe.entries import pinned, refusals
from kernloom.recipe.from_trials import points_of, request_of_run, request_of_trials, with_own_parts
from kernloom.recipe.recipe import add_lock, read_recipe, write_recipe
from kernloom.recipe.request import Request
from kernloom.report.results import parse_filters
from kernloom.report.tables import print_failures
from kernloom.run.assembly import Assembly
from kernloom.run.execution import Execution, exit_code
from kernloom.run.fleet import FleetSetup
from kernloom.run.fleets import create_fleet
from kernloom.run.locking import Locking
from kernloom.run.planning import plan_each
from kernloom.run.stores import store_of
from kernloom.store.store import Store, open_store

MAX_SAVED = 4000
"""Limit of trials that are saved at once."""


def save_run(
    path: Path,
    asked: Overrides,
    plans: Sequence[Planned],
    trials: Sequence[Trial],
    assembly: Assembly,
    invocation: Invocation,
) -> None:
    """Write the recipe of a run, `recipe=FILE`."""
    request = request_of_run(asked, trials, assembly.composer)
    _write(path, request, plans, trials, assembly, invocation)


def _write(
    path: Path,
    request: Request,
    plans: Sequence[Planned],
    trials: Sequence[Trial],
    assembly: Assembly,
    invocation: Invocation,
) -> None:
    request = with_own_parts(request, path)
    points = points_of(request, assembly.composer)
    if len(points) != len(trials):
        raise UsageError(
            f"recipe: {len(trials)} trials, of which only {len(points)} can be composed here",
            hint="Their configs were removed or changed since they ran. Run them again.",
        )
    write_recipe(path, request, Locking(assembly).lock(request, trials, plans, points))
    print(f"recipe written: {path}", file=invocation.stderr)
    for refusal in refusals(trials, assembly.composer):
        print(f"warning: `recipe run` will refuse it: {refusal}", file=invocation.stderr)


def save(invocation: Invocation) -> int:
    """`recipe save [TRIAL ... | key=value ...] FILE`"""
    assembly = Assembly(places_of(invocation))
    place, words = split_store(without_output(invocation.words)[1:], assembly.places)
    if not words:
        raise UsageError("say: kernloom recipe save [TRIAL ... | key=value ...] FILE")
    *which, file = words
    path = destination(file, "FILE")
    with open_store(place) as store:
        trials = _chosen(store, which, invocation.flags.get("baseline", ""))
    local = local_config(assembly, invocation)
    points = [Point(dict(t.point), {**local, **pinned(t.config, t.params)}) for t in trials]
    with closing(assembly.ahead):
        plans = plan_each(assembly, points, alone=len(points) == 1)
        request = request_of_trials(trials, assembly.composer)
        _write(path, request, plans, trials, assembly, invocation)
    return 0


def _chosen(store: Store, which: Sequence[str], baseline: str) -> list[Trial]:
    """The trials with these ids or values, oldest first; without any, the newest one."""
    if baseline:
        trials = store.baseline(baseline, parse_filters(which))
    elif all("=" in word or "<" in word or ">" in word for word in which):
        trials = store.query(parse_filters(which), limit=MAX_SAVED if which else 1)
    else:
        trials = [_with_id(store, prefix) for prefix in which]
    trials = list({trial.id: trial for trial in trials}.values())
    if not trials:
        raise UsageError("no stored trial is like that", hint="`kernloom results` lists them.")
    return sorted(trials, key=lambda trial: trial.created)


def _with_id(store: Store, prefix: str) -> Trial:
    found = {trial.id: trial for trial in store.starting_with(prefix)} if prefix else {}
    if len(found) != 1:
        number = "no" if not found else f"{len(found)}"
        raise UsageError(
            f"{number} stored trial{'s' if len(found) > 1 else ''} with an id that begins with "
            f"'{prefix}'",
            hint="`kernloom results` lists them.",
        )
    return next(iter(found.values()))


def lock(invocation: Invocation) -> int:
    """`recipe lock FILE`: runs what the request asks for, and writes it down."""
    [file] = files_of(invocation, ["FILE"])
    assembly = Assembly(places_of(invocation))
    path = destination(file, "FILE")
    recipe = read_recipe(path, with_lock=False)
    local = local_config(assembly, invocation)
    entries = recipe.composed(assembly.composer, {**local, "rerun": "none"})
    points = [Point(e.point.swept, {**e.point.data, "rerun": "none"}) for e in entries]
    progress = Progress(invocation.stderr)
    with closing(assembly.ahead):
        plans = plan_each(assembly, points, alone=len(points) == 1)
        with store_of(assembly, plans[0].experiment) as store:
            fleet = create_fleet(plans[0].experiment.fleet, FleetSetup(assembly, store, progress))
            results = Execution(assembly, store, progress, fleet, lambda trial: None).execute(plans)
        progress.clear()
        if results.interrupted:
            raise KeyboardInterrupt
        if results.failure:
            raise results.failure
        made = Locking(assembly).lock(recipe.request, results.trials, plans)
    written = add_lock(recipe, made, beside="beside" in invocation.flags)
    good = sum(trial.good for trial in results.trials)
    print(f"lock written: {written}: {count(good, 'verified trial')}", file=invocation.stderr)
    print_failures(results.trials, invocation.stderr)
    return exit_code(results.trials, interrupted=False, failed=False)
