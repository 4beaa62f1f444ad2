"""Tables that rank or group take the newest source of a kernel."""

from __future__ import annotations

import pytest

from command_line import DOUBLE, Project
from kernloom.base.places import share_folder

BROKEN = "for (long i = 0; i < n; i++) y[i] = x[i];"
NOTE = "of older kernel sources left out; --all-sources shows them apart"
SWEEP = ("run", "-m", "workload=twice", "workload.sizes.n=500,1000")


@pytest.fixture
def edited(project: Project) -> Project:
    """A kernel that was broken at first, and then mended: two trials of each source."""
    project.add("twice", BROKEN)
    assert project.run(*SWEEP).code == 1
    project.add("twice", DOUBLE)
    assert project.run(*SWEEP).code == 0
    return project


def test_only_the_newest_source_is_grouped_and_the_others_are_counted(edited: Project) -> None:
    done = edited.json("results", "--group", "workload")
    (row,) = done.document["rows"]
    assert (row["trials"], row["verified"]) == (2, 2)
    assert f"note: 2 trials {NOTE}" in done.stderr
    pivot = edited.json("results", "--pivot", "n", "status")
    assert [set(row) for row in pivot.document["rows"]] == [{"n", "status=ok"}] * 2
    assert NOTE in pivot.stderr
    ranked = edited.json("results", "--sort", "median_ns", "--limit", "3")
    assert [trial["status"] for trial in ranked.trials] == ["ok", "ok"]
    assert NOTE in ranked.stderr


def test_all_sources_are_shown_apart(edited: Project) -> None:
    done = edited.json("results", "--group", "workload", "--all-sources")
    rows = {row["source"]: (row["trials"], row["verified"]) for row in done.document["rows"]}
    assert rows == {"newest": (2, 2), "1 older": (2, 0)}
    assert "left out" not in done.stderr
    listed = edited.json("results")
    assert sorted(trial["source"] for trial in listed.trials) == ["1 older"] * 2 + ["newest"] * 2
    assert "1 older" in edited.run("results").stdout


def test_who_goes_back_to_an_earlier_source_makes_it_the_newest(edited: Project) -> None:
    edited.add("twice", BROKEN)
    again = edited.json(*SWEEP)
    assert all(trial["reused"] for trial in again.trials)
    (row,) = edited.json("results", "--group", "workload").document["rows"]
    assert (row["trials"], row["verified"]) == (2, 0)


def test_the_version_of_a_source_cannot_be_filtered_by(edited: Project) -> None:
    done = edited.run("results", "source=newest")
    assert (done.code, done.stdout) == (2, "")
    assert "--group source" in done.stderr


def test_a_comment_that_is_not_rendered_makes_no_older_trials(project: Project) -> None:
    template = "templates/kernels/axpy/host.c.j2"
    text = (share_folder() / template).read_text(encoding="utf-8")
    words = ("run", "-m", "workload=axpy", "case=small")
    project.write(template, text)
    assert project.run(*words, "seed=1,2").code == 0
    project.write(template, f"{{# a note #}}\n{text}")
    second = project.json(*words, "seed=1,2,3")
    (row,) = project.json("results", "--group", "workload").document["rows"]
    assert row["trials"] == 3
    assert [trial["reused"] for trial in second.trials] == [True, True, False]
