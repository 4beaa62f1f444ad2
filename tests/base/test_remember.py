"""What is remembered by identity is never taken for something else."""

from __future__ import annotations

from typing import Any

from kernloom.base.remember import Alike, ById


def test_the_same_objects_are_worked_out_once() -> None:
    made: list[Any] = []
    known: ById[int] = ById()
    one, other = [1], [1]
    for objects in ((one,), (one,), (other,), (one, other), (other, one), (one, other)):
        known.get(lambda *given: made.append(given) or len(made), *objects)
    assert made == [(one,), (other,), (one, other), (other, one)]


def test_only_values_that_differ_from_the_last_mapping_are_worked_out_again() -> None:
    asked: list[str] = []
    alike: Alike[Any] = Alike()

    def make(name: str, value: Any) -> Any:
        asked.append(name)
        return value * 2

    shared = [1]
    assert alike.each({"a": shared, "b": 1}, make) == {"a": [1, 1], "b": 2}
    assert list(alike.each({"b": 3, "a": shared}, make)) == ["b", "a"]
    assert asked == ["a", "b", "b"]


def test_a_mapping_that_was_changed_in_place_is_looked_at_again() -> None:
    alike: Alike[Any] = Alike()
    given = {"seed": 1}
    alike.each(given, lambda _, value: value)
    given["seed"] = 2
    assert alike.each(given, lambda _, value: value) == {"seed": 2}


def test_what_could_not_be_worked_out_is_asked_again() -> None:
    alike: Alike[float] = Alike()
    for _ in range(2):
        try:
            alike.each({"a": 1, "b": 0}, lambda _, value: 1 / value)
        except ZeroDivisionError:
            continue
        raise AssertionError
