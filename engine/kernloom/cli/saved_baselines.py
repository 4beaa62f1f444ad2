"""`kernloom results baseline ...`: saved baselines, for later comparisons."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernloom.base.errors import UsageError, nearest
from kernloom.base.places import Places
from kernloom.base.units import count
from kernloom.cli.invocation import Invocation
from kernloom.report.documents import to_json
from kernloom.report.page import print_rows
from kernloom.report.results import parse_filters
from kernloom.report.tables import print_results
from kernloom.run.saved_baselines import remove_baseline, save_baseline
from kernloom.store.store import Store

ACTIONS = {
    "save": "save the trials that match the filters under a name",
    "list": "the saved baselines",
    "show": "the trials of a baseline",
    "remove": "remove a baseline",
}
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def run(words: Sequence[str], places: Places, store: Store, invocation: Invocation) -> int:
    action, *rest = words or ("list",)
    if action not in ACTIONS:
        raise UsageError(f"unknown baseline command '{action}'", hint=nearest(action, ACTIONS))
    if action == "list":
        _list(store, invocation)
        return 0
    if not rest or not _NAME.fullmatch(rest[0]):
        given = f"'{rest[0]}' is no name" if rest else "it needs a name"
        raise UsageError(
            f"results baseline {action}: {given}", hint="Letters, digits, _ . and - make one."
        )
    name, *filters = rest
    if action == "save":
        _save(name, filters, places, store, invocation)
    elif action == "show":
        trials = store.baseline(name, parse_filters(filters))
        print_results(trials, invocation.stdout)
    else:
        remove_baseline(name, store, places)
        print(f"removed baseline {name}", file=invocation.stderr)
    return 0


def _list(store: Store, invocation: Invocation) -> None:
    rows = [
        {"baseline": name, "trials": str(number), "saved": created[:19].replace("T", " ")}
        for name, created, number in store.baselines()
    ]
    if invocation.for_people:
        print_rows(rows, invocation.stdout)
    else:
        print(to_json({"baselines": rows}), file=invocation.stdout)


def _save(
    name: str, filters: Sequence[str], places: Places, store: Store, invocation: Invocation
) -> None:
    saved = save_baseline(name, parse_filters(filters), store, places)
    instead = ", in place of what was saved as it" if saved.replaced else ""
    print(f"saved {count(saved.trials, 'trial')} as {name}{instead}", file=invocation.stderr)
    if saved.lost:
        print(
            f"note: {count(saved.lost, 'artifact')} of them are no longer below {places.build}: "
            "those trials can be compared with only while their sources are as they were",
            file=invocation.stderr,
        )
