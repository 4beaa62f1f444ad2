"""Trials by chosen keys: columns, groups, pivot tables."""

from __future__ import annotations

import io

import pytest

from kernloom.base.errors import UsageError
from kernloom.measure.ranking import FAULTS
from kernloom.report import questions
from kernloom.report.formats.csv import write_rows as write_answer
from kernloom.report.tables import print_answer
from kernloom.store.keys import parse_key


@pytest.fixture
def trials(make_trial):
    def trial(compiler, n, ns, **changes):
        return make_trial(
            id=f"{compiler}{n}{ns}",
            config={"toolchain": {"name": compiler}, "workload": {"sizes": {"N": n}}},
            metrics={"median_ns": ns, "gflops": 1000 / ns},
            **changes,
        )

    return [
        trial("gcc", 64, 100.0),
        trial("gcc", 64, 300.0),
        trial("gcc", 128, 400.0),
        trial("clang", 64, 200.0),
        trial("clang", 128, 50.0, status="wrong", verified=False),
    ]


def keys(*names):
    return [parse_key(name) for name in names]


def groups(trials, by, asked=None):
    return questions.groups(questions.Summary(trials, by, asked))


def pivot(trials, down, across, asked=None):
    return questions.pivot(questions.Summary(trials, [*down, *across], asked), len(down))


def missing_metric_reason(trials, asked):
    return questions.Summary(iter(trials), asked=asked).missing_metric_reason()


def test_a_group_has_its_count_its_best_and_its_median(trials):
    answer = groups(trials, keys("toolchain", "N"), parse_key("median_ns"))
    assert answer.headings == ("toolchain", "N", "trials", "verified", "best", "median")
    assert answer.rows == (
        ("clang", 64, 1, 1, 200.0, 200.0),
        ("clang", 128, 1, 0, None, None),
        ("gcc", 64, 2, 2, 100.0, 200.0),
        ("gcc", 128, 1, 1, 400.0, 400.0),
    )


def test_of_a_rate_the_largest_is_the_best(trials):
    answer = groups(trials, keys("N"), parse_key("metrics.gflops"))
    assert [row[3] for row in answer.rows] == [10.0, 2.5]


@pytest.fixture
def counted(make_trial):
    def make(id, instructions, **changes):
        metrics = {"instructions": instructions, "median_ns": 2.0}
        return make_trial(id=id, target="riscv64", metrics=metrics, **changes)

    return make


def shown(answer):
    out = io.StringIO()
    print_answer(answer, out)
    return out.getvalue()


def test_each_group_has_the_metric_that_its_own_trials_are_ranked_by(trials, counted):
    several = [*trials, counted("c1", 87555), counted("c2", 95055)]
    answer = groups(several, keys("target"))
    assert answer.rows == (("host", 5, 4, 100.0, 250.0), ("riscv64", 2, 2, 87555, 91305))
    assert [row["metric"] for row in answer.documents()] == ["median_ns", "instructions"]
    assert not answer.remarks
    host, riscv64, note = shown(answer).splitlines()[1:]
    assert host.endswith("100 ns               250 ns")
    assert riscv64.endswith("87,555 instructions  91,305 instructions")
    assert "instructions (the smallest), median_ns (the smallest)" in note


def test_a_group_of_trials_ranked_by_different_metrics_says_so(trials, counted):
    answer = groups([*trials, counted("c", 5)], keys("workload"))
    assert answer.rows == (("matmul", 6, 5, 100.0, 250.0),)
    (remark,) = answer.remarks
    assert remark.startswith("1 group has trials that are ranked by different metrics")
    assert "1 trial is left out" in remark
    asked = groups([*trials, counted("c", 5)], keys("workload"), parse_key("median_ns"))
    assert asked.rows == (("matmul", 6, 5, 2.0, 200.0),) and not asked.remarks


@pytest.mark.parametrize("asked", [None, "median_ns"])
def test_times_with_a_sanitizer_are_not_mixed_in(trials, make_trial, asked):
    target = {"variant": "asan", "sanitized": ["asan"]}
    config = {"target": target, "toolchain": {"name": "gcc"}}
    asan = make_trial(id="s", metrics={"median_ns": 9e9}, config=config)
    metric = parse_key(asked) if asked else None
    answer = groups([*trials, asan], keys("toolchain"), metric)
    assert answer.rows[1] == ("gcc", 4, 4, 100.0, 300.0)
    said = "1 trial with a sanitizer is not ranked: such times mean nothing"
    assert answer.remarks == (said,)
    table = pivot([*trials, asan], keys("workload"), keys("toolchain"), metric)
    assert table.rows == (("matmul", 200.0, 100.0),) and table.remarks == (said,)
    assert missing_metric_reason([asan], metric) == ""


def test_times_with_injected_faults_are_not_mixed_in(trials, make_trial):
    config = {"toolchain": {"name": "gcc"}}
    faulty = [
        make_trial(id=id, metrics={"median_ns": 9e9}, config=config, conditions={FAULTS: "lose=7"})
        for id in "st"
    ]
    answer = groups([*trials, *faulty], keys("toolchain"))
    assert answer.rows[1] == ("gcc", 5, 5, 100.0, 300.0)
    said = "2 trials with injected faults are not ranked: such times are not those of the target"
    assert answer.remarks == (f"{said} as it is",)


def test_each_cell_of_a_pivot_table_has_the_metric_of_its_own_trials(trials, counted):
    answer = pivot([*trials, counted("c", 87555)], keys("workload"), keys("target"))
    assert answer.rows == (("matmul", 100.0, 87555),)
    assert answer.documents() == [
        {
            "workload": "matmul",
            "metric of target=host": "median_ns",
            "target=host": 100.0,
            "metric of target=riscv64": "instructions",
            "target=riscv64": 87555,
        }
    ]
    assert shown(answer).splitlines()[1].split(maxsplit=3) == [
        "matmul",
        "100",
        "ns",
        "87,555 instructions",
    ]


def test_values_of_different_metrics_are_sorted_apart(trials, counted):
    answer = groups([*trials, counted("c", 150)], keys("target", "N"))
    found = [row[4] for row in questions.ordered(answer, "best").rows]
    assert found == [150, 100.0, 400.0]
    assert [row[3] for row in questions.first_rows(questions.ordered(answer, "-best"), 2).rows]


def test_virtual_time_is_not_taken_for_time():
    assert questions.cell_text(1500.0, "virtual_ns", unit=True) == "1.50 µs virtual"
    assert questions.cell_text(1500.0, "median_ns", unit=True) == "1.50 µs"
    assert questions.cell_text(15.0, "metrics.gflops", unit=True) == "15.0 GFLOP/s"


def test_a_pivot_table_has_the_best_of_each_pair_and_nothing_that_did_not_verify(trials):
    answer = pivot(trials, keys("N"), keys("toolchain"), parse_key("median_ns"))
    assert answer.headings == ("N", "toolchain=clang", "toolchain=gcc")
    assert answer.rows == ((64, 200.0, 100.0), (128, None, 400.0))
    out = io.StringIO()
    print_answer(answer, out)
    assert out.getvalue().splitlines()[:3] == [
        "  N  toolchain=clang  toolchain=gcc",
        " 64           200 ns         100 ns",
        "128                          400 ns",
    ]


def test_rows_and_columns_of_a_pivot_table_may_have_several_keys_each(trials):
    median = parse_key("median_ns")
    answer = pivot(trials, keys("workload"), keys("toolchain", "N"), median)
    assert answer.headings == (
        "workload",
        "toolchain=clang N=64",
        "toolchain=gcc N=64",
        "toolchain=gcc N=128",
    )
    assert answer.rows == (("matmul", 200.0, 100.0, 400.0),)
    answer = pivot(trials, keys("toolchain", "N"), keys("workload"), median)
    assert answer.headings == ("toolchain", "N", "workload=matmul")
    assert answer.rows == (("clang", 64, 200.0), ("gcc", 64, 100.0), ("gcc", 128, 400.0))


def test_a_pivot_table_has_neither_rows_nor_columns_of_refused_points(trials, make_trial):
    refused = make_trial(
        id="r",
        status="refused",
        verified=False,
        metrics={},
        config={"toolchain": {}, "workload": {"sizes": {"N": -5}}},
    )
    answer = pivot([*trials, refused], keys("N"), keys("toolchain"), parse_key("median_ns"))
    assert answer.headings == ("N", "toolchain=clang", "toolchain=gcc")
    assert [row[0] for row in answer.rows] == [64, 128]


def test_why_no_trial_has_a_metric_is_said(trials, make_trial):
    plain = make_trial(metrics={"median_ns": 5.0})
    assert missing_metric_reason([plain], parse_key("gflops")) == (
        "no trial has gflops: the workload states no cost"
    )
    assert missing_metric_reason([plain], parse_key("instructions")) == "no trial has instructions"
    assert missing_metric_reason(trials, None) == ""
    assert missing_metric_reason(trials[-1:], None) == "none of these trials verified"
    assert (
        missing_metric_reason(trials[-1:], parse_key("gflops")) == "none of these trials verified"
    )
    assert (
        missing_metric_reason([plain, *trials], parse_key("gflops"))
        == missing_metric_reason([], parse_key("gflops"))
        == ""
    )


def test_columns_are_the_values_of_keys_and_several_steps_give_several(make_trial):
    trial = make_trial(params={"tile": {"fc1": {"mr": 6, "nv": 2}, "fc2": {"mr": 8, "nv": 2}}})
    answer = questions.columns([trial], keys("workload", "mr", "nv", "toolchain", "nothing"))
    assert answer.rows == (("matmul", [6, 8], 2, "gcc", None),)
    out = io.StringIO()
    write_answer(answer, out)
    assert out.getvalue() == "workload,mr,nv,toolchain,nothing\nmatmul,6x8,2,gcc,\n"


def test_a_tunable_named_like_its_transform_is_shown_by_its_value(make_trial):
    trial = make_trial(params={"unroll": {"call": {"unroll": 4}}, "tile": {"call": {"mr": 6}}})
    answer = questions.columns([trial], keys("unroll", "unroll.unroll", "params.unroll"))
    assert answer.rows == ((4, 4, 4),)


def test_groups_columns_and_pivots_take_a_short_name_for_all_trials_alike(make_trial):
    config = {"toolchain": {"name": "gcc", "extra_flags": ["-O3"]}, "target": {"variant": "x"}}
    several = [
        make_trial(id="a", config=config, point={"toolchain.extra_flags": ["-O3"]}),
        make_trial(id="b", config=config),
    ]
    (flags,) = keys("extra_flags")
    assert questions.columns(several, [flags]).rows == ((["-O3"],), (["-O3"],))
    assert [row[:2] for row in groups(several, [flags]).rows] == [("-O3", 2)]
    assert pivot(several, keys("workload"), [flags]).headings[1] == "extra_flags=-O3"


def test_a_short_name_with_several_meanings_is_refused(make_trial):
    several = [
        make_trial(id="a", config={"measure": {"clock": "cpu"}}),
        make_trial(id="b", params={"tile": {"call": {"clock": 3}}}),
    ]
    for ask in (questions.columns, groups):
        with pytest.raises(UsageError, match=r"may mean measure\.clock or params\.clock"):
            ask(several, keys("clock"))


def test_a_swept_group_of_tunables_is_shown_as_such(make_trial):
    trial = make_trial(point={"select.fixed.unroll": {"unroll": 4, "k": True}})
    answer = questions.columns([trial], keys("select.fixed.unroll"))
    out = io.StringIO()
    write_answer(answer, out)
    assert out.getvalue() == "select.fixed.unroll\nunroll=4 k=true\n"


def test_rows_are_sorted_by_any_column_and_what_is_missing_comes_last(trials):
    answer = groups(trials, keys("toolchain", "N"), parse_key("median_ns"))
    assert [row[4] for row in questions.ordered(answer, "best").rows] == [100, 200, 400, None]
    assert [row[4] for row in questions.ordered(answer, "-best").rows] == [400, 200, 100, None]
    with pytest.raises(UsageError, match="Did you mean 'best'"):
        questions.ordered(answer, "bets")


def test_what_only_the_store_knows_cannot_be_shown():
    with pytest.raises(UsageError, match="not shown"):
        questions.parse_keys("id,attempt", "columns")
