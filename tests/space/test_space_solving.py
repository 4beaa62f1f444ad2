"""Constraints that are solved leave the same points as constraints that every point is asked."""

from __future__ import annotations

import ast
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernloom.base.expressions import parse
from kernloom.space import Axis, Constraint, Row, Rows, Space, Union, sampling, solving
from kernloom.space.clauses import EXACT, clauses_of, largest
from kernloom.space.constraints import Names, Where, read_exclude, read_where
from kernloom.space.solving import Solver

_WHERES = [
    "a == b",
    "a == b + 1",
    "a * a == c",
    "c == a * b",
    "a < b and b < c",
    "a == b and b == c",
    "a % 3 == 1 and c // 2 == b",
    "a / 2 == b",
    "a == b or c == 1",
    "not a == b",
    "min(a, b) == c",
    "sqrt(c) == a",
    "(b if a > 2 else c) == 3",
    "log2(a + 1) == b",
    "d == 'x' and a == b",
    "d == 'x' or a == c",
    "1 < a < b <= c",
    "a ** 2 + b ** 2 == c ** 2",
    "a > 0 and 12 % (a + 1) == 0",
    "f == a",
    "f * 2 == c",
]
_AXES: dict[str, list[Sequence[Any]]] = {
    "a": [range(0, 9), range(8, -1, -2), (3, 1, 2, 0), (1, 2, 2.5, 4), (2, 2, 3)],
    "b": [range(1, 9), range(0, 12, 3), (5, 1, 4), (0.5, 1, 1.5)],
    "c": [range(0, 30), (9, 4, 1, 16, 3), (1, True, 4)],
    "d": [("x", "y"), ("x",)],
    "f": [range(-3, 4), (0.5, -1.0, 2)],
}


def _look_up(row: Row, name: str) -> Any:
    raise KeyError(name)


def _tests(texts: list[str], keys: list[str]) -> list[Constraint]:
    names = Names(keys)
    known = [t for t in texts if parse(t).names <= {*keys}]
    return [read_where(text, "sweep.where", names, _look_up) for text in known]


@st.composite
def _problems(draw: st.DrawFn) -> Space:
    keys = draw(st.permutations(list(_AXES)))
    parts = [Axis((key,), (draw(st.sampled_from(_AXES[key])),)) for key in keys]
    texts = draw(st.lists(st.sampled_from(_WHERES), min_size=1, max_size=3))
    tests = _tests(texts, keys)
    if draw(st.booleans()):
        tests.append(read_exclude({"a": [1, 2], "d": "x"}, "sweep.exclude", Names(keys)))
    return Space(tuple(parts), tuple(tests))


@settings(max_examples=60, deadline=None)
@given(space=_problems(), count=st.integers(1, 60))
def test_solving_finds_what_asking_every_point_finds(space: Space, count: int) -> None:
    wanted = {index for index in range(space.size) if space.contains(space.point_at(index))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "_MIN_TRIES", 0)
        patch.setattr(sampling, "_MAX_TRIES_PER_POINT", 0)
        found = space.sample(count, method="random")
        everything = space.sample(space.size - 1, method="random")
    assert {*found.indices} <= wanted
    assert len(found.indices) == min(count, len(wanted))
    assert len({*everything.indices}) == min(len(wanted), space.size - 1)
    assert everything.all or len(wanted) >= space.size - 1


@settings(max_examples=60, deadline=None)
@given(problem=_problems())
def test_a_dive_ends_at_a_point_that_the_solved_constraints_allow(problem: Space) -> None:
    tests = problem.constraints
    wheres = [test for test in tests if isinstance(test, Where) and "log2" not in test.text]
    space = Space(problem.axes, tuple(wheres))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solving, "MAX_COST", 20_000)
        solver = Solver(space, random.Random(0))
        for _, index in zip(range(20), solver.random_solutions(), strict=False):
            assert all(where.holds(space.point_at(index)) for where in wheres)


def test_parts_without_a_constraint_are_not_walked() -> None:
    parts = (Axis(("a",), (range(10**9),)), Axis(("b",), (range(4),)), Axis(("c",), (range(4),)))
    space = Space(parts, tuple(_tests(["b == c"], ["a", "b", "c"])))
    found = space.sample(50, method="random")
    assert len(found.indices) == 50
    joined, ended = Solver(space, random.Random(0)).all()
    assert joined and joined.size == 4 and ended


def test_rows_of_nested_sweeps_that_lack_a_key_are_asked_one_by_one() -> None:
    nested = Union((Rows([{"a": 1}, {"a": 2, "b": 2}]), Rows([{"b": 7}])))
    tests = _tests(["c == 1"], ["a", "b", "c"])
    space = Space((Axis(("c",), (range(3),)), nested), tuple(tests))
    assert space.sample(8, method="random").indices == [3, 4, 5]


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("a * a == b", True),
        ("a * a * a == b", False),
        ("a ** 2 + 1 < b", True),
        ("a ** b == 1", False),
        ("a % 7 == b // 3", True),
        ("exp(a) == b", False),
        ("sum(a) == b", False),
        ("max(a, b) * 2 == 4", True),
    ],
)
def test_arrays_are_trusted_only_where_they_count_as_numbers_do(text: str, exact: bool) -> None:
    tree = parse(text).tree
    assert isinstance(tree, ast.expr)
    assert (largest(tree, {"a": 9e6, "b": 9e6}) <= EXACT) == exact


def test_an_and_is_several_clauses_and_unknown_names_are_left_out() -> None:
    clauses = clauses_of(
        parse("a == 1 and (b < 2 and cores > 3) and a < b"), {"a": "A", "b": "B"}, {}
    )
    assert [clause.expression.text for clause in clauses] == ["a == 1", "b < 2", "a < b"]
