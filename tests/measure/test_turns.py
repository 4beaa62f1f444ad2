"""Trials in turns: rounds over all of them, each in an order of its own."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from kernloom.measure.turns import Order, blocks, in_turns


def trial(name: str, rounds: int, log: list[str]) -> Generator[None, None, str]:
    try:
        for _ in range(rounds - 1):
            log.append(name)
            yield
        log.append(name)
        return name.upper()
    finally:
        log.append(f"/{name}")


def test_every_round_gives_each_unfinished_trial_one_turn():
    log: list[str] = []
    trials = [trial("a", 1, log), trial("b", 3, log), trial("c", 2, log)]
    ended = list(in_turns(trials, shuffled=False))
    assert ended == [(0, "A"), (2, "C"), (1, "B")]
    assert [entry for entry in log if "/" not in entry] == ["a", "b", "c", "b", "c", "b"]


def test_every_second_round_is_the_one_before_backwards():
    order = Order("abcdef", seed=1)
    for _ in range(5):
        forwards = order.next()
        assert order.next() == forwards[::-1]
    order.drop("c")
    assert sorted(order.next()) == list("abdef")


def test_each_round_has_an_order_of_its_own_and_a_seed_repeats_it():
    def orders(seed: int) -> list[str]:
        log: list[str] = []
        list(in_turns([trial(name, 6, log) for name in "abcde"], shuffled=True, seed=seed))
        turns = [entry for entry in log if "/" not in entry]
        return ["".join(turns[i : i + 5]) for i in range(0, 30, 5)]

    assert all(sorted(order) == list("abcde") for order in orders(0))
    assert len(set(orders(0))) > 1
    assert orders(0) == orders(0)
    assert orders(0) != orders(1)


def test_whatever_stops_the_rounds_closes_the_trials_under_way():
    log: list[str] = []

    def broken() -> Generator[None, None, str]:
        yield
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(in_turns([trial("a", 9, log), broken()], shuffled=False))
    assert log[-1] == "/a"


def test_the_number_of_the_round_is_told_before_each_turn():
    told: list[int] = []
    trials = [trial("a", 2, []), trial("b", 1, [])]
    list(in_turns(trials, shuffled=False, turn=told.append))
    assert told == [1, 1, 2]


def test_so_many_share_their_rounds_and_the_rest_come_later():
    assert [list(block) for block in blocks([1, 2, 3, 4, 5], 2)] == [[1, 2], [3, 4], [5]]
    assert list(blocks([], 3)) == []


class Clock:
    """A clock that only pauses and turns advance."""

    def __init__(self) -> None:
        self.now = 0.0
        self.starts: list[float] = []

    def read(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def trial(self, rounds: int, each: float, wanted: float | None) -> Generator[float | None]:
        for number in range(rounds):
            self.starts.append(self.now)
            self.now += each
            if number < rounds - 1:
                yield wanted


def paced(clock: Clock, *trials: Generator[float | None]) -> list[float]:
    list(in_turns(trials, shuffled=False, pause=clock.pause, clock=clock.read))
    return clock.starts


def test_rounds_begin_as_far_apart_as_a_trial_asks():
    clock = Clock()
    assert paced(clock, clock.trial(4, 0.1, 0.5)) == pytest.approx([0, 0.5, 1, 1.5])
    assert clock.now == pytest.approx(1.6)  # No pause at the end.


def test_rounds_of_many_trials_are_spread_without_pauses():
    clock = Clock()
    trials = [clock.trial(3, 0.1, 0.5) for _ in range(10)]
    assert paced(clock, *trials)[::10] == pytest.approx([0, 1, 2])
    assert clock.now == pytest.approx(3)


def test_the_trial_that_asks_for_least_sets_the_pace():
    clock = Clock()
    paced(clock, clock.trial(3, 0.1, 0.5), clock.trial(3, 0.1, None))
    assert clock.now == pytest.approx(0.6)
