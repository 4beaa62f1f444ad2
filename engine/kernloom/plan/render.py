"""The render stage: schedule -> complete sources in C or OpenCL C.

A template reads the schedule and decides nothing. Rendered texts are cached on disk by the hash of
everything they depend on, so that a cached run need not import the template engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from kernloom.base.code_stamp import code_stamp
from kernloom.base.digest import DigestCache
from kernloom.base.errors import ConfigError, TemplateError, nearest
from kernloom.base.expressions import evaluate, parse_size
from kernloom.base.files import (
    MAX_SOURCE_BYTES,
    canonical_json,
    read_text,
    sha256_text,
    tree_stamps,
)
from kernloom.base.places import confined, share_folder
from kernloom.base.sealed import read_sealed, write_sealed
from kernloom.config.schema import Arch, KernelSource, Scalar, Target
from kernloom.pipeline.stage import Context, Stage
from kernloom.plan.clsource import MAIN, check_functions, functions_of, kernel_text
from kernloom.plan.cores import is_wrapped
from kernloom.plan.coresource import FLAGS as CORE_FLAGS
from kernloom.plan.coresource import HEADER as CORE_HEADER
from kernloom.plan.coresource import (
    check_core_signature,
    check_fits,
    core_entry,
    is_core_function,
    preamble,
    wrapper_entry,
)
from kernloom.plan.csource import (
    OPENCL_C,
    C,
    Dialect,
    Parameter,
    check_macros,
    check_signature,
    read_signature,
    read_with_includes,
    words_in,
)
from kernloom.plan.microkernels import ASSEMBLY, key_of, micro_kernel_text
from kernloom.plan.schedule import CTYPE, ELEMENT, BoundArgument, Schedule, StepRecord
from kernloom.plan.source import ENTRY, Launched, Source

TRANSFORMS = ("tile", "pack", "unroll", "vectorize", "parallelize", "fuse", "catch")
"""Names defined in every template, decided or not."""


@dataclass(frozen=True)
class StepSource:
    """A step and the source of the library that executes it."""

    step: StepRecord
    source: Source


class Render(Stage):
    """Schedule -> sources, one library per step (equal ones are built once)."""

    inputs: ClassVar[Mapping[str, str]] = {"schedule": "schedule"}
    outputs: ClassVar[Mapping[str, str]] = {"sources": "sources", "text": "text"}

    def run(self, context: Context, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        schedule: Schedule = inputs["schedule"]
        experiment = context.experiment
        renderer = context.need(Renderer)
        sources = tuple(
            StepSource(
                record,
                renderer.source(
                    f"{experiment.workload.name}.{record.name}",
                    record,
                    experiment.arch,
                    experiment.target,
                ),
            )
            for record in schedule
        )
        text = "\n".join(renderer.whole_text(item.source) for item in sources)
        return {"sources": sources, "text": text}


@dataclass(frozen=True)
class _PlainFile:
    """A plain C or OpenCL C file with all files it includes."""

    main: str
    found: dict[str, str]
    """Path below the templates' folder -> text."""
    signatures: dict[str, tuple[Parameter, ...]]
    """Function -> parameters."""
    words: frozenset[str]


@dataclass(frozen=True)
class _MicroKernel:
    """A caught micro-kernel: the text in front of the template's, and its files."""

    before: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)


TEXTS = 500
"""Maximum rendered texts in memory."""


class Renderer:
    """Renders kernels from the template folders, with caches in memory and on disk."""

    def __init__(self, folders: Sequence[Path], cache: Path | None = None) -> None:
        self.folders = list(folders)
        self._cache = cache
        self._environment: Any = None
        self._stamps: list[Any] = []
        self._forget()

    def _forget(self) -> None:
        self._rendered = DigestCache(TEXTS)
        self._failed: dict[str, tuple[str, str]] = {}
        """Message and hint of failed templates: one that times out does so once per sweep."""
        self._read: dict[str, tuple[Path, str] | None] = {}
        self._files: dict[tuple[str, tuple[str, ...]], _PlainFile] = {}
        self._sources = DigestCache(TEXTS)
        self._whole_texts = DigestCache(TEXTS)

    def refresh(self) -> None:
        """Clear the caches if a file has changed: all points of a sweep are rendered from the same
        texts, and the next sweep sees the changes."""
        folders = (*self.folders, _include_folder())
        stamps = [stamp for folder in folders for stamp in tree_stamps(folder)]
        if stamps != self._stamps:
            self._stamps = stamps
            self._forget()

    def whole_text(self, source: Source) -> str:
        """The complete text that the compiler sees."""
        key = (source.main, source.files)
        return self._whole_texts.by_key(key, lambda: source.whole_text)

    def source(self, name: str, record: StepRecord, arch: Arch, target: Target) -> Source:
        source, key = source_for(record, target)
        wrapped = is_wrapped(key.rpartition(".")[2], target)
        if not source.template or wrapped:
            return self._source(name, source, key, record, arch, wrapped)
        # Templates do not see sizes, so points that differ only in sizes share one source.
        seen = (
            name,
            source.digest,
            arch.compiled.digest,
            record.kernel.name,
            record.dtype,
            # As text, since 1, 1.0 and true are equal but different choices.
            str(record.decisions),
            record.epilogue,
            *((arg.name, arg.kind, arg.access, arg.dtype) for arg in record.arguments),
        )
        return self._sources.by_key(seen, lambda: self._source(name, source, key, record, arch))

    def _source(
        self,
        name: str,
        source: KernelSource,
        key: str,
        record: StepRecord,
        arch: Arch,
        wrapped: bool = False,
    ) -> Source:
        launched = None
        if "core" in record.decisions:
            files, origins = self._core(source, record, arch, key, wrapped)
        elif source.template:
            function = f"kl_{record.kernel.name}"
            text, origins = self._template(source.template, record, arch, function, key)
            if source.work:
                # The driver calls the function, and knows its arguments.
                files = {MAIN: f"{_header(record)}{text}"}
                launched = Launched(function, tuple(a.dtype for a in record.arguments))
            else:
                entry = _entry(function, record.arguments)
                micro = self._micro_kernel(record, text)
                body = f"{_header(record)}{micro.before}{text}\n{entry}"
                files, origins = {"kernel.c": body, **micro.files}, {**origins, **micro.origins}
        elif source.work:
            files, origins, launched = self._plain_opencl(source, record, key)
        else:
            files, origins = self._plain(source, record, key)
        params = {"dtype": record.dtype, **record.decisions}
        main = next(iter(files))
        flags = CORE_FLAGS if "core" in record.decisions else ()
        return Source(name, files, origins, params, main=main, flags=flags, launched=launched)

    def _core(
        self, source: KernelSource, record: StepRecord, arch: Arch, key: str, wrapped: bool
    ) -> tuple[dict[str, str], dict[str, str]]:
        """A kernel for a PE of an accelerator: a template, a C file that uses the same API, or a
        plain C function in a wrapper."""
        if source.template:
            function = f"kl_{record.kernel.name}"
            text, origins = self._template(source.template, record, arch, function, key)
            casts = [_parameter_type(argument) for argument in record.arguments]
            micro = self._micro_kernel(record, text)
            before, found = micro.before, micro.files
            origins = {**origins, **micro.origins}
        else:
            function = str(source.function)
            file = self._plain_file(str(source.file), (function,), key, C)
            parameters = file.signatures[function]
            arguments = f"{record.key}.arguments"
            wrapped = not is_core_function(parameters)
            if wrapped:
                check_signature(parameters, record, function, key=arguments)
            else:
                check_core_signature(parameters, record, function, key=arguments)
            macros = _macros(source, file, record, key)
            before = "".join(f"#define {macro} {value}\n" for macro, value in macros.items())
            text, found, origins = f'#include "{file.main}"\n', file.found, {}
            casts = [parameter.ctype for parameter in parameters]
            text += _size_checks(parameters, record.arguments) if wrapped else ""
        if wrapped:
            check_fits(record, arch, key)
            entry = wrapper_entry(function, casts, record, source)
        else:
            entry = core_entry(function, record)
        main = "kernel.c" if "kernel.c" not in found else "kernloom_entry.c"
        body = f"{_header(record)}{preamble()}{before}{text}\n{entry}"
        return {main: body, CORE_HEADER: self._core_header(), **found}, {**origins, **found}

    def _core_header(self) -> str:
        """The API of core kernels, as it ships with Kernloom."""
        if CORE_HEADER not in self._read:
            path = _include_folder() / CORE_HEADER
            self._read[CORE_HEADER] = (path, read_text(path, limit=MAX_SOURCE_BYTES))
        found = self._read[CORE_HEADER]
        assert found
        return found[1]

    def _micro_kernel(self, record: StepRecord, text: str) -> _MicroKernel:
        """The micro-kernel that was caught for a template with this text."""
        caught = record.decisions.get("catch")
        if not caught:
            return _MicroKernel()
        name, function = str(caught["file"]), str(caught["function"])
        key = key_of(record, str(caught["micro_kernel"]))
        if function not in words_in(text):
            raise TemplateError(
                f"the template of kernel '{record.kernel.name}' has no place for '{function}'",
                key=key,
                hint="Call {{ catch.function }} in it where `catch.function is defined`.",
            )
        path = confined(name, self.folders, key=f"{key}.file", what="micro-kernel")
        root = next(r for r in self.folders if path.is_relative_to(r.resolve()))
        found = read_with_includes(path, root)
        main = path.relative_to(root.resolve()).as_posix()
        before = micro_kernel_text(main, function, found[main], CTYPE[record.dtype])
        # Assembly becomes part of the text itself.
        return _MicroKernel(before, {} if main.endswith(ASSEMBLY) else found, found)

    def _plain(
        self, source: KernelSource, record: StepRecord, key: str
    ) -> tuple[dict[str, str], dict[str, str]]:
        """A plain C file, included by a wrapper that defines its macros and the entry."""
        name, function = str(source.file), str(source.function)
        file = self._plain_file(name, (function,), key, C)
        main, found, parameters = file.main, file.found, file.signatures[function]
        check_signature(parameters, record, function, key=f"{record.key}.arguments")
        macros = _macros(source, file, record, key)
        defines = "".join(f"#define {macro} {value}\n" for macro, value in macros.items())
        casts = [
            f"({parameter.ctype})args[{i}]"
            if parameter.pointer
            else f"({parameter.ctype}){_value(i, argument)}"
            for i, (parameter, argument) in enumerate(
                zip(parameters, record.arguments, strict=True)
            )
        ]
        checks = _size_checks(parameters, record.arguments)
        entry = f"{checks}{_entry_with(function, casts)}"
        wrapper = f'{_header(record)}{defines}#include "{main}"\n\n{entry}'
        main = "kernel.c" if "kernel.c" not in found else "kernloom_entry.c"
        return {main: wrapper, **found}, found

    def _plain_opencl(
        self, source: KernelSource, record: StepRecord, key: str
    ) -> tuple[dict[str, str], dict[str, str], Launched]:
        """A plain OpenCL C file with its macros defined first, as one text for the driver."""
        functions = functions_of(source)
        file = self._plain_file(str(source.file), functions, key, OPENCL_C)
        dtypes = check_functions(file.signatures, source, record, key=key)
        macros = _macros(source, file, record, key)
        text = kernel_text(_header(record), macros, file.main, file.found[file.main])
        included = {name: found for name, found in file.found.items() if name != file.main}
        if MAIN in included:
            raise ConfigError(
                f"{source.file} includes {MAIN}, the name of the file that the driver compiles",
                key=f"{key}.file",
                hint=f"Give templates/{MAIN} another name.",
            )
        include = PurePosixPath(file.main).parent.as_posix() if included else ""
        return {MAIN: text, **included}, file.found, Launched(functions[0], dtypes, include)

    def _plain_file(
        self, name: str, functions: tuple[str, ...], key: str, dialect: Dialect
    ) -> _PlainFile:
        """A plain file, read once: all points of a sweep use the same text."""
        if (name, functions) not in self._files:
            path = confined(name, self.folders, key=f"{key}.file", what="kernel file")
            root = next(r for r in self.folders if path.is_relative_to(r.resolve()))
            found = read_with_includes(path, root)
            main = path.relative_to(root.resolve()).as_posix()
            where = f"{key}.function"
            signatures = {
                function: read_signature(
                    found[main], function, where=name, key=where, dialect=dialect
                )
                for function in functions
            }
            words = words_in("\n".join(found.values()))
            self._files[name, functions] = _PlainFile(main, found, signatures, words)
        return self._files[name, functions]

    def _template(
        self, template: str, record: StepRecord, arch: Arch, function: str, key: str
    ) -> tuple[str, dict[str, str]]:
        if template not in self._read:
            confined(template, self.folders, key=f"{key}.template", what="template")
        variables = _variables(record, arch, function)
        memo = sha256_text(canonical_json([template, variables, _code()]))
        if memo in self._failed:
            message, hint = self._failed[memo]
            raise TemplateError(message, hint=hint)
        try:
            return self._rendered.by_key(
                memo,
                lambda: self._from_disk(memo) or self._render(template, variables, memo, key),
            )
        except TemplateError as error:
            if len(self._failed) >= TEXTS:
                self._failed.clear()
            self._failed[memo] = (error.message, error.hint)
            raise

    def _find(self, name: str) -> tuple[Path, str] | None:
        """A template's file and text from the first folder that has it, read once, so that the
        rendered text and the recorded origin agree."""
        if name not in self._read:
            self._read[name] = None
            inside = not Path(name).is_absolute() and ".." not in Path(name).parts
            for folder in self.folders if inside else ():
                if (folder / name).is_file():
                    path = confined(name, [folder], key=str(folder / name), what="template")
                    self._read[name] = (folder / name, read_text(path, limit=MAX_SOURCE_BYTES))
                    break
        return self._read[name]

    def _origins(self, names: Iterable[str]) -> dict[str, str | None]:
        """Template -> text; None if it does not exist."""
        found = {name: self._find(name) for name in names}
        return {name: one[1] if one else None for name, one in found.items()}

    def _from_disk(self, memo: str) -> tuple[str, dict[str, str]] | None:
        """The rendered text from the disk cache, if all its templates are unchanged."""
        if not self._cache:
            return None
        try:
            kept = read_sealed(self._cache / f"{memo}.json")
            origins = self._origins(kept["origins"])
            if _hashes(origins) == kept["origins"]:
                return kept["text"], _existing(origins)
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return None

    def _render(
        self, template: str, variables: dict[str, Any], memo: str, key: str
    ) -> tuple[str, dict[str, str]]:
        from kernloom.plan.templates import Templates

        if self._environment is None:
            self._environment = Templates(self.folders, self._find)
        text, names = self._environment.render(template, variables, key=f"{key}.template")
        origins = self._origins(sorted(names))
        if self._cache:
            kept = {"text": text, "origins": _hashes(origins)}
            try:
                write_sealed(self._cache / f"{memo}.json", kept)
            except OSError:
                self._cache = None  # an unwritable cache only costs time
        return text, _existing(origins)


def _include_folder() -> Path:
    return share_folder() / "native" / "include"


def _parameter_type(argument: BoundArgument) -> str:
    if argument.kind != "tensor":
        return argument.ctype
    return f"{'const ' if argument.access == 'read' else ''}{argument.ctype} *"


def _code() -> str:
    modules = ("plan/render", "plan/templates", "plan/template_worker")
    return code_stamp(*modules, packages=("jinja2", "markupsafe"))


def _hashes(origins: Mapping[str, str | None]) -> dict[str, str | None]:
    return {name: None if text is None else sha256_text(text) for name, text in origins.items()}


def _existing(origins: Mapping[str, str | None]) -> dict[str, str]:
    return {name: text for name, text in origins.items() if text is not None}


def source_for(record: StepRecord, target: Target) -> tuple[KernelSource, str]:
    """The first of the target's source families that the kernel has, or plain C to be wrapped."""
    kernel = record.kernel
    if found := kernel.source_for(target.sources):
        return found[1], f"{record.key}.sources.{found[0]}"
    raise ConfigError(
        f"kernel '{kernel.name}' has no source for target '{target.name}' "
        f"({', '.join(target.sources)})",
        key=f"{record.key}.sources",
        hint=nearest(next(iter(target.sources), ""), kernel.sources),
    )


def _variables(record: StepRecord, arch: Arch, function: str) -> dict[str, Any]:
    """Variables of a template: decisions and arch data, no sizes, so one library serves all."""
    decisions = {name: dict(record.decisions.get(name, {})) for name in TRANSFORMS}
    others = {name: dict(group) for name, group in record.decisions.items()}
    epilogue = record.epilogue and {
        "kernel": record.epilogue.kernel,
        "arguments": list(record.epilogue.arguments),
    }
    return {
        **others,
        **decisions,
        "function": function,
        "arguments": [
            {
                "name": argument.name,
                "kind": argument.kind,
                "access": argument.access,
                "ctype": argument.ctype,
                "dtype": argument.dtype,
            }
            for argument in record.arguments
        ],
        "dtype": record.dtype,
        "ctype": {"float32": "float", "float64": "double"}.get(record.dtype, record.dtype),
        "element": ELEMENT[record.dtype],
        "epilogue": epilogue,
        "arch": {
            "name": arch.name,
            "isa": arch.isa,
            "vector_bytes": arch.vector_bytes,
            "registers": arch.registers,
            "cores": arch.cores,
            "caches": {
                "l1": parse_size(arch.caches.l1),
                "l2": parse_size(arch.caches.l2),
                "l3": parse_size(arch.caches.l3),
            },
        },
    }


def _header(record: StepRecord) -> str:
    """A comment in the source with the decisions of every transform."""
    lines = [f" * {record.kernel.name} {record.dtype}"]
    for transform, group in record.decisions.items():
        chosen = " ".join(f"{name}={_literal(value)}" for name, value in group.items())
        lines.append(f" * {transform}: {chosen or '(nothing)'}")
    if record.epilogue:
        lines.append(f" * epilogue: {record.epilogue.kernel}")
    # Other characters could end the comment or join lines, and the rest would be code.
    body = "\n".join(re.sub(r"[^\w .:=+()*-]", "?", line).replace("*/", "* /") for line in lines)
    return f"/*\n{body}\n */\n"


def _literal(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _entry(function: str, arguments: Sequence[BoundArgument]) -> str:
    return _entry_with(function, [_cast(i, argument) for i, argument in enumerate(arguments)])


def _cast(index: int, argument: BoundArgument) -> str:
    if argument.kind != "tensor":
        return _value(index, argument)
    constant = "const " if argument.access == "read" else ""
    return f"({constant}{argument.ctype} *)args[{index}]"


def _value(index: int, argument: BoundArgument) -> str:
    return f"*(const {argument.ctype} *)args[{index}]"


def _entry_with(function: str, casts: Sequence[str]) -> str:
    joined = ",\n        ".join(casts)
    return (
        f'__attribute__((visibility("default"))) void {ENTRY}(void *const *args);\n'
        f"void {ENTRY}(void *const *args)\n{{\n    {function}(\n        {joined});\n}}\n"
    )


def _size_checks(parameters: Sequence[Parameter], arguments: Sequence[BoundArgument]) -> str:
    """Makes the compiler refuse `long *` for 64-bit tensors where a long has 32 bits."""
    return "".join(
        f"_Static_assert(sizeof *({parameter.ctype})0 == {ELEMENT[argument.dtype]}, "
        f'"the elements of {argument.name} are {argument.dtype}");\n'
        for parameter, argument in zip(parameters, arguments, strict=True)
        if parameter.pointer and argument.dtype == "int64"
    )


def _macros(source: KernelSource, file: _PlainFile, record: StepRecord, key: str) -> dict[str, str]:
    """Macro -> value as text; each must be used by the file."""
    macros = {
        macro: _macro_value(value, record, f"{key}.macros.{macro}")
        for macro, value in source.macros.items()
    }
    check_macros(file.words, macros, where=str(source.file), key=key)
    return macros


def _macro_value(value: Scalar, record: StepRecord, key: str) -> str:
    """A macro's value: an expression over the kernel's sizes and decided tunables."""
    if not isinstance(value, str):
        return _literal(value) if not isinstance(value, bool) else str(int(value))
    decided = {name: v for group in record.decisions.values() for name, v in group.items()}
    try:
        result = evaluate(value, {**record.sizes, "element": ELEMENT[record.dtype], **decided})
    except ConfigError as error:
        raise TemplateError(error.message, key=key, hint=error.hint) from None
    if isinstance(result, bool):
        return str(int(result))
    word = isinstance(result, str) and result.isascii() and result.replace("_", "").isalnum()
    if not word and not isinstance(result, (int, float)):
        raise TemplateError(f"{result!r} is not a plain word or number", key=key)
    return str(result)
