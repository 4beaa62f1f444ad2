"""Stage: a class with typed options, declared inputs and outputs, and a phase."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from kernloom.base.errors import KernloomError
from kernloom.config.schema import Experiment

T = TypeVar("T")
Phase = Literal["plan", "build", "run"]
PHASES: tuple[Phase, ...] = ("plan", "build", "run")
SUSPICIONS = "suspicions"
"""Type of an output of `run` stages: a tuple of reasons not to believe a verified result. With any
reason the trial's status is `suspicious`."""
Turns: TypeAlias = Generator[float | None, None, Mapping[str, Any]]
"""A generator stage that takes turns with those of other trials; it returns its outputs. It may
yield the least seconds from the start of this round to the start of the next one."""


@dataclass(frozen=True)
class NoOptions:
    """A stage without options."""


@dataclass(frozen=True)
class Context:
    """Input of every stage: the experiment, and services by type."""

    experiment: Experiment
    services: Mapping[type, Any]

    def need(self, kind: type[T]) -> T:
        """The service of a type. Services are passed in, so that imports keep their direction."""
        try:
            service: T = self.services[kind]
        except KeyError:
            raise KernloomError(f"no {kind.__name__} was handed to the pipeline") from None
        return service


class Stage:
    """One node of a pipeline. Subclasses declare the class variables and define `run`.

    `plan` stages are pure and run before anything is built. `build` stages, also pure, declare
    artifacts; those of a whole sweep are built together. `run` stages use devices.
    """

    phase: ClassVar[Phase] = "plan"
    inputs: ClassVar[Mapping[str, str]] = {}
    """Input name -> type name; all are required."""
    outputs: ClassVar[Mapping[str, str]] = {}
    Options: ClassVar[type[Any]] = NoOptions

    def __init__(self, name: str, options: Any) -> None:
        self.name = name
        self.options = options

    def run(self, context: Context, inputs: Mapping[str, Any]) -> Mapping[str, Any] | Turns:
        """The outputs by name. A `run` stage may yield to let other trials take a turn."""
        raise KernloomError(f"stage type {type(self).__name__} defines no run()")
