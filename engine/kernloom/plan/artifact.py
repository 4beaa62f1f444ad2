"""Artifact: one file to be built by one command, with every input that affects its bytes.

Its key is the hash of exactly these inputs: staged files, the keys of the artifacts that it is
built from, system headers, argv, linked files, the compiler's identity and the fixed environment.
The key contains no path of this machine, unless a flag names one, so it is the same in any folder.

A kernel is compiled and linked by one command. A program is a chain: an object for each source,
archives of objects, and the command that links them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from kernloom.base.errors import ConfigError
from kernloom.base.files import sha256_json, sha256_text

ENVIRONMENT: Mapping[str, str] = {
    "LC_ALL": "C",
    "SOURCE_DATE_EPOCH": "0",
    # Both compilers trust a PWD that leads to their current folder, so debug information names
    # this path and not the folder of the build.
    "PWD": "/proc/self/cwd",
    "CCACHE_DISABLE": "1",
}
"""The compiler's environment, except PATH and TMPDIR, which are not in the key."""

MANIFEST = "manifest.json"
ORIGINS = "origins"
FAILED = "failed"
"""Folder, below build/, of what did not compile, each under its key."""
BARE = ("-nodefaultlibs", "-lgcc")
"""Flags that speed up linking a kernel without headers. Other functions that it can call, such as
memset, are provided by the process that loads it."""
WRAPPER = "(wrapper)"
"""Entry in `linked` for the behaviour of a compiler's wrapper."""
COMMANDS = "compile_commands.json"
"""File, below build/, with the commands of sources for editors."""
ARCHIVER = "ar"
"""Role of the tool that makes archives."""
FOLDERS = {
    "kernel": "kernels",
    "batch": "batches",
    "program": "runtimes",
    "archive": "archives",
    "object": "objects",
}
STEPS = ("object", "archive")
"""Kinds that are made for others."""

KEY_LENGTH = 32


def is_key(value: object) -> bool:
    """Whether a value can be an artifact's key, and so a folder name below build/."""
    return isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{KEY_LENGTH}}}", value) is not None


@dataclass(frozen=True)
class Identity:
    """Identity of a compiler, independent of its path."""

    toolchain: str
    version: str
    triple: str
    digest: str
    parts: Mapping[str, str] = field(default_factory=dict)
    """Hash of each of its files: driver, compiler proper, assembler, linker, libraries."""


@dataclass(frozen=True)
class Artifact:
    """One file to be built, with all of its inputs."""

    name: str
    """Name for people, and the slot by which older builds are found."""
    kind: Literal["kernel", "batch", "program", "archive", "object"]
    output: str
    """Name of the built file."""
    main: str
    """The staged file that messages about this artifact refer to."""
    files: Mapping[str, str]
    """Relative path -> text of every input file."""
    argv: tuple[str, ...]
    """argv[0] is the tool's role; all paths are relative to the artifact's own folder."""
    tools: Mapping[str, str]
    """Role -> path of the tool on this machine; not in the key."""
    identity: Identity
    steps: Mapping[str, Artifact] = field(default_factory=dict)
    """Relative path -> the artifact whose output its command finds there."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Name -> hash of each system header that the files include."""
    linked: Mapping[str, str] = field(default_factory=dict)
    """Name -> hash of start files, libraries and other files that the compiler reads."""
    arch: str = ""
    variant: str = "release"
    runtime: str = "none"
    params: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    """Path below templates/ -> text of the templates of the files; not in the key."""
    stamps: Mapping[str, Sequence[Any]] = field(default_factory=dict, repr=False, compare=False)
    """Absolute path -> stamp, at hashing, of every outside file in the key."""
    assembles: bool = field(default=False, compare=False)
    """Whether it may contain inline assembly, whose directives can read further files."""
    lists_assembly: bool = field(default=False, compare=False)
    """Whether the compiler's assembler can list the files it reads."""
    redeclare: Callable[[], Artifact] | None = field(default=None, repr=False, compare=False)
    """Declares the artifact again when outside files have changed; never serialised."""

    def __post_init__(self) -> None:
        for path in (self.output, *self.files, *self.steps, *self.origins):
            check_relative(path)

    @property
    def packaged(self) -> bool:
        """Whether its files are loaded as they are, without compilation here."""
        return not self.argv

    @property
    def compiles(self) -> bool:
        """Whether its command compiles one of its files."""
        return any(path in self.argv for path in self.files)

    @property
    def links(self) -> bool:
        return self.kind != "archive" and "-c" not in self.argv

    @cached_property
    def inputs(self) -> dict[str, str]:
        return {path: sha256_text(text) for path, text in self.files.items()}

    @cached_property
    def key(self) -> str:
        steps = {path: step.key for path, step in self.steps.items()}
        return sha256_json(
            {
                **({"steps": steps} if steps else {}),
                "files": self.inputs,
                "headers": dict(self.headers),
                "linked": dict(self.linked),
                "argv": self.argv,
                "compiler": self.identity.digest,
                "environment": dict(ENVIRONMENT),
            }
        )[:KEY_LENGTH]

    def folder(self, build: Path) -> Path:
        return build / FOLDERS[self.kind] / self.key

    def path(self, build: Path) -> Path:
        return self.folder(build) / self.output

    def link(self, build: Path) -> Path | None:
        """The stable path of a program or archive; other artifacts have none."""
        if self.kind not in ("program", "archive"):
            return None
        return build / "lib" / self.arch / self.variant / self.runtime / self.output


def check_relative(path: str) -> None:
    """Refuse a path that leads out of an artifact's folder."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise ConfigError(f"file '{path}' is not a relative path inside the folder of its artifact")


def steps_of(artifact: Artifact) -> Iterator[Artifact]:
    """An artifact and all that it is built from, inputs first."""
    for step in artifact.steps.values():
        yield from steps_of(step)
    yield artifact


def to_plain(artifact: Artifact) -> dict[str, Any]:
    """All fields except the stamps, which most artifacts of a plan share."""
    files, origins = dict(artifact.files), dict(artifact.origins)
    bare = replace(artifact, files=files, origins=origins, steps={}, stamps={}, redeclare=None)
    steps = {path: to_plain(step) for path, step in artifact.steps.items()}
    return asdict(bare) | {"steps": steps}


def from_plain(data: Mapping[str, Any]) -> Artifact:
    values = dict(data)
    values["argv"] = tuple(values["argv"])
    values["identity"] = Identity(**values["identity"])
    values["steps"] = {path: from_plain(step) for path, step in values["steps"].items()}
    return Artifact(**values)
