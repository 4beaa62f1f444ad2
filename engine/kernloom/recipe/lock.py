"""Lock of a recipe: what the tool writes down about a run, so that another one can be compared.

In the document equal configs, files and commands are written once, in tables (`tables`), and a
digest over all of it shows edits. Hashes are the first 32 digits of SHA-256.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernloom.base.errors import ConfigError, nearest
from kernloom.base.files import sha256_json
from kernloom.plan.artifact import is_key
from kernloom.recipe.entries import plain
from kernloom.recipe.tables import Sections, Table, section_in

HASH_LENGTH = 32
DIGEST = "digest"
DETERMINISTIC, PEERS = "deterministic", "peers"
"""Metrics that are not numbers."""
PARAMS, DATA = "(params)", "(data)"
"""Names of tables beside those of config sections."""
KEYS = (
    *("kernloom", "created", "request", "git", "host", "cost", "toolchains", "files", "file_sets"),
    *("commands", "artifacts", "configs", "points", DIGEST),
)
TEMPLATES = "templates"
_FILE_SETS = ("inputs", "headers", "linked", "origins")


def short(digest: str) -> str:
    return digest[:HASH_LENGTH]


@dataclass(frozen=True)
class LockedArtifact:
    """One build step: its command, inputs and output."""

    key: str
    name: str
    kind: str
    argv: tuple[str, ...]
    toolchain: str
    """Digest of the compiler that built it."""
    inputs: Mapping[str, str]
    """Path -> hash of each staged file."""
    headers: Mapping[str, str]
    linked: Mapping[str, str]
    origins: Mapping[str, str]
    """Path below templates/ -> hash of each template that it was rendered from."""
    steps: Mapping[str, str]
    """Path -> key of the build step whose output it is."""
    output: str
    """Hash of the built file."""
    bytes: int

    @property
    def sources(self) -> dict[str, str]:
        """The files that a person edits: templates, or else the staged files themselves."""
        rendered = {f"{TEMPLATES}/{path}": digest for path, digest in self.origins.items()}
        return rendered or dict(self.inputs)


@dataclass(frozen=True)
class LockedPoint:
    """One point of the sweep, with what came of it."""

    point: Mapping[str, Any]
    config: Mapping[str, Any]
    """The resolved config; `config_hash` is in the document."""
    params: Mapping[str, Any]
    id: str
    artifacts: Mapping[str, str]
    """Name -> key."""
    status: str
    verified: bool
    metrics: Mapping[str, Any]
    data: Mapping[str, str]
    """Hashes of the golden results and of user files that fill tensors."""
    message: str = ""


@dataclass(frozen=True)
class Lock:
    """What was run, from what, by what, where, and what came of it."""

    kernloom: str
    created: str
    request: Mapping[str, str]
    """Key of the request -> hash of its value."""
    git: Mapping[str, Any]
    host: Mapping[str, Any]
    toolchains: Mapping[str, Mapping[str, Any]]
    """Digest of a compiler -> its name, version, package, target and the hashes of its parts."""
    artifacts: Mapping[str, LockedArtifact]
    points: tuple[LockedPoint, ...]
    cost: Mapping[str, float] = field(default_factory=dict)
    """Seconds to build and to run everything, and bytes of what is built."""
    digest: str = field(default="", compare=False)

    @property
    def sources(self) -> dict[str, str]:
        """Path -> hash of every source file."""
        found: dict[str, str] = {}
        for artifact in self.artifacts.values():
            found |= artifact.sources
        return dict(sorted(found.items()))


def request_hashes(written: Mapping[str, Any]) -> dict[str, str]:
    """The hash of each part of a request."""
    return {key: short(sha256_json(value)) for key, value in written.items()}


def to_document(lock: Lock) -> dict[str, Any]:
    files, sets, commands = Table(), Table(), Table()
    configs: dict[str, Sections] = {}
    toolchains = list(lock.toolchains)
    keys = list(lock.artifacts)
    numbers = {key: number for number, key in enumerate(keys)}

    def file_set(found: Mapping[str, str]) -> int:
        rows = [files.number(f"{digest} {path}") for path, digest in sorted(found.items())]
        return sets.number(rows)

    artifacts = [
        {
            "key": one.key,
            "name": one.name,
            "kind": one.kind,
            "output": one.output,
            "bytes": one.bytes,
            "toolchain": toolchains.index(one.toolchain),
            "command": commands.number(list(one.argv)),
            **{name: file_set(getattr(one, name)) for name in _FILE_SETS if getattr(one, name)},
            **({"steps": {p: numbers[key] for p, key in one.steps.items()}} if one.steps else {}),
        }
        for one in lock.artifacts.values()
    ]
    points = []
    for one in lock.points:
        sections = {**one.config, PARAMS: one.params, DATA: one.data}
        config = {
            name: configs.setdefault(name, Sections()).number(plain(value))
            for name, value in sections.items()
        }
        points.append(
            {
                "point": dict(one.point),
                # Most sections are those of the first point.
                "config": {name: number for name, number in config.items() if number},
                "config_hash": short(sha256_json(one.config)),
                "id": one.id,
                "artifacts": {name: numbers[key] for name, key in one.artifacts.items()},
                "status": one.status,
                "verified": one.verified,
                "metrics": dict(one.metrics),
                **({"message": one.message} if one.message else {}),
            }
        )
    document = {
        "kernloom": lock.kernloom,
        "created": lock.created,
        "request": dict(lock.request),
        "git": dict(lock.git),
        "host": dict(lock.host),
        "cost": dict(lock.cost),
        "toolchains": [{**lock.toolchains[digest], "digest": digest} for digest in toolchains],
        "files": files.rows,
        "file_sets": sets.rows,
        "commands": commands.rows,
        "artifacts": artifacts,
        "configs": {name: sections.rows for name, sections in configs.items()},
        "points": points,
    }
    return {**document, DIGEST: digest_of(document)}


def digest_of(document: Mapping[str, Any]) -> str:
    return short(sha256_json({key: v for key, v in document.items() if key != DIGEST}))


def from_document(data: Any, where: str) -> Lock:
    """The lock in a document; an edited one is refused."""
    if not isinstance(data, Mapping):
        raise ConfigError("expected keys and values", key=where)
    for key in data:
        if key not in KEYS:
            raise ConfigError(f"unknown key '{key}'", key=where, hint=nearest(str(key), KEYS))
    if data.get(DIGEST) != digest_of(data):
        raise ConfigError(
            "the lock was edited since it was written: its digest is another",
            key=where,
            hint="`kernloom recipe lock FILE` writes a new one from the request.",
        )
    try:
        return _read(data)
    except (
        KeyError,
        IndexError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
        problem = f"{type(error).__name__}: {error}"
        raise ConfigError(f"the lock is damaged ({problem})", key=where) from None


def _read(data: Mapping[str, Any]) -> Lock:
    digests = [str(one["digest"]) for one in data["toolchains"]]
    toolchains = {
        digest: {key: value for key, value in one.items() if key != "digest"}
        for digest, one in zip(digests, data["toolchains"], strict=True)
    }
    rows = [_text(row).partition(" ") for row in data["files"]]
    sets = [{rows[_number(n)][2]: rows[n][0] for n in numbers} for numbers in data["file_sets"]]
    commands = [tuple(map(_text, argv)) for argv in data["commands"]]
    keys = [one["key"] for one in data["artifacts"]]
    if not all(map(is_key, keys)):
        raise ValueError("an artifact is not named by a key")
    artifacts = {
        one["key"]: LockedArtifact(
            key=one["key"],
            name=_text(one["name"]),
            kind=_text(one["kind"]),
            argv=commands[_number(one["command"])],
            toolchain=digests[_number(one["toolchain"])],
            **{name: sets[_number(one[name])] if name in one else {} for name in _FILE_SETS},
            steps={_text(p): keys[_number(n)] for p, n in one.get("steps", {}).items()},
            output=_text(one["output"]),
            bytes=_number(one["bytes"]),
        )
        for one in data["artifacts"]
    }
    configs = {
        name: [section_in(rows, number) for number in range(len(rows))]
        for name, rows in data["configs"].items()
    }
    points = tuple(_points(data["points"], configs, keys))
    if not points:
        raise ValueError("it has no points")
    return Lock(
        _text(data["kernloom"]),
        _text(data["created"]),
        {_text(key): _text(value) for key, value in data["request"].items()},
        dict(data["git"]),
        dict(data["host"]),
        toolchains,
        artifacts,
        points,
        {_text(key): float(value) for key, value in data["cost"].items()},
        data[DIGEST],
    )


def _points(
    documents: Sequence[Mapping[str, Any]],
    configs: Mapping[str, Sequence[Any]],
    keys: Sequence[str],
) -> Iterator[LockedPoint]:
    for one in documents:
        numbers = one["config"]
        found = {name: rows[_number(numbers.get(name, 0))] for name, rows in configs.items()}
        yield LockedPoint(
            point=dict(one["point"]),
            params=dict(found.pop(PARAMS)),
            data={_text(name): _text(value) for name, value in found.pop(DATA).items()},
            config=_config(found),
            id=_text(one["id"]),
            artifacts={_text(name): keys[_number(n)] for name, n in one["artifacts"].items()},
            status=_text(one["status"]),
            verified=one["verified"] is True,
            metrics=_metrics(one["metrics"]),
            message=_text(one.get("message", "")),
        )


def _config(sections: Mapping[str, Any]) -> Mapping[str, Any]:
    """Sections of a config that are mappings; the rest is checked when it is replayed."""
    for name in ("workload", "target", "toolchain", "pipeline"):
        _mapping(sections.get(name))
    for stage in _mapping(_mapping(sections["pipeline"]).get("stages")).values():
        _mapping(stage)
    return sections


def _metrics(value: Any) -> dict[str, Any]:
    """Numbers by name; beside them the names of the exact ones, and the numbers of each peer."""
    metrics = dict(_mapping(value))
    for name, found in metrics.items():
        if name == DETERMINISTIC:
            if not isinstance(found, list):
                raise TypeError(f"{found!r} is not a list of metrics")
        elif name == PEERS:
            for peer in _mapping(found).values():
                _check_numbers(_mapping(peer))
        else:
            _check_numbers({name: found})
    return metrics


def _check_numbers(found: Mapping[str, Any]) -> None:
    for name, value in found.items():
        if type(value) not in (int, float) or not math.isfinite(value):
            raise TypeError(f"{name} is {value!r}, which is no number")


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} is not keys and values")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is not a number of a row")
    return value
