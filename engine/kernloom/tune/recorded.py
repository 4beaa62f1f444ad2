"""Recorded spaces: results of every point, in the format of Kernel Tuner's cache or in T4."""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kernloom.base.errors import ConfigError, nearest
from kernloom.base.gauges import metric_named
from kernloom.space.listed import listed_space
from kernloom.space.space import Space

if TYPE_CHECKING:
    from kernloom.space.axes import Array

MAX_BYTES = 2**30
"""Maximum size of a file, and of its uncompressed content."""
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Recording:
    """A space with a result for every point."""

    name: str
    space: Space
    values: Mapping[int, float]
    """Index of a point -> its value, lower is better; points that failed are missing."""
    points: int
    objective: str
    sign: int = 1
    """-1 if a higher recorded value is better; `values` are negated then."""
    notes: tuple[str, ...] = ()

    @cached_property
    def ordered(self) -> Array:
        """All values, the best first."""
        import numpy

        return numpy.sort(numpy.array(list(self.values.values())))

    def shown(self, value: float) -> float:
        """A value as it was recorded."""
        return self.sign * value


def read_recording(path: Path, objective: str = "") -> Recording:
    """The recording in a file; `objective`: the measured quantity, else the file's own."""
    document, torn = _document(_text(path), path)
    if isinstance(document, dict) and isinstance(document.get("cache"), dict):
        keys, rows = _kernel_tuner(document, path)
        name = objective or str(document.get("objective") or "time")
        results = [(row, row.get(name)) for row in rows]
        measured = {k for row in rows for k, v in row.items() if k not in keys and _is_number(v)}
    elif isinstance(document, dict) and isinstance(document.get("results"), list):
        keys, name, results, measured = _t4(document, objective, path)
    else:
        raise ConfigError(
            "this is neither a cache of Kernel Tuner (keys tune_params_keys and cache) nor T4 "
            "(key results)",
            key=str(path),
        )
    if not results:
        raise ConfigError("the recorded space is empty: it has no point", key=str(path))
    if not any(_is_number(value) for _, value in results):
        hint = nearest(name, sorted(measured)) if measured else "All its points failed."
        raise ConfigError(f"no point has a result '{name}'", key=str(path), hint=hint)
    recording = _recording(path.name.split(".json")[0], keys, results, name)
    return replace(recording, notes=(*recording.notes, torn)) if torn else recording


def _recording(
    name: str, keys: Sequence[str], results: Sequence[tuple[Mapping[str, Any], Any]], objective: str
) -> Recording:
    options = {key: _options([row[key] for row, _ in results]) for key in keys}
    # What all points have in common is no choice.
    keys = [key for key in keys if len(options[key]) > 1] or keys[:1]
    options = {key: options[key] for key in keys}
    ranks = {key: {_distinct(v): n for n, v in enumerate(options[key])} for key in keys}
    lines = [tuple(ranks[key][_distinct(row[key])] for key in keys) for row, _ in results]
    space = listed_space(options, lines)
    metric = metric_named(objective, scan=False)
    sign = -1 if metric is not None and metric.better == "larger" else 1
    found: dict[int, float | None] = {}
    for line, (_, value) in zip(lines, results, strict=True):
        # A point that was recorded again: the last result counts.
        found[space.index_at(line)] = sign * float(value) if _is_number(value) else None
    values = {index: value for index, value in found.items() if value is not None}
    repeated = len(results) - len(found)
    notes = (f"{repeated} points were recorded again; the last result counts",) if repeated else ()
    return Recording(name, space, values, len(found), objective, sign, notes)


def _kernel_tuner(
    document: Mapping[str, Any], path: Path
) -> tuple[list[str], list[Mapping[str, Any]]]:
    rows = list(document["cache"].values())
    keys = document.get("tune_params_keys")
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
        raise ConfigError(
            "a list of the names of parameters is missing", key=f"{path}: tune_params_keys"
        )
    if len(set(keys)) < len(keys):
        raise ConfigError("a parameter is named twice", key=f"{path}: tune_params_keys")
    for name, row in document["cache"].items():
        _check_configuration(row, keys, f"{path}: cache.{name}")
    return keys, rows


_Kind = TypeVar("_Kind")
_T4Result = tuple[Mapping[str, Any], Any]


def _t4(
    document: Mapping[str, Any], objective: str, path: Path
) -> tuple[list[str], str, list[_T4Result], set[str]]:
    keys: list[str] = []
    results: list[_T4Result] = []
    measured: set[str] = set()
    name = objective
    for number, result in enumerate(document["results"]):
        where = f"{path}: results[{number}]"
        if not isinstance(result, dict) or not isinstance(result.get("configuration"), dict):
            raise ConfigError("it has no configuration", key=where)
        configuration = result["configuration"]
        objectives = _list_of(result, "objectives", str, where)
        measurements = _list_of(result, "measurements", dict, where)
        if not configuration:
            raise ConfigError("its configuration has no parameter", key=where)
        keys = keys or list(configuration)
        _check_configuration(configuration, keys, f"{where}.configuration")
        name = name or next(iter(objectives), "") or "time"
        values = {str(one.get("name")): one.get("value") for one in measurements}
        measured |= values.keys()
        good = result.get("invalidity", "correct") == "correct"
        results.append((configuration, values.get(name) if good else None))
    return keys, name, results, measured


def _list_of(result: Mapping[str, Any], key: str, kind: type[_Kind], where: str) -> list[_Kind]:
    found = result.get(key) or []
    if not isinstance(found, list) or not all(isinstance(one, kind) for one in found):
        what = "names" if kind is str else "names with values"
        raise ConfigError(f"expected a list of {what}", key=f"{where}.{key}")
    return found


def _check_configuration(row: Any, keys: Sequence[str], where: str) -> None:
    if not isinstance(row, dict):
        raise ConfigError("expected names and values", key=where)
    for key in keys:
        if not (isinstance(row.get(key), (bool, str)) or _is_number(row.get(key))):
            problem = "is missing" if key not in row else f"is {row[key]!r:.40}, not a plain value"
            raise ConfigError(f"the parameter '{key}' {problem}", key=where)


def _options(values: Sequence[Any]) -> list[Any]:
    """The distinct values of a parameter in order, numbers before text."""
    distinct = {_distinct(value): value for value in values}
    return sorted(distinct.values(), key=lambda v: (isinstance(v, str), v))


def _distinct(value: Any) -> tuple[bool, Any]:
    return isinstance(value, bool), value


def _is_number(value: Any) -> bool:
    """Whether it is a finite number that fits a float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _text(path: Path) -> str:
    """The text of a file, unpacked as far as it goes."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise ConfigError(f"'{path}' is not a file", key="space")
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"'{path}' cannot be read: {error.strerror}", key="space") from None
    except ValueError as error:
        raise ConfigError(f"cannot be read: {error}", key="space") from None
    cut = False
    if data.startswith(_GZIP):
        unpacking = zlib.decompressobj(wbits=31)
        try:
            data = unpacking.decompress(data, MAX_BYTES + 1)
        except zlib.error as error:
            raise ConfigError(f"'{path}' is damaged: {error}", key="space") from None
        cut = not unpacking.eof
    if len(data) > MAX_BYTES:
        raise ConfigError(f"'{path}' has more than {MAX_BYTES >> 20} MiB", key="space")
    try:
        return data.decode("utf-8", "ignore" if cut else "strict").rstrip()
    except UnicodeDecodeError as error:
        raise ConfigError(f"'{path}' is not UTF-8 text (byte {error.start})", key="space") from None


def _document(text: str, path: Path) -> tuple[Any, str]:
    """The JSON document, and what is missing at its end, if anything.

    Kernel Tuner closes the braces of a cache only when a study ends, and a killed study may leave
    a part of its last line.
    """
    try:
        return json.loads(text), ""
    except RecursionError:
        raise ConfigError("this is nested too deeply", key=str(path)) from None
    except json.JSONDecodeError as error:
        problem = error
    except ValueError as error:  # a number of thousands of digits
        raise ConfigError(str(error).partition(";")[0], key=str(path)) from None
    lines = text.splitlines()
    if problem.lineno >= len(lines) - 1 and '"cache"' in text:
        for kept, note in (
            (lines, "the recorded study did not end; its results so far are used"),
            (lines[:-1], "the last line is torn and left out"),
        ):
            closed = "\n".join(kept).rstrip().rstrip(",")
            for end in ("}\n}", "\n}"):
                with contextlib.suppress(ValueError):
                    return json.loads(closed + end), note
    raise ConfigError(f"line {problem.lineno} is not JSON: {problem.msg}", key=str(path))
