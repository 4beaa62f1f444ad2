"""The select stage: gets parameters from providers, checks them, and records their provenance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from kernloom.base.errors import ConfigError, KernloomError, nearest
from kernloom.base.files import read_text
from kernloom.base.registry import Registry
from kernloom.config.compose import Point
from kernloom.config.distribution import SPLITS, TRANSFORM
from kernloom.config.schema import Arch, Experiment, Scalar
from kernloom.pipeline.stage import Context, Stage
from kernloom.plan.answers import Answers
from kernloom.plan.schedule import Schedule, StepRecord
from kernloom.plan.space import (
    allowed_value,
    check_point,
    empty_space_error,
    space_of,
    tunables_of,
    variables_of,
)


@dataclass(frozen=True)
class Request:
    """One step that needs parameters, and the decisions of earlier providers."""

    record: StepRecord
    arch: Arch
    options: SelectOptions
    decided: Mapping[str, Scalar]
    steps: Schedule = ()
    """All steps of the workload, this one included."""
    answers: Answers = field(default_factory=Answers)
    """Cache of the model's answers."""
    experiment: Experiment | None = None
    """The whole experiment, for providers that ask where it runs."""
    point: Point | None = None
    """The overrides that compose it, for providers that run others like it."""

    def after(self, decided: Mapping[str, Scalar]) -> Request:
        """The same request with more decisions."""
        # `replace` would take longer than the rest of a provider call.
        return Request(
            self.record,
            self.arch,
            self.options,
            dict(decided),
            self.steps,
            self.answers,
            self.experiment,
            self.point,
        )


class Answer(dict[str, Scalar]):
    """An answer that says where its values come from."""

    def __init__(self, values: Mapping[str, Scalar] | None = None, source: str = "") -> None:
        super().__init__(values or {})
        self.source = source


Provider = Callable[[Request], Mapping[str, Scalar]]
"""Returns tunable -> value for the tunables it can answer; may be empty."""


@dataclass(frozen=True)
class SelectOptions:
    """Providers in order, and the settings they use."""

    providers: tuple[str, ...] = ("fixed", "file", "model")
    fixed: Mapping[str, Any] = field(default_factory=dict)
    file: str | None = None
    python: str | None = None
    """Name of a function that chooses parameters (entry points `kernloom.parameters`)."""


class Select(Stage):
    """Steps -> params (transform -> step -> tunable -> value) and their providers."""

    inputs: ClassVar[Mapping[str, str]] = {"steps": "steps"}
    outputs: ClassVar[Mapping[str, str]] = {
        "params": "choices",
        "provider": "provider",
        "provenance": "provenance",
        "origins": "origins",
    }
    Options = SelectOptions

    def run(self, context: Context, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        steps: Schedule = inputs["steps"]
        key = f"pipeline.stages.{self.name}"
        registry = context.need(Providers)
        providers = [
            (name, registry.get(name, key=f"{key}.providers")) for name in self.options.providers
        ]
        _check_given(self.options.fixed, steps, "select.fixed")
        _check_transforms(steps, context.need(TransformNames))
        params: dict[str, dict[str, dict[str, Scalar]]] = {
            transform: {} for transform in context.need(TransformNames)
        }
        provenance: dict[str, dict[str, str]] = {}
        sources: dict[str, str] = {}
        arch = context.experiment.arch
        splits_before = ""
        for record in steps:
            if splits_before:
                record = replace(
                    record,
                    unfusable=f"step '{splits_before}' has partial results (distribute.splits)",
                )
            undecided = Request(
                *(record, arch, self.options, {}, steps, registry.answers),
                *(context.experiment, context.services.get(Point)),
            )
            point, by, source = self._choose(undecided, providers, key)
            if source:
                sources[record.name] = source
            splits_before = record.name if _splits(record, point) else ""
            provenance[record.name] = by
            for transform, group in record.kernel.tunables.items():
                params.setdefault(transform, {})[record.name] = {
                    name: point[name] for name in group
                }
        asked = {name for by in provenance.values() for name in by.values()}
        order = [name for name in self.options.providers if name in asked]
        return {
            "params": params,
            "provider": "+".join(order),
            "provenance": provenance,
            "origins": sources,
        }

    def _choose(
        self, undecided: Request, providers: Sequence[tuple[str, Provider]], key: str
    ) -> tuple[dict[str, Scalar], dict[str, str], str]:
        record = undecided.record
        try:
            return self._chosen(undecided, providers, key)
        except ConfigError as error:
            if record.unfusable and "fusable" in error.message:
                error.hint += f" Step '{record.name}' is not fusable: {record.unfusable}."
            raise

    def _chosen(
        self, undecided: Request, providers: Sequence[tuple[str, Provider]], key: str
    ) -> tuple[dict[str, Scalar], dict[str, str], str]:
        record, answers = undecided.record, undecided.answers
        wanted = [name for group in record.kernel.tunables.values() for name in group]
        decided: dict[str, Scalar] = {}
        by: dict[str, str] = {}
        sources: list[str] = []
        for name, provider in providers:
            if len(decided) == len(wanted):
                break
            request = undecided.after(decided)
            where = _place(name, self.options)
            answer = _answer(name, provider, request, where)
            for tunable, value in answer.items():
                if tunable not in decided and tunable in wanted:
                    decided[tunable] = allowed_value(record.kernel, tunable, value, key=where)
                    by[tunable] = name
            if answer and (source := getattr(answer, "source", "")) and name in by.values():
                sources.append(f"{name}: {source}")
            if provider is model:
                # The model's point already satisfies the constraints, with all earlier decisions.
                return decided, by, "; ".join(sources)
        missing = [name for name in wanted if name not in decided]
        if missing:
            raise ConfigError(
                f"no provider chose {', '.join(missing)} of step '{record.name}'",
                key=f"{key}.providers",
                hint="Add 'model', which always answers.",
            )
        known = variables_of(record, undecided.arch)
        question = answers.question(record.kernel, decided, known)
        if not answers.is_valid(question):
            check_point(record.kernel, decided, known, key="select")
            answers.keep_valid(question)
        return decided, by, "; ".join(sources)


def _splits(record: StepRecord, point: Mapping[str, Scalar]) -> bool:
    """Whether a step has partial results, so that no epilogue can follow."""
    return SPLITS in record.kernel.tunables.get(TRANSFORM, {}) and int(point[SPLITS]) > 1


def _place(name: str, options: SelectOptions) -> str:
    """Where a provider's values come from, for messages."""
    if name in ("file", "python"):
        return str(options.file) if name == "file" else f"select.python={options.python}"
    return "select" if name in (*SHIPPED, *NOT_GIVEN) else f"select.providers={name}"


def _answer(name: str, provider: Provider, request: Request, where: str) -> Mapping[str, Scalar]:
    if name in (*SHIPPED, *NOT_GIVEN):
        return provider(request)
    record = request.record
    try:
        found = provider(request)
    except KernloomError:
        raise
    except Exception as error:  # code of another package
        raise ConfigError(
            f"it failed for step '{record.name}': {type(error).__name__}: {error}", key=where
        ) from error
    if not isinstance(found, Mapping):
        raise ConfigError(
            f"it gave {found!r:.80} for step '{record.name}', not a mapping of tunables to values",
            key=where,
        )
    known = tunables_of(record.kernel)
    for tunable in found:
        if tunable not in known:
            raise ConfigError(
                f"it chose '{tunable}', which is no tunable of kernel '{record.kernel.name}'",
                key=where,
                hint=nearest(str(tunable), known),
            )
    return found


def check_applied(outputs: Mapping[str, Any], schedule: Schedule) -> None:
    """Refuse a given parameter that no stage has applied: the trial would show a false value."""
    for record in schedule:
        provenance = outputs["provenance"].get(record.name, {})
        given = {name: who for name, who in provenance.items() if who not in NOT_GIVEN}
        tunables = tunables_of(record.kernel) if given else {}
        for name, provider in given.items():
            transform = tunables[name][0]
            chosen = outputs["params"][transform][record.name][name]
            if record.decisions[transform].get(name) != chosen:
                caught = record.decisions.get("catch", {}).get("micro_kernel")
                raise ConfigError(
                    f"{transform}.{name}={chosen} has no effect on step '{record.name}'",
                    key=f"select.{provider}",
                    hint=f"Its tile is that of micro-kernel '{caught}'; use catch=off."
                    if caught and transform == "tile"
                    else f"No stage of the pipeline applies '{transform}' with these parameters.",
                )


def _check_transforms(steps: Schedule, known: Sequence[str]) -> None:
    for record in steps:
        for transform in record.kernel.tunables:
            if transform not in known:
                raise ConfigError(
                    f"unknown transform '{transform}'",
                    key=f"{record.key}.tunables",
                    hint=nearest(transform, known),
                )


class Providers(Registry[Provider]):
    """The known providers, including those passed in by the command line."""

    @cached_property
    def answers(self) -> Answers:
        """Cache of decisions, shared by everything planned with these providers."""
        return Answers()


class TransformNames(tuple[str, ...]):
    """Names of the known transforms, so that `choice.params.X` exists for each."""


def fixed(request: Request) -> Mapping[str, Scalar]:
    """Values under `select.fixed`, for all steps or for one."""
    return values_for_step(request.options.fixed, request.record)


def file(request: Request) -> Mapping[str, Scalar]:
    """Values from a YAML file in the format of `select.fixed`."""
    if not request.options.file:
        return {}
    from kernloom.config.reader import CONFIG, load_yaml

    path = Path(request.options.file)
    try:
        text = read_text(path, limit=CONFIG.size, key="select.file")
    except ConfigError as error:
        if "," in str(path):
            error.hint = "For several paths: -m select.file=choice(a.yaml,b.yaml), or sweep.axes."
        raise
    data = load_yaml(text, where=str(path)) or {}
    if not isinstance(data, Mapping):
        raise ConfigError("expected transforms with their tunables", key=str(path))
    data = dict(data)
    told, steps = data.pop(MADE_FOR, None), request.steps or (request.record,)
    _check_made_for(told, request.record, [record.name for record in steps], str(path))
    _check_given(data, steps, str(path))
    return values_for_step(data, request.record)


MADE_FOR = "for"
"""Section of a parameter file that says what it was made for: `steps` with their kernels."""


def _check_made_for(told: Any, record: StepRecord, known: Sequence[str], key: str) -> None:
    """Refuse parameters of another workload, and of another kernel, whose tunables may have the
    same names. `known`: the names of all steps."""
    if told is None:
        return
    steps = told.get("steps") if isinstance(told, Mapping) else None
    if not isinstance(steps, Mapping):
        raise ConfigError("expected steps with their kernels", key=f"{key}: {MADE_FOR}")
    if steps and not set(steps) & set(known):
        raise ConfigError(
            f"the parameters are for {', '.join(map(_told_step, steps.items()))} of workload "
            f"'{told.get('workload')}', and this workload has no such step",
            key=key,
            hint="Choose the file that was exported for this workload.",
        )
    step = steps.get(record.name)
    kernel = step.get("kernel") if isinstance(step, Mapping) else None
    if kernel is not None and kernel != record.kernel.name:
        raise ConfigError(
            f"the parameters of step '{record.name}' are for kernel '{kernel}', and the step is "
            f"'{record.kernel.name}'",
            key=key,
            hint="Choose the file that was exported for this workload.",
        )


def _told_step(step: tuple[Any, Any]) -> str:
    name, told = step
    kernel = told.get("kernel") if isinstance(told, Mapping) else None
    return f"step '{name}'" + (f" (kernel '{kernel}')" if kernel else "")


def model(request: Request) -> Mapping[str, Scalar]:
    """The cheapest valid point by the kernel's cost formula over arch data and sizes."""
    record = request.record
    known = variables_of(record, request.arch)
    kernel = record.kernel
    question = request.answers.question(kernel, request.decided, known)
    point = request.answers.chosen(question)
    if point is None:
        space = space_of(kernel, request.decided, known)
        point = space.least(kernel.model, known, key=f"{record.key}.model")
        if point is None:
            raise empty_space_error(kernel, request.decided, known, key="select")
        request.answers.keep_chosen(question, point)
    return point


def python(request: Request) -> Mapping[str, Scalar]:
    """What a function of another package chooses, by its name in `select.python`."""
    name = request.options.python
    return PARAMETERS.get(name, key="select.python")(request) if name else {}


PARAMETERS: Registry[Provider] = Registry("parameters", {}, group="kernloom.parameters")
"""Functions for the provider `python`; all come from other packages."""
NOT_GIVEN = ("model", "stored", "tuned")
"""Providers whose values nobody asked for by name: they may be without effect."""
SHIPPED: dict[str, Provider] = {"fixed": fixed, "file": file, "model": model}
BUILT_IN: dict[str, Provider] = {**SHIPPED, "python": python}


def values_for_step(given: Mapping[str, Any], record: StepRecord) -> dict[str, Scalar]:
    """Values for one step: those for all steps, overridden by those under its name."""
    chosen: dict[str, Scalar] = {}
    for transform, group in given.items():
        own = record.kernel.tunables.get(transform, {})
        for name, value in group.items():
            if name in own and not isinstance(value, Mapping):
                chosen[name] = value
        specific = group.get(record.name)
        if isinstance(specific, Mapping):
            chosen.update({name: value for name, value in specific.items() if name in own})
    return chosen


def _check_given(given: Mapping[str, Any], steps: Schedule, key: str) -> None:
    """Refuse unknown transforms, steps and tunables."""
    transforms: dict[str, set[str]] = {}
    for record in steps:
        for transform, group in record.kernel.tunables.items():
            transforms.setdefault(transform, set()).update(group)
    for transform, group in given.items():
        if not isinstance(group, Mapping):
            raise ConfigError(
                f"expected {transform}.TUNABLE=VALUE", key=key, hint=nearest(transform, transforms)
            )
        if transform not in transforms:
            raise ConfigError(
                f"no kernel of this workload has tunables for '{transform}'",
                key=key,
                hint=nearest(transform, transforms),
            )
        own = {record.name: record.kernel.tunables.get(transform, {}) for record in steps}
        for name, value in group.items():
            where = f"{key}.{transform}"
            if not isinstance(value, Mapping):
                _check_known("tunable", [name], transforms[transform], where)
            else:
                _check_known("step", [name], own, where)
                _check_known("tunable", value, own[name], f"{where}.{name}")


def _check_known(what: str, names: Iterable[str], known: Iterable[str], key: str) -> None:
    for name in names:
        if name not in set(known):
            raise ConfigError(f"unknown {what} '{name}'", key=key, hint=nearest(name, known))
