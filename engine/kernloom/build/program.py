"""Declaration of a program: the program.yaml beside its sources."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kernloom.base.errors import ConfigError, nearest
from kernloom.build.toolchains import CXX, DRIVER
from kernloom.config.convert import convert
from kernloom.config.reader import read_yaml

DECLARATION = "program.yaml"
NATIVE = "native"
PLACEHOLDER = re.compile(r"\{(\w*)\}")
PLACEHOLDERS = ("isa", "arch", "variant", "runtime")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_RESERVED = ("all", "manifest.json", "origins")


@dataclass(frozen=True)
class Program:
    """A program.yaml. `{isa}`, `{arch}`, `{variant}` and `{runtime}` in sources, include folders
    and defines stand for what the program is built for."""

    name: str
    kind: Literal["executable", "library", "objects"]
    sources: tuple[str, ...]
    """Patterns, relative to the declaration's folder."""
    language: Literal["c", "c++"] = "c"
    include: tuple[str, ...] = ()
    """Folders that are searched for headers."""
    defines: Mapping[str, str] = field(default_factory=dict)
    data: tuple[str, ...] = ()
    """Further files for the linker."""
    link: tuple[str, ...] = ()
    """Flags after the objects: libraries and options of the linker."""
    uses: tuple[str, ...] = ()
    """Programs of the kind `objects` that are linked into it."""
    varies_by: tuple[Literal["isa", "arch", "variant", "runtime"], ...] = ()
    """`isa`: one for all its processors; `arch`: with the flags of kernels."""
    runs_on: Literal["target", "host"] = "target"
    """`host`: beside an emulator, built by this machine's own compiler."""
    system: Literal["linux", "none"] = "linux"
    """Operating system that it is built for."""
    isas: tuple[str, ...] = ()
    """ISAs that it has sources for; empty: all."""
    family: Literal["any", "accelerator"] = "any"
    """`accelerator`: a program of accelerators, which no CPU needs."""
    output: str = ""
    """Name of the built file; default: the program's name."""
    tool: str = ""
    """Role of the toolchain's tool that builds it; default: by its language."""
    about: str = ""

    @property
    def file(self) -> str:
        return self.output or (f"{self.name}.so" if self.kind == "library" else self.name)

    @property
    def role(self) -> str:
        return self.tool or (CXX if self.language == "c++" else DRIVER)


@dataclass(frozen=True)
class Declared:
    """A program, and where it is declared."""

    program: Program
    root: Path
    """Parent of native/."""
    folder: str
    """Folder of the declaration, relative to the root."""

    def key(self, field: str) -> str:
        return f"{self.root / self.folder / DECLARATION}: {field}"

    def path(self, name: str) -> str:
        """A path of the declaration, relative to the root."""
        return posixpath.normpath(posixpath.join(self.folder, name))


def read_program(path: Path, root: Path) -> Declared:
    program = convert(Program, read_yaml(path), str(path))
    declared = Declared(program, root, path.parent.relative_to(root).as_posix())
    for field_name, name in (("name", program.name), ("output", program.file)):
        if not _NAME.fullmatch(name) or name in _RESERVED:
            raise ConfigError(
                f"'{name}' cannot be the name of a program",
                key=declared.key(field_name),
                hint="Use letters, digits, _ . + and -.",
            )
    if not program.sources:
        raise ConfigError("is empty", key=declared.key("sources"))
    if program.kind == "objects" and program.runs_on == "host":
        raise ConfigError(
            "objects are linked with what runs on the target", key=declared.key("runs_on")
        )
    for field_name in ("sources", "include", "data"):
        for text in getattr(program, field_name):
            _check_inside(declared, field_name, text)
    for text in (*program.sources, *program.include, *program.defines.values()):
        for name in PLACEHOLDER.findall(text):
            if name not in PLACEHOLDERS:
                raise ConfigError(
                    f"'{text}' has an unknown placeholder",
                    key=str(path),
                    hint=nearest(name, PLACEHOLDERS),
                )
    return declared


def _check_inside(declared: Declared, field_name: str, text: str) -> None:
    """Refuse paths that leave native/, where a change could go unnoticed."""
    path = declared.path(text)
    if not text or text.startswith("/") or not f"{path}/".startswith(f"{NATIVE}/"):
        raise ConfigError(
            f"'{text}' is not a path below {NATIVE}/",
            key=declared.key(field_name),
            hint=f"Write it relative to {declared.folder}.",
        )
