"""Screening: a quick look at every point, and only the best are built alone, measured and kept."""

from __future__ import annotations

import json
import signal

import pytest

from command_line import KERNEL, Project

BODY = """\
#if BY == 3
#error nobody wants three
#elif BY == 5
*(volatile int *)8 = 0;
#elif BY == 7
y[0] = 1e9f;
return;
#endif
for (volatile long wait = 0; wait < BY * 20000; wait++) {}
for (long i = 0; i < n; i++) y[i] = 2 * x[i];
"""
TUNABLES = """\
tunables:
  unroll:
    by: {values: [1, 2, 3, 4, 5, 6, 7, 8], "off": 1}
constraints: [by < 8]
"""
SWEEP = ("run", "-m", "workload=slow", "screen.keep=2")


@pytest.fixture
def slow(project: Project) -> Project:
    """A kernel that gets slower with its only tunable, and has a fault or two."""
    project.add("slow", BODY, kernel=tunable("slow"))
    return project


def tunable(name: str) -> str:
    kernel = KERNEL.format(name=name)
    return kernel.replace(f"function: {name}", f"function: {name}, macros: {{BY: by}}") + TUNABLES


def test_only_the_best_are_measured_in_full_and_stored(slow: Project) -> None:
    done = slow.json(*SWEEP, "select.fixed.unroll.by=6,1,4,2")
    assert done.code == 0, done
    assert [trial["params"]["unroll"]["call"]["by"] for trial in done.trials] == [1, 2]
    screened = done.document["screened"]
    assert [item["point"]["select.fixed.unroll.by"] for item in screened] == [6, 1, 4, 2]
    assert all(item["verified"] and item["median_ns"] > 0 for item in screened)
    assert len(slow.json("results").trials) == 2


def test_what_is_kept_is_built_alone(slow: Project) -> None:
    done = slow.json(*SWEEP, "select.fixed.unroll.by=1,2,4,6", "build.jobs=1")
    build = slow.build
    kept = {item["key"] for trial in done.trials for item in trial["artifacts"]}
    kernels = {folder.name for folder in (build / "kernels").iterdir()}
    assert kernels <= kept
    assert len(kernels) == 2
    assert list((build / "batches").iterdir())


def test_one_bad_point_costs_the_others_nothing(slow: Project) -> None:
    done = slow.json(*SWEEP, "select.fixed.unroll.by=1,2,3,4,5,6,7,8", "build.jobs=1")
    assert done.code == 1
    statuses = {
        item["params"]["unroll"]["call"]["by"] if item["params"] else None: item["status"]
        for item in done.document["screened"]
    }
    assert statuses == {
        **{1: "ok", 2: "ok", 4: "ok", 6: "ok"},
        **{3: "build_failed", 5: "crashed", 7: "wrong", None: "refused"},
    }
    assert [trial["status"] for trial in done.trials] == ["ok", "ok"]
    failed = next(i for i in done.document["screened"] if i["status"] == "build_failed")
    assert "nobody wants three" in failed["message"]


def test_a_person_sees_the_kept_ones_and_one_line_about_the_rest(slow: Project) -> None:
    done = slow.run(*SWEEP, "select.fixed.unroll.by=1,2,4,5")
    assert "screened 4 points" in done.stdout
    assert "1 crashed; measured in full: 2" in done.stdout


def test_the_same_command_looks_at_nothing_twice(slow: Project) -> None:
    sweep = (*SWEEP, "select.fixed.unroll.by=1,2,4,5,6")
    first = slow.json(*sweep)
    batches = sorted(slow.build.glob("batches/*"))
    again = slow.json(*sweep)
    assert again.document["screened"] == first.document["screened"]
    assert [trial["id"] for trial in again.trials] == [trial["id"] for trial in first.trials]
    assert all(trial["reused"] for trial in again.trials)
    assert again.document["build"]["scons"] == 0
    assert sorted(slow.build.glob("batches/*")) == batches
    assert "5 screened before" in slow.run(*sweep).stdout


def test_more_points_cost_only_the_looks_that_are_new(slow: Project) -> None:
    slow.json(*SWEEP, "select.fixed.unroll.by=1,2,4")
    done = slow.run(*SWEEP, "select.fixed.unroll.by=1,2,4,5,6")
    assert "screened 5 points" in done.stdout
    assert "3 screened before" in done.stdout


def test_looks_are_taken_again_if_that_is_asked_for(slow: Project) -> None:
    sweep = (*SWEEP, "select.fixed.unroll.by=1,2,5")
    slow.run(*sweep)
    assert "2 screened before" in slow.run(*sweep, "rerun=failed").stdout
    assert "screened before" not in slow.run(*sweep, "rerun=all").stdout


def test_what_failed_in_full_is_not_tried_again(slow: Project) -> None:
    words = ("run", "-m", "workload=slow", "select.fixed.unroll.by=1,5")
    assert [trial["status"] for trial in slow.json(*words).trials] == ["ok", "crashed"]
    assert "1 screened before; 1 crashed" in slow.run(*words, "screen.keep=1").stdout


def test_an_interrupt_in_the_middle_leaves_what_was_seen(slow: Project) -> None:
    slow.add("stuck", BODY.replace("y[0] = 1e9f;", "while (1) {}"), kernel=tunable("stuck"))
    # In the order of the points, so that the one without end comes last.
    sweep = ("run", "-m", "workload=stuck", "screen.keep=1", "timeout=600", "fleet.overlap=false")
    started = slow.start(*sweep, "select.fixed.unroll.by=1,2,4,7", "output=jsonl")
    assert started.stdout is not None
    lines = [json.loads(started.stdout.readline()) for _ in range(3)]
    assert all(line["screened"] for line in lines)
    started.send_signal(signal.SIGINT)
    assert started.wait() == 130
    done = slow.run(*sweep, "select.fixed.unroll.by=1,2,4")
    assert "3 screened before" in done.stdout


def test_what_is_screened_while_the_rest_is_built_is_the_same(slow: Project) -> None:
    sweep = (*SWEEP, "select.fixed.unroll.by=1,2,3,4,5,6,7,8", "screen.batch=2")
    over = slow.json(*sweep, "fleet.overlap=true")
    plain = slow.json(*sweep, "rerun=all")
    for one, other in zip(over.document["screened"], plain.document["screened"], strict=True):
        assert (one["point"], one["status"]) == (other["point"], other["status"])


def test_points_that_do_different_work_do_not_compete(slow: Project) -> None:
    axes = ("select.fixed.unroll.by=1,4", "workload.sizes.n=64,128", "screen.keep=1")
    done = slow.json("run", "-m", "workload=slow", *axes)
    points = [tuple(trial["point"].values()) for trial in done.trials]
    assert points == [(1, 64), (1, 128)]


def test_nothing_is_left_when_nothing_verifies(slow: Project) -> None:
    done = slow.json(*SWEEP, "select.fixed.unroll.by=5,7")
    assert (done.code, done.trials) == (1, [])
    assert [item["status"] for item in done.document["screened"]] == ["crashed", "wrong"]
    assert "screened 2 points" in slow.run(*SWEEP, "select.fixed.unroll.by=5,7").stdout


def test_kernels_from_templates_are_compiled_together(project: Project) -> None:
    words = ("workload=matmul", "workload.sizes={M: 32, N: 32, K: 32}", "screen.keep=1")
    tiles = ("select.fixed.tile.mr=4,6,8", "build.jobs=1")
    done = project.json("run", "-m", *words, *tiles)
    assert done.code == 0, done
    # Had they not compiled together, all of them would have been built alone.
    kernels = project.build / "kernels"
    built = {item["key"] for trial in done.trials for item in trial["artifacts"]}
    assert len([f for f in kernels.iterdir() if f.name not in built]) == 0
