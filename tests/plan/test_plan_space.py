"""Spaces: the mask is what counting one by one would give."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workbench import Workbench

from kernloom.base.errors import ConfigError
from kernloom.base.expressions import evaluate
from kernloom.config.convert import convert
from kernloom.config.schema import Kernel
from kernloom.plan.space import check_point, space_of, variables_of
from kernloom.space import Space, masks

KNOWN: dict[str, Any] = {"N": 24, "registers": 16, "lanes_max": 8}


def kernel(constraints: list[str], model: str = "0", count: int = 3) -> Kernel:
    tunables = {
        "a": {"values": [1, 2, 3, 0], "off": 1},
        "b": {"values": [False, True], "off": False},
        "c": {"values": [0.5, 2, 8], "off": 1},
    }
    more = {f"t{i}": {"values": [1, 2, 3, 4], "off": 1} for i in range(count - 3)}
    data = {
        "name": "k",
        "arguments": {},
        "sources": {},
        "tunables": {"tile": {**tunables, **more}},
        "constraints": constraints,
        "model": model,
    }
    return convert(Kernel, data, "kernel")


def allowed(space: Space) -> list[tuple[Any, ...]]:
    """The allowed points, in order."""
    return [tuple(point.values()) for point in space]


def everything(wanted: Kernel) -> list[dict[str, Any]]:
    group = wanted.tunables["tile"]
    values = (tunable.values for tunable in group.values())
    return [dict(zip(group, point, strict=True)) for point in itertools.product(*values)]


def is_checked(wanted: Kernel, point: dict[str, Any]) -> bool:
    try:
        check_point(wanted, point, KNOWN, key="select")
    except ConfigError:
        return False
    return True


def by_numbers_alone(wanted: Kernel, point: dict[str, Any]) -> bool | None:
    """What the constraints say of plain numbers; None if they divide by zero."""
    try:
        return all(evaluate(text, {**KNOWN, **point}) for text in wanted.constraints)
    except ConfigError:
        return None


_TERM = st.sampled_from(["a", "b", "c", "N", "a * c", "a + b", "N % a", "N // c", "max(a, c)", "4"])
_RELATION = st.tuples(_TERM, st.sampled_from(["<", "<=", "==", ">", ">="]), _TERM).map(" ".join)
_CONSTRAINT = st.one_of(
    _RELATION,
    st.tuples(_RELATION, st.sampled_from(["and", "or"]), _RELATION).map(" ".join),
    st.tuples(_RELATION, _RELATION).map(lambda pair: f"not b or ({pair[0]} if a else {pair[1]})"),
)


@settings(max_examples=120, deadline=None)
@given(st.lists(_CONSTRAINT, max_size=3))
def test_the_mask_equals_counting_one_by_one(constraints: list[str]) -> None:
    wanted = kernel(constraints)
    found = allowed(space_of(wanted, {}, KNOWN))
    points = everything(wanted)
    assert found == [tuple(p.values()) for p in points if is_checked(wanted, p)]
    for point in points:
        answer = by_numbers_alone(wanted, point)
        assert answer is None or answer == (tuple(point.values()) in found)


@settings(max_examples=60, deadline=None)
@given(st.lists(_CONSTRAINT, max_size=2), st.sampled_from(["a * c", "c - a", "0", "N % a + c"]))
def test_the_cheapest_is_the_first_of_least_cost(constraints: list[str], model: str) -> None:
    wanted = kernel(constraints, model)
    best = space_of(wanted, {}, KNOWN).least(model, KNOWN)
    points = [point for point in everything(wanted) if is_checked(wanted, point)]
    if not points:
        assert best is None
        return

    def cost(point: dict[str, Any]) -> float:
        try:
            return float(evaluate(model, {**KNOWN, **point}))
        except ConfigError:
            return float("inf")

    assert best == min(points, key=cost)


def test_a_pinned_tunable_is_one_cell_wide() -> None:
    space = space_of(kernel(["a <= 2"]), {"b": True}, KNOWN)
    assert space.sizes == (4, 1, 3)
    assert {point[1] for point in allowed(space)} == {True}


def test_a_space_too_large_to_hold_is_sampled_the_same_way_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(masks, "SAMPLES", 20_000)
    wanted = kernel(["a <= 2", "t0 < t1"], "a + t0 * c", count=15)
    space = space_of(wanted, {}, KNOWN)
    assert space.size > masks.MAX_CELLS
    best = space.least(wanted.model, KNOWN)
    assert best is not None
    check_point(wanted, best, KNOWN, key="select")
    assert (best["a"], best["t0"], best["c"]) == (0, 1, 0.5)
    assert space_of(wanted, {}, KNOWN).least(wanted.model, KNOWN) == best
    pinned = space_of(wanted, {"t1": 3}, KNOWN).least(wanted.model, KNOWN)
    assert pinned is not None
    assert pinned["t1"] == 3


def test_a_kernel_without_tunables_has_one_point() -> None:
    data = {"name": "k", "arguments": {}, "sources": {}}
    plain = convert(Kernel, data, "kernel")
    assert space_of(plain, {}, KNOWN).least("0", KNOWN) == {}


def test_what_constraints_may_use_is_there(toy: Workbench) -> None:
    plan = toy.plan("workload=toy", "workload.dtype=float64")
    known = variables_of(plan.outputs["shapes"]["steps"][0], plan.experiment.arch)
    assert known == {
        "n": 64,
        "registers": 16,
        "vector_bytes": 16,
        "element": 8,
        "lanes_max": 2,
        "l1": 32 << 10,
        "l2": 256 << 10,
        "l3": 8 << 20,
        "cores": 16,
        "fusable": 0,
    }
