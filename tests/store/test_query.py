"""Trials are found by columns and by anything inside their documents."""

from __future__ import annotations

import pytest

from kernloom.base.errors import UsageError
from kernloom.base.lookup import MISSING, lookup
from kernloom.store import open_store, statements
from kernloom.store.keys import Filter, parse_key


@pytest.fixture
def store(place, make_trial):
    with open_store(place) as store:
        for number, (mr, nanoseconds) in enumerate([(6, 300.0), (8, 100.0), (6, 200.0)]):
            store.add(
                make_trial(
                    f"{number}abc",
                    case="large" if number == 2 else "default",
                    created=f"2025-01-0{number + 1}T00:00:00.000+00:00",
                    params={"tile": {"multiply": {"mr": mr, "pack": mr == 6}}},
                    metrics={"median_ns": nanoseconds, "peers.openblas.ratio": 1 / nanoseconds},
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
        ({"mr": "8"}, ["1abc"]),
        ({"tile.mr": "8"}, ["1abc"]),
        ({"params.mr": "6", "target": "host", "case": "default"}, ["0abc"]),
        ({"M": "128"}, ["1abc"]),
        ({"N": "32", "case": "large"}, ["2abc"]),
        ({"target": "aarch64", "pack": "true"}, []),
        ({"config.workload.sizes.N": "32", "case": "default"}, ["1abc", "0abc", "3def"]),
        ({"config.seed": "8"}, []),
        ({"attempt": "1", "seconds": "0.25", "case": "large"}, ["2abc"]),
        ({"status": "timeout"}, []),
        ({"id": "%"}, []),
    ],
)
def test_filters_combine_columns_and_documents(store, filters, expected):
    assert ids(store.query(filters)) == expected


@pytest.mark.parametrize(
    ("key", "comparison", "value", "expected"),
    [
        ("metrics.median_ns", "<", "200", ["1abc"]),
        ("median_ns", "<=", "2e2", ["2abc", "1abc"]),
        ("mr", ">", "6", ["1abc"]),
        ("created", ">=", "2025-01-02", ["2abc", "1abc"]),
        ("status", "!=", "ok", ["3def"]),
        ("id", "!=", "0", ["2abc", "1abc", "3def"]),
        ("seconds", ">", "1", []),
    ],
)
def test_values_are_compared_in_columns_and_documents(store, key, comparison, value, expected):
    assert ids(store.query([Filter(parse_key(key), value, comparison)])) == expected


def test_a_tunable_is_found_whichever_step_has_the_value(place, make_trial):
    with open_store(place) as store:
        store.add(make_trial("two", params={"tile": {"fc1": {"mr": 6}, "fc2": {"mr": 8}}}))
        store.add(make_trial("flags", config={"toolchain": {"extra_flags": ["-O1", "-g"]}}))
        assert ids(store.query({"mr": "8"})) == ["two"]
        assert ids(store.query({"fc1.mr": "8"})) == []
        assert ids(store.query({"toolchain.extra_flags": "[-O1, -g]"})) == ["flags"]


@pytest.mark.parametrize("wanted", ["-O1 -g", "[-O1,-g]", "[-O1, -g]"])
def test_a_list_is_found_as_it_is_shown(place, make_trial, wanted):
    swept = {"toolchain.extra_flags": ["-O1", "-g"]}
    with open_store(place) as store:
        store.add(make_trial("both", point=swept))
        store.add(make_trial("one", point={"toolchain.extra_flags": ["-O3"]}))
        assert ids(store.query({"extra_flags": wanted})) == ["both"]
        assert ids(store.query({"extra_flags": "-O3"})) == ["one"]
        assert set(store.distinct("extra_flags")) == {"-O1 -g", "-O3"}


@pytest.fixture
def configured(place, make_trial):
    """A trial of a sweep over the flags, and one of a single run with the same flags."""
    config = {
        "toolchain": {"extra_flags": ["-O3"], "family": "gcc", "tools": {"cc": "gcc"}},
        "arch": {"vector_bits": 256, "caches": {"l2": "1MiB"}},
        "target": {"family": "host"},
        "measure": {"clock": "cpu", "samples": 9},
        "workload": {"sizes": {"N": 8}, "scalars": {"alpha": 2.0}},
    }
    with open_store(place) as store:
        store.add(make_trial("swept", config=config, point={"toolchain.extra_flags": ["-O3"]}))
        store.add(make_trial("single", config=config, point={}))
        yield store


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("extra_flags", "-O3"),
        ("vector_bits", "256"),
        ("clock", "cpu"),
        ("l2", "1MiB"),
        ("caches.l2", "1MiB"),
        ("cc", "gcc"),
        ("alpha", "2"),
        ("N", "8"),
    ],
)
def test_a_short_name_means_a_config_key_whether_it_was_swept_or_not(configured, key, value):
    assert sorted(ids(configured.query({key: value}))) == ["single", "swept"]
    assert configured.query({key: "77"}) == []
    assert len(configured.distinct(key)) == 1


def test_a_short_name_of_several_config_keys_is_refused_with_the_candidates(configured):
    with pytest.raises(UsageError, match=r"'family' may mean target\.family or toolchain\.family"):
        configured.query({"family": "gcc"})
    assert len(configured.query({"toolchain.family": "gcc"})) == 2


def test_a_short_name_with_another_meaning_in_another_trial_is_refused(place, make_trial):
    with open_store(place) as store:
        store.add(make_trial("param", params={"tile": {"call": {"clock": 3}}}))
        store.add(make_trial("config", config={"measure": {"clock": "cpu"}}))
        with pytest.raises(UsageError, match=r"may mean measure\.clock or params\.clock"):
            store.query({"clock": "cpu"})
        assert ids(store.query({"measure.clock": "cpu"})) == ["config"]
        assert ids(store.query({"params.clock": "3"})) == ["param"]


def test_a_metric_is_not_taken_from_the_config(configured):
    assert configured.query({"samples": "9"}) == []


def test_a_tunable_named_like_its_transform_is_found_by_that_name(place, make_trial):
    with open_store(place) as store:
        for number in (2, 4):
            params = {"unroll": {"call": {"unroll": number}}, "tile": {"call": {"mr": 6}}}
            store.add(make_trial(f"by{number}", params=params))
        assert ids(store.query({"unroll": "4"})) == ["by4"]
        assert set(store.distinct("unroll")) == {2, 4}


def test_the_values_of_several_steps_are_found_as_they_are_shown(place, make_trial):
    with open_store(place) as store:
        store.add(make_trial("two", params={"tile": {"fc1": {"mr": 6}, "fc2": {"mr": 8}}}))
        store.add(make_trial("one", params={"tile": {"fc1": {"mr": 6}}}))
        assert ids(store.query({"mr": "6x8"})) == ["two"]


@pytest.mark.parametrize(
    ("key", "comparison", "either", "expected"),
    [
        ("status", "=", ("crashed", "wrong"), ["3def"]),
        ("status", "!=", ("crashed", "wrong"), ["2abc", "1abc", "0abc"]),
        ("id", "=", ("0", "1a"), ["1abc", "0abc"]),
        ("id", "!=", ("0", "1a"), ["2abc", "3def"]),
        ("verified", "=", ("true", "false"), ["2abc", "1abc", "0abc", "3def"]),
        ("seconds", "=", ("0.25", "7"), ["2abc", "1abc", "0abc", "3def"]),
        ("median_ns", "=", ("100", "300"), ["1abc", "0abc"]),
        ("M", "!=", ("64", "128"), ["2abc"]),
    ],
)
def test_either_of_several_values_will_do(store, key, comparison, either, expected):
    asked = Filter(parse_key(key), ",".join(either), comparison, either)
    assert ids(store.query([asked])) == expected


def test_the_values_of_a_key_can_be_listed(store):
    assert store.distinct("status") == ["crashed", "ok"]
    assert sorted(store.distinct("mr")) == [6, 8]
    assert store.distinct("arch.name") == ["x86_64_v3"]


def test_sorting_puts_what_has_no_value_last_either_way(store):
    assert ids(store.query(sort="median_ns")) == ["1abc", "2abc", "0abc", "3def"]
    assert ids(store.query(sort="-median_ns")) == ["0abc", "2abc", "1abc", "3def"]
    assert ids(store.query(sort="peers.openblas.ratio"))[0] == "0abc"
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


def test_a_mistyped_tunable_is_answered_with_short_names_only(store):
    with pytest.raises(UsageError, match="Did you mean 'pack'") as refused:
        store.query({"pakc": "true"})
    assert "config." not in refused.value.hint


def test_of_many_keys_those_asked_for_most_are_listed(place, make_trial):
    many = {f"aa{number:02}": number for number in range(60)}
    with open_store(place) as store:
        store.add(make_trial(machine=many))
        with pytest.raises(UsageError) as refused:
            store.query({"zzzzzz": "1"})
    assert refused.value.hint.startswith("Allowed: status, workload, target, toolchain, M, mr, ")
    assert refused.value.hint.endswith(" more.")


def test_a_mistyped_column_is_noticed_in_an_empty_store_too(place):
    with open_store(place) as store:
        with pytest.raises(UsageError, match="Did you mean 'status'"):
            store.query({"staus": "ok"})
        assert store.query({"gflops": "1", "params.tile.multiply.mr": "6"}) == []


def test_a_metric_that_only_the_filtered_out_trials_have_is_not_unknown(store):
    assert store.query({"target": "aarch64", "peers.openblas.ratio": "1"}) == []


def test_a_key_that_only_trials_before_a_large_sweep_have_is_not_unknown(
    path, make_trial, monkeypatch
):
    monkeypatch.setattr(statements, "SEEN", 3)
    with open_store(path) as store:
        store.add(make_trial("old", params={"tile": {"multiply": {"kc": 6}}}))
        for number in range(5):
            store.add(make_trial(f"new{number}", created=f"2026-01-0{number + 1}T00:00:00+00:00"))
        store.check_keys([parse_key("kc")])
        assert store.query({"workload": "matmul", "kc": "6", "target": "aarch64"}) == []
        with pytest.raises(UsageError, match="no trial has 'kx'"):
            store.check_keys([parse_key("kx")])


def test_values_that_a_column_cannot_have_are_refused(store):
    with pytest.raises(UsageError, match="true, false"):
        store.query({"verified": "maybe"})
    with pytest.raises(UsageError, match="number"):
        store.query({"seconds": "long"})
    for comparison in ("<", "="):
        with pytest.raises(UsageError, match=f"median_ns{comparison}long: expected a number"):
            store.query([Filter(parse_key("median_ns"), "long", comparison)])
    with pytest.raises(UsageError, match=r"metrics\.median_ns=1,x: expected a number"):
        store.query([Filter(parse_key("metrics.median_ns"), "1,x", "=", ("1", "x"))])


def test_paths_find_names_that_contain_dots():
    document = {"a.b": {"c": 1}, "a": {"d": [5, {"e": 2}]}}
    assert lookup(document, ["a", "b", "c"]) == 1
    assert lookup(document, ["a", "d", "1", "e"]) == 2
    assert lookup(document, ["a", "x"]) is MISSING
