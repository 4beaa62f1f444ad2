"""Only what did the same work is compared, and noise is not called a difference."""

from __future__ import annotations

import pytest

from kernloom.measure.ranking import FAULTS, Standing, objective, standings


@pytest.fixture
def timed(make_trial):
    def make(id, median, half=0.0, *, sizes=None, metrics=None, **changes):
        times = {"median_ns": median, "ci_low_ns": median - half, "ci_high_ns": median + half}
        config = {"workload": {"sizes": sizes or {"M": 64}}, "measure": {"floor": 0.01}}
        return make_trial(id=id, metrics=metrics or times, **({"config": config} | changes))

    return make


def ratios(*trials):
    return {id: found.ratio for id, found in standings(trials).items()}


def test_each_trial_is_so_many_times_as_long_as_the_best(timed):
    found = standings([timed("a", 150), timed("b", 100), timed("c", 125)])
    assert found == {
        "a": Standing(1.5, best=False, certain=True),
        "b": Standing(1.0, best=True, certain=False),
        "c": Standing(1.25, best=False, certain=True),
    }


def test_intervals_that_overlap_leave_it_open(timed):
    found = standings([timed("a", 100, 3), timed("b", 104, 3), timed("c", 107, 3)])
    assert [found[id].certain for id in "bc"] == [False, True]


def test_less_than_the_floor_is_no_difference(timed):
    found = standings([timed("a", 1000, 1), timed("b", 1008, 1), timed("c", 1012, 1)])
    assert [found[id].certain for id in "bc"] == [False, True]


def test_an_interval_over_orders_of_magnitude_is_not_ranked(timed):
    vague = {"median_ns": 63, "ci_low_ns": 0.01, "ci_high_ns": 400_000}
    found = standings([timed("a", 0, metrics=vague), timed("b", 100, 3), timed("c", 107, 3)])
    assert found.keys() == {"b", "c"} and found["b"].best


def test_single_samples_leave_it_open(timed):
    metrics = [{"median_ns": m, "ci_low_ns": m, "ci_high_ns": m, "samples": 1} for m in (1, 9)]
    found = standings([timed(str(m["median_ns"]), 0, metrics=m) for m in metrics])
    assert not found["9"].certain


def test_a_sweep_over_sizes_has_no_best(timed):
    assert ratios(timed("a", 100), timed("b", 200, sizes={"M": 128})) == {}


def test_sizes_each_have_their_own_best(timed):
    large = {"M": 128}
    trials = [
        *(timed("a", 100), timed("b", 200)),
        *(timed("c", 300, sizes=large), timed("d", 600, sizes=large)),
    ]
    assert ratios(*trials) == {"a": 1, "b": 2, "c": 1, "d": 2}


@pytest.mark.parametrize(
    "other",
    [
        {"workload": "mlp"},
        {"case": "large"},
        {"target": "opencl"},
        {"config": {"workload": {"sizes": {"M": 64}, "dtype": "float64"}}},
        {"metrics": {"instructions": 50}},
    ],
)
def test_other_work_elsewhere_or_otherwise_counted_is_not_compared(timed, other):
    assert ratios(timed("a", 100), timed("b", 50, **other)) == {}


def test_what_is_counted_is_compared_by_its_count_and_exact(timed):
    counts = [{"instructions": 1000}, {"instructions": 1001}]
    found = standings([timed(str(n), 0, metrics=metrics) for n, metrics in enumerate(counts)])
    assert found["1"] == Standing(1.001, best=False, certain=True)


def test_what_failed_is_never_the_best(timed):
    wrong = timed("w", 1, status="wrong", verified=False)
    assert ratios(wrong, timed("a", 100), timed("b", 200, status="unconverged")) == {"a": 1, "b": 2}
    assert ratios(wrong, timed("a", 100)) == {}


def test_one_trial_at_two_points_is_not_compared_with_itself(timed):
    assert ratios(timed("a", 100), timed("a", 100)) == {}


def test_trials_with_a_sanitizer_are_not_ranked(timed):
    def variant(name, **target):
        sizes = {"sizes": {"M": 64}}
        return {"workload": sizes, "target": {"variant": name, **target}}

    release = [timed(id, ns, config=variant("release")) for id, ns in (("a", 100), ("b", 200))]
    sanitized = [
        timed("c", 50, config=variant("asan")),
        timed("d", 900, config=variant("sim-tsan", sanitized=["sim-tsan"])),
    ]
    assert ratios(*release, *sanitized) == {"a": 1, "b": 2}
    assert ratios(*release, timed("e", 50, config=variant("asan", sanitized=[])))["a"] == 2
    assert objective(sanitized[0]).work != objective(release[0]).work


def test_trials_with_injected_faults_are_not_ranked(timed):
    whole = [timed(id, ns) for id, ns in (("a", 100), ("b", 200))]
    faulty = [timed(id, 50, conditions={FAULTS: "slow=noc:4"}) for id in "cd"]
    assert ratios(*whole, *faulty) == {"a": 1, "b": 2}
    assert ratios(*faulty) == {}
    assert objective(faulty[0]).work != objective(whole[0]).work


def test_trials_of_the_same_rounds_are_told_apart_by_what_these_rounds_leave_open(timed):
    """Drift from minute to minute widens an interval, and moves all trials of a round alike."""

    def seen(id: str, median: float, begin: str, end: str):
        near = {"rounds_low_ns": median - 1, "rounds_high_ns": median + 1}
        wide = {"median_ns": median, "ci_low_ns": median - 9, "ci_high_ns": median + 9}
        look = [f"2026-01-01T00:00:{second}+00:00" for second in (begin, end)]
        return timed(id, 0, metrics={**wide, **near}, conditions={"looked": look})

    together = standings([seen("a", 100, "00", "04"), seen("b", 105, "01", "05")])
    apart = standings([seen("a", 100, "00", "04"), seen("b", 105, "30", "34")])
    assert together["b"].certain and not apart["b"].certain
