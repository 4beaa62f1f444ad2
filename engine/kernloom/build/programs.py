"""Programs below native/ as artifacts: an object for each source, and a link.

Objects with equal inputs have the same key, whoever needs them: arches that differ by data,
variants, programs that share a source.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from kernloom.base.errors import ConfigError, UnavailableError, nearest
from kernloom.build.compile import (
    DETERMINISTIC,
    SHARED_LIBRARY,
    kernel_flags,
    linker_words,
    read_outside,
    variant_flags,
)
from kernloom.build.program import (
    DECLARATION,
    NATIVE,
    PLACEHOLDER,
    Declared,
    Program,
    read_program,
)
from kernloom.build.source_texts import SourceTexts
from kernloom.build.toolchains import CXX, DRIVER, Detected, detect
from kernloom.config.schema import Arch, Toolchain
from kernloom.plan.artifact import Artifact

_SUFFIXES = {"c": (".c",), "c++": (".cpp", ".cc", ".cxx")}
_OLDEST_PROCESSOR = {
    "x86_64": ("-march=x86-64",),
    "aarch64": ("-march=armv8-a",),
    "riscv64": ("-march=rv64gc", "-mabi=lp64d"),
}
"""ISA -> flags of its oldest supported processor: a program for an ISA must run on all of them."""
_COMPILERS = {"armv7m": "arm", "rv64": "riscv64"}
"""ISA of an arch without an operating system -> prefix of the triple of its compilers."""


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
        self._declared: dict[str, Declared] = {}
        self._compiled: dict[tuple[object, ...], Artifact] = {}
        """Root, compiler and command -> object: arches that differ by data share it."""
        for root in roots:
            found: dict[str, Declared] = {}
            for path in sorted((root / NATIVE).glob(f"**/{DECLARATION}")):
                declared = read_program(path, root)
                _check_unique(declared, found.values())
                found[declared.program.name] = declared
            self._declared = found | self._declared
        self._check_uses()

    @property
    def declared(self) -> dict[str, Program]:
        return {name: one.program for name, one in self._declared.items()}

    def read_again(self) -> Programs:
        """The same from what the files contain now."""
        return Programs(self._roots)

    def program(self, name: str) -> Program:
        return self._find(name).program

    def _find(self, name: str) -> Declared:
        try:
            return self._declared[name]
        except KeyError:
            hint = nearest(name, self._declared) if self._declared else "Reinstall Kernloom."
            raise UnavailableError(
                f"there is no program '{name}': no {DECLARATION} below {NATIVE}/ declares it",
                hint=hint,
            ) from None

    def artifact(self, name: str, built_for: BuiltFor) -> Artifact:
        """The executable or library, linked from its objects."""
        program = self.program(name)
        parts = self._linked(name)
        steps: dict[str, Artifact] = {}
        for part in parts:
            shared = program.kind == "library"
            for path, step in self.objects(part, built_for, position_independent=shared).items():
                if path in steps:
                    raise self._twice(part, path)
                steps[path] = step
        data = {path: text for part in parts for path, text in self.data(part).items()}
        cxx = any(self.program(part).language == "c++" for part in parts)
        toolchain, detected = _compiler(program, built_for, cxx=cxx)
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
        # Words that name staged files make the linker open no others.
        asked = tuple(word for word in argv if not any(path in word for path in data))
        _, linked, stamps = read_outside(
            groups,
            asked,
            [*steps],
            {},
            detected,
            specs=program.system == "none",
            link={self._find(name).key("link"): program.link},
        )
        main = next((step.main for path, step in steps.items() if path.endswith("/main.o")), "")
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
            arch=built_for.arch.name,
            variant=built_for.variant,
            runtime=built_for.runtime,
            stamps=stamps,
            redeclare=lambda: self.read_again().artifact(name, redetected(built_for)),
        )

    def _linked(self, name: str) -> list[str]:
        """A program and all that it uses, directly or not."""
        found = {name: None}
        for other in self.program(name).uses:
            found |= dict.fromkeys(self._linked(other))
        return list(found)

    def ends(self, name: str, built_for: BuiltFor) -> list[Artifact]:
        """What a program consists of once it is built: one file, or its objects."""
        if self.program(name).kind == "objects":
            return list(self.objects(name, built_for).values())
        return [self.artifact(name, built_for)]

    def objects(
        self, name: str, built_for: BuiltFor, *, position_independent: bool = False
    ) -> dict[str, Artifact]:
        """Path -> object of each source of a program."""
        declared = self._find(name)
        cxx = declared.program.language == "c++"
        toolchain, detected = _compiler(declared.program, built_for, cxx=cxx)
        built_for = replace(built_for, toolchain=toolchain, detected=detected)
        texts = self._texts(declared)
        found: dict[str, Artifact] = {}
        for source in self._sources(declared, built_for):
            path = str(PurePosixPath(source).with_suffix(".o"))
            if path in found:
                raise self._twice(name, path)
            found[path] = self._object(
                declared, source, texts, built_for, position_independent=position_independent
            )
        return found

    def _twice(self, name: str, path: str) -> ConfigError:
        return ConfigError(
            f"two sources would be compiled to {path}",
            key=self._find(name).key("sources"),
            hint="Rename one of them.",
        )

    def _sources(self, declared: Declared, built_for: BuiltFor) -> list[str]:
        """Paths of a program's sources, relative to its root."""
        program = declared.program
        if program.isas and built_for.arch.isa not in program.isas:
            raise ConfigError(
                f"there is no {program.name} for '{built_for.arch.isa}'",
                key="arch.isa",
                hint=nearest(built_for.arch.isa, program.isas),
            )
        found: dict[str, None] = {}
        for pattern in program.sources:
            wanted = declared.path(_filled(pattern, built_for))
            matching = [
                path
                for path in sorted(declared.root.glob(wanted))
                if path.suffix in _SUFFIXES[program.language] and not path.name.startswith(".")
            ]
            if not matching:
                raise ConfigError(
                    f"program '{program.name}' has no source '{wanted}' in {declared.root}",
                    key=declared.key("sources"),
                    hint="Mend the declaration, or reinstall Kernloom.",
                )
            found |= dict.fromkeys(path.relative_to(declared.root).as_posix() for path in matching)
        return sorted(found)

    def data(self, name: str) -> dict[str, str]:
        """Path -> text of the files that a program declares for the linker."""
        declared = self._find(name)
        texts = self._texts(declared)
        paths = map(declared.path, declared.program.data)
        return {path: texts.read(path) for path in paths}

    def headers(self, name: str, built_for: BuiltFor) -> dict[str, str]:
        """Path -> text of the headers in a program's include folders, for what is compiled to be
        linked with it."""
        declared = self._find(name)
        texts = self._texts(declared)
        found: dict[str, str] = {}
        for folder in _include(declared, built_for):
            found |= texts.below(folder)
        return dict(sorted(found.items()))

    def include_flags(self, name: str, built_for: BuiltFor) -> tuple[str, ...]:
        return tuple(f"-I{path}" for path in _include(self._find(name), built_for))

    def _texts(self, declared: Declared) -> SourceTexts:
        others = (root for root in self._roots if root != declared.root)
        return SourceTexts((declared.root, *others))

    def _object(
        self,
        declared: Declared,
        source: str,
        texts: SourceTexts,
        built_for: BuiltFor,
        *,
        position_independent: bool,
    ) -> Artifact:
        program, detected = declared.program, built_for.detected
        include = _include(declared, built_for)
        groups = _flags(program, built_for)
        flags = [word for words in groups.values() for word in _compiling(words)]
        output = PurePosixPath(source).with_suffix(".o").name
        argv = (
            DRIVER,
            *flags,
            *(f"-I{path}" for path in include),
            *(f"-D{name}={_filled(v, built_for)}" for name, v in program.defines.items()),
            *(("-fPIC",) if position_independent else ()),
            "-c",
            "-o",
            output,
            source,
        )
        memo = (declared.root, detected.digest, argv)
        if memo not in self._compiled:
            files = texts.with_headers(source, include)
            specs = program.system == "none"
            headers, linked, stamps = read_outside(
                groups, argv, [source], files, detected, specs=specs
            )
            self._compiled[memo] = Artifact(
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
                arch=built_for.arch.name,
                variant=built_for.variant,
                stamps=stamps,
                assembles=headers.assembles,
                lists_assembly=detected.lists_assembly,
            )
        return self._compiled[memo]

    def _check_uses(self) -> None:
        """Refuse programs that use each other, or what cannot be linked into them."""
        finished: set[str] = set()

        def visit(name: str, path: tuple[str, ...]) -> None:
            declared = self._declared[name]
            if name in path:
                circle = " -> ".join([*path[path.index(name) :], name])
                raise ConfigError(f"programs use each other: {circle}", key=declared.key("uses"))
            if name in finished:
                return
            for other in declared.program.uses:
                if other not in self._declared:
                    raise ConfigError(
                        f"there is no program '{other}'",
                        key=declared.key("uses"),
                        hint=nearest(other, self._declared),
                    )
                visit(other, (*path, name))
                if self._declared[other].program.kind != "objects":
                    raise ConfigError(
                        f"program '{other}' is no set of objects, so it cannot be linked into "
                        f"'{name}'",
                        key=declared.key("uses"),
                    )
            finished.add(name)

        for name in self._declared:
            visit(name, ())


def _check_unique(declared: Declared, others: Iterable[Declared]) -> None:
    """Refuse a second program of one name, or with the same built file."""
    program = declared.program
    for other in others:
        if program.name == other.program.name:
            raise ConfigError(
                f"two programs are called '{program.name}'",
                key=declared.key("name"),
                hint=f"The other one is in {other.root / other.folder}.",
            )
        built = "objects" not in (program.kind, other.program.kind)
        if built and program.file == other.program.file:
            raise ConfigError(
                f"programs '{program.name}' and '{other.program.name}' are both built as "
                f"'{program.file}'",
                key=declared.key("output"),
            )


def compiler_of(isa: str, otherwise: str) -> str:
    """Prefix of the triple of compilers for an ISA without an operating system."""
    return _COMPILERS.get(isa, otherwise)


def is_for(program: Program, arch: Arch, triple: str, *, accelerator: bool = False) -> bool:
    """Whether a compiler with this triple builds a program for an arch; `accelerator`: for the
    machine on which an accelerator's programs run."""
    isa, _, system = triple.partition("-")
    if program.isas and arch.isa not in program.isas:
        return False
    if program.family == "accelerator" and not accelerator:
        return False
    wanted = compiler_of(arch.isa, arch.isa) if program.system == "none" else arch.isa
    return isa == wanted and ("linux" in system) == (program.system == "linux")


def _include(declared: Declared, built_for: BuiltFor) -> list[str]:
    return [declared.path(_filled(path, built_for)) for path in declared.program.include]


def _filled(text: str, built_for: BuiltFor) -> str:
    values = {
        "isa": built_for.arch.isa,
        "arch": built_for.arch.name,
        "variant": built_for.variant,
        "runtime": built_for.runtime,
    }
    return PLACEHOLDER.sub(lambda found: values[found[1]], text)


def _compiler(program: Program, built_for: BuiltFor, *, cxx: bool) -> tuple[Toolchain, Detected]:
    """The toolchain with the tool for a program as its driver; `cxx`: with the flags of C++."""
    role = CXX if cxx and not program.tool else program.role
    if role == DRIVER:
        return built_for.toolchain, built_for.detected
    toolchain = built_for.toolchain
    if role not in toolchain.tools:
        known = {*toolchain.tools, CXX}
        problem = UnavailableError if role == CXX else ConfigError
        raise problem(
            f"program '{program.name}' needs the tool '{role}', which toolchain "
            f"'{toolchain.name}' does not have (toolchain.tools)",
            hint=nearest(role, known),
        )
    flags = toolchain.cxx_flags if cxx else toolchain.flags
    # With another identity, so that updating it leaves programs of other tools alone.
    other = replace(toolchain, tools={DRIVER: toolchain.tools[role]}, flags=flags)
    return other, detect(other, built_for.detected.cache, role=role)


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
