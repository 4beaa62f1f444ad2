"""Calls functions in Python files of the project, each in a process of its own with limits."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kernloom.base.digest import DigestCache
from kernloom.base.errors import ConfigError, nearest
from kernloom.base.expressions import format_size
from kernloom.base.files import file_stamp, sha256_file
from kernloom.base.places import confined
from kernloom.config.goldens import GoldenFile, golden_files
from kernloom.config.schema import Workload
from kernloom.measure.fills import Array
from kernloom.measure.golden_process import run_golden

SECONDS = 60.0
"""Time limit of a call."""
MEMORY = 4 << 30
"""Memory limit of the process of a call, numpy included."""
SIGNATURE = (
    "It is called as FUNCTION(inputs, scalars, sizes), each a dict by the workload's names, and "
    "returns the golden."
)


def path_of(file: GoldenFile, folders: Sequence[Path], key: str) -> Path:
    """The file in the project's folder, and nowhere else."""
    return confined(file.path, list(folders[:1]), key=key, what="golden file")


def golden_digests(
    workload: Workload, folders: Sequence[Path], cache: DigestCache
) -> dict[str, str]:
    """Config key of each golden and mask in a Python file -> hash of the file."""
    found = {}
    for key, file in golden_files(workload):
        path = path_of(file, folders, key)
        try:
            found[key] = cache.by_key(
                (sha256_file, path, *file_stamp(path)), partial(sha256_file, path)
            )
        except OSError as error:
            raise ConfigError(f"'{path}' cannot be read: {error.strerror}", key=key) from None
    return found


def call_golden(
    file: GoldenFile,
    folders: Sequence[Path],
    inputs: Mapping[str, Array],
    scalars: Mapping[str, float],
    sizes: Mapping[str, int],
    shape: Sequence[int],
    key: str,
) -> Array:
    """The result of a function of the project; a failure names the function and the line."""
    path = path_of(file, folders, key)
    request = {
        "file": str(path),
        "function": file.function,
        "inputs": list(inputs),
        "scalars": dict(scalars),
        "sizes": dict(sizes),
        "shape": list(shape),
        "memory": MEMORY,
    }
    data = io.BytesIO()
    data.write(json.dumps(request).encode() + b"\n")
    for array in inputs.values():
        np.save(data, np.ascontiguousarray(array), allow_pickle=False)
    try:
        code, answer = run_golden(data.getbuffer(), SECONDS)
    except TimeoutError:
        raise ConfigError(
            f"{file} gave no answer within {SECONDS:g} s", key=key, hint="Does it ever end?"
        ) from None
    return _answer(file, code, io.BytesIO(answer), shape, key)


def _answer(
    file: GoldenFile, code: int, answer: io.BytesIO, shape: Sequence[int], key: str
) -> Array:
    try:
        facts: dict[str, Any] = dict(json.loads(answer.readline()))
    except (TypeError, ValueError):
        raise _ended(file, code, key) from None
    if facts.get("memory"):
        raise ConfigError(f"{file} needs more than {format_size(MEMORY)} of memory", key=key)
    if failed := facts.get("failed"):
        if "missing" in failed:
            raise ConfigError(
                f"{file.path} has no function '{file.function}'",
                key=key,
                hint=nearest(file.function, failed["missing"]) if failed["missing"] else "",
            )
        place = f" (line {failed['line']})" if failed["line"] else ""
        raise ConfigError(f"{file} failed: {failed['text']}{place}", key=key, hint=SIGNATURE)
    if "problem" in facts:
        raise ConfigError(f"{file} {facts['problem']}", key=key)
    if "shape" in facts:
        raise ConfigError(
            f"'{file}' has shape {facts['shape']}, but tensor '{key.split('.')[-1]}' is "
            f"{list(shape)}",
            key=key,
        )
    try:
        result: Array = np.load(answer, allow_pickle=False)
    except (EOFError, ValueError):
        raise _ended(file, code, key) from None
    return result


def _ended(file: GoldenFile, code: int, key: str) -> ConfigError:
    how = f"signal {-code}" if code < 0 else f"exit {code}"
    return ConfigError(
        f"{file} ended without a result ({how})",
        key=key,
        hint=f"Its process may use {format_size(MEMORY)} of memory.",
    )
