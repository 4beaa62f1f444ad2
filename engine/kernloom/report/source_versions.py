"""Finds the trials that ran the newest source of their kernels, which alone are ranked.

A version of a kernel's source is a set of files with their hashes. Which files a template includes
can depend on tunables, so two sets are the same version if they agree on their common files. The
newest version is the one used last: going back to an earlier source makes it the newest again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from kernloom.base.lookup import MISSING, lookup
from kernloom.measure.trial import Trial
from kernloom.store.lookups import SourceUse
from kernloom.store.store import Store

NEWEST = "newest"


class SourceVersions:
    """The versions of all kernels' sources in a store."""

    def __init__(self, uses: Sequence[SourceUse], document_of: Mapping[str, str]) -> None:
        self._document_of = document_of
        self._ages: dict[str, int] = {}
        self._since: dict[str, str] = {}
        """Kernel and family -> creation time of the first trial of its newest version."""
        known: dict[str, list[dict[str, str]]] = {}
        for use in sorted(uses, key=lambda use: use.last, reverse=True):
            age = 0
            for kernel, files in use.files.items():
                version = _version(known.setdefault(kernel, []), files)
                age = max(age, version)
                if not version:
                    self._since[kernel] = min(use.first, self._since.get(kernel, use.first))
            self._ages[use.document] = age
        self._oldest = max(map(len, known.values()), default=0)

    @classmethod
    def of(cls, store: Store) -> SourceVersions:
        return cls(*store.sources())

    def age(self, trial: Trial) -> int:
        """Number of versions of a kernel's source after the one that a trial ran; 0: newest."""
        document = self._document_of.get(trial.id)
        if document in self._ages:
            return self._ages[document]
        if not trial.artifacts:
            return 0  # refused before a source was rendered, so it has no version
        # Stored before sources were recorded.
        since = [self._since[kernel] for kernel in _kernels_of(trial) if kernel in self._since]
        return self._oldest if since and trial.created < max(since) else 0

    def labelled(self, trials: Iterable[Trial]) -> Iterator[Trial]:
        """The trials, each with the version of its source."""
        return (replace(trial, source=label(self.age(trial))) for trial in trials)


def _version(versions: list[dict[str, str]], files: Mapping[str, str]) -> int:
    """Index of the version that files belong to, among those from newest to oldest."""
    for place, known in enumerate(versions):
        if all(known.get(path, digest) == digest for path, digest in files.items()):
            known.update(files)
            return place
    versions.append(dict(files))
    return len(versions) - 1


def label(age: int) -> str:
    return f"{age} older" if age else NEWEST


def _kernels_of(trial: Trial) -> list[str]:
    """`kernel:family` of a trial's steps, as far as its config has them."""
    steps = lookup(trial.config, ("workload", "steps"))
    families = lookup(trial.config, ("target", "sources"))
    if steps is MISSING or families is MISSING:
        return []
    called = {step.get("kernel") for step in steps.values() if isinstance(step, Mapping)}
    found = []
    for name in called:
        kernel = lookup(trial.config, ("workload", "kernels", str(name)))
        if isinstance(kernel, Mapping):
            has = kernel.get("sources", {})
            family = next((family for family in families if family in has), "")
            found.append(f"{kernel.get('name', name)}:{family}")
    return found
