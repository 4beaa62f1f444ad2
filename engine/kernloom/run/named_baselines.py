"""Named baselines: stored trials under a name, and copies of the artifacts that they ran.

A later comparison runs these artifacts again: a cleared build folder must not lose them.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernloom.base.errors import UsageError
from kernloom.base.places import Places
from kernloom.base.temporary import locked
from kernloom.build.manifest import read_manifest
from kernloom.measure.trial import Trial
from kernloom.plan.artifact import MANIFEST
from kernloom.store.keys import Filter
from kernloom.store.store import Store


@dataclass(frozen=True)
class Saved:
    """What came of saving a baseline."""

    trials: int
    replaced: bool
    """Whether there was a baseline of that name."""
    lost: int
    """Artifacts that are no longer there to be kept."""


def kept_folder(store: Store, places: Places) -> Path:
    """Copies of the artifacts that the baselines of a store need: beside it, if it is a file."""
    return (store.file or places.store).with_suffix(".baselines")


def save_baseline(name: str, filters: Sequence[Filter], store: Store, places: Places) -> Saved:
    """Name the verified trials that pass the filters, and keep what they ran."""
    trials = [trial for trial in store.query(filters) if trial.good]
    if not trials:
        raise UsageError(
            "there is no verified trial to save",
            hint="Run something first, or filter less: `kernloom results` lists the trials.",
        )
    before = {known for known, _, _ in store.baselines()}
    store.save_baseline(name, [trial.id for trial in trials])
    lost = _keep(trials, places, kept_folder(store, places))
    _clear(store, places)
    return Saved(len(trials), name in before, lost)


def remove_baseline(name: str, store: Store, places: Places) -> None:
    store.remove_baseline(name)
    _clear(store, places)


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
