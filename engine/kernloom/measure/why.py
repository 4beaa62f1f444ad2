"""Why a launch took as long as it did: causes, critical path and peaks from a platform's report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernloom.base.files import canonical_json
from kernloom.measure.trial import Trial

WHY = "why"
"""Condition of a trial in virtual time: what this module finds."""
MAX_WHY = 2048
"""Bytes of it as JSON."""
_SPENT, _PATH, _ON_PATH = "spent.", "path.", "path_cause."
_PEAK, _SCOPE, _PE = "peak.", "scope.", "pe."


@dataclass(frozen=True)
class Bound:
    """The virtual time of a run on which a resource costs nothing."""

    resource: str
    virtual_ns: float
    factor: float
    """How many times faster than measured."""
    message: str = ""
    """Why there is no such time."""

    def document(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value != ""}


@dataclass(frozen=True)
class Insight:
    """What was found out about the trials of a run, by trial id."""

    bounds: Mapping[str, Sequence[Bound]]
    """Bounds of what-if, the largest gain first."""
    pes: Mapping[str, Mapping[str, Any]]
    """Picoseconds of every PE by cause."""
    why: bool = False
    """Whether each trial is explained."""

    def document(self, trial: Trial) -> dict[str, Any]:
        """Additions to the JSON document of a trial."""
        found: dict[str, Any] = {}
        if trial.id in self.bounds:
            found["whatif"] = [bound.document() for bound in self.bounds[trial.id]]
        if trial.id in self.pes:
            found["pes"] = self.pes[trial.id]
        return found


def why_digest(report: Mapping[str, str]) -> dict[str, Any]:
    """Picoseconds of the PEs that took part by cause, the critical path, and the peaks of rings,
    graph, queue and scopes, in at most 2 KB; empty if the platform keeps no times."""
    path = [_stretch(report[key]) for key in _numbered(report, _PATH)]
    if not path:
        return {}
    digest: dict[str, Any] = {
        "virtual_ps": int(report["virtual_ps"]),
        "pes": int(report["pes"]),
        "overhead": round(int(report["overhead_ps"]) / int(report["virtual_ps"]), 6),
        "causes": _integers(report, _SPENT),
        "path": path,
        "path_causes": _integers(report, _ON_PATH),
        "peaks": {
            key.removeprefix(_PEAK): [int(part) for part in text.split("/")]
            for key, text in report.items()
            if key.startswith(_PEAK) and "/" in text
        },
        "scopes": {
            key.removeprefix(_SCOPE): [int(part) for part in text.split("/")]
            for key, text in report.items()
            if key.startswith(_SCOPE)
        },
    }
    return _shortened(digest)


def spent_by_pe(report: Mapping[str, str]) -> dict[str, Any]:
    """Picoseconds of every PE, in the order of `causes`: `{"causes": [...], "pes": {"0.0.0":
    [...]}}`."""
    return {
        "causes": report.get("causes", "").split(","),
        "pes": {
            key.removeprefix(_PE): [int(part) for part in text.split(",")]
            for key, text in report.items()
            if key.startswith(_PE)
        },
    }


def _stretch(text: str) -> dict[str, Any]:
    """`KIND|COUNT|PS|CAUSE:PS,...|NAME`"""
    kind, count, ps, causes, name = text.split("|", 4)
    spent = (cause.rsplit(":", 1) for cause in filter(None, causes.split(",")))
    return {
        "kind": kind,
        "name": name,
        "count": int(count),
        "ps": int(ps),
        "causes": {cause: int(value) for cause, value in spent},
    }


def _shortened(digest: dict[str, Any]) -> dict[str, Any]:
    """What does not fit is left out: causes of the shortest stretches, then deep rings and scopes,
    then names."""

    def too_long() -> bool:
        return len(canonical_json(digest).encode()) > MAX_WHY

    for stretch in sorted(digest["path"], key=lambda one: int(one["ps"])):
        if not too_long():
            return digest
        stretch.pop("causes")
    for section in ("scopes", "peaks"):
        while too_long() and digest[section]:
            digest[section].popitem()
    for stretch in digest["path"]:
        if too_long():
            stretch["name"] = stretch["name"][:8]
    return digest


def _numbered(report: Mapping[str, str], prefix: str) -> Iterable[str]:
    found = (key for key in report if key.startswith(prefix))
    return sorted(found, key=lambda key: int(key.removeprefix(prefix)))


def _integers(report: Mapping[str, str], prefix: str) -> dict[str, int]:
    return {
        key.removeprefix(prefix): int(text)
        for key, text in report.items()
        if key.startswith(prefix)
    }
