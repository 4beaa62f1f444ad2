"""The keys that filter and sort trials: a column's name, or a dotted path into its documents.

`metrics.gflops`, `params.tile.multiply.mr` and `config.seed` name the document they look into. A
path without one is looked for where it belongs: `gflops` among the metrics, `workload.sizes.M`
among the swept keys and then in the config.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernloom.config.schema import ROOT_KEYS
from kernloom.errors import UsageError, nearest
from kernloom.files import canonical_json
from kernloom.store.rows import DOCUMENTS

COLUMNS = {
    name: name
    for name in (
        "id",
        "attempt",
        "created",
        "workload",
        "target",
        "arch",
        "toolchain",
        "variant",
        "status",
        "verified",
        "stage",
        "message",
        "provider",
        "seconds",
        "version",
        "stderr",
    )
} | {"case": "case_name"}
"""Key -> column; `case` is a word of SQL."""

USUAL_METRICS = (
    "median_ns",
    "ci_low_ns",
    "ci_high_ns",
    "min_ns",
    "wall_ns",
    "cpu_ns",
    "gflops",
    "gbytes_per_s",
    "samples",
    "processes",
    "inner",
    "outlier_share",
    "involuntary_switches",
    "instructions",
    "virtual_ns",
)

MISSING = object()


@dataclass(frozen=True)
class Key:
    """Where a value of a trial stands: in a column, or at a path in one of some documents."""

    text: str
    column: str = ""
    documents: tuple[str, ...] = ()
    path: tuple[str, ...] = ()

    def value(self, documents: Mapping[str, Any]) -> Any:
        """The value in a trial's decoded documents, or MISSING."""
        for name in self.documents:
            found = lookup(documents[name], self.path)
            if found is not MISSING:
                return found
        return MISSING


def parse_key(text: str) -> Key:
    head, *rest = text.split(".")
    if not rest and head in COLUMNS:
        return Key(text, column=COLUMNS[head])
    if rest and head in DOCUMENTS:
        return Key(text, documents=(head,), path=tuple(rest))
    if head in ROOT_KEYS:
        return Key(text, documents=("point", "config"), path=(head, *rest))
    return Key(text, documents=("metrics", "point", "params", "machine"), path=(head, *rest))


def lookup(value: Any, path: Sequence[str]) -> Any:
    """The value at a dotted path; names may contain dots themselves, as swept keys do."""
    if not path:
        return value
    if isinstance(value, Mapping):
        for length in range(len(path), 0, -1):
            name = ".".join(path[:length])
            if name in value:
                found = lookup(value[name], path[length:])
                if found is not MISSING:
                    return found
    if isinstance(value, list) and path[0].isdigit() and int(path[0]) < len(value):
        return lookup(value[int(path[0])], path[1:])
    return MISSING


def matches(value: Any, wanted: str) -> bool:
    """Whether a stored value is the one written as `wanted`."""
    if value is MISSING:
        return False
    if isinstance(value, bool) or value is None:
        return wanted.lower() == {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, (int, float)):
        try:
            return float(wanted) == value
        except ValueError:
            return False
    return wanted == (value if isinstance(value, str) else canonical_json(value))


def paths_in(value: Any) -> Iterable[str]:
    """Every dotted path to a plain value."""
    if not isinstance(value, Mapping):
        yield ""
        return
    for name, inner in value.items():
        for path in paths_in(inner):
            yield f"{name}.{path}" if path else str(name)


def check_known(key: Key, seen: Iterable[str]) -> None:
    """Refuse a key that neither a column nor anything in the store has; `seen` are its paths."""
    if key.column or key.text in USUAL_METRICS:
        return
    names = set(seen)
    if names and key.text in names:
        return
    if not names and "." in key.text:
        return
    raise UsageError(
        f"no trial has '{key.text}'", hint=nearest(key.text, {*COLUMNS, *USUAL_METRICS, *names})
    )
