"""What makes trials the same, and a point whose plan fails, which is a row like any other."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import kernloom
from command_line import ENGINE, WORKLOAD, Project
from kernloom.base.files import sha256_file
from kernloom.base.places import find_places
from kernloom.plan import identity
from kernloom.plan.planned import Planned
from kernloom.run import code_facts
from kernloom.run.assembly import Assembly
from parsed import plans_of

TREE = ENGINE.parent
RUNNERS = [
    "device/opencl/service.py",
    "device/opencl/kernels.py",
    "device/opencl/memory.py",
    "device/opencl/worker.py",
    "device/embedded/device.py",
    "device/embedded/firmware.py",
    "device/runner.py",
    "measure/sampler.py",
    "base/gauges.py",
]
PATH = "sweep.axes={{workload.tensors.x.fill.path: [{}]}}"
PLUG_INS = """
from kernloom.plan.transforms import Transform


def moody(request):
    raise ZeroDivisionError("not today")


def silent(request):
    return None


class Hollow(Transform):
    transform = "hollow"

    def apply(self, schedule, context):
        return None
"""
ENTRY_POINTS = """\
[kernloom.providers]
moody = plug_ins:moody
silent = plug_ins:silent
[kernloom.stages]
hollow = plug_ins:Hollow
"""


@pytest.fixture
def filled(project: Project) -> Project:
    """A project whose workload takes its input from a file."""
    text = WORKLOAD.format(name="filled", n=10).replace(
        "x: {shape: [n]}", "x: {shape: [n], fill: {kind: file, path: data/good.npy}}"
    )
    project.add("filled", workload=text)
    project.write("data/corrupt.npy", "not numbers")
    np.save(project.folder / "data/good.npy", np.arange(10, dtype=np.float32))
    return project


@pytest.fixture
def plug_ins(tmp_path: Path) -> dict[str, str]:
    """The environment in which a distribution with faulty plug-ins is installed."""
    site = tmp_path / "site"
    info = site / "plug_ins-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "plug_ins.py").write_text(PLUG_INS)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plug-ins\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return {"PYTHONPATH": f"{ENGINE}:{site}"}


@pytest.mark.parametrize("module", RUNNERS)
def test_the_code_that_runs_and_times_kernels_is_part_of_a_trial(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "kernloom"
    shutil.copytree(ENGINE / "kernloom", package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(kernloom, "__file__", str(package / "__init__.py"))
    digest = code_facts.engine_digest.__wrapped__
    before = digest()
    (package / module).with_name(".#lock.py").symlink_to("somebody@somewhere.1234:5678")
    assert digest() == before
    with (package / module).open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert digest() != before


def test_an_engine_that_runs_kernels_differently_plans_other_trials(
    project: Project, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    engine = tree / "engine"
    shutil.copytree(ENGINE, engine, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("configs", "templates", "native", "SConstruct"):
        (tree / name).symlink_to(TREE / name)
    words = ("plan", "workload=axpy")
    before = project.json(*words).document["trials"][0]["id"]
    there = {"PYTHONPATH": str(engine)}
    assert project.json(*words, env=there).document["trials"][0]["id"] == before
    with (engine / "kernloom/device/host/device.py").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert project.json(*words, env=there).document["trials"][0]["id"] != before


def test_limits_do_not_make_other_trials(shared_project: Project) -> None:
    def ids(*words: str) -> list[str]:
        done = shared_project.json("plan", *words, "workload=axpy")
        return [trial["id"] for trial in done.document["trials"]]

    assert ids() == ids("timeout=3") == ids("memory_limit=1GiB")
    # A sweep over one asks what comes of each.
    assert len(set(ids("-m", "timeout=2,3"))) == 2


def test_only_what_ran_into_a_limit_is_carried_out_again_under_a_higher_one(
    project: Project,
) -> None:
    project.add("good")
    project.add("hang", "while (1) {} (void)x; (void)y; (void)n;")
    sweep = ("run", "-m", "workload=good,hang")
    first = project.json(*sweep, "timeout=1")
    assert [trial["status"] for trial in first.trials] == ["ok", "timeout"]
    lower = project.json(*sweep, "timeout=0.5")
    assert [trial["reused"] for trial in lower.trials] == [True, True]
    higher = project.json(*sweep, "timeout=1.5")
    assert [trial["reused"] for trial in higher.trials] == [True, False]


def test_a_missing_data_file_is_the_fault_of_its_point_alone(filled: Project) -> None:
    paths = PATH.format("data/good.npy, data/missing.npy, data/corrupt.npy")
    done = filled.json("run", "-m", "workload=filled", paths)
    assert done.code == 1
    assert [trial["status"] for trial in done.trials] == ["ok", "refused", "refused"]
    missing = done.trials[1]
    assert missing["stage"] == "plan"
    assert "workload.tensors.x.fill.path" in missing["message"]
    assert "'data/missing.npy' does not exist" in missing["message"]
    alone = filled.run("run", "workload=filled", "workload.tensors.x.fill.path=data/missing.npy")
    assert (alone.code, alone.stdout) == (2, "")


def test_a_data_file_is_hashed_once_for_all_points_and_again_when_it_changes(
    filled: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []

    def counting(path: Path) -> str:
        if path.suffix == ".npy":
            hashed.append(path.name)
        if path.name == "corrupt.npy":
            raise PermissionError(13, "Permission denied", str(path))
        return sha256_file(path)

    monkeypatch.setattr(identity, "sha256_file", counting)
    assembly = Assembly(find_places(filled.folder))

    def plan() -> list[Planned]:
        paths = PATH.format("data/good.npy, data/corrupt.npy")
        return plans_of(assembly, ["workload=filled", paths, "seed=1,2,3"], multirun=True)

    first = plan()
    assert hashed.count("good.npy") == 1
    refused = [str(item.refusal.error) for item in first if item.refusal]
    assert len(refused) == 3
    assert all("'data/corrupt.npy' cannot be read: Permission denied" in text for text in refused)
    np.save(filled.folder / "data/good.npy", np.ones(10, dtype=np.float32))
    second = plan()
    assert hashed.count("good.npy") == 2
    good = [(a.id, b.id) for a, b in zip(first, second, strict=True) if not a.refusal]
    assert all(before != after for before, after in good)


@pytest.mark.parametrize(
    ("provider", "says"),
    [
        ("moody", "select.providers=moody: it failed for step"),
        ("silent", "select.providers=silent: it gave None for step"),
    ],
)
def test_a_provider_that_fails_refuses_its_point_alone(
    project: Project, plug_ins: dict[str, str], provider: str, says: str
) -> None:
    words = ("workload=axpy", "case=small")
    both = f"select.providers=[model],[{provider},model]"
    done = project.json("run", "-m", *words, both, env=plug_ins)
    assert [trial["status"] for trial in done.trials] == ["ok", "refused"], done
    assert (done.code, done.trials[1]["stage"]) == (1, "choice")
    assert says in done.trials[1]["message"]
    alone = project.run("run", *words, f"select.providers=[{provider}]", env=plug_ins)
    assert (alone.code, "Traceback" in alone.stderr) == (2, False)
    assert says in alone.stderr


def test_a_stage_that_gives_others_nonsense_refuses_its_point_alone(
    project: Project, plug_ins: dict[str, str]
) -> None:
    stage = "pipeline.stages.odd={use: hollow, in: {schedule: {ref: threads.schedule}, params: {}}}"
    after = "pipeline.stages.source.in.schedule.ref=threads.schedule,odd.schedule"
    words = ("workload=axpy", "case=small", stage, after)
    done = project.json("run", "-m", *words, env=plug_ins)
    assert [trial["status"] for trial in done.trials] == ["ok", "refused"], done
    assert "Error" in done.trials[1]["message"]
