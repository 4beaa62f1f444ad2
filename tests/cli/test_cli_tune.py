"""Studies from the command line: searched, raced, verified, resumed, and told."""

from __future__ import annotations

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
    by: {values: [6, 8, 7, 5, 4, 3, 2, 1], "off": 1}
constraints: [by < 8]
"""
TUNE = ("tune", "workload=slow", "strategy=random")


def tunable(name: str, text: str = TUNABLES) -> str:
    kernel = KERNEL.format(name=name)
    return kernel.replace(f"function: {name}", f"function: {name}, macros: {{BY: by}}") + text


@pytest.fixture
def slow(project: Project) -> Project:
    """A kernel that gets slower with its only tunable, and has a fault or two."""
    project.add("slow", BODY, kernel=tunable("slow"))
    return project


def test_a_study_finds_the_best_says_what_failed_and_goes_on_from_what_is_stored(
    slow: Project,
) -> None:
    done = slow.json(*TUNE, "leaders=2", "stages=1")
    assert done.code == 0, done
    found = done.document
    assert found["study"]["evaluated"] == 7
    assert found["study"]["known"] == 0
    assert found["winner"]["params"] == {"unroll": {"call": {"by": 1}}}
    assert found["leaders"][1]["point"] == {"by": 2}
    assert found["leaders"][1]["verdict"] == "worse"
    assert {one["status"] for one in found["failures"]} == {"build_failed", "crashed", "wrong"}
    assert [one["origin"] for one in found["history"]].count("model") == 1
    assert found["model"]["ratio"] > 1
    assert all(one["verified"] for one in found["cases"])
    again = slow.json(*TUNE, "leaders=2", "stages=1").document
    assert again["study"]["known"] == 6, "what did not compile is tried again"
    assert again["winner"]["id"] == found["winner"]["id"]
    assert again["build"]["built"] == 0
    more = slow.json(*TUNE, "leaders=1", "stages=1", "toolchain=gcc,clang", "trials=9").document
    assert 0 < more["study"]["known"] < 9, "a toolchain is one more axis of what is known"
    assert more["study"]["axes"]["toolchain"] == ["gcc", "clang"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trials=0"], "search.trials"),
        (["seconds=0"], "search.seconds"),
        (["strategy=fastest"], "unknown strategy 'fastest'"),
        (["objective=speed", "trials=1"], "no metric 'speed'"),
        (["objective=2*"], "not an expression"),
        (["steps=[fc1]"], "unknown step 'fc1'"),
        (["select.fixed.unroll.by=8"], "requires by < 8"),
        (["racing=precise"], "unknown measuring policy 'precise'"),
        (["seed=1,2"], "'seed' belongs to the whole study"),
        (["workload.sizes.n=8,16"], "workload.sizes.n has several values"),
        (["target=host,aarch64"], "target has several values"),
        (["space=missing.json"], "missing.json"),
    ],
)
def test_a_mistake_is_one_clear_message(slow: Project, words: list[str], said: str) -> None:
    own = TUNE if not words[0].startswith(("strategy", "space")) else TUNE[:2]
    done = slow.run(*(own if not words[0].startswith("space") else TUNE[:1]), *words)
    assert done.code == 2, done
    assert said in done.stderr
    assert "Traceback" not in done.stderr
