"""Saved baselines: stored trials under a name, with copies of the artifacts they ran.

A later comparison runs these artifacts again, so a cleared build folder must not lose them.
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
    """The outcome of saving a baseline."""

    trials: int
    replaced: bool
    """Whether it replaced a saved baseline of that name."""
    lost: int
    """Artifacts that no longer exist and could not be copied."""


def kept_folder(store: Store, places: Places) -> Path:
    """Folder with copies of the artifacts of a store's saved baselines: beside the store, if it is
    a file."""
    return (store.file or places.store).with_suffix(".baselines")


def save_baseline(name: str, filters: Sequence[Filter], store: Store, places: Places) -> Saved:
    """Save the verified trials that match the filters, and copy the artifacts they ran."""
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
    """Copy the trials' kernels beside the store; returns the number of missing ones."""
    keys = {str(item["key"]) for trial in trials for item in trial.artifacts}
    lost = 0
    for key in keys:
        folder, kept = places.build / "kernels" / key, copies / key
        manifest = read_manifest(folder)
        if manifest is None:
            # Runners are built again; only kernels matter.
            lost += not (places.build / "runtimes" / key).is_dir() and not kept.is_dir()
        elif read_manifest(kept) is None:
            _copy(folder, kept, (MANIFEST, str(manifest["output"])))
    return lost


def _copy(folder: Path, kept: Path, names: Sequence[str]) -> None:
    """Copy a folder atomically."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    # Locked, because another process would clear away an incomplete copy.
    with locked(kept.parent), tempfile.TemporaryDirectory(dir=kept.parent) as made:
        for name in names:
            shutil.copy2(folder / name, Path(made) / name)
        # Another process may have copied the same files first.
        with contextlib.suppress(OSError):
            Path(made).rename(kept)
            Path(made).mkdir()


def _clear(store: Store, places: Places) -> None:
    """Remove copies that no saved baseline needs."""
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
