"""Declaration of a program: the program.yaml beside its sources."""

from __future__ import annotations

import glob
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kernloom.base.errors import ConfigError, nearest
from kernloom.base.files import read_text
from kernloom.build.toolchains import CXX, DRIVER
from kernloom.config.convert import convert
from kernloom.config.reader import CONFIG, load_yaml

DECLARATION = "program.yaml"
NATIVE = "native"
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(\w*)\}")
"""A placeholder, or a brace that is written twice."""
PLACEHOLDERS = ("isa", "arch", "variant", "runtime")
_MACRO = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\([\w, .]*\))?")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_RESERVED = ("all", "manifest.json", "origins", NATIVE)
LINKED_INTO_OTHERS = ("objects", "archive")
"""Kinds that other programs can use."""


@dataclass(frozen=True)
class Program:
    """A program.yaml. `{isa}`, `{arch}`, `{variant}` and `{runtime}` in sources, include folders
    and defines stand for what the program is built for."""

    name: str
    kind: Literal["executable", "library", "archive", "objects"]
    sources: tuple[str, ...]
    """Patterns, relative to the declaration's folder."""
    language: Literal["c", "c++"] = "c"
    unity: bool = False
    """Whether the sources of a folder are compiled as one unit: parsing the headers of C++ takes
    longer than compiling what uses them."""
    include: tuple[str, ...] = ()
    """Folders that are searched for headers."""
    defines: Mapping[str, str | int | float] = field(default_factory=dict)
    data: tuple[str, ...] = ()
    """Further files for the linker."""
    link: tuple[str, ...] = ()
    """Flags after the objects: libraries and options of the linker."""
    uses: tuple[str, ...] = ()
    """Programs of the kinds `objects` and `archive` that are linked into it."""
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
        names = {"library": f"{self.name}.so", "archive": f"lib{self.name}.a"}
        return self.output or names.get(self.kind, self.name)

    @property
    def macros(self) -> dict[str, str]:
        """Name -> value of each define, as the preprocessor gets it."""
        return {name: str(value) for name, value in self.defines.items()}

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
        return f"{self.folder}/{DECLARATION}: {field}"

    def pattern(self, name: str) -> str:
        """The same as `path` for a pattern: special characters of the folder mean themselves."""
        return posixpath.normpath(posixpath.join(glob.escape(self.folder), name))

    def path(self, name: str) -> str:
        """A path of the declaration, relative to the root."""
        return posixpath.normpath(posixpath.join(self.folder, name))


def read_program(path: Path, root: Path) -> Declared:
    shown = path.relative_to(root).as_posix()
    data = load_yaml(read_text(path, limit=CONFIG.size, key=shown), where=shown)
    try:
        program = convert(Program, data, "")
    except ConfigError as error:
        raise error.below(shown) from None
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
    if program.kind in LINKED_INTO_OTHERS and program.runs_on == "host":
        raise ConfigError(
            "objects are linked with what runs on the target", key=declared.key("runs_on")
        )
    for field_name in ("sources", "include", "data"):
        for text in getattr(program, field_name):
            _check_inside(declared, field_name, text)
    for name in program.defines:
        if not _MACRO.fullmatch(name):
            raise ConfigError(f"'{name}' is no name of a macro", key=declared.key("defines"))
    for text in program.sources:
        if any("**" in part and part != "**" for part in text.split("/")):
            raise ConfigError(
                f"'{text}' is no pattern: ** has to be a whole part of it",
                key=declared.key("sources"),
            )
    for field_name, texts in (
        ("sources", program.sources),
        ("include", program.include),
        ("defines", tuple(program.macros.values())),
    ):
        for text in texts:
            _check_placeholders(declared, field_name, text)
    return declared


def filled(text: str, values: Mapping[str, str]) -> str:
    """A text with its placeholders replaced; `{{` and `}}` are braces."""
    return _PLACEHOLDER.sub(
        lambda found: found[0][0] if found[1] is None else values[found[1]], text
    )


def _check_placeholders(declared: Declared, field_name: str, text: str) -> None:
    for found in _PLACEHOLDER.finditer(text):
        if found[1] is not None and found[1] not in PLACEHOLDERS:
            raise ConfigError(
                f"'{text}' has an unknown placeholder",
                key=declared.key(field_name),
                hint=f"{nearest(found[1], PLACEHOLDERS)} A brace is written twice: {{{{ or }}}}.",
            )


def _check_inside(declared: Declared, field_name: str, text: str) -> None:
    """Refuse paths that leave native/, where a change could go unnoticed."""
    path = declared.path(text)
    if not text or text.startswith("/") or not f"{path}/".startswith(f"{NATIVE}/"):
        raise ConfigError(
            f"'{text}' is not a path below {NATIVE}/",
            key=declared.key(field_name),
            hint=f"Write it relative to {declared.folder}.",
        )
