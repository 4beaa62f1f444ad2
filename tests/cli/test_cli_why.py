"""Why a run in virtual time took so long: show=why, show=pes, whatif, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from command_line import Project
from kernloom.base.errors import DeviceError
from kernloom.cli.main import main
from kernloom.device.accelerator.infinite import RESOURCES
from kernloom.measure.why import MAX_WHY, why_digest
from kernloom.run import insight
from parts import needs

RUN = ("run", "workload=mlp", "case=small", "target=a5", "arch.topology.cubes=2")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    needs("gcc", "g++")
    project = Project(tmp_path_factory.mktemp("why"))
    project.share_artifacts()
    return project


def trial(project: Project, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = project.json(*RUN, *words).trial
    return found


@pytest.mark.parametrize("runtime", ["hostgraph", "ringmap"])
def test_a_trial_says_where_its_time_went(project: Project, runtime: str) -> None:
    found = trial(project, f"runtime={runtime}")
    why = found["conditions"]["why"]
    whole = why["virtual_ps"]
    assert whole == round(found["metrics"]["virtual_ns"] * 1000)
    assert sum(why["causes"].values()) == whole * why["pes"]
    assert sum(why["path_causes"].values()) == whole
    assert sum(stretch["ps"] for stretch in why["path"]) == whole and len(why["path"]) <= 12
    assert {"fc1", "fc2", "fc3"} <= {one["name"] for one in why["path"] if one["kind"] == "task"}
    assert 0 < why["overhead"] < 1
    assert any(key.startswith(("ring.", "graph.")) for key in why["peaks"])
    assert len(json.dumps(why, separators=(",", ":"))) <= MAX_WHY


def test_steps_without_tasks_have_a_path_too(project: Project) -> None:
    why = trial(project, "distribute=off")["conditions"]["why"]
    assert sum(stretch["ps"] for stretch in why["path"]) == why["virtual_ps"]
    assert sum(one["count"] for one in why["path"] if one["kind"] == "task") == 3


def test_show_why_prints_causes_path_and_advice(project: Project) -> None:
    text = project.run(*RUN, "runtime=ringmap", "show=why").stdout
    for part in ("limited by", "critical path:", "overhead", "fc1", "ring.0.slots", "advised"):
        assert part in text, part
    # A stored trial is explained as well, without running it again.
    again = project.run(*RUN, "runtime=ringmap", "show=why").stdout
    assert "1 from the store" in again and "critical path:" in again


def test_show_pes_has_every_picosecond_of_every_pe(project: Project) -> None:
    found = trial(project, "show=pes")
    whole = found["conditions"]["why"]["virtual_ps"]
    assert len(found["pes"]["pes"]) == 2 * 3
    for spent in found["pes"]["pes"].values():
        assert sum(spent) == whole and len(spent) == len(found["pes"]["causes"])


def test_what_if_bounds_every_resource_and_compiles_nothing(project: Project) -> None:
    measured = trial(project, "runtime=ringmap")
    done = project.json(*RUN, "runtime=ringmap", "whatif=all")
    assert done.document["build"]["built"] == 0
    found = done.trial
    assert found["reused"] and found["id"] == measured["id"]
    bounds = found["whatif"]
    assert {one["resource"] for one in bounds} == set(RESOURCES) - {"sip"}
    times = [one["virtual_ns"] for one in bounds]
    # Its three tasks depend on each other: nothing is scheduled in another order.
    assert times == sorted(times) and max(times) <= measured["metrics"]["virtual_ns"]
    assert times[0] < measured["metrics"]["virtual_ns"]
    assert all(one["factor"] >= 1 for one in bounds)
    assert "whatif" not in trial(project, "runtime=ringmap"), "it is not stored"


def test_what_if_of_a_sweep_and_of_a_list(project: Project) -> None:
    words = ("arch.hbm.bandwidth=4,64", "whatif=[hbm,compute]", "-m")
    trials = project.json(*RUN, *words).document["trials"]
    assert [len(one["whatif"]) for one in trials] == [2, 2]
    slow, fast = (
        next(bound["factor"] for bound in one["whatif"] if bound["resource"] == "hbm")
        for one in trials
    )
    assert slow > fast >= 1


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("whatif=hbn",), ("whatif", "there is no resource 'hbn'", "hbm")),
        (("show=wy",), ("show=wy", "why")),
        (("whatif=all", "output=csv"), ("output=csv", "output=table or json")),
        (("-m", "whatif=hbm,noc"), ("'whatif' belongs to the whole run",)),
    ],
)
def test_what_is_unknown_gets_the_nearest(
    project: Project, words: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    done = project.run(*RUN, *words)
    assert done.code == 2
    for part in parts:
        assert part in done.stderr


@pytest.mark.parametrize("word", ["whatif=all", "show=why"])
def test_targets_without_virtual_time_refuse(project: Project, word: str) -> None:
    done = project.run("run", "workload=axpy", "case=small", "target=host", word)
    assert done.code == 2
    assert "target 'host' has no virtual time" in done.stderr and "target=a5" in done.stderr


def test_points_without_virtual_time_are_left_out(project: Project) -> None:
    words = ("workload=axpy", "case=small", "target=host,a5")
    done = project.json("run", "-m", *words, "show=why")
    assert done.code == 0, done.stderr
    assert {trial["status"] for trial in done.trials} == {"ok"}


def test_a_repetition_that_fails_does_not_lose_the_trials(
    project: Project, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise DeviceError("no answer", status="timeout")

    monkeypatch.setattr(insight, "_repeated", fail)
    monkeypatch.chdir(project.folder)
    assert main([*RUN, "whatif=hbm"]) == 0
    assert "hbm: no answer" in capfd.readouterr().out


def test_a_comparison_refuses_what_if(project: Project) -> None:
    done = project.run("compare", *RUN[1:], "whatif=all", "runtime=hostgraph,ringmap")
    assert done.code == 2 and "kernloom run ... whatif=all" in done.stderr


def test_a_digest_stays_small_however_long_its_names() -> None:
    stretch = "task|3|12345678901234|" + ",".join(f"cause{i}:123456789012" for i in range(13))
    report = {f"path.{i}": f"{stretch}|{'name' * 12}{i}" for i in range(12)}
    report |= {f"peak.ring.{i}.slots": f"{10**12}/{10**12}/{10**12}" for i in range(64)}
    report |= {f"scope.{i}": f"{10**12}/{10**12}/{10**12}" for i in range(64)}
    report |= {"virtual_ps": "1", "pes": "1", "overhead_ps": "0"}
    digest = why_digest(report)
    assert len(json.dumps(digest, separators=(",", ":"))) <= MAX_WHY
    assert len(digest["path"]) == 12
    assert why_digest({"limiter": "hbm"}) == {}
