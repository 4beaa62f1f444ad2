"""A space says what brute force over its combinations says."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernloom.base.errors import ConfigError, ExpressionError, UsageError
from kernloom.space import Axis, Row, Rows, Space, counting, enumeration
from kernloom.space.axes import Points
from kernloom.space.constraints import Names, Where, read_exclude, read_where
from kernloom.space.space import Constraint

_COLUMNS: dict[str, list[Any]] = {
    "a": [(1, 2, 4, 8), range(1, 6), (3, 1, 2)],
    "b": [(1, 2, 3), range(0, 9, 4), (0.5, 2, 3)],
    "c": [(False, True), (True,)],
    "d": [("x", "y", "z"), ("y",)],
    "e": [range(0, 4), (2, 0)],
}
_TERM = st.sampled_from(["a", "b", "e", "a * b", "a + e", "a % b", "b // a", "max(a, e)", "K"])
_RELATION = st.one_of(
    st.tuples(_TERM, st.sampled_from(["<", "<=", "==", "!="]), _TERM).map(" ".join),
    st.sampled_from(["d == 'x'", "d != 'y'", "not c", "c == (e > 1)", "(a if c else b) > 2"]),
)
_EXPRESSION = st.one_of(
    _RELATION,
    st.tuples(_RELATION, st.sampled_from(["and", "or"]), _RELATION).map(" ".join),
)
KNOWN = {"K": 6}


def _fixed(row: Row, name: str) -> Any:
    raise KeyError(name)


@st.composite
def _axes(draw: st.DrawFn) -> tuple[Points, ...]:
    """All keys, in any order; two of them may be zipped, one may be written out as points."""
    columns = {key: draw(st.sampled_from(options)) for key, options in _COLUMNS.items()}
    keys = draw(st.permutations(list(columns)))
    axes: list[Points] = [Axis((key,), (columns[key],)) for key in keys]
    if draw(st.booleans()):
        one, other = keys[0], keys[1]
        length = min(len(columns[one]), len(columns[other]))
        axes[:2] = [Axis((one, other), (columns[one][:length], columns[other][:length]))]
    if draw(st.booleans()):
        axes[-1] = Rows([{keys[-1]: value} for value in columns[keys[-1]]])
    return tuple(axes)


@st.composite
def _spaces(draw: st.DrawFn) -> Space:
    """Kernels' constraints, or those of sweeps: never both in one space."""
    axes = draw(_axes())
    texts = draw(st.lists(_EXPRESSION, max_size=3))
    if draw(st.booleans()):
        return Space(axes, Space.of(dict.fromkeys(_COLUMNS, ()), texts, KNOWN).constraints)
    names = Names(list(_COLUMNS), fixed={"sizes.K": 6})
    constraints: list[Constraint] = [read_where(t, "sweep.where", names, _fixed) for t in texts]
    if draw(st.booleans()):
        constraints.append(read_exclude({"a": [1, 2], "d": "x"}, "sweep.exclude", names))
    return Space(axes, tuple(constraints))


def brute_force(space: Space) -> list[Row] | None:
    """The valid points, each asked alone; None if one cannot be asked (division by zero)."""
    rows = [[axis.at(rank) for rank in range(axis.size)] for axis in space.axes]
    points = [
        {key: value for part in parts for key, value in part.items()}
        for parts in itertools.product(*rows)
    ]
    try:
        asked = [(point, [c.holds(point) for c in space.constraints]) for point in points]
    except (ConfigError, ExpressionError):
        return None
    return [point for point, answers in asked if all(answers)]


@settings(max_examples=200, deadline=None)
@given(space=_spaces())
def test_enumerating_and_counting_find_what_brute_force_finds(space: Space) -> None:
    wanted = brute_force(space)
    if wanted is None:
        return
    assert list(space) == wanted
    assert space.count() == len(wanted)
    found = space.valid()
    assert list(found) == wanted
    assert sum(found.removed) == (space.size - len(wanted) if space.constraints else 0)
    ranks = space.ranks()
    assert ranks.shape == (len(wanted), len(space.axes))
    assert [space.point(line) for line in ranks.tolist()] == wanted


@settings(max_examples=100, deadline=None)
@given(space=_spaces(), cells=st.integers(1, 40))
def test_the_size_of_blocks_changes_nothing(space: Space, cells: int) -> None:
    wanted = brute_force(space)
    if wanted is None:
        return
    with pytest.MonkeyPatch.context() as patch:
        # Values that no valid point has are left out of spaces that do not fit into one block.
        patch.setattr(enumeration, "MAX_CELLS", cells)
        assert list(space) == wanted
        assert enumeration.count(space) == len(wanted)
        assert [space.point(line) for line in space.ranks().tolist()] == wanted


@settings(max_examples=60, deadline=None)
@given(axes=_axes(), texts=st.lists(_EXPRESSION, min_size=1, max_size=3))
def test_a_walk_and_masks_remove_the_same_for_the_same_reasons(
    axes: tuple[Points, ...], texts: list[str]
) -> None:
    names = Names(list(_COLUMNS), fixed={"sizes.K": 6})
    wheres = tuple(read_where(text, "sweep.where", names, _fixed) for text in texts)

    def outcome() -> Any:
        try:
            found = Space(axes, wheres).valid()
        except (ConfigError, ExpressionError) as error:
            return str(error)
        return found.indices, found.removed

    by_masks = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Where, "mask", lambda *arguments: None)
        one_by_one = outcome()
    # Whichever point is asked first: an error is an error.
    assert one_by_one == by_masks or (isinstance(one_by_one, str) and isinstance(by_masks, str))


@settings(max_examples=100, deadline=None)
@given(space=_spaces(), count=st.integers(1, 30), seed=st.integers(0, 5))
def test_a_sample_is_some_valid_points_and_none_twice(space: Space, count: int, seed: int) -> None:
    wanted = brute_force(space)
    if wanted is None:
        return
    valid = {space.index(point) for point in wanted}
    for method in ("uniform", "random"):
        found = space.sample(count, seed, method)  # type: ignore[arg-type]
        assert len({*found.indices}) == found.size == min(count, len(wanted))
        assert {*found.indices} <= valid
        assert found.uniform
        assert found.indices == space.sample(count, seed, method).indices  # type: ignore[arg-type]


@settings(max_examples=100, deadline=None)
@given(space=_spaces(), data=st.data())
def test_neighbours_differ_on_one_axis_and_are_valid(space: Space, data: st.DataObject) -> None:
    wanted = brute_force(space)
    if not wanted:
        return
    point = data.draw(st.sampled_from(wanted))
    mine = space.ranks_of(point)

    def apart(other: Row) -> list[int]:
        theirs = space.ranks_of(other)
        return [abs(a - b) for a, b in zip(mine, theirs, strict=True) if a != b]

    # Equal values have one rank only, so a point is compared by what it has, not by its rank.
    near = [other for other in wanted if len(apart(other)) == 1]
    assert sorted(map(str, space.neighbours(point))) == sorted(map(str, near))
    next_to = [other for other in near if apart(other) == [1]]
    assert sorted(map(str, space.neighbours(point, adjacent=True))) == sorted(map(str, next_to))


@settings(max_examples=60, deadline=None)
@given(space=_spaces(), data=st.data())
def test_points_have_an_index_and_an_encoding(space: Space, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, space.size - 1))
    point = space.point_at(index)
    assert space.index(point) == index
    vector = space.encode(point)
    assert ((vector >= 0) & (vector <= 1)).all()
    assert space.decode(vector) == point
    wanted = brute_force(space)
    assert wanted is None or space.contains(point) == (point in wanted)


def test_the_first_and_the_last_value_are_encoded_as_0_and_1() -> None:
    space = Space.of({"tile": (4, 8, 32), "order": ("ij", "ji"), "one": (7,)})
    assert space.encode({"tile": 8, "order": "ji", "one": 7}).tolist() == [0.5, 1, 0]
    assert space.decode([0.8, -3, 9]) == {"tile": 32, "order": "ij", "one": 7}
    assert space.scaled(space.ranks()).shape == (6, 3)


def test_what_is_no_point_is_not_contained_and_has_no_rank() -> None:
    space = Space.of({"a": (1, 2), "b": (True, False)})
    assert space.contains({"a": 2.0, "b": True})
    for point in ({"a": 1}, {"a": 3, "b": True}, {"a": 1, "b": 1}, {"a": 1, "b": True, "c": 0}):
        assert not space.contains(point)
    with pytest.raises(UsageError, match="no value for 'b'"):
        space.index({"a": 1})
    with pytest.raises(UsageError, match="b=1 is not among the values of its axis"):
        space.encode({"a": 1, "b": 1})
    with pytest.raises(IndexError):
        space.point_at(4)


def _huge() -> Space:
    """10^12 combinations, of which one in 34,000 is valid."""
    keys = "abcdefghijkl"
    where = ["a == b", "c * d == 12", "e + f + g == 25", "h < i", "j % k == 0 or l > 3"]
    return Space.of({key: range(1, 11) for key in keys}, where)


def test_a_huge_space_is_counted_and_sampled_without_enumerating_it() -> None:
    space = _huge()
    assert space.size == 10**12

    def count(text: str, keys: str) -> int:
        small = Space.of({key: range(1, 11) for key in keys}, [text])
        return sum(1 for _ in small)

    parts = [("a == b", "ab"), ("c * d == 12", "cd"), ("e + f + g == 25", "efg"), ("h < i", "hi")]
    wanted = count("j % k == 0 or l > 3", "jkl")
    for text, keys in parts:
        wanted *= count(text, keys)
    assert space.count() == wanted
    sample = space.sample(1000, seed=3)
    assert sample.size == 1000 and sample.uniform and not sample.all
    assert all(space.contains(point) for point in sample)
    assert space.allowed(sample.ranks()).all()


def test_counts_beyond_64_bits_are_exact() -> None:
    space = Space.of({f"k{n}": range(1000) for n in range(12)}, ["k0 < k1", "k1 < k2", "k5 == k7"])
    triples = 1000 * 999 * 998 // 6
    assert space.count() == triples * 1000 * 1000**7
    sample = space.sample(50)
    assert sample.size == 50
    assert all(space.contains(point) for point in sample)


def test_axes_that_no_constraint_mentions_may_be_of_any_length() -> None:
    values = {"a": range(100), "b": range(100), "seed": range(10**12)}
    space = Space.of(values, ["a + b == 7"])
    assert space.count() == 8 * 10**12
    assert all(p["a"] + p["b"] == 7 for p in space.sample(20))


def test_a_uniform_sample_draws_every_point_equally_often() -> None:
    space = Space.of(
        {"a": range(6), "b": range(6), "c": (1, 2), "d": range(3)},
        ["a < b", "b * c <= 8", "d != 1 or a == 0"],
    )
    drawn = Counter(i for seed in range(2000) for i in space.sample(3, seed).indices)
    count = space.count()
    assert len(drawn) == count
    # Three of `count` are drawn each time; seven standard deviations are never seen by chance.
    expected = 2000 * 3 / count
    assert all(abs(seen - expected) < 7 * expected**0.5 for seen in drawn.values())


def test_a_space_whose_tables_are_too_large_is_counted_and_sampled_all_the_same() -> None:
    values = {"a": range(1, 9), "b": range(1, 9), "c": range(1, 9)}
    space, small = (Space.of(values, ["a * b * c <= 30"]) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "MAX_CELLS", 100)
        assert small.tables is None
        assert small.count() == space.count() == len(list(space))
        assert small.sample(20).size == 20


def test_a_large_space_is_enumerated_while_its_points_are_asked_for() -> None:
    space = Space.of({key: range(100) for key in "abcdef"}, ["a == 99", "b + c == 190", "d < e"])
    first: Iterator[Row] = iter(space)
    assert next(first) == {"a": 99, "b": 91, "c": 99, "d": 0, "e": 1, "f": 0}
    assert next(first)["f"] == 1
    assert space.count() == 9 * 4950 * 100


def test_the_least_point_of_a_large_space_with_few_valid_ones_is_found() -> None:
    space = Space.of({key: range(100) for key in "abcd"}, ["a == b", "b == c", "c == d", "a >= 40"])
    assert space.least("a") == {"a": 40, "b": 40, "c": 40, "d": 40}
    assert Space.of({"a": (1, 2)}, ["a > K"], {"K": 2}).least("a") is None


def test_zipped_keys_are_one_axis() -> None:
    tile = Axis(("mr", "nr"), ((6, 8, 14), (64, 48, 32)))
    space = Space((tile, Axis(("ku",), ((1, 4),))), Space.of({}, ["mr * nr <= 400"]).constraints)
    assert [tuple(p.values()) for p in space] == [(6, 64, 1), (6, 64, 4), (8, 48, 1), (8, 48, 4)]
    assert space.count() == 4
    assert space.neighbours({"mr": 6, "nr": 64, "ku": 1}, adjacent=True) == [
        {"mr": 8, "nr": 48, "ku": 1},
        {"mr": 6, "nr": 64, "ku": 4},
    ]
    assert not space.contains({"mr": 6, "nr": 48, "ku": 1})


def test_values_that_are_lists_can_be_swept_but_not_constrained_by_arrays() -> None:
    flags = Axis(("flags",), ([["-O2"], ["-O3", "-g"]],))
    space = Space((flags, Axis(("n",), (range(5),))), Space.of({}, ["n > 3"]).constraints)
    assert [p["flags"] for p in space] == [["-O2"], ["-O3", "-g"]]
    assert space.index({"flags": ["-O3", "-g"], "n": 4}) == 9
    assert np.array_equal(space.encode({"flags": ["-O3", "-g"], "n": 4}), [1, 1])


@pytest.mark.parametrize("operator", ["/", "//", "%"])
def test_a_constraint_that_divides_by_zero_is_false(operator: str) -> None:
    space = Space.of({"step": [4, 8, 16]}, where=[f"100 {operator} (step - 4) >= 0"])
    assert [point["step"] for point in space] == [8, 16]


def test_a_constraint_is_no_text() -> None:
    with pytest.raises(ConfigError, match="is text, and no condition"):
        list(Space.of({"step": [4, 8]}, where=["'abc'"]))
