"""`results stability`: attempts of a trial over time, and which of them agree."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from kernloom.measure.trial import Trial
from kernloom.report.stability import print_stability, stabilities


@pytest.fixture
def attempts(make_trial: Callable[..., Trial]) -> list[Trial]:
    """Five attempts of a trial, a minute apart; the last is far from the others."""
    times = [100.0, 101.0, 99.0, 100.5, 200.0]
    return [
        make_trial(
            id="a" * 16,
            attempt=number + 1,
            created=f"2026-01-01T00:0{number}:00+00:00",
            metrics={"median_ns": ns, "ci_low_ns": ns - 3, "ci_high_ns": ns + 3, "processes": 8},
        )
        for number, ns in enumerate(times)
    ]


def test_attempts_are_in_order_with_their_median_and_drift(attempts: list[Trial]) -> None:
    (found,) = stabilities(reversed(attempts))
    assert [trial.attempt for trial in found.attempts] == [1, 2, 3, 4, 5]
    assert (found.median_ns, found.seconds) == (100.5, 240)
    assert (found.covering, found.disagreeing) == (4, 4)
    assert found.drift and found.drift > 0.2
    document = found.document()
    assert [entry["covers"] for entry in document["attempts"]] == [True] * 4 + [False]
    assert document["attempts"][4]["median_ns"] == 200


def test_trials_without_a_time_are_left_out(
    attempts: list[Trial], make_trial: Callable[..., Trial]
) -> None:
    others = [
        make_trial(id="b" * 16, metrics={"instructions": 7}),
        make_trial(id="c" * 16, status="crashed", verified=False),
    ]
    assert len(stabilities([*others, *attempts])) == 1
    assert stabilities(others) == []


def test_a_single_trial_is_shown_attempt_by_attempt(attempts: list[Trial]) -> None:
    out = io.StringIO()
    print_stability(stabilities(attempts), out)
    text = out.getvalue()
    assert "4 of 5 intervals include the median of all attempts, 100 ns" in text
    assert "+99.0%  no" in text
    assert "4 of 10 pairs" in text
    assert "1 trial, 5 attempts" in text
