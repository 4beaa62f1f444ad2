"""Trials are found by columns and by anything inside their documents."""

from __future__ import annotations

import pytest

from kernloom.errors import UsageError
from kernloom.store import open_store
from kernloom.store.keys import MISSING, lookup


@pytest.fixture
def store(path, make_trial):
    with open_store(path) as store:
        for number, (mr, nanoseconds) in enumerate([(6, 300.0), (8, 100.0), (6, 200.0)]):
            store.add(
                make_trial(
                    f"{number}abc",
                    case="large" if number == 2 else "default",
                    created=f"2025-01-0{number + 1}T00:00:00.000+00:00",
                    params={"tile": {"multiply": {"mr": mr, "pack": mr == 6}}},
                    metrics={"median_ns": nanoseconds, "baselines.openblas.ratio": 1 / nanoseconds},
                    point={"workload.sizes.M": 64 * (number + 1)},
                )
            )
        store.add(
            make_trial(
                "3def",
                target="aarch64",
                status="crashed",
                verified=False,
                metrics={},
                created="2024-01-01T00:00:00.000+00:00",
            )
        )
        yield store


def ids(trials):
    return [trial.id for trial in trials]


def test_everything_comes_newest_first(store):
    assert ids(store.query()) == ["2abc", "1abc", "0abc", "3def"]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"target": "aarch64"}, ["3def"]),
        ({"case": "large"}, ["2abc"]),
        ({"verified": "true", "status": "ok"}, ["2abc", "1abc", "0abc"]),
        ({"arch": "x86_64_v3", "toolchain": "gcc", "variant": "release", "id": "1a"}, ["1abc"]),
        ({"params.tile.multiply.mr": "6", "target": "host"}, ["2abc", "0abc"]),
        ({"tile.multiply.pack": "true"}, ["2abc", "0abc"]),
        ({"metrics.median_ns": "100"}, ["1abc"]),
        ({"median_ns": "1e2"}, ["1abc"]),
        ({"workload.sizes.M": "128"}, ["1abc"]),
        ({"config.workload.sizes.N": "32", "case": "default"}, ["1abc", "0abc", "3def"]),
        ({"config.seed": "8"}, []),
        ({"attempt": "1", "seconds": "0.25", "case": "large"}, ["2abc"]),
        ({"status": "timeout"}, []),
        ({"id": "%"}, []),
    ],
)
def test_filters_combine_columns_and_documents(store, filters, expected):
    assert ids(store.query(filters)) == expected


def test_sorting_puts_what_has_no_value_last_either_way(store):
    assert ids(store.query(sort="median_ns")) == ["1abc", "2abc", "0abc", "3def"]
    assert ids(store.query(sort="-median_ns")) == ["0abc", "2abc", "1abc", "3def"]
    assert ids(store.query(sort="baselines.openblas.ratio"))[0] == "0abc"
    assert ids(store.query(sort="target"))[0] == "3def"
    assert ids(store.query(sort="-created")) == ids(store.query())


def test_the_limit_is_taken_after_filtering_and_sorting(store):
    assert ids(store.query({"tile.multiply.mr": "6"}, 1, "median_ns")) == ["2abc"]
    assert ids(store.query(limit=2)) == ["2abc", "1abc"]
    assert store.query(limit=0) == []
    with pytest.raises(UsageError):
        store.query(limit=-1)


@pytest.mark.parametrize("asked", [{"filters": {"metrics.median": "1"}}, {"sort": "-median"}])
def test_an_unknown_key_is_answered_with_the_nearest(store, asked):
    with pytest.raises(UsageError, match=r"Did you mean '.*median_ns'"):
        store.query(**asked)


def test_a_mistyped_column_is_noticed_in_an_empty_store_too(path):
    with open_store(path) as store:
        with pytest.raises(UsageError, match="Did you mean 'status'"):
            store.query({"staus": "ok"})
        assert store.query({"gflops": "1", "params.tile.multiply.mr": "6"}) == []


def test_a_metric_that_only_the_filtered_out_trials_have_is_not_unknown(store):
    assert store.query({"target": "aarch64", "baselines.openblas.ratio": "1"}) == []


def test_values_that_a_column_cannot_have_are_refused(store):
    with pytest.raises(UsageError, match="true, false"):
        store.query({"verified": "maybe"})
    with pytest.raises(UsageError, match="number"):
        store.query({"seconds": "long"})


def test_paths_find_names_that_contain_dots():
    document = {"a.b": {"c": 1}, "a": {"d": [5, {"e": 2}]}}
    assert lookup(document, ["a", "b", "c"]) == 1
    assert lookup(document, ["a", "d", "1", "e"]) == 2
    assert lookup(document, ["a", "x"]) is MISSING
