"""Digests of config sections, and results that are remembered by them."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernloom.base.digest import (
    DigestCache,
    Digested,
    Section,
    as_plain,
    as_section,
    digest_of,
)

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
DATA = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@dataclass(frozen=True)
class Part(Digested):
    size: int
    names: Any = field(default_factory=dict)


def told_apart(value: Any) -> Any:
    """Plain data in a form that is equal only for values that a config tells apart."""
    if isinstance(value, dict):
        return ("map", tuple((key, told_apart(item)) for key, item in value.items()))
    if isinstance(value, list):
        return ("list", tuple(map(told_apart, value)))
    return (type(value).__name__, repr(value))


@given(DATA, DATA)
def test_digests_are_equal_just_for_data_that_is(one: Any, other: Any) -> None:
    same = told_apart(one) == told_apart(other)
    assert (digest_of(as_section(one)) == digest_of(as_section(other))) == same


@given(DATA)
def test_a_section_has_the_digest_of_what_is_in_it(value: Any) -> None:
    section = as_section(value)
    assert digest_of(section) == digest_of(value)
    assert as_plain(section) == value
    assert digest_of(pickle.loads(pickle.dumps(section))) == digest_of(value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        ("1", 1),
        (None, "None"),
        ({}, []),
        ({"[": 1}, [1]),
        ({"a": {}}, {"a": []}),
    ],
)
def test_values_that_python_or_their_text_confuses_differ(one: Any, other: Any) -> None:
    assert digest_of(one) != digest_of(other)


def test_a_section_is_not_changed_in_place() -> None:
    section: Section[Any] = as_section({"a": {"b": 1}})
    for change in (
        lambda: section.update(a=2),
        lambda: section.pop("a"),
        lambda: section["a"].clear(),
        lambda: section.__setitem__("c", 1),
    ):
        with pytest.raises(TypeError, match="not changed in place"):
            change()
    plain = copy.deepcopy(section)
    plain["a"]["b"] = 2
    assert type(plain) is dict and section["a"]["b"] == 1


def test_what_follows_from_a_section_is_worked_out_once_and_goes_with_it() -> None:
    asked: list[Any] = []

    def size(section: Section[Any], unit: int = 1) -> int:
        asked.append(unit)
        return len(section) * unit

    section: Section[Any] = Section({"a": 1})
    assert [section.derive(size), section.derive(size), section.derive(size, 5)] == [1, 1, 5]
    assert asked == [1, 5]
    Section({"a": 1}).derive(size)
    assert asked == [1, 5, 1], "another section, though equal, keeps its own"


def test_a_dataclass_has_a_digest_beside_its_fields() -> None:
    part = Part(1, Section({"a": 2}))
    assert part.digest == Part(1, {"a": 2}).digest
    assert part.digest != replace(part, size=2).digest
    part.derive(lambda one: one.size)
    assert vars(part) == {"size": 1, "names": {"a": 2}}
    assert pickle.loads(pickle.dumps(part)) == part
    assert Part(1).with_digest("given").digest == "given"


def test_a_cache_knows_results_by_digests_and_forgets_the_oldest() -> None:
    made: list[str] = []

    def make(part: Section[Any]) -> str:
        made.append(part["name"])
        return part["name"].upper()

    cache = DigestCache(limit=10)
    for number in range(1_000):
        assert cache.get(make, Section({"name": "often"})) == "OFTEN"
        assert cache.get(make, Section({"name": f"n{number}"})) == f"N{number}"
        assert len(cache) <= 20
    assert made.count("often") == 1, "what is asked for all the time stays"
    assert cache.get(str.upper, "often") == "OFTEN", "another function's results are apart"


def test_a_failure_is_not_remembered() -> None:
    cache, tries = DigestCache(), []

    def fails_first(text: str) -> str:
        tries.append(text)
        if len(tries) == 1:
            raise ValueError(text)
        return text

    with pytest.raises(ValueError, match="x"):
        cache.get(fails_first, "x")
    assert cache.get(fails_first, "x") == "x"
