"""What a sweep shows: which was best, against what, how steady, and what not to trust."""

from __future__ import annotations

import io

import pytest

from kernloom.base.units import ratio_text
from kernloom.measure.trial import Samples
from kernloom.report.tables import print_run

BUILD = {"built": 3, "cached": 0, "seconds": 1.3}
PLAIN = """\
workload  case     target  mr  status           time   ratio             vs numpy  provider
matmul    default  host    4   ok      15.0 µs ±0.7%   1.50×   0.80× (0.64..0.96)  model
matmul    default  host    6   ok      10.0 µs ±1.0%    best  ~1.20× (0.96..1.44)  model
matmul    default  host    8   ok      10.1 µs ±1.0%  ~1.01×  ~1.19× (0.95..1.43)  model
3 verified, 0 failed; built 3, cached 0 in 1.30 s
"""


@pytest.fixture
def sweep(make_trial):
    """Three values of mr: the middle one is best, the last may be as good."""

    def make(mr, median, **changes):
        ratio = 12e3 / median
        numpy = {"ratio": ratio, "ci_low": 0.8 * ratio, "ci_high": 1.2 * ratio}
        return make_trial(
            id=f"mr{mr}",
            point={"select.fixed.tile.mr": mr},
            params={"tile": {"multiply": {"mr": mr}}},
            conditions={"clock": "wall"},
            metrics={
                "median_ns": median,
                "ci_low_ns": median - 100,
                "ci_high_ns": median + 100,
                "peers": {"numpy": numpy},
            },
            samples=(Samples(1, (median, median * 2), (), (0, 0)),),
            **changes,
        )

    return lambda **changes: [make(4, 15e3, **changes), make(6, 1e4, **changes), make(8, 10100)]


def shown(trials, **options) -> str:
    file = io.StringIO()
    print_run(trials, BUILD, file, **options)
    return file.getvalue()


def test_a_file_gets_ratios_and_peers_in_plain_text(sweep):
    assert shown(sweep()) == PLAIN


def test_a_terminal_also_draws_samples_and_shows_the_best_in_bold(sweep, terminal):
    page = terminal(120)
    print_run(sweep(), BUILD, page)
    header, first, best, last, _ = page.text().splitlines()
    assert "samples" in header
    assert "▁▇" in first and "▁▇" in best and "▁▇" in last
    assert "\x1b[1mmatmul" in best
    assert "\x1b[1m" not in first + last
    assert "\x1b[2m~1.01×" in last


def test_a_terminal_of_another_encoding_is_not_drawn_on(sweep, terminal):
    page = terminal(120, "latin-1")
    print_run(sweep(), BUILD, page)
    assert "samples" not in page.text()
    assert "~1.01×" in page.text()


@pytest.mark.parametrize(
    ("width", "missing"),
    [(120, ""), (85, "samples, provider"), (80, "case, samples, provider")],
)
def test_samples_leave_early_and_the_best_stays(sweep, terminal, width, missing):
    page = terminal(width)
    print_run(sweep(), BUILD, page)
    text = page.text()
    assert "best" in text
    assert ("not shown" in text) == bool(missing)
    assert f"(not shown, for lack of width: {missing})" in text or not missing


def test_samples_can_be_fetched_and_are_not_where_nothing_is_drawn(make_trial, terminal):
    asked = []

    def samples_of(trial):
        asked.append(trial.id)
        return [Samples(1, (100, 200), (), (0, 0))]

    shown([make_trial()], samples_of=samples_of)
    assert asked == []
    page = terminal(120)
    print_run([make_trial()], BUILD, page, samples_of)
    assert "▁▇" in page.text()


def test_a_single_run_has_no_ratio(make_trial):
    assert "ratio" not in shown([make_trial()])


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((1.134, 1.11, 1.15), "1.13× (1.11..1.15)"),
        ((1.01, 0.98, 1.02), "~1.01× (0.98..1.02)"),
        ((17.48, 16.9, 17.9), "17.5× (16.9..17.9)"),
        ((1234.5, 1230, 1240), "1,234× (1,230..1,240)"),
        ((0.0341, 0.0340, 0.0342), "0.0341× (0.0340..0.0342)"),
        ((1.5, 1.5, 1.5), "1.50×"),
        ((1.0, 1.0, 1.0), "1.00×"),
    ],
)
def test_ratios_come_with_their_interval_unless_they_are_exact(numbers, text):
    assert ratio_text(*numbers) == text


def test_warnings_are_told_below_the_table(make_trial):
    trial = make_trial(warnings=("others took the core: end them", "the clock is coarse"))
    assert shown([trial]).splitlines()[2:] == [
        "warning: matmul on host",
        "    others took the core: end them",
        "warning: matmul on host",
        "    the clock is coarse",
        "1 verified, 0 failed; built 3, cached 0 in 1.30 s",
    ]


def test_warnings_that_are_alike_are_told_once_with_their_trials(sweep):
    first, second, third = sweep(warnings=("interrupted in 20% of the samples",))
    text = shown([first, second, third])
    assert text.count("interrupted") == 1
    assert "warning: matmul on host, mr=4; mr=6\n" in text


def test_warnings_that_differ_in_numbers_are_told_by_the_first(make_trial):
    trials = [
        make_trial(id=str(n), warnings=(f"interrupted in {n}0% of the samples",)) for n in (3, 4)
    ]
    assert shown(trials).splitlines()[3:6] == [
        "warning: all 2 trials",
        "    interrupted in 30% of the samples",
        "    (this is the first; the others differ only in numbers or paths)",
    ]


def test_a_terminal_marks_warnings_and_indents_all_of_their_lines(make_trial, terminal):
    page = terminal(60)
    print_run([make_trial(warnings=("word " * 20,))], BUILD, page)
    *_, mark, first, second, _ = page.text().splitlines()
    assert mark.startswith("\x1b[33mwarning\x1b[0m: matmul on host")
    assert first.startswith("    word") and second.startswith("    word")
