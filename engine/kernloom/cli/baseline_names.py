"""`kernloom results baseline ...`: trials under a name, to be compared with later."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from kernloom.base.errors import UsageError, nearest
from kernloom.base.places import Places
from kernloom.base.temporary import locked
from kernloom.base.units import count
from kernloom.build.manifest import read_manifest
from kernloom.cli.contenders import kept_folder
from kernloom.cli.invocation import Invocation
from kernloom.measure.trial import Trial
from kernloom.plan.artifact import MANIFEST
from kernloom.report.documents import to_json
from kernloom.report.results import parse_filters
from kernloom.report.tables import print_results, print_rows
from kernloom.store.store import Store

ACTIONS = ("save", "list", "show", "remove")
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
        store.remove_baseline(name)
        _clear(store, places)
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
    """Name trials, and keep what they ran: a cleared build folder must not lose them."""
    trials = [trial for trial in store.query(parse_filters(filters)) if trial.good]
    if not trials:
        raise UsageError(
            "there is no verified trial to save",
            hint="Run something first, or filter less: `kernloom results` lists the trials.",
        )
    before = {known for known, _, _ in store.baselines()}
    store.save_baseline(name, [trial.id for trial in trials])
    lost = _keep(trials, places, kept_folder(store, places))
    _clear(store, places)
    instead = ", in place of what was saved as it" if name in before else ""
    print(f"saved {count(len(trials), 'trial')} as {name}{instead}", file=invocation.stderr)
    if lost:
        print(
            f"note: {count(lost, 'artifact')} of them are no longer below {places.build}: those "
            "trials can be compared with only while their sources are as they were",
            file=invocation.stderr,
        )


def _keep(trials: Iterable[Trial], places: Places, copies: Path) -> int:
    """Copy the trials' kernels beside the store; how many are not there."""
    keys = {str(item["key"]) for trial in trials for item in trial.artifacts}
    lost = 0
    for key in keys:
        folder, kept = places.build / "kernels" / key, copies / key
        manifest = read_manifest(folder)
        if manifest is None:
            # Runners are made anew; only kernels matter.
            lost += not (places.build / "runtimes" / key).is_dir() and not kept.is_dir()
        elif read_manifest(kept) is None:
            _copy(folder, kept, (MANIFEST, str(manifest["output"])))
    return lost


def _copy(folder: Path, kept: Path, names: Sequence[str]) -> None:
    """The folder appears when it is whole."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    # Alone, or another process clears away what is not whole yet.
    with locked(kept.parent), tempfile.TemporaryDirectory(dir=kept.parent) as made:
        for name in names:
            shutil.copy2(folder / name, Path(made) / name)
        # Somebody else may have been faster, with the same files.
        with contextlib.suppress(OSError):
            Path(made).rename(kept)
            Path(made).mkdir()


def _clear(store: Store, places: Places) -> None:
    """Remove copies that no baseline needs any more."""
    folder = kept_folder(store, places)
    if not folder.is_dir():
        return
    with locked(folder):
        needed = {
            str(item["key"])
            for name, _, _ in store.baselines()
            for trial in store.baseline(name)
            for item in trial.artifacts
        }
        for kept in folder.iterdir():
            if kept.name not in needed:
                shutil.rmtree(kept, ignore_errors=True)
