"""Requirements: constraints of kernels and other space builders, over keys and known values.

They are defined on arrays: a division by zero gives NaN, so that the comparison is false.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kernloom.base.errors import ConfigError
from kernloom.base.expressions import evaluate, parse
from kernloom.space.axes import Axis, Row
from kernloom.space.clauses import Clause, clauses_of, parts_of


@dataclass(frozen=True)
class Requirement:
    """An expression that must be true or non-zero."""

    text: str
    known: Mapping[str, Any] = field(default_factory=dict)
    """Names with one value; all others are keys."""
    place: str = ""
    """Config key of the expression."""

    @cached_property
    def needs(self) -> frozenset[str]:
        return parse(self.text).names - self.known.keys()

    @cached_property
    def clauses(self) -> tuple[Clause, ...]:
        return clauses_of(parse(self.text), {key: key for key in self.needs}, self.known)

    def holds(self, row: Row) -> bool:
        # As arrays of one element, so that the result agrees with `mask`.
        values = {}
        for key in self.needs & row.keys():
            values[key] = Axis((key,), ((row[key],),)).arrays.get(key, row[key])
        return bool(self.mask(values).all())

    def mask(self, values: Mapping[str, Any]) -> Any:
        import numpy

        variables = {**self.known, **values} if values else self.known
        found = numpy.asarray(evaluate(self.text, variables, key=self.place))
        if found.dtype.kind in "US":
            raise ConfigError(
                f"'{self.text}' is text, and no condition", key=self.place, hint="As in: step <= 8."
            )
        return found.astype(bool) if found.dtype.kind != "f" else (found != 0) & ~numpy.isnan(found)

    def split(self) -> tuple[Requirement, ...]:
        parts = parts_of(parse(self.text))
        return tuple(Requirement(part.text, self.known, self.place) for part in parts)
