"""Studies from the command line: searched, raced, verified, resumed, and told."""

from __future__ import annotations

import json
import subprocess

import pytest

from command_line import KERNEL, Project
from example_package import install
from source_tree import TREE

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
    assert again["study"]["known"] == 7, "what failed is not tried again either"
    assert again["study"]["failed"] == 3
    assert again["winner"]["id"] == found["winner"]["id"]
    assert again["build"]["built"] == 0
    more = slow.json(*TUNE, "leaders=1", "stages=1", "toolchain=gcc,clang", "trials=9").document
    assert 0 < more["study"]["known"] < 9, "a toolchain is one more axis of what is known"
    assert more["study"]["axes"]["toolchain"] == ["gcc", "clang"]


def test_what_is_stored_serves_the_same_and_similar_work(slow: Project) -> None:
    asked = ("workload=slow", "select.providers=[stored,model]")
    before = slow.json("plan", *asked).document["trials"][0]
    assert before["provider"] == "model"
    assert before["params"]["unroll"]["call"]["by"] == 6
    assert slow.json("run", "workload=slow", "select.fixed.unroll.by=1").code == 0
    assert slow.json("run", "workload=slow", "select.fixed.unroll.by=2").code == 0
    same = slow.json("plan", *asked).document["trials"][0]
    assert same["params"]["unroll"]["call"]["by"] == 1
    assert same["origins"]["call"].endswith("the same work")
    near = slow.run("run", *asked, "workload.sizes.n=2000")
    assert "distance 1" in near.stderr
    (point,) = slow.json("results", "--limit", "1", "provider=stored").trials
    assert point["params"]["unroll"]["call"]["by"] == 1
    far = slow.json("plan", *asked, "workload.sizes.n=2000000").document["trials"][0]
    assert far["provider"] == "model", "eleven doublings are too far"
    study = slow.json(
        "tune", "workload=slow", "workload.sizes.n=2000", "trials=3", "leaders=1", "stages=1"
    ).document
    origins = [one["origin"] for one in study["history"]]
    assert origins.count("similar") == 2, origins


def test_a_pipeline_tunes_on_demand_and_planning_does_not(slow: Project) -> None:
    asked = ("workload=slow", "select.providers=[tuned]", "search.stages=1", "search.leaders=2")
    planned = slow.json("plan", *asked).document["trials"][0]
    assert planned["origins"]["call"].startswith("tuned: unresolved")
    assert slow.json("results").document["trials"] == [], "planning measures nothing"
    done = slow.json("run", *asked)
    assert done.code == 0, done
    assert done.trial["provider"] == "tuned"
    assert done.trial["params"]["unroll"]["call"]["by"] == 1
    assert "winner of a study of 7 points" in done.trial["conditions"]["parameters"]["call"]
    again = slow.run("run", *asked, "fleet=slurm")
    assert again.code == 2
    assert "'tuned' measures while it plans" in again.stderr


def test_winners_are_taken_home_as_parameters_results_and_c_sources(slow: Project) -> None:
    done = slow.run(
        *TUNE, "select.fixed.unroll.by=1,2", "stages=1", "export=best.yaml", "export=all.json",
        "export=lib",
    )  # fmt: skip
    assert done.code == 0, done
    found = slow.json("plan", "workload=slow", "select.file=best.yaml").document["trials"][0]
    assert found["provider"] == "file"
    assert found["params"]["unroll"]["call"]["by"] == 1
    results = json.loads((slow.folder / "all.json").read_text())["results"]
    assert {one["invalidity"] for one in results} == {"correct"}
    built = subprocess.run(["sh", "build.sh"], cwd=slow.folder / "lib", capture_output=True)
    assert built.returncode == 0, built.stderr
    ran = subprocess.run(["./test"], cwd=slow.folder / "lib", capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    assert "all right" in ran.stdout
    bad = (slow.folder / "best.yaml").read_text()
    (slow.folder / "other.yaml").write_text(bad.replace("kernel: slow", "kernel: fast"))
    done = slow.run("plan", "workload=slow", "select.file=other.yaml")
    assert done.code == 2
    assert "are for kernel 'fast', and the step is 'slow'" in done.stderr
    (slow.folder / "outside.yaml").write_text("unroll: {call: {by: 9}}")
    done = slow.run("plan", "workload=slow", "select.file=outside.yaml")
    assert done.code == 2
    assert "outside.yaml: unroll.by=9 is not in the space of kernel 'slow'" in done.stderr
    done = slow.run("tune", "workload=slow", "export=configs")
    assert done.code == 2
    assert "not an export of before" in done.stderr
    before = (slow.folder / "kernloom.yaml").read_text()
    for file in ("kernloom.yaml", "configs/kernel/slow.yaml"):
        done = slow.run("tune", "workload=slow", f"export={file}")
        assert done.code == 2, done
        assert f"{file} is not an export of before" in done.stderr
    assert (slow.folder / "kernloom.yaml").read_text() == before


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


def test_results_that_cannot_be_true_are_told_with_the_reason(project: Project) -> None:
    words = ("tune", "workload=axpy", "case=small", "workload.cost.flops=10**9*N", "trials=2")
    done = project.json(*words)
    assert done.code == 1, done
    assert done.document["winner"] is None
    (failed,) = done.document["failures"]
    assert (failed["status"], failed["points"]) == ("suspicious", 2)
    assert "and one core gives at most" in failed["reason"]


def test_a_study_has_no_recipe(slow: Project) -> None:
    done = slow.run(*TUNE, "recipe=study.yaml")
    assert done.code == 2, done
    assert "recipe save TRIAL FILE" in done.stderr


def test_a_tunable_that_no_template_uses_is_named(slow: Project) -> None:
    unused = TUNABLES.replace("constraints", '    deep: {values: [1, 2], "off": 1}\nconstraints')
    slow.write("configs/kernel/slow.yaml", tunable("slow", unused))
    done = slow.run(*TUNE)
    assert done.code == 2, done
    assert "no template uses unroll.deep of step 'call'" in done.stderr


def test_contradictory_constraints_are_named(slow: Project) -> None:
    none = TUNABLES.replace("[by < 8]", "[by < 8, by > 1, by < 2]")
    slow.write("configs/kernel/slow.yaml", tunable("slow", none))
    done = slow.run(*TUNE)
    assert done.code == 2, done
    assert "by > 1" in done.stderr
    assert "by < 2" in done.stderr
    slow.write("configs/kernel/slow.yaml", tunable("slow", TUNABLES.replace("by < 8", "by > 9")))
    done = slow.run(*TUNE)
    assert done.code == 2, done
    assert "requires by > 9" in done.stderr


def test_a_store_that_is_deleted_during_a_study_ends_it_with_one_error(slow: Project) -> None:
    path = slow.write(
        "compiler",
        '#!/bin/sh\nhere=$(dirname "$0")/.kernloom\n'
        'case "$*" in *kernel*) rm -f $here/store.db $here/store.db-??? ;; esac\n'
        'exec gcc "$@"\n',
    )
    path.chmod(0o755)
    done = slow.json(*TUNE, "batch=2", f"toolchain.tools.cc={path}")
    assert done.code == 3, done
    assert done.document["study"]["evaluated"] == 2
    assert done.document["study"]["ended"] == "an error"
    assert done.stderr.count("store.db was deleted or moved while it was in use") == 1
    assert "Traceback" not in done.stderr


FAILING = """\
from kernloom.tune.strategies.random import RandomSearch


class Failing(RandomSearch):
    def ask(self, count):
        return 1 / 0 if self.results else super().ask(count)
"""
PACKAGE = """\
[project]
name = "failing"
version = "1"
[project.entry-points."kernloom.strategies"]
failing = "failing:Failing"
"""


def test_what_was_found_is_told_if_a_strategy_fails(slow: Project) -> None:
    slow.write("package/failing.py", FAILING)
    package = install(slow.write("package/pyproject.toml", PACKAGE).parent)
    path = {"PYTHONPATH": f"{package}:{TREE / 'engine'}"}
    done = slow.json(*TUNE[:2], "strategy=failing", "batch=2", env=path)
    assert done.code == 1, done
    assert done.document["study"]["evaluated"] == 2
    assert not done.document["race"]["complete"]
    found = [one["costs"] for one in done.document["history"] if one["costs"]]
    assert len(done.document["leaders"]) == len(found), "without a race"
    assert "strategy 'failing' failed in ask: ZeroDivisionError" in done.stderr


def test_a_compiler_that_takes_too_long_is_stopped(project: Project) -> None:
    """One variant makes gcc work for minutes; the others are compiled at once."""
    body = "\n".join(
        [
            "#if BY == 3",
            *(f"#define X{n} X{n - 1} X{n - 1}" for n in range(1, 17)),
            "#define X0 y[0] += x[n - 1] * y[0];",
            "X16",
            "#endif",
            "for (long i = 0; i < n; i++) y[i] = 2 * x[i];",
        ]
    )
    project.add("slow", body, kernel=tunable("slow").replace("6, 8, 7, 5, 4, 3, 2, 1", "1, 2, 3"))
    done = project.json(*TUNE, "leaders=1", "stages=1", "build_limit=1.5")
    assert done.code == 0, done
    assert done.document["study"]["evaluated"] == 3
    (failed,) = done.document["failures"]
    assert failed["status"] == "build_failed"
    assert "was stopped after" in failed["reason"]
    assert "build.limit=1.5" in failed["reason"]
