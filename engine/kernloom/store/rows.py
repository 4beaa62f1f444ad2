"""Trials and samples as rows of plain text and numbers, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from sys import intern
from typing import Any

import kernloom
from kernloom.base.errors import without_password
from kernloom.base.files import canonical_json
from kernloom.measure.trial import Samples, Trial
from kernloom.store.shared import Writer, hash_of

OWN = (
    *("point", "params", "metrics", "placement", "conditions", "warnings", "overrides"),
    "artifacts",
)
SHARED = ("config", "machine")
"""Documents of which large sections are kept once for all trials that have them."""
DOCUMENTS = (*OWN, *SHARED)
"""Columns that hold JSON; a dotted key looks into them."""
# Made once: json.dumps looks at more than there is to encode.
_encode = json.JSONEncoder().encode
_encode_short = json.JSONEncoder(separators=(",", ":")).encode
FACTS = "facts"
"""What a trial's id is the hash of: shared like those, but read only by who asks for it."""
LISTS = ("artifacts", "warnings", "overrides")
_OWN_VALUES = ("metrics", "config")


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def name_in(config: Mapping[str, Any], group: str, key: str = "name") -> str:
    """`config.GROUP.KEY`, or nothing where a config does not go that far."""
    chosen = config.get(group)
    return str(chosen.get(key, "")) if isinstance(chosen, Mapping) else str(chosen or "")


def _text(text: str) -> str:
    """What a program printed may be no valid Unicode; a database takes nothing else."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "�")


def row_of(
    trial: Trial, writer: Writer, facts_writer: Writer
) -> tuple[dict[str, Any], tuple[tuple[str, str], ...]]:
    """The row of a trial, and with their hashes the sections that it shares with others."""
    config, machine = writer.document(_unsecret(trial.config)), writer.document(trial.machine)
    facts = facts_writer.document(trial.facts)
    row: dict[str, Any] = {
        "id": trial.id,
        "created": trial.created or now(),
        "workload": trial.workload,
        "case_name": trial.case,
        "target": trial.target,
        "arch": name_in(trial.config, "arch"),
        "toolchain": name_in(trial.config, "toolchain"),
        "variant": name_in(trial.config, "target", "variant"),
        "status": trial.status,
        "verified": trial.verified,
        "stage": trial.stage,
        "message": _text(trial.message),
        "provider": trial.provider,
        "seconds": trial.seconds,
        "version": kernloom.__version__,
        **{name: _dumped(getattr(trial, name)) for name in OWN},
        "config": config.text,
        "machine": machine.text,
        FACTS: facts.text,
        "stderr": _text(trial.stderr),
    }
    if "://" in row["overrides"]:
        row["overrides"] = json.dumps([without_password(word) for word in trial.overrides])
    return row, config.sections + machine.sections + facts.sections


class SourceRows:
    """Rows of which sources trials were planned from; most trials have those of the last one."""

    def __init__(self) -> None:
        self._last: tuple[Mapping[str, Any], str, str] = ({}, "", "")

    def row(self, trial: str, sources: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """The row of a trial, and the text of the document that it names."""
        if self._last[0] is not sources:
            text = canonical_json(sources)
            self._last = (sources, text, hash_of(text))
        _, text, name = self._last
        return {"trial": trial, "used": now(), "document": name}, text


def _dumped(value: Any) -> str:
    return _encode(value) if value else "[]" if isinstance(value, (tuple, list)) else "{}"


def _numbers(values: tuple[float, ...]) -> str:
    return _encode_short(values) if values else "[]"


def _unsecret(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config, less the password of the store that it is going to."""
    store = config.get("store")
    if not isinstance(store, Mapping) or not store.get("url"):
        return config
    return {**config, "store": {**store, "url": without_password(str(store["url"]))}}


def trial_of(row: Mapping[Any, Any], decode: Callable[[str], Any] = json.loads) -> Trial:
    """The trial of a row; `decode` knows the sections that are kept apart, and gives equal texts
    the same document."""
    documents = {name: decode(row[name]) for name in DOCUMENTS}
    for name in _OWN_VALUES:
        # Every trial has other values under the same names, which need not be kept for each.
        documents[name] = {intern(key): value for key, value in documents[name].items()}
    if "placement" in documents["metrics"]:
        # Up to version 1 of the tables it was among the metrics.
        placed = documents["metrics"].pop("placement")
        documents["placement"] = documents["placement"] | placed
    return Trial(
        id=row["id"],
        workload=row["workload"],
        case=row["case_name"],
        target=row["target"],
        status=row["status"],
        verified=bool(row["verified"]),
        provider=row["provider"],
        stage=row["stage"],
        message=row["message"],
        stderr=row["stderr"],
        created=row["created"],
        seconds=row["seconds"],
        attempt=row["attempt"],
        **documents | {name: tuple(documents[name]) for name in LISTS},
    )


def sample_row(trial: str, process: int, samples: Samples) -> dict[str, Any]:
    return {
        "trial": trial,
        "process": process,
        "inner_count": samples.inner,
        "wall_ns": _numbers(samples.wall_ns),
        "cpu_ns": _numbers(samples.cpu_ns),
        "involuntary": _numbers(samples.involuntary),
        "transfer_ns": _numbers(samples.transfer_ns),
    }


def samples_of(row: Mapping[Any, Any]) -> Samples:
    names = ("wall_ns", "cpu_ns", "involuntary", "transfer_ns")
    return Samples(row["inner_count"], *(tuple(json.loads(row[name])) for name in names))
