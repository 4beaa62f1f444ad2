"""The variants of an export: sources of the winner, of other shapes, and for older CPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from kernloom.base.errors import KernloomError, UsageError
from kernloom.config.groups import groups_of
from kernloom.config.overrides import Override
from kernloom.config.schema import Arch, Experiment, Toolchain
from kernloom.plan.planned import Planned
from kernloom.plan.render import StepSource
from kernloom.plan.schedule import StepRecord
from kernloom.plan.source import Source
from kernloom.run.known_parameters import KnownParameters
from kernloom.tune.document import Outcome
from kernloom.tune.planning import StudyPlan
from kernloom.tune.racing import Leader
from kernloom.tune.tunables import FIXED, Point
from kernloom.tune.winner import Make, at_point

MAX_SHAPES = 8
"""Other shapes, of earlier studies, that are exported with the winner."""
MAX_LOOKED_AT = 2_000
NOT_FLAGS = ("-shared", "-fPIC", "-o", "-c")
KEPT_FLAGS = ("-O", "-std", "-m", "-f", "-D")


@dataclass(frozen=True)
class Function:
    """A function of the library: a kernel, or a kernel with a fused one."""

    name: str
    record: StepRecord

    @property
    def sizes(self) -> list[str]:
        return [argument.name for argument in self.record.arguments if argument.kind == "size"]


@dataclass(frozen=True)
class Variant:
    """One source of a function, and the shapes it was tuned for."""

    source: Source
    flags: tuple[str, ...]
    arch: Arch
    shapes: tuple[Mapping[str, int], ...]
    about: str
    """Parameters, and the trial that chose them."""

    def with_shape(self, sizes: Mapping[str, int]) -> Variant:
        return self if sizes in self.shapes else replace(self, shapes=(*self.shapes, sizes))


@dataclass
class Library:
    """All functions with their variants, the tuned arch first."""

    plan: Planned
    """The winner."""
    functions: dict[str, Function] = field(default_factory=dict)
    variants: dict[str, list[Variant]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    """Parameters that are not part of it, and why."""

    def add(self, plan: Planned, source: StepSource, about: str, only: str = "") -> None:
        """Add the source of a step; `only`: under this name of a function."""
        record = source.step
        name = function_name(record)
        if only and name != only:
            return
        if name not in self.functions and not only:
            self.functions[name] = Function(name, record)
            self.variants[name] = []
        if name not in self.variants:
            return
        flags, arch = _flags_of(plan, record), plan.experiment.arch
        own = self.variants[name]
        if any(one.arch.name == arch.name and dict(record.sizes) in one.shapes for one in own):
            return  # the first one is always chosen
        for number, one in enumerate(own):
            if one.flags == flags and dict(one.source.files) == dict(source.source.files):
                own[number] = one.with_shape(record.sizes)
                return
        own.append(Variant(source.source, flags, arch, (dict(record.sizes),), about))


def function_name(record: StepRecord) -> str:
    """`matmul_bias_relu_float32`."""
    parts = [record.kernel.name, *([record.epilogue.kernel] if record.epilogue else [])]
    return "_".join([*parts, record.dtype])


def library_of(outcome: Outcome, best: Leader, problem: Callable[[Make], str]) -> Library:
    """The library of a study's winner. `problem` verifies other parameters than the winner's."""
    plan = outcome.plan.plan(best.point)
    check_exportable(plan)
    found = Library(plan)
    for one in _sources(plan):
        found.add(plan, one, f"winner of the study, trial {best.trial.id}")
    _add_other_shapes(found, outcome, best.point, problem)
    _add_older(found, outcome, best.point, problem)
    return found


def check_exportable(plan: Planned) -> None:
    """Refuse kernels that are no C for a CPU with an operating system."""
    if plan.experiment.target.family == "embedded":
        raise UsageError(
            f"export: target '{plan.experiment.target.name}' has no operating system, which the "
            "threads and the test program of an exported library need",
            hint="Export the parameters: export=FILE.yaml.",
        )
    if not _sources(plan):
        raise UsageError(
            f"export: kernels of target '{plan.experiment.target.name}' are no C for a CPU, so "
            "they cannot be used without Kernloom",
            hint="Export the parameters: export=FILE.yaml.",
        )


def _sources(plan: Planned) -> tuple[StepSource, ...]:
    sources = [one for part in plan.graph.of_type("sources", plan.outputs) for one in part]
    usable = plan.orchestration is None and all(
        one.source.language == "c" and one.source.launched is None for one in sources
    )
    return tuple(sources) if usable else ()


def _flags_of(plan: Planned, record: StepRecord) -> tuple[str, ...]:
    """The compiler flags of a step that matter to its code."""
    argv = next(item.artifact.argv for item in plan.steps if item.step.name == record.name)
    return tuple(
        flag for flag in argv if flag.startswith(KEPT_FLAGS) and not flag.startswith(NOT_FLAGS)
    )


def _add_other_shapes(
    library: Library, outcome: Outcome, point: Point, problem: Callable[[Make], str]
) -> None:
    """What the store knows of the same kernels for other shapes, compiled alike."""
    plan, experiment = outcome.plan, library.plan.experiment
    stored = plan.assembly.stored_parameters(experiment)
    for one in _sources(library.plan):
        if one.step.epilogue:
            continue
        looked_at = islice(stored.ranked(one.step, experiment), MAX_LOOKED_AT)
        for known in islice(_best_of_shapes(looked_at, one.step, experiment), MAX_SHAPES):
            other = {**point}
            for axis in plan.study.tunables:
                if axis.step == one.step.name:
                    other[axis.key] = known.params[axis.name]
            try:
                planned = plan.plan(other)
            except KernloomError:
                continue
            if other != point and (why := problem(at_point(other))):
                library.left_out.append(f"the parameters of trial {known.trial}: {why}")
                continue
            for source in _sources(planned):
                if source.step.name == one.step.name:
                    shaped = replace(source.step, sizes=dict(known.work.record.sizes))
                    moved = replace(source, step=shaped)
                    library.add(planned, moved, f"trial {known.trial}", function_name(one.step))


def _best_of_shapes(
    found: Iterable[KnownParameters], record: StepRecord, experiment: Experiment
) -> Iterator[KnownParameters]:
    """The best of every other shape: of the same arch, compiled by the same tools and flags."""
    seen = [dict(record.sizes)]
    for one in found:
        sizes, there = dict(one.work.record.sizes), one.work
        alike = (
            there.arch.name == experiment.arch.name
            and there.record.dtype == record.dtype
            and _compiling(there.toolchain) == _compiling(experiment.toolchain)
        )
        if alike and sizes not in seen:
            seen.append(sizes)
            yield one


def _compiling(toolchain: Toolchain) -> tuple[object, ...]:
    """What of a toolchain decides what it makes of a source."""
    flags = (toolchain.flags, toolchain.kernel_flags, toolchain.extra_flags)
    return (toolchain.name, sorted(toolchain.tools.items()), *map(tuple, flags))


def _add_older(
    library: Library, outcome: Outcome, point: Point, problem: Callable[[Make], str]
) -> None:
    """The same functions for older CPUs of the same ISA, with stored parameters or the model's."""
    plan, arch = outcome.plan, library.plan.experiment.arch
    for name in older_arches(outcome, arch):
        stored = _is_known(library, outcome, name)
        providers = ["fixed", *(["stored"] if stored else []), "model"]
        more = [
            Override.of("arch", name, group=True),
            Override.of("select.providers", providers, group=False),
            *(
                Override.of(f"{FIXED}.fuse.{one.step}.{one.name}", point[one.key], group=False)
                for one in plan.study.tunables
                if one.transform == "fuse"
            ),
        ]

        def older(case: StudyPlan, more: Sequence[Override] = more) -> Planned:
            return case.plan_without_tunables(point, more)

        try:
            planned = older(plan)
        except KernloomError:
            continue
        if why := problem(older):
            library.left_out.append(f"{planned.provider} for {name}: {why}")
            continue
        for source in _sources(planned):
            found = function_name(source.step)
            library.add(planned, source, f"{planned.provider} for {name}", found)


def _is_known(library: Library, outcome: Outcome, arch: str) -> bool:
    """Whether parameters were measured on an arch itself: those of a newer one may not suit it."""
    experiment = library.plan.experiment
    stored = outcome.plan.assembly.stored_parameters(experiment)
    looked_at = islice(stored.ranked(library.plan.steps[0].step, experiment), MAX_LOOKED_AT)
    return any(one.work.arch.name == arch for one in looked_at)


def older_arches(outcome: Outcome, arch: Arch) -> list[str]:
    """The arches of the same ISA with fewer features, the newest first."""
    groups = groups_of(outcome.plan.assembly.places)
    found = []
    for name in groups.options("arch"):
        data = groups.read("arch", name)
        features = set(data.get("features") or ())
        if data.get("isa") == arch.isa and features and features < set(arch.features):
            found.append((len(features), name))
    return [name for _, name in sorted(found, reverse=True)]
