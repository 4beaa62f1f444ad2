"""A stored attempt of the same trial counts: its interval allows for it, or says they disagree."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_parts import FakeStore, World

from kernloom.measure.trial import Samples, Trial
from kernloom.run.attempts import with_attempts

DRIFT = 0.015


def attempt(ns: float, minute: int, **changes: object) -> Trial:
    """An attempt of eight steady rounds, with the interval that they and the assumption give."""
    samples = tuple(Samples(1, (ns,) * 3, (ns,) * 3, (0, 0, 0)) for _ in range(8))
    metrics = {"median_ns": ns, "ci_low_ns": 0.95 * ns, "ci_high_ns": 1.05 * ns, "processes": 8}
    made = Trial(
        "id", "w", "default", "host", "ok", True, metrics=metrics, samples=samples,
        conditions={"clock": "cpu"}, created=f"2026-01-01T00:{minute:02}:00+00:00",
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture
def store() -> FakeStore:
    return FakeStore(World())


def half(trial: Trial) -> float:
    return (
        (trial.metrics["ci_high_ns"] - trial.metrics["ci_low_ns"]) / 2 / trial.metrics["median_ns"]
    )


def test_a_first_attempt_is_left_as_it_is(store: FakeStore) -> None:
    assert with_attempts(attempt(100, 0), DRIFT, store) == attempt(100, 0)  # type: ignore[arg-type]


def test_attempts_that_agree_make_the_interval_narrower(store: FakeStore) -> None:
    for minute in range(10):
        store.add(attempt(100 + 0.01 * minute, minute))
    found = with_attempts(attempt(100, 11), DRIFT, store)  # type: ignore[arg-type]
    assert half(found) < 0.025
    assert not found.warnings


def test_attempts_that_disagree_are_said_and_make_it_wider(store: FakeStore) -> None:
    for minute in range(3):
        store.add(attempt(100, minute))
    store.add(attempt(50, 3))
    found = with_attempts(attempt(100, 5, warnings=("first",)), DRIFT, store)  # type: ignore[arg-type]
    assert half(found) > 0.3
    assert found.warnings[0] == "first"
    assert "1 of 4 stored attempts of this trial disagree: 50.0 ns ±5.0%" in found.warnings[1]
    assert "2026-01-01 00:03" in found.warnings[1]
    assert "kernloom results stability id=id" in found.warnings[1]


@pytest.mark.parametrize(
    "changes",
    [{"status": "crashed"}, {"verified": False}, {"metrics": {"processes": 1}}, {"samples": ()}],
)
def test_what_has_no_rounds_is_compared_with_nothing(
    store: FakeStore, changes: dict[str, object]
) -> None:
    store.add(attempt(50, 0))
    trial = attempt(100, 1, **changes)
    assert with_attempts(trial, DRIFT, store) == trial  # type: ignore[arg-type]


def test_a_policy_without_drift_still_says_what_disagrees(store: FakeStore) -> None:
    store.add(attempt(50, 0))
    found = with_attempts(attempt(100, 1), 0.0, store)  # type: ignore[arg-type]
    assert half(found) == pytest.approx(0.05)
    assert "the stored attempt of this trial disagrees: 50.0 ns" in found.warnings[0]
