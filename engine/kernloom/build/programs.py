"""Programs below native/, each declared beside its sources in a program.yaml.

An object is built for each source. Objects with equal inputs have the same key, whoever needs them:
arches that differ by data, variants, programs that share a source.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from kernloom.base.errors import ConfigError, UnavailableError, nearest
from kernloom.base.files import files_below
from kernloom.build.compile import (
    DETERMINISTIC,
    SHARED_LIBRARY,
    kernel_flags,
    linker_words,
    read_outside,
    variant_flags,
)
from kernloom.build.headers import spliced
from kernloom.build.toolchains import CXX, DRIVER, Detected, cxx_toolchain, detect
from kernloom.config.convert import convert
from kernloom.config.reader import read_yaml
from kernloom.config.schema import Arch, Toolchain
from kernloom.plan.artifact import Artifact

DECLARATION = "program.yaml"
NATIVE = "native"
_SUFFIXES = {"c": (".c",), "c++": (".cpp", ".cc", ".cxx")}
_HEADERS = (".h", ".hpp", ".inc")
_INCLUDE = re.compile(
    r'^[ \t]*#[ \t]*include\b[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>|(.*))', re.MULTILINE
)
_OLDEST_PROCESSOR = {
    "x86_64": ("-march=x86-64",),
    "aarch64": ("-march=armv8-a",),
    "riscv64": ("-march=rv64gc", "-mabi=lp64d"),
}
"""ISA -> flags of its oldest supported processor: a program for an ISA must run on all of them."""
_COMPILERS = {"armv7m": "arm", "rv64": "riscv64"}
"""ISA of an arch without an operating system -> prefix of the triple of its compilers."""
_PLACEHOLDER = re.compile(r"\{(\w*)\}")


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
class BuiltFor:
    """What a program is built for, and by which compiler."""

    toolchain: Toolchain
    arch: Arch
    variant: str
    detected: Detected
    runtime: str = "none"


class Programs:
    """All programs declared below native/ in some folders; earlier folders shadow later ones."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(roots)
        self._folders: dict[str, tuple[Path, str]] = {}
        """Name -> the root, and the declaration's folder relative to it."""
        self.declared: dict[str, Program] = {}
        self._compiled: dict[tuple[str, ...], Artifact] = {}
        """Compiler and command -> object: arches that differ by data share it."""
        for root in roots:
            found: dict[str, Path] = {}
            for path in sorted((root / NATIVE).glob(f"**/{DECLARATION}")):
                program = _read(path)
                if program.name in found:
                    raise ConfigError(
                        f"two programs are called '{program.name}'",
                        key=f"{path}: name",
                        hint=f"The other one is {found[program.name]}.",
                    )
                found[program.name] = path
                if program.name not in self.declared:
                    self.declared[program.name] = program
                    folder = path.parent.relative_to(root).as_posix()
                    self._folders[program.name] = (root, folder)
        self._check_uses()

    def read_again(self) -> Programs:
        """The same from what the files contain now."""
        return Programs(self._roots)

    def program(self, name: str) -> Program:
        try:
            return self.declared[name]
        except KeyError:
            hint = nearest(name, self.declared) if self.declared else "Reinstall Kernloom."
            raise UnavailableError(
                f"there is no program '{name}': no {DECLARATION} below {NATIVE}/ declares it",
                hint=hint,
            ) from None

    def artifact(self, name: str, built_for: BuiltFor) -> Artifact:
        """The executable or library, linked from its objects."""
        program = self.program(name)
        steps = self.objects(name, built_for)
        used = (self.objects(other, built_for) for other in program.uses)
        steps = {**steps, **{path: step for objects in used for path, step in objects.items()}}
        data = self.data(name)
        toolchain, detected = _compiler(program, built_for)
        groups = _flags(program, replace(built_for, toolchain=toolchain))
        argv = (
            DRIVER,
            *(flag for flags in groups.values() for flag in flags),
            *(SHARED_LIBRARY if program.kind == "library" else ()),
            *DETERMINISTIC,
            "-o",
            program.file,
            *steps,
            *program.link,
        )
        _, linked, stamps = read_outside(groups, argv, [*steps], {}, detected)
        main = next((step.main for path, step in steps.items() if path.endswith("main.o")), "")
        return Artifact(
            name=name,
            kind="program",
            output=program.file,
            main=main or next(iter(steps.values())).main,
            files=data,
            argv=argv,
            tools={role: str(path) for role, path in detected.tools.items()},
            identity=detected.identity,
            steps=steps,
            linked=linked.hashes,
            arch=built_for.arch.name if program.runs_on == "target" else built_for.arch.isa,
            variant=built_for.variant,
            runtime=built_for.runtime if "runtime" in program.varies_by else "none",
            stamps=stamps,
            redeclare=lambda: self.read_again().artifact(name, redetected(built_for)),
        )

    def ends(self, name: str, built_for: BuiltFor) -> list[Artifact]:
        """What a program consists of once it is built: one file, or its objects."""
        if self.program(name).kind == "objects":
            return list(self.objects(name, built_for).values())
        return [self.artifact(name, built_for)]

    def objects(self, name: str, built_for: BuiltFor) -> dict[str, Artifact]:
        """Path -> object of each source of a program."""
        program = self.program(name)
        toolchain, detected = _compiler(program, built_for)
        built_for = replace(built_for, toolchain=toolchain, detected=detected)
        sources = self.sources(name, built_for)
        texts = _Texts(self._folders[name][0])
        return {
            f"{posixpath.splitext(path)[0]}.o": self._object(program, path, texts, built_for)
            for path in sources
        }

    def sources(self, name: str, built_for: BuiltFor) -> list[str]:
        """Paths of a program's sources, relative to its root."""
        program, (root, folder) = self.program(name), self._folders[name]
        if program.isas and built_for.arch.isa not in program.isas:
            raise ConfigError(
                f"there is no {name} for '{built_for.arch.isa}'",
                key="arch.isa",
                hint=nearest(built_for.arch.isa, program.isas),
            )
        found: list[str] = []
        for pattern in program.sources:
            place, wanted = root / folder, _filled(pattern, built_for)
            matching = [
                path
                for path in place.glob(wanted)
                if path.suffix in _SUFFIXES[program.language] and not path.name.startswith(".")
            ]
            names = [posixpath.normpath(path.relative_to(root).as_posix()) for path in matching]
            if not names or any(not name.startswith(f"{NATIVE}/") for name in names):
                raise ConfigError(
                    f"the {name}'s source is not in {place}: nothing is called '{wanted}' there"
                    if not names
                    else f"the {name}'s source '{wanted}' is not below {NATIVE}/",
                    key=self._key(name, "sources"),
                    hint="Mend the declaration, or reinstall Kernloom.",
                )
            found += names
        return sorted(dict.fromkeys(found))

    def data(self, name: str) -> dict[str, str]:
        """Path -> text of the files that a program declares for the linker."""
        program, (root, folder) = self.program(name), self._folders[name]
        texts = _Texts(root)
        return {path: texts.read(path) for path in (f"{folder}/{file}" for file in program.data)}

    def headers(self, name: str, built_for: BuiltFor) -> dict[str, str]:
        """Path -> text of the headers in a program's include folders, for what is compiled to be
        linked with it."""
        root, _ = self._folders[name]
        texts, found = _Texts(root), self._include(self.program(name), built_for)
        paths = (path for folder in found for path in files_below(root / folder, _HEADERS))
        return {path: texts.read(path) for path in sorted({_below(path, root) for path in paths})}

    def include_flags(self, name: str, built_for: BuiltFor) -> tuple[str, ...]:
        return tuple(f"-I{path}" for path in self._include(self.program(name), built_for))

    def _include(self, program: Program, built_for: BuiltFor) -> list[str]:
        _, folder = self._folders[program.name]
        return [
            posixpath.normpath(posixpath.join(folder, _filled(path, built_for)))
            for path in program.include
        ]

    def _object(
        self, program: Program, source: str, texts: _Texts, built_for: BuiltFor
    ) -> Artifact:
        arch, detected = built_for.arch, built_for.detected
        include = self._include(program, built_for)
        groups = _flags(program, built_for)
        flags = [word for words in groups.values() for word in _compiling(words)]
        output = f"{posixpath.splitext(posixpath.basename(source))[0]}.o"
        argv = (
            DRIVER,
            *flags,
            *(f"-I{path}" for path in include),
            *(f"-D{name}={_filled(v, built_for)}" for name, v in program.defines.items()),
            *(("-fPIC",) if program.kind == "library" else ()),
            "-c",
            "-o",
            output,
            source,
        )
        known = self._compiled.get((detected.digest, *argv))
        if known is not None:
            return known
        files = texts.with_headers(source, include)
        specs = program.system == "none"
        headers, linked, stamps = read_outside(groups, argv, [source], files, detected, specs=specs)
        made = self._compiled[detected.digest, *argv] = Artifact(
            name=source,
            kind="object",
            output=output,
            main=source,
            files=files,
            argv=argv,
            tools={role: str(path) for role, path in detected.tools.items()},
            identity=detected.identity,
            headers=headers.hashes,
            linked=linked.hashes,
            arch=arch.name,
            variant=built_for.variant,
            stamps=stamps,
            lists_assembly=detected.lists_assembly,
        )
        return made

    def _check_uses(self) -> None:
        """Refuse programs that use each other, or programs that are not declared."""
        finished: set[str] = set()

        def visit(name: str, path: tuple[str, ...]) -> None:
            if name in path:
                circle = " -> ".join([*path[path.index(name) :], name])
                raise ConfigError(f"programs use each other: {circle}", key=self._key(name, "uses"))
            if name in finished:
                return
            for other in self.declared[name].uses:
                if other not in self.declared:
                    raise ConfigError(
                        f"there is no program '{other}'",
                        key=self._key(name, "uses"),
                        hint=nearest(other, self.declared),
                    )
                visit(other, (*path, name))
            finished.add(name)

        for name in self.declared:
            visit(name, ())

    def _key(self, name: str, field: str) -> str:
        root, folder = self._folders[name]
        return f"{root / folder / DECLARATION}: {field}"


class _Texts:
    """Source files below a root; each is read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._read: dict[str, str] = {}
        self._headers: list[str] | None = None

    def read(self, path: str) -> str:
        if path not in self._read:
            try:
                self._read[path] = (self._root / path).read_text(encoding="utf-8")
            except OSError as error:
                raise UnavailableError(
                    f"{self._root / path} cannot be read: {error.strerror}",
                    hint="Reinstall Kernloom.",
                ) from None
        return self._read[path]

    def with_headers(self, source: str, include: Sequence[str]) -> dict[str, str]:
        """A source and the headers below the root that it may include, directly or not. A header
        that is missed here is missed by the compiler as well: it sees no other files."""
        found: dict[str, str] = {}
        waiting = [source]
        while waiting:
            path = waiting.pop()
            if path in found:
                continue
            found[path] = self.read(path)
            waiting += self._included(path, found[path], include)
        return dict(sorted(found.items()))

    def _included(self, path: str, text: str, include: Sequence[str]) -> Iterator[str]:
        for quoted, angled, other in _INCLUDE.findall(spliced(text)):
            if other:
                # Named by a macro: any header may be meant.
                yield from self._all_headers()
                continue
            beside = [posixpath.dirname(path)] if quoted else []
            for folder in (*beside, *include):
                candidate = posixpath.normpath(posixpath.join(folder, quoted or angled))
                if not candidate.startswith("..") and (self._root / candidate).is_file():
                    yield candidate
                    break

    def _all_headers(self) -> list[str]:
        if self._headers is None:
            found = files_below(self._root / NATIVE, _HEADERS)
            self._headers = [path.relative_to(self._root).as_posix() for path in found]
        return self._headers


def _below(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def compiler_of(isa: str, otherwise: str) -> str:
    """Prefix of the triple of compilers for an ISA without an operating system."""
    return _COMPILERS.get(isa, otherwise)


def is_for(program: Program, arch: Arch, triple: str) -> bool:
    """Whether a compiler with this triple builds a program for an arch."""
    isa, _, system = triple.partition("-")
    if program.isas and arch.isa not in program.isas:
        return False
    wanted = compiler_of(arch.isa, arch.isa) if program.system == "none" else arch.isa
    return isa == wanted and ("linux" in system) == (program.system == "linux")


def _read(path: Path) -> Program:
    program = convert(Program, read_yaml(path), f"{path}: ")
    for text in (*program.sources, *program.include, *program.defines.values()):
        for name in _PLACEHOLDER.findall(text):
            if name not in ("isa", "arch", "variant", "runtime"):
                raise ConfigError(
                    f"'{text}' has an unknown placeholder",
                    key=str(path),
                    hint=nearest(name, ("isa", "arch", "variant", "runtime")),
                )
    return program


def _filled(text: str, built_for: BuiltFor) -> str:
    values = {
        "isa": built_for.arch.isa,
        "arch": built_for.arch.name,
        "variant": built_for.variant,
        "runtime": built_for.runtime,
    }
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)


def _compiler(program: Program, built_for: BuiltFor) -> tuple[Toolchain, Detected]:
    """The toolchain with the tool for a program's language as its driver."""
    if program.role == DRIVER:
        return built_for.toolchain, built_for.detected
    if program.role not in built_for.toolchain.tools:
        raise ConfigError(
            f"program '{program.name}' needs the tool '{program.role}', which toolchain "
            f"'{built_for.toolchain.name}' does not have",
            key="toolchain.tools",
            hint=nearest(program.role, built_for.toolchain.tools),
        )
    toolchain = cxx_toolchain(built_for.toolchain, program.role)
    return toolchain, detect(toolchain, built_for.detected.cache)


def redetected(built_for: BuiltFor) -> BuiltFor:
    found = detect(built_for.toolchain, built_for.detected.cache)
    return replace(built_for, detected=found)


def _flags(program: Program, built_for: BuiltFor) -> dict[str, Sequence[str]]:
    """The flags of a program, grouped by config key."""
    toolchain, arch, variant = built_for.toolchain, built_for.arch, built_for.variant
    if "arch" in program.varies_by:
        return kernel_flags(toolchain, arch, variant)
    groups: dict[str, Sequence[str]] = {"toolchain.flags": toolchain.flags}
    if "isa" in program.varies_by:
        groups["arch.isa"] = _OLDEST_PROCESSOR.get(arch.isa, ())
    if "variant" in program.varies_by:
        groups[f"toolchain.variants.{variant}"] = variant_flags(toolchain, variant)
    return groups


def _compiling(words: Sequence[str]) -> list[str]:
    """Flags without those for the linker."""
    linking = linker_words(words)
    return [word for place, word in enumerate(words) if place not in linking]
