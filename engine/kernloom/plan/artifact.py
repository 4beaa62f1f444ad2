"""An artifact: one file to be built, and everything that decides what its bytes will be.

Its key is the hash of exactly that: staged files, system headers, argv, what is linked, the
compiler's identity and the fixed environment. No path of this machine enters the key, unless a flag
names one, so it is the same in any folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from kernloom.base.errors import ConfigError
from kernloom.base.files import sha256_json, sha256_text

ENVIRONMENT: Mapping[str, str] = {
    "LC_ALL": "C",
    "SOURCE_DATE_EPOCH": "0",
    # Both compilers believe a PWD that leads to their current folder: so debug information names
    # this path, not the folder the artifact happened to be compiled in.
    "PWD": "/proc/self/cwd",
    "CCACHE_DISABLE": "1",
}
"""All that a compiler's environment holds, but for PATH and TMPDIR, which are not in the key."""

MANIFEST = "manifest.json"
ORIGINS = "origins"
BARE = ("-nodefaultlibs", "-lgcc")
"""Flags that link a kernel without headers faster. What it can call beside its own functions, such
as memset, the process that loads it has."""
WRAPPER = "(wrapper)"
"""Among what is linked: what a compiler's wrapper does."""
FOLDERS = {
    "kernel": "kernels",
    "batch": "batches",
    "runner": "runtimes",
    "plugin": "runtimes",
    "supervisor": "runtimes",
}

KEY_LENGTH = 32


def is_key(value: object) -> bool:
    """Whether it can be the key of an artifact, and so the name of a folder below build/."""
    return isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{KEY_LENGTH}}}", value) is not None


@dataclass(frozen=True)
class Identity:
    """Which compiler it is, wherever it is installed."""

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
    """For people, and the slot by which an older build is found."""
    kind: Literal["kernel", "batch", "runner", "plugin", "supervisor"]
    output: str
    """File name of what is built."""
    main: str
    """The staged file that a message about this artifact points to."""
    files: Mapping[str, str]
    """Relative path -> text of every file the compiler is given."""
    argv: tuple[str, ...]
    """argv[0] is the tool's role; all paths are relative to the artifact's own folder."""
    tools: Mapping[str, str]
    """Role -> where the tool is on this machine; not in the key."""
    identity: Identity
    headers: Mapping[str, str] = field(default_factory=dict)
    """System headers the files include, by name, and their hashes."""
    linked: Mapping[str, str] = field(default_factory=dict)
    """Start files, libraries and whatever else the flags make the compiler read, likewise."""
    arch: str = ""
    variant: str = "release"
    runtime: str = "none"
    params: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    """Path below templates/ -> text of what the files were rendered from; not in the key."""
    stamps: Mapping[str, Sequence[Any]] = field(default_factory=dict, repr=False, compare=False)
    """Absolute path -> stamp of every file outside that is in the key, when it was hashed."""
    assembles: bool = field(default=False, compare=False)
    """It may hold inline assembly, which reads files by directives of its own."""
    lists_assembly: bool = field(default=False, compare=False)
    """Its compiler's assembler can list the files that it reads."""
    declare_again: Callable[[], Artifact] | None = field(default=None, repr=False, compare=False)
    """Looks at the files outside again, for when they have changed since; not in any file."""

    def __post_init__(self) -> None:
        for path in (*self.files, *self.origins):
            pure = PurePosixPath(path)
            if pure.is_absolute() or ".." in pure.parts or not pure.parts:
                raise ConfigError(
                    f"file '{path}' of {self.name} is not a relative path inside its folder"
                )

    @property
    def packaged(self) -> bool:
        """Its files are what is loaded: nothing compiles them here."""
        return not self.argv

    @cached_property
    def inputs(self) -> dict[str, str]:
        return {path: sha256_text(text) for path, text in self.files.items()}

    @cached_property
    def key(self) -> str:
        return sha256_json(
            {
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
        """The stable path of a runtime; kernels have none."""
        if self.kind in ("kernel", "batch"):
            return None
        return build / "lib" / self.arch / self.variant / self.runtime / self.output


def to_plain(artifact: Artifact) -> dict[str, Any]:
    """All but the stamps, which most artifacts of a plan share."""
    files, origins = dict(artifact.files), dict(artifact.origins)
    bare = replace(artifact, files=files, origins=origins, stamps={}, declare_again=None)
    return asdict(bare)


def from_plain(data: Mapping[str, Any]) -> Artifact:
    values = dict(data)
    values["argv"] = tuple(values["argv"])
    values["identity"] = Identity(**values["identity"])
    return Artifact(**values)
