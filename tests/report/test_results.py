"""Questions to the store, as they are typed."""

from __future__ import annotations

import pytest

from kernloom.base.errors import UsageError
from kernloom.report.results import explain_empty, parse_filters, results
from kernloom.store import open_store


def test_words_are_filters():
    words = ["status=ok", "message=a=b", "workload.sizes.M='64'", "median_ns<=1e3", "case!=a<b"]
    assert [(f.key.text, f.comparison, f.value) for f in parse_filters(words)] == [
        ("status", "=", "ok"),
        ("message", "=", "a=b"),
        ("workload.sizes.M", "=", "64"),
        ("median_ns", "<=", "1e3"),
        ("case", "!=", "a<b"),
    ]


def test_a_range_is_two_filters_of_one_key_and_a_repeated_word_is_one():
    assert len(parse_filters(["median_ns>10", "median_ns<20"])) == 2
    assert len(parse_filters(["status=ok", "status='ok'"])) == 1


@pytest.mark.parametrize("words", [["status"], ["=ok"], ["<3"], ["status=ok", "status=wrong"]])
def test_words_that_are_no_filters_are_refused(words):
    with pytest.raises(UsageError):
        parse_filters(words)


@pytest.mark.parametrize(
    ("word", "either"),
    [
        ("status=ok,wrong", ("ok", "wrong")),
        ("status!=ok, wrong", ("ok", "wrong")),
        ("message='ok,wrong'", ()),
        ("extra_flags=[-O1,-g]", ()),
        ("extra_flags=[-O1,-g],-O3", ("[-O1,-g]", "-O3")),
        ("created>=2020,2021", ()),
    ],
)
def test_commas_separate_values_any_of_which_will_do(word, either):
    (asked,) = parse_filters([word])
    assert asked.either == either


def test_whoever_gives_a_key_twice_is_told_of_commas():
    with pytest.raises(UsageError, match="status=ok,wrong"):
        parse_filters(["status=ok", "status=wrong"])


def test_the_best_trial_is_one_question_away(tmp_path, make_trial):
    with open_store(tmp_path / "store.db") as store:
        for speed in (1.0, 3.0, 2.0):
            store.add(make_trial(id=f"t{speed}", metrics={"gflops": speed}))
        best = results(
            store, parse_filters(["status=ok", "toolchain=gcc"]), sort="-gflops", limit=1
        )
    assert [trial.id for trial in best] == ["t3.0"]


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (["status=okay"], "no trial has status=okay. Did you mean 'ok'? There are: ok, wrong."),
        (["toolchain=xyz"], "no trial has toolchain=xyz. There are: gcc."),
        (["toolchain=xyz,abc"], "no trial has toolchain=xyz,abc. There are: gcc."),
        (["toolchain.name=xyz"], "no trial has toolchain.name=xyz. There are: gcc."),
        (["mr=7"], "no trial has mr=7. There are: 6, 8."),
        (["mr>8"], "no trial has mr>8. There are: 6, 8."),
        (["id=zz"], "no trial has id=zz."),
        (["status=wrong", "workload=softmax"], "no trial fits all of these filters at once"),
    ],
)
def test_a_question_without_answer_is_told_what_there_is(tmp_path, make_trial, words, note):
    with open_store(tmp_path / "store.db") as store:
        store.add(make_trial(id="a", status="wrong"))
        store.add(make_trial(id="b", workload="softmax", params={"tile": {"mr": 8}}))
        filters = parse_filters(words)
        assert results(store, filters) == []
        assert explain_empty(store, filters) == [note]


def test_an_empty_store_is_said_to_be_empty(tmp_path):
    with open_store(tmp_path / "store.db") as store:
        (note,) = explain_empty(store, parse_filters(["status=ok"]))
    assert "nothing has been stored here yet" in note


def test_of_many_numbers_the_range_is_told(tmp_path, make_trial):
    with open_store(tmp_path / "store.db") as store:
        for number in range(30):
            store.add(make_trial(id=f"t{number}", metrics={"median_ns": 100.0 + number}))
        (note,) = explain_empty(store, parse_filters(["median_ns<5"]))
    assert note == "no trial has median_ns<5. There are 30 values, from 100 to 129."
