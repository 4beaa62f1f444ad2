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
"""Documents whose large sections are stored once for all trials that share them."""
DOCUMENTS = (*OWN, *SHARED)
"""Columns that hold JSON; dotted keys refer into them."""
# Created once: json.dumps checks its arguments at every call.
_encode = json.JSONEncoder().encode
_encode_short = json.JSONEncoder(separators=(",", ":")).encode
FACTS = "facts"
"""The facts that a trial's id is the hash of: shared as well, but read only on request."""
LISTS = ("artifacts", "warnings", "overrides")
_OWN_VALUES = ("metrics", "config")


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def name_in(config: Mapping[str, Any], group: str, key: str = "name") -> str:
    """`config.GROUP.KEY`, or '' if the config lacks it."""
    chosen = config.get(group)
    return str(chosen.get(key, "")) if isinstance(chosen, Mapping) else str(chosen or "")


def _text(text: str) -> str:
    """Text in valid Unicode, as databases require; a program's output may not be."""
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "�")


def row_of(
    trial: Trial, writer: Writer, facts_writer: Writer
) -> tuple[dict[str, Any], tuple[tuple[str, str], ...]]:
    """A trial's row, and the sections that it shares with others, with their hashes."""
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
    """Rows with the sources of trials; most trials have the same as the previous one."""

    def __init__(self) -> None:
        self._last: tuple[Mapping[str, Any], str, str] = ({}, "", "")

    def row(self, trial: str, sources: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """A trial's row, and the text of the document that it refers to."""
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
    """The config without the password of its store."""
    store = config.get("store")
    if not isinstance(store, Mapping) or not store.get("url"):
        return config
    return {**config, "store": {**store, "url": without_password(str(store["url"]))}}


def trial_of(row: Mapping[Any, Any], decode: Callable[[str], Any] = json.loads) -> Trial:
    """The trial of a row; `decode` resolves shared sections and returns the same document for equal
    texts."""
    documents = {name: decode(row[name]) for name in DOCUMENTS}
    for name in _OWN_VALUES:
        # The names are the same in every trial, so they are stored once in memory.
        documents[name] = {intern(key): value for key, value in documents[name].items()}
    if "placement" in documents["metrics"]:
        # In version 1 of the tables it was part of the metrics.
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
