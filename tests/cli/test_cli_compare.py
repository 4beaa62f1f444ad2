"""`kernloom compare`: the same rounds for all, a verdict for each, and exit codes for CI."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET

import pytest

from command_line import DOUBLE, Project
from kernloom.base.places import share_folder

ROUNDS = "measure.min_rounds=6 measure.max_rounds=12 measure.samples=5 measure.min_sample_us=100"
BARRIER = '__asm__ volatile("" ::: "memory");'
SLOW = f"for (int again = 0; again < 3; again++) {{ {BARRIER} {DOUBLE} }}"
WORDS = {"a", "b", "speedup", "ci_low", "ci_high", "verdict", "rounds"}


@pytest.fixture
def pair(project: Project) -> Project:
    """A project with a kernel and one that takes three times as long."""
    project.add("good", n=20_000)
    project.add("slow", SLOW, n=20_000)
    return project


def compared(project: Project, *words: str):
    return project.json("compare", "--with", ROUNDS, *words)


def test_sets_of_overrides_are_compared_with_the_first(pair: Project) -> None:
    done = compared(pair, "workload=good", "workload=slow", "workload=good")
    assert done.code == 0
    slower, same = done.document["comparisons"]
    assert set(slower) == WORDS
    assert (slower["a"], slower["b"]) == ("workload=good", "workload=slow")
    assert slower["verdict"] == "slower"
    assert 0 < slower["ci_low"] <= slower["speedup"] <= slower["ci_high"] < 1
    assert slower["rounds"] >= 6
    assert same["b"] == "workload=good (2)"
    assert 0.5 < same["speedup"] < 2
    assert "different workloads" in done.document["notes"][0]


def test_the_table_shows_times_intervals_and_the_verdict(pair: Project) -> None:
    done = pair.run("compare", "--with", ROUNDS, "workload=good", "workload=slow", "--control")
    assert done.code == 0
    head, first, second, *rest = done.stdout.splitlines()
    assert head.split() == ["what", "time", "speedup", "interval", "verdict", "rounds"]
    assert first.startswith("workload=good ")
    assert "slower" in second
    assert any(line.startswith("control: the first against itself is ") for line in rest)
    assert any(line.startswith("note: these are different workloads") for line in rest)


def test_a_verdict_that_is_not_wanted_fails_with_annotations_and_junit(pair: Project) -> None:
    words = ["compare", "--with", ROUNDS, "workload=good", "workload=slow"]
    report = pair.folder / "report.xml"
    done = pair.run(
        *words, "--fail-if", "slower", "--junit", str(report), env={"GITHUB_ACTIONS": "true"}
    )
    assert done.code == 1
    assert "::error title=kernloom compare::workload=slow against workload=good: " in done.stderr
    (suite,) = ET.parse(report).iter("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "1", "0")
    assert pair.run(*words, "--fail-if", "faster,inconclusive").code == 0


def test_one_that_does_not_build_leaves_the_others_to_be_compared(pair: Project) -> None:
    pair.add("broken", "this is no C;")
    done = compared(pair, "workload=good", "workload=broken", "workload=slow")
    assert done.code == 1
    [only] = done.document["comparisons"]
    assert (only["b"], only["verdict"]) == ("workload=slow", "slower")
    statuses = [entry["status"] for entry in done.document["contenders"]]
    assert statuses == ["ok", "build_failed", "ok"]
    assert "broken.c" in done.document["contenders"][1]["message"]


def test_one_that_is_wrong_is_not_compared(pair: Project) -> None:
    pair.add("wrong", "for (long i = 0; i < n; i++) y[i] = x[i];")
    done = compared(pair, "workload=good", "workload=wrong")
    assert done.code == 1
    assert done.document["comparisons"] == []
    assert done.document["contenders"][1]["status"] == "wrong"


def test_a_recipe_is_a_contender(pair: Project) -> None:
    assert pair.run("run", "workload=slow", "recipe=slow.yaml").code == 0
    done = compared(pair, "workload=good", "slow.yaml")
    [found] = done.document["comparisons"]
    assert (found["b"], found["verdict"]) == ("slow.yaml", "slower")


def test_a_stored_trial_runs_its_own_artifact_again(pair: Project) -> None:
    stored = pair.json("run", "workload=slow").trial
    pair.add("slow", DOUBLE, n=20_000)
    done = compared(pair, stored["id"], "workload=slow")
    [found] = done.document["comparisons"]
    assert (found["a"], found["verdict"]) == (stored["id"], "faster")


def test_a_stored_trial_whose_artifact_is_gone_is_named_and_the_others_go_on(
    pair: Project,
) -> None:
    stored = pair.json("run", "workload=slow").trial
    shutil.rmtree(pair.build / "kernels")
    pair.add("slow", DOUBLE, n=20_000)
    done = compared(pair, "workload=good", stored["id"], "workload=slow")
    assert done.code == 3
    assert [item["b"] for item in done.document["comparisons"]] == ["workload=slow"]
    message = done.document["contenders"][1]["message"]
    assert f"trial {stored['id']}: its artifact slow.call" in message
    assert "is gone and cannot be rebuilt" in message


def test_a_stored_trial_whose_sources_are_as_they_were_is_rebuilt(pair: Project) -> None:
    stored = pair.json("run", "workload=slow").trial
    shutil.rmtree(pair.build / "kernels")
    done = compared(pair, "workload=good", stored["id"])
    assert [item["verdict"] for item in done.document["comparisons"]] == ["slower"]


def test_a_baseline_shows_what_has_become_slower_since(pair: Project) -> None:
    assert pair.run("run", "-m", "workload=good,slow").code == 0
    saved = pair.run("results", "baseline", "save", "main")
    assert (saved.code, "saved 2 trials as main" in saved.stderr) == (0, True)
    unchanged = pair.json("compare", "--baseline", "main")
    assert [(c["verdict"], c["rounds"]) for c in unchanged.document["comparisons"]] == [
        ("equivalent", 0)
    ] * 2
    # Even where the build folder was cleared.
    shutil.rmtree(pair.build / "kernels")
    pair.add("good", SLOW, n=20_000)
    done = pair.json("compare", "--baseline", "main", "--with", ROUNDS, "--fail-if", "slower")
    assert done.code == 1
    verdicts = {c["b"].split()[0]: c["verdict"] for c in done.document["comparisons"]}
    assert verdicts == {"good": "slower", "slow": "equivalent"}
    only = pair.json("compare", "--baseline", "main", "workload=slow")
    assert [c["b"].split()[0] for c in only.document["comparisons"]] == ["slow"]


def test_it_is_said_which_trials_of_a_baseline_are_not_compared(pair: Project) -> None:
    pair.add("slow", DOUBLE, n=20_000)
    assert pair.run("run", "workload=slow").code == 0
    pair.add("slow", SLOW, n=20_000)
    assert pair.run("run", "workload=slow").code == 0
    assert pair.run("run", "workload=slow", "measure.samples=5").code == 0
    saved = pair.run("results", "baseline", "save", "main", "workload=slow")
    assert "saved 3 trials as main" in saved.stderr
    done = pair.json("compare", "--baseline", "main")
    assert len(done.document["comparisons"]) == 1
    (note,) = [text for text in done.document["notes"] if "left out" in text]
    assert note == (
        "2 of 3 trials of main left out, for a newer one is compared with what they are now: "
        "1 measured otherwise, 1 with other artifacts (older sources, compiler or parameters)"
    )


@pytest.mark.parametrize("fused", ["true", "false"])
def test_a_baseline_finds_the_artifact_that_several_steps_share(
    project: Project, fused: str
) -> None:
    """Two steps with the same parameters have one artifact, and a fused step has none."""
    words = ("workload=mlp", "case=small", f"select.fixed.fuse.into_producer={fused}")
    assert project.run("run", *words).code == 0
    project.run("results", "baseline", "save", "main")
    shutil.rmtree(project.build / "kernels")
    same = project.json("compare", "--baseline", "main")
    assert (same.code, same.document["comparisons"][0]["verdict"]) == (0, "equivalent"), same
    change_templates(project, "matmul")
    done = project.json("compare", "--baseline", "main", "--with", ROUNDS)
    assert done.code == 0, done
    (before, now) = [
        {item["name"]: item["key"] for item in contender["artifacts"]}
        for contender in done.document["contenders"]
    ]
    assert all(before[name] != now[name] for name in before if name.startswith("mlp.fc"))


def test_an_artifact_that_is_gone_is_not_said_to_be_as_it_was(project: Project) -> None:
    trial = project.json("run", "workload=mlp", "case=small").trial
    shutil.rmtree(project.build / "kernels")
    change_templates(project, "matmul")
    assert project.run("run", "workload=mlp", "case=small").code == 0
    done = project.run("compare", trial["id"], "workload=mlp case=small", "--with", ROUNDS)
    assert done.code == 3
    assert "is gone and cannot be rebuilt" in done.stdout
    assert "nothing that goes into it has changed" not in done.stdout


def change_templates(project: Project, kernel: str) -> None:
    """The project's own copy of a kernel's templates, with a comment that is compiled, too."""
    folder = share_folder() / "templates" / "kernels" / kernel
    for path in folder.glob("*.j2"):
        text = path.read_text(encoding="utf-8")
        project.write(f"templates/kernels/{kernel}/{path.name}", text + "\n/* changed */\n")


def test_baselines_are_listed_shown_and_removed(pair: Project) -> None:
    pair.run("run", "workload=good")
    pair.run("results", "baseline", "save", "v1")
    assert "v1" in pair.run("results", "baseline", "list").stdout
    assert "good" in pair.run("results", "baseline", "show", "v1").stdout
    assert pair.run("results", "baseline", "remove", "v1").code == 0
    gone = pair.run("compare", "--baseline", "v1")
    assert (gone.code, "no baseline 'v1'" in gone.stderr) == (2, True)


def test_a_budget_too_short_for_the_rounds_is_said(pair: Project) -> None:
    done = pair.json(
        "compare", "--with", ROUNDS + " measure.budget_s=0", "workload=good", "workload=slow"
    )
    assert [c["verdict"] for c in done.document["comparisons"]] == ["inconclusive"]
    assert any("ended after 1 of at least 6 rounds" in note for note in done.document["notes"])


def test_if_the_first_fails_the_others_are_compared_with_the_next(pair: Project) -> None:
    pair.add("broken", "this is no C;")
    done = compared(pair, "workload=broken", "workload=good", "workload=slow")
    assert done.code == 1
    [found] = done.document["comparisons"]
    assert (found["a"], found["b"]) == ("workload=good", "workload=slow")
    assert "compared with 'workload=good', for the first one failed" in done.document["notes"]


def test_a_baseline_of_other_sizes_is_measured_though_the_artifacts_are_the_same(
    pair: Project,
) -> None:
    pair.run("run", "workload=good")
    pair.run("results", "baseline", "save", "main")
    pair.add("good", n=200)
    done = pair.json("compare", "--baseline", "main", "--with", ROUNDS)
    [found] = done.document["comparisons"]
    assert found["verdict"] == "faster"
    assert "different sizes" in " ".join(done.document["notes"])


def test_a_workload_that_is_gone_leaves_the_rest_of_its_baseline(pair: Project) -> None:
    pair.run("run", "-m", "workload=good,slow")
    pair.run("results", "baseline", "save", "main")
    (pair.folder / "configs" / "workload" / "slow.yaml").unlink()
    pair.add("good", SLOW, n=20_000)
    done = pair.json("compare", "--baseline", "main", "--with", ROUNDS)
    assert done.code == 1
    [found] = done.document["comparisons"]
    assert found["b"].startswith("good ")
    assert any("slow" in entry["message"] for entry in done.document["contenders"])


def test_nothing_changed_and_a_control_asked_for_is_no_failure(pair: Project) -> None:
    pair.run("run", "workload=good")
    pair.run("results", "baseline", "save", "main")
    done = pair.json("compare", "--baseline", "main", "--control")
    assert done.code == 0
    assert "Traceback" not in done.stderr


def test_one_session_at_a_time_is_enough(pair: Project) -> None:
    words = ROUNDS + " target.sessions=1"
    done = pair.json("compare", "--with", words, "workload=good", "workload=slow")
    assert [found["verdict"] for found in done.document["comparisons"]] == ["slower"]


def test_another_store_is_named_by_its_path(pair: Project) -> None:
    pair.run("run", "workload=good", "store.path=other.db")
    saved = pair.run("results", "baseline", "save", "main", "store.path=other.db")
    assert saved.code == 0
    assert pair.run("compare", "--baseline", "main").code == 2
    assert pair.run("compare", "--baseline", "main", "--with", "store.path=other.db").code == 0
    assert (pair.folder / "other.baselines").is_dir()
    pair.run("results", "baseline", "remove", "main", "store.path=other.db")
    assert list((pair.folder / "other.baselines").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["workload=good"], "compare needs at least two"),
        (["workload=good", "abcdef123456"], "no stored trial's id begins with 'abcdef123456'"),
        (["workload=good", "no.yaml"], "no.yaml: cannot be read"),
        (["workload=good", "workload=goood"], "unknown workload 'goood'"),
        (["workload=good", "workload='good"], "has a quote that is not closed"),
        (["workload=good", "workload=slow", "--fail-if", "slow"], "--fail-if slow"),
        (["workload=good", "workload=good,slow"], "workload"),
        (["workload=good", "workload=slow trace=t.json"], "trace=t.json is about one run"),
        (["workload=good", "workload=slow", "trace=t.json"], "a comparison runs several in turns"),
        (["workload=good", "workload=slow", "--with", "trace=t.json"], "trace=t.json"),
    ],
)
def test_what_cannot_be_compared_is_named_and_leaves_no_traceback(
    pair: Project, words: list[str], said: str
) -> None:
    done = pair.run("compare", *words)
    assert done.code == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
