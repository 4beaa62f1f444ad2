"""Cache of parameter choices for kernels, shared by the points of a sweep with equal questions.

Questions are compared by content, and the cache is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from kernloom.base.expressions import names_in
from kernloom.base.files import canonical_json
from kernloom.config.schema import Kernel, Scalar
from kernloom.plan.space import tunables_of

LIMIT = 2_000
"""Entries of each kind that the cache holds before it is cleared."""
Question: TypeAlias = tuple[Any, ...]


class Answers:
    """Cached choices of the model, and points known to satisfy their kernel's constraints."""

    def __init__(self) -> None:
        self._chosen: dict[Question, dict[str, Scalar]] = {}
        self._valid: set[Question] = set()
        self._kernels: dict[str, tuple[Kernel, str, tuple[str, ...]]] = {}
        """Name -> the last kernel of that name, its text, and the names its expressions use."""

    def question(
        self, kernel: Kernel, decided: Mapping[str, Scalar], known: Mapping[str, Any]
    ) -> Question:
        """Cache key of a choice. Of the known values, only those that the kernel's constraints and
        model mention are part of it."""
        last = self._kernels.get(kernel.name)
        if last is None or last[0] is not kernel:
            text = canonical_json([tunables_of(kernel), kernel.constraints, kernel.model])
            names = tuple(sorted(names_in([*kernel.constraints, kernel.model])))
            _make_room(self._kernels)
            last = self._kernels[kernel.name] = (kernel, text, names)
        _, text, names = last
        values = tuple(known.get(name) for name in names)
        # As text, since 1, 1.0 and true are equal but different choices.
        return (text, values, str(sorted(decided.items())))

    def chosen(self, question: Question) -> dict[str, Scalar] | None:
        """The point that the model chose."""
        return self._chosen.get(question)

    def keep_chosen(self, question: Question, point: dict[str, Scalar]) -> None:
        _make_room(self._chosen)
        self._chosen[question] = point

    def is_valid(self, question: Question) -> bool:
        """Whether the decided values are known to satisfy the constraints."""
        return question in self._valid

    def keep_valid(self, question: Question) -> None:
        _make_room(self._valid)
        self._valid.add(question)


def _make_room(kept: dict[Any, Any] | set[Any]) -> None:
    if len(kept) >= LIMIT:
        kept.clear()
