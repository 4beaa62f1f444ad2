"""Recipe files: a request that a person writes on top, and a lock that the tool writes below it, or
into a file NAME.lock.yaml beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernloom.base.errors import ConfigError, UsageError
from kernloom.base.files import read_text, write_atomically
from kernloom.config.compose import Composer
from kernloom.config.reader import RECIPE, dump_yaml, load_yaml
from kernloom.recipe import format1
from kernloom.recipe.entries import Entries, Entry, pinned
from kernloom.recipe.fields import LOCAL_KEYS
from kernloom.recipe.flow import block
from kernloom.recipe.lock import Lock, from_document, request_hashes, to_document
from kernloom.recipe.request import (
    FORMAT,
    Request,
    explained,
    overrides_of,
    read_request,
)

LOCK = "lock"
MARK = "# Below: written by `kernloom recipe lock`. A change is detected.\n"
FORMATS = (1, FORMAT)
_LOCK_LINE = re.compile(rf"^(?:{re.escape(MARK)})?lock:", re.MULTILINE)


@dataclass(frozen=True)
class Recipe:
    """A recipe as read from its file."""

    path: Path
    request: Request
    lock: Lock | None = None
    older: Mapping[str, Any] | None = None
    """The document of a recipe of format 1, which has trials only."""

    @property
    def edited(self) -> list[str]:
        """Parts of the request that were changed since it was locked."""
        if self.lock is None:
            return []
        now, then = request_hashes(self.request.written), self.lock.request
        return [key for key in dict.fromkeys([*now, *then]) if now.get(key) != then.get(key)]

    def entries(self, composer: Composer, local: Mapping[str, Any]) -> list[Entry]:
        """Its points, for this machine: those of the lock if there is one. `local` is a composed
        config for everything that recipes omit."""
        entries = Entries(composer, local)
        if self.older is not None:
            return format1.read_entries(self.older, self.path, entries)
        if self.lock is None:
            return self.composed(composer, local)
        return [
            entries.entry(
                # A point that was refused has no parameters, and is refused again.
                pinned(one.config, one.params) if one.artifacts else one.config,
                one.point,
                one.artifacts,
                f"{self.path}: lock.points[{number}]",
            )
            for number, one in enumerate(self.lock.points)
        ]

    def composed(
        self, composer: Composer, local: Mapping[str, Any], *, proxy: bool = False
    ) -> list[Entry]:
        """The points that the request composes to here; with `proxy`, those of a first look."""
        entries = Entries(composer, local)
        try:
            overrides = overrides_of(self.request, composer, proxy=proxy)
            points = list(composer.points(overrides, refuse=lambda row, error: None))
        except (ConfigError, UsageError) as error:
            raise explained(error, str(self.path)) from None
        if not points:
            raise ConfigError("no point of its sweep can be composed here", key=str(self.path))
        return [
            entries.entry(
                {key: value for key, value in point.data.items() if key not in LOCAL_KEYS},
                point.swept,
                {},
                str(self.path),
            )
            for point in points
        ]


def read_recipe(path: Path, *, with_lock: bool = True) -> Recipe:
    """The recipe in a file, with the lock in it or beside it unless it is to be replaced."""
    text = read_text(path, limit=RECIPE.size)
    data = _document(text, path)
    if data["recipe"] == format1.FORMAT:
        if not with_lock:
            raise ConfigError(
                "is a recipe of format 1, which has no request to lock",
                key=str(path),
                hint="`kernloom recipe run FILE` replays it; then `kernloom recipe save` FILE.",
            )
        return Recipe(path, Request(), older=data)
    request = read_request({k: v for k, v in data.items() if k != LOCK}, str(path))
    beside = lock_path(path)
    if not with_lock:
        return Recipe(path, request)
    if LOCK in data:
        lock = from_document(data[LOCK], f"{path}: lock")
    elif beside.is_file():
        other = _document(read_text(beside, limit=RECIPE.size), beside)
        if set(other) != {"recipe", LOCK}:
            raise ConfigError("expected `recipe: 2` and a lock", key=str(beside))
        lock = from_document(other[LOCK], f"{beside}: lock")
    else:
        lock = None
    return Recipe(path, request, lock)


def lock_path(path: Path) -> Path:
    """The file beside a recipe that may hold its lock."""
    return path.with_name(f"{path.stem}.lock.yaml")


def _document(text: str, path: Path) -> dict[str, Any]:
    data = load_yaml(text, where=str(path), bounds=RECIPE)
    if not isinstance(data, dict) or "recipe" not in data:
        raise ConfigError("is not a recipe: it has no `recipe: 2`", key=str(path))
    version = data["recipe"]
    if type(version) is not int or version not in FORMATS:
        raise ConfigError(
            f"is a recipe of format {version}; this Kernloom reads 1 and {FORMAT}", key=str(path)
        )
    _check_plain(data, str(path))
    return data


def _check_plain(data: Any, where: str) -> None:
    """Refuse anything but texts and numbers under text keys; YAML tags could create other
    objects."""
    if isinstance(data, dict):
        for key, value in data.items():
            if not isinstance(key, str):
                raise ConfigError(f"expected text as a key, not {key!r}", key=where)
            _check_plain(value, f"{where}.{key}")
    elif isinstance(data, list):
        for number, value in enumerate(data):
            _check_plain(value, f"{where}[{number}]")
    elif data is not None and not isinstance(data, (str, int, float)):
        raise ConfigError(f"expected text or a number, not {type(data).__name__}", key=where)


def write_recipe(path: Path, request: Request, lock: Lock | None) -> None:
    """Write a new recipe."""
    write_text(path, request_text(request), lock)


def request_text(request: Request) -> str:
    return dump_yaml(dict(request.written), width=RECIPE.size)


def add_lock(recipe: Recipe, lock: Lock, *, beside: bool = False) -> Path:
    """Write the lock of a recipe below its request, whose text stays as it is, or into a file
    beside it; returns the file."""
    text = read_text(recipe.path, limit=RECIPE.size)
    found = _LOCK_LINE.search(text)
    head = text[: found.start()] if found else text
    if load_yaml(head, where=str(recipe.path), bounds=RECIPE) != recipe.request.written:
        raise ConfigError(
            "has keys below its lock, which a new lock would replace",
            key=str(recipe.path),
            hint="Move them above `lock:`.",
        )
    if not beside:
        write_text(recipe.path, head, lock)
        # Otherwise two locks could differ.
        lock_path(recipe.path).unlink(missing_ok=True)
        return recipe.path
    write_text(lock_path(recipe.path), f"recipe: {FORMAT}\n", lock)
    if found:
        write_text(recipe.path, head, None)
    return lock_path(recipe.path)


def write_text(path: Path, head: str, lock: Lock | None) -> None:
    text = head if head.endswith("\n") else f"{head}\n"
    if lock:
        lines = ["lock:", *block(to_document(lock), depth=2, indent=2)]
        text += MARK + "\n".join(lines) + "\n"
    if len(text) > RECIPE.size:
        raise ConfigError(
            f"{len(lock.points) if lock else 0:,} trials are more than a recipe can hold",
            key="recipe",
            hint=f"At most {RECIPE.size >> 20} MiB are read back. Every trial is in the store.",
        )
    try:
        write_atomically(path, text)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}", key="recipe") from None
