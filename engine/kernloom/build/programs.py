"""Programs below native/ as artifacts: an object for each source, archives, and a link.

Objects with equal inputs have the same key, whoever needs them: arches that differ by data,
variants, programs that share a source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from kernloom.base.errors import ConfigError, UnavailableError, nearest
from kernloom.build.archive import ARCHIVING, archiver
from kernloom.build.built_for import BuiltFor, compiler, compiling, program_flags, redetected
from kernloom.build.compile import DETERMINISTIC, SHARED_LIBRARY, read_outside
from kernloom.build.program import (
    DECLARATION,
    LINKED_INTO_OTHERS,
    NATIVE,
    Declared,
    Program,
    read_program,
)
from kernloom.build.source_texts import SourceTexts
from kernloom.build.toolchains import DRIVER, Detected
from kernloom.config.schema import Toolchain
from kernloom.plan.artifact import ARCHIVER, Artifact

_SUFFIXES = {"c": (".c",), "c++": (".cpp", ".cc", ".cxx")}
_MEND = "Correct the declaration; if it came with Kernloom, reinstall Kernloom."


class Programs:
    """All programs declared below native/ in some folders; earlier folders shadow later ones."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(roots)
        self._declared: dict[str, Declared] = {}
        self._source_texts: dict[Path, SourceTexts] = {}
        self._compilers: dict[tuple[str, str, bool], tuple[Toolchain, Detected]] = {}
        """Toolchain, role of the tool, with the flags of C++ -> what is found of it."""
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

    def key(self, name: str, field: str) -> str:
        """Where a field of a program is declared, for messages."""
        return self._find(name).key(field)

    def _find(self, name: str) -> Declared:
        try:
            return self._declared[name]
        except KeyError:
            hint = nearest(name, self._declared) if self._declared else "Reinstall Kernloom."
            raise UnavailableError(
                f"there is no program '{name}': no {DECLARATION} below {NATIVE}/ declares it",
                hint=hint,
            ) from None

    def artifact(
        self, name: str, built_for: BuiltFor, *, position_independent: bool = False
    ) -> Artifact:
        """The one file that a program is built to: linked, or an archive of its objects."""
        if self.program(name).kind == "archive":
            return self._archive(name, built_for, position_independent=position_independent)
        return self._link(name, built_for)

    def _link(self, name: str, built_for: BuiltFor) -> Artifact:
        """The executable or library, linked from its objects and the archives that it uses."""
        program = self.program(name)
        shared = program.kind == "library"
        steps = self._members(name, built_for, position_independent=shared)
        archives = self._archives(name)
        for other in archives:
            path = self._find(other).path(self.program(other).file)
            steps[path] = self._archive(other, built_for, position_independent=shared)
        parts = [part for one in (name, *archives) for part in self._with_objects(one)]
        parts = list(dict.fromkeys(parts))
        data = {path: text for part in parts for path, text in self.data(part).items()}
        link = {self._find(part).key("link"): self.program(part).link for part in parts}
        cxx = any(self.program(part).language == "c++" for part in parts)
        toolchain, detected = self._compiler(program, built_for, cxx=cxx)
        groups = program_flags(program, replace(built_for, toolchain=toolchain))
        argv = (
            DRIVER,
            *(flag for flags in groups.values() for flag in flags),
            *(SHARED_LIBRARY if shared else ()),
            *DETERMINISTIC,
            "-o",
            program.file,
            *steps,
            *(flag for flags in link.values() for flag in flags),
        )
        # Words that name staged files make the linker open no others.
        asked = tuple(word for word in argv if not any(path in word for path in data))
        _, linked, stamps = read_outside(
            groups, asked, [*steps], {}, detected, specs=program.system == "none", link=link
        )
        made = self._of_steps(name, built_for, detected, steps)
        return replace(
            made,
            kind="program",
            files=data,
            argv=argv,
            tools={role: str(path) for role, path in detected.tools.items()},
            linked=linked.hashes,
            stamps=stamps,
        )

    def _archive(self, name: str, built_for: BuiltFor, *, position_independent: bool) -> Artifact:
        """The static library of a program's objects."""
        declared = self._find(name)
        cxx = declared.program.language == "c++"
        _, detected = self._compiler(declared.program, built_for, cxx=cxx)
        steps = self._members(name, built_for, position_independent=position_independent)
        tool, outside = archiver(detected, built_for.toolchain.flags)
        made = self._of_steps(name, built_for, detected, steps)
        return replace(
            made,
            kind="archive",
            argv=(ARCHIVER, ARCHIVING, made.output, *steps),
            tools={ARCHIVER: str(tool)},
            linked=outside.hashes,
            stamps={**detected.stamps, **outside.stamps},
        )

    def _of_steps(
        self, name: str, built_for: BuiltFor, detected: Detected, steps: Mapping[str, Artifact]
    ) -> Artifact:
        """An artifact that is made from objects; its command is still to be given."""
        program = self.program(name)
        main = next((step.main for path, step in steps.items() if path.endswith("/main.o")), "")
        return Artifact(
            name=name,
            kind="program",
            output=program.file,
            main=main or next(iter(steps.values())).main,
            files={},
            argv=(),
            tools={},
            identity=detected.identity,
            steps=steps,
            arch=built_for.arch.name,
            variant=built_for.variant,
            runtime=built_for.runtime,
            redeclare=lambda: self.read_again().artifact(name, redetected(built_for)),
        )

    def _members(
        self, name: str, built_for: BuiltFor, *, position_independent: bool
    ) -> dict[str, Artifact]:
        """Path -> object of each source of a program, and of the objects that it uses."""
        found: dict[str, Artifact] = {}
        for part in self._with_objects(name):
            objects = self.objects(part, built_for, position_independent=position_independent)
            for path, step in objects.items():
                if path in found:
                    raise self._twice(part, path)
                found[path] = step
        return found

    def _with_objects(self, name: str) -> list[str]:
        """A program and the objects that it uses, directly or not."""
        found = {name: None}
        for other in self.program(name).uses:
            if self.program(other).kind == "objects":
                found |= dict.fromkeys(self._with_objects(other))
        return list(found)

    def _archives(self, name: str) -> list[str]:
        """The archives that a program uses, directly or not, each before those that it needs: a
        linker takes from an archive only what is missing when it reaches it."""
        found: dict[str, None] = {}

        def visit(user: str) -> None:
            for part in reversed(self._with_objects(user)):
                for other in reversed(self.program(part).uses):
                    if self.program(other).kind == "archive" and other not in found:
                        visit(other)
                        found[other] = None

        visit(name)
        return [*reversed(found)]

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
        toolchain, detected = self._compiler(declared.program, built_for, cxx=cxx)
        built_for = replace(built_for, toolchain=toolchain, detected=detected)
        texts = self._texts(declared)
        found: dict[str, Artifact] = {}
        for source in self._units(declared, built_for, texts):
            path = str(PurePosixPath(source).with_suffix(".o"))
            if path in found:
                raise self._twice(name, path)
            found[path] = self._object(
                declared, source, texts, built_for, position_independent=position_independent
            )
        return found

    def _units(self, declared: Declared, built_for: BuiltFor, texts: SourceTexts) -> list[str]:
        """Paths of what is compiled to one object each."""
        sources = self._sources(declared, built_for)
        if not declared.program.unity:
            return sources
        folders: dict[str, list[str]] = {}
        for source in sources:
            folders.setdefault(str(PurePosixPath(source).parent), []).append(source)
        return [texts.unit(members) for members in folders.values()]

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
            wanted = declared.pattern(built_for.fill(pattern))
            matching = [
                path
                for path in sorted(declared.root.glob(wanted))
                if path.suffix in _SUFFIXES[program.language] and not path.name.startswith(".")
            ]
            if not matching:
                raise ConfigError(
                    f"program '{program.name}' has no source '{declared.path(pattern)}' in "
                    f"{declared.root}",
                    key=declared.key("sources"),
                    hint=_MEND,
                )
            names = [path.relative_to(declared.root).as_posix() for path in matching]
            for name in names:
                if not _is_text(name):
                    raise ConfigError(
                        f"the name of the source {name!a} is not UTF-8 text",
                        key=declared.key("sources"),
                        hint="Rename it.",
                    )
            found |= dict.fromkeys(names)
        return sorted(found)

    def commands(self, name: str, built_for: BuiltFor) -> Iterator[tuple[Path, str, list[str]]]:
        """Root, path and command of each source of a program, without its names: for editors. The
        toolchain's driver has to be the one for the program."""
        declared = self._find(name)
        words = [str(built_for.detected.tools[DRIVER]), *_compilation(declared, built_for)[1:]]
        for source in self._sources(declared, built_for):
            yield declared.root, source, words

    def data(self, name: str) -> dict[str, str]:
        """Path -> text of the files that a program declares for the linker."""
        declared = self._find(name)
        texts = self._texts(declared)
        found: dict[str, str] = {}
        for path in map(declared.path, declared.program.data):
            if not any((root / path).is_file() for root in self._roots):
                raise ConfigError(
                    f"program '{name}' has no file '{path}' in {declared.root}",
                    key=declared.key("data"),
                    hint=_MEND,
                )
            found[path] = texts.read(path)
        return found

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

    def _compiler(
        self, program: Program, built_for: BuiltFor, *, cxx: bool
    ) -> tuple[Toolchain, Detected]:
        key = (built_for.toolchain.digest + built_for.detected.digest, program.role, cxx)
        if key not in self._compilers:
            self._compilers[key] = compiler(program, built_for, cxx=cxx)
        return self._compilers[key]

    def _texts(self, declared: Declared) -> SourceTexts:
        """The texts that a program sees; all programs of a root see the same."""
        if declared.root not in self._source_texts:
            others = (root for root in self._roots if root != declared.root)
            self._source_texts[declared.root] = SourceTexts((declared.root, *others))
        return self._source_texts[declared.root]

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
        groups = program_flags(program, built_for)
        output = PurePosixPath(source).with_suffix(".o").name
        pic = ("-fPIC",) if position_independent else ()
        argv = (*_compilation(declared, built_for), *pic, "-c", "-o", output, source)
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
                if self._declared[other].program.kind not in LINKED_INTO_OTHERS:
                    raise ConfigError(
                        f"program '{other}' is no set of objects and no archive, so it cannot be "
                        f"linked into '{name}'",
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


def _is_text(name: str) -> bool:
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


def _compilation(declared: Declared, built_for: BuiltFor) -> tuple[str, ...]:
    """The command that compiles a source of a program, up to its names."""
    groups = program_flags(declared.program, built_for)
    return (
        DRIVER,
        *(word for words in groups.values() for word in compiling(words)),
        *(f"-I{path}" for path in _include(declared, built_for)),
        *(f"-D{name}={built_for.fill(v)}" for name, v in declared.program.macros.items()),
    )


def _include(declared: Declared, built_for: BuiltFor) -> list[str]:
    return [declared.path(built_for.fill(path)) for path in declared.program.include]
