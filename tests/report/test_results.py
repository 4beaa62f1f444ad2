"""Questions to the store, as they are typed."""

from __future__ import annotations

import pytest

from kernloom.errors import UsageError
from kernloom.report.results import parse_filters, results
from kernloom.store import open_store


def test_words_are_filters():
    words = ["status=ok", "message=a=b", "workload.sizes.M='64'"]
    assert parse_filters(words) == {"status": "ok", "message": "a=b", "workload.sizes.M": "64"}


@pytest.mark.parametrize("words", [["status"], ["=ok"], ["status=ok", "status=wrong"]])
def test_words_that_are_no_filters_are_refused(words):
    with pytest.raises(UsageError):
        parse_filters(words)


def test_the_best_trial_is_one_question_away(tmp_path, make_trial):
    with open_store(tmp_path / "store.db") as store:
        for speed in (1.0, 3.0, 2.0):
            store.add(make_trial(id=f"t{speed}", metrics={"gflops": speed}))
        best = results(store, ["status=ok", "toolchain=gcc"], sort="-gflops", limit=1)
    assert [trial.id for trial in best] == ["t3.0"]
