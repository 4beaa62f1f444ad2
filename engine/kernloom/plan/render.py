"""The render stage: schedule -> complete sources in C or OpenCL C.

A template reads the schedule and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from kernloom.base.digest import DigestCache
from kernloom.base.errors import ConfigError, TemplateError, nearest
from kernloom.base.files import tree_stamps
from kernloom.config.schema import Arch, Experiment, KernelSource, Target
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
from kernloom.plan.csource import OPENCL_C, C, check_signature, words_in
from kernloom.plan.entry import (
    comment_of,
    entry_of,
    entry_with,
    parameter_type,
    size_checks,
    value_of,
)
from kernloom.plan.microkernels import ASSEMBLY, key_of, micro_kernel_text
from kernloom.plan.orchestration import ENTRY as ORCHESTRATE
from kernloom.plan.orchestration import FLAGS as ORCHESTRATION_FLAGS
from kernloom.plan.orchestration import (
    HEADERS,
    LAUNCH_HEADER,
    TEMPLATE,
    OrchestrationSource,
    launch_header,
    own_launch,
    placement_of,
    rendered_launch,
)
from kernloom.plan.orchestration import MAIN as ORCHESTRATION_MAIN
from kernloom.plan.plainfile import PlainFiles, macros_of
from kernloom.plan.schedule import CTYPE, Schedule, StepRecord
from kernloom.plan.source import Launched, Source
from kernloom.plan.texts import TEXTS, TemplateTexts, include_folder
from kernloom.plan.variables import compiled_decisions, template_variables


@dataclass(frozen=True)
class StepSource:
    """A step and the source of the library that executes it."""

    step: StepRecord
    source: Source


class Render(Stage):
    """Schedule -> sources, one library per step (equal ones are built once), and the orchestration
    that submits their tasks."""

    inputs: ClassVar[Mapping[str, str]] = {"schedule": "schedule"}
    outputs: ClassVar[Mapping[str, str]] = {
        "sources": "sources",
        "text": "text",
        "orchestration": "orchestration_source",
    }

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
        texts = [renderer.whole_text(item.source) for item in sources]
        orchestration = None
        if placement_of(schedule):
            orchestration = renderer.orchestration(schedule, experiment)
            texts.append(renderer.whole_text(orchestration.source))
        return {"sources": sources, "text": "\n".join(texts), "orchestration": orchestration}


@dataclass(frozen=True)
class _MicroKernel:
    """A caught micro-kernel: the text in front of the template's, and its files."""

    before: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)


class Renderer:
    """Renders kernels from the template folders, with caches in memory and on disk."""

    def __init__(self, folders: Sequence[Path], cache: Path | None = None) -> None:
        self.folders = list(folders)
        self._texts = TemplateTexts(self.folders, cache)
        self._files = PlainFiles(self.folders)
        self._stamps: list[Any] = []
        self._forget()

    def _forget(self) -> None:
        self._texts.forget()
        self._files.forget()
        self._sources = DigestCache(TEXTS)
        self._whole_texts = DigestCache(TEXTS)

    def refresh(self) -> None:
        """Clear the caches if a file has changed: all points of a sweep are rendered from the same
        texts, and the next sweep sees the changes."""
        folders = (*self.folders, include_folder())
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
            str(compiled_decisions(record)),
            record.epilogue,
            *((arg.name, arg.kind, arg.access, arg.dtype) for arg in record.arguments),
        )
        return self._sources.by_key(seen, lambda: self._source(name, source, key, record, arch))

    def orchestration(self, schedule: Schedule, experiment: Experiment) -> OrchestrationSource:
        """The orchestration of a workload: rendered for its steps, or its own."""
        workload = experiment.workload
        name = f"{workload.name}.orchestration"
        headers = {header: self._texts.header_file(header) for header in HEADERS}
        own = workload.orchestration
        if own is None:
            variables, launch = rendered_launch(schedule, workload, experiment.target)
            text, origins = self._texts.render(TEMPLATE, variables, "orchestration")
            files = {ORCHESTRATION_MAIN: text, **headers}
        else:
            key = "workload.orchestration.file"
            main, found = self._files.read(own.file, "workload.orchestration", "orchestration")
            if not any(ORCHESTRATE in words_in(text) for text in found.values()):
                raise ConfigError(
                    f"{own.file} does not define {ORCHESTRATE}()",
                    key=key,
                    hint=f'Write extern "C" void {ORCHESTRATE}(struct kl_orchestrator *self).',
                )
            launch = own_launch(schedule, workload)
            generated = {LAUNCH_HEADER: launch_header(schedule, workload), **headers}
            if taken := sorted(generated.keys() & found.keys()):
                raise ConfigError(
                    f"{own.file} includes its own {taken[0]}, the name of a generated file", key=key
                )
            files, origins = {main: found.pop(main), **found, **generated}, {}
            origins = {main: files[main], **found}
        source = Source(
            name, files, origins, {}, next(iter(files)), flags=ORCHESTRATION_FLAGS, language="c++"
        )
        return OrchestrationSource(source, launch)

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
                files = {MAIN: f"{comment_of(record)}{text}"}
                launched = Launched(function, tuple(a.dtype for a in record.arguments))
            else:
                entry = entry_of(function, record.arguments)
                micro = self._micro_kernel(record, text)
                body = f"{comment_of(record)}{micro.before}{text}\n{entry}"
                files, origins = {"kernel.c": body, **micro.files}, {**origins, **micro.origins}
        elif source.work:
            files, origins, launched = self._plain_opencl(source, record, key)
        else:
            files, origins = self._plain(source, record, key)
        params = {"dtype": record.dtype, **compiled_decisions(record)}
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
            casts = [parameter_type(argument) for argument in record.arguments]
            micro = self._micro_kernel(record, text)
            before, found = micro.before, micro.files
            origins = {**origins, **micro.origins}
        else:
            function = str(source.function)
            file = self._files.get(str(source.file), (function,), key, C)
            parameters = file.signatures[function]
            arguments = f"{record.key}.arguments"
            wrapped = not is_core_function(parameters)
            if wrapped:
                check_signature(parameters, record, function, key=arguments)
            else:
                check_core_signature(parameters, record, function, key=arguments)
            macros = macros_of(source, file, record, key)
            before = "".join(f"#define {macro} {value}\n" for macro, value in macros.items())
            text, found, origins = f'#include "{file.main}"\n', file.found, {}
            casts = [parameter.ctype for parameter in parameters]
            text += size_checks(parameters, record.arguments) if wrapped else ""
        if wrapped:
            check_fits(record, arch, key)
            entry = wrapper_entry(function, casts, record, source)
        else:
            entry = core_entry(function, record)
        main = "kernel.c" if "kernel.c" not in found else "kernloom_entry.c"
        body = f"{comment_of(record)}{preamble()}{before}{text}\n{entry}"
        header = self._texts.header_file(CORE_HEADER)
        return {main: body, CORE_HEADER: header, **found}, {**origins, **found}

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
        main, found = self._files.read(name, key, "micro-kernel")
        before = micro_kernel_text(main, function, found[main], CTYPE[record.dtype])
        # Assembly becomes part of the text itself.
        return _MicroKernel(before, {} if main.endswith(ASSEMBLY) else found, found)

    def _plain(
        self, source: KernelSource, record: StepRecord, key: str
    ) -> tuple[dict[str, str], dict[str, str]]:
        """A plain C file, included by a wrapper that defines its macros and the entry."""
        name, function = str(source.file), str(source.function)
        file = self._files.get(name, (function,), key, C)
        main, found, parameters = file.main, file.found, file.signatures[function]
        check_signature(parameters, record, function, key=f"{record.key}.arguments")
        macros = macros_of(source, file, record, key)
        defines = "".join(f"#define {macro} {value}\n" for macro, value in macros.items())
        casts = [
            f"({parameter.ctype})args[{i}]"
            if parameter.pointer
            else f"({parameter.ctype}){value_of(i, argument)}"
            for i, (parameter, argument) in enumerate(
                zip(parameters, record.arguments, strict=True)
            )
        ]
        checks = size_checks(parameters, record.arguments)
        entry = f"{checks}{entry_with(function, casts)}"
        wrapper = f'{comment_of(record)}{defines}#include "{main}"\n\n{entry}'
        main = "kernel.c" if "kernel.c" not in found else "kernloom_entry.c"
        return {main: wrapper, **found}, found

    def _plain_opencl(
        self, source: KernelSource, record: StepRecord, key: str
    ) -> tuple[dict[str, str], dict[str, str], Launched]:
        """A plain OpenCL C file with its macros defined first, as one text for the driver."""
        functions = functions_of(source)
        file = self._files.get(str(source.file), functions, key, OPENCL_C)
        dtypes = check_functions(file.signatures, source, record, key=key)
        macros = macros_of(source, file, record, key)
        text = kernel_text(comment_of(record), macros, file.main, file.found[file.main])
        included = {name: found for name, found in file.found.items() if name != file.main}
        if MAIN in included:
            raise ConfigError(
                f"{source.file} includes {MAIN}, the name of the file that the driver compiles",
                key=f"{key}.file",
                hint=f"Give templates/{MAIN} another name.",
            )
        include = PurePosixPath(file.main).parent.as_posix() if included else ""
        return {MAIN: text, **included}, file.found, Launched(functions[0], dtypes, include)

    def _template(
        self, template: str, record: StepRecord, arch: Arch, function: str, key: str
    ) -> tuple[str, dict[str, str]]:
        return self._texts.render(template, template_variables(record, arch, function), key)


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
