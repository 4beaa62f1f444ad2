"""`plan` says why a trial is to run: what differs from the nearest stored one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import DOUBLE, ENGINE, WORKLOAD, Project
from kernloom.measure.numpy_code import numpy_build

REFERENCE = "def double(inputs, scalars, sizes):\n    return 2 * inputs['x']\n"
METADATA = "Metadata-Version: 2.1\nName: doubling\nVersion: 1.0\n"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, shared_project: Project) -> Project:
    """A project with a stored sweep, for those who only look."""
    project = Project(tmp_path_factory.mktemp("stored"))
    project.take_runner_from(shared_project)
    project.add("good")
    assert project.run("run", "-m", "workload=good", "workload.sizes.n=100,200").code == 0
    return project


def planned(project: Project, *words: str, **how: Any) -> dict[str, Any]:
    return project.json("plan", "workload=good", *words, **how).trial


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("seed=3",), "seed 0 -> 3"),
        (("workload.sizes.n=300",), "workload.sizes.n 200 -> 300"),
        (("measure.samples=3",), "measure.samples 7 -> 3"),
        (("toolchain=clang",), "toolchain gcc -> clang"),
        (("measure=standard",), "measure quick -> standard"),
        (("seed=3", "measure.pin=false"), "measure.pin true -> false; seed 0 -> 3"),
    ],
)
def test_the_facts_that_differ_are_named(
    stored: Project, words: tuple[str, ...], reason: str
) -> None:
    size = () if any("sizes" in word for word in words) else ("workload.sizes.n=200",)
    trial = planned(stored, *size, *words)
    assert not trial["stored"]
    assert trial["reason"] == reason


def test_the_nearest_trial_is_the_one_with_the_fewest_differences(stored: Project) -> None:
    (first,) = stored.json("results", "n=100").trials
    assert planned(stored, "workload.sizes.n=100", "seed=3")["nearest"] == first["id"]


TUNED = """\
name: {name}
arguments:
  n: {{kind: size}}
  x: {{kind: tensor, shape: [n]}}
  y: {{kind: tensor, access: write, shape: [n]}}
sources:
  host: {{file: {name}.c, function: {name}, macros: {{U: u}}}}
tunables:
  unroll:
    u: {{values: [1, 2, 4], "off": 1}}
"""
TWO_STEPS = """\
defaults:
  - /kernel@kernels.aff: aff
  - /kernel@kernels.cl: cl
  - _self_
name: two
sizes: {n: 100}
tensors:
  x: {shape: [n]}
  t: {shape: [n]}
  y: {shape: [n]}
steps:
  aff: {kernel: aff, args: {y: t}}
  cl: {kernel: cl, args: {x: t}}
golden: {y: 4 * x}
"""


@pytest.fixture
def two_steps(project: Project) -> Project:
    """A workload of two steps whose kernels have headers of their own and a tunable."""
    for name in ("aff", "cl"):
        body = "for (long i = 0; i < n; i++) y[i] = 2 * x[i] + 0 * U;"
        project.add(name, body, head=f'#include "{name}.h"', kernel=TUNED.format(name=name))
        project.write(f"templates/{name}.h", "/* nothing */\n")
    project.write("configs/workload/two.yaml", TWO_STEPS)
    return project


def test_the_nearest_trial_differs_in_single_facts_not_in_groups(two_steps: Project) -> None:
    sweep = ("-m", "workload=two", "select.fixed.unroll.u=1,2,4")
    assert two_steps.run("run", *sweep).code == 0
    stored = {
        t["point"]["select.fixed.unroll.u"]: t["id"] for t in two_steps.json("results").trials
    }
    two_steps.write("templates/cl.h", "static int other;\n")
    for trial in two_steps.json("plan", *sweep).trials:
        assert trial["reason"] == "kernel of step cl"
        assert trial["nearest"] == stored[trial["point"]["select.fixed.unroll.u"]]


def test_parameters_that_make_another_kernel_are_named(two_steps: Project) -> None:
    chosen = two_steps.write("chosen.yaml", "unroll: {u: 1}\n")
    words = ("workload=two", "select.file=chosen.yaml", "select.providers=[file,model]")
    done = two_steps.run("run", *words)
    assert done.code == 0, done.stderr
    chosen.write_text("unroll: {u: 4}\n")
    trial = two_steps.json("plan", *words).trial
    assert trial["differs"] == ["kernel of step aff: unroll.u", "kernel of step cl: unroll.u"]
    assert trial["reason"].startswith("kernel of step aff: unroll.u 1 -> 4; kernel of step cl")


def test_trials_of_one_reason_share_a_line(stored: Project) -> None:
    sweep = ("plan", "-m", "workload=good")
    done = stored.run(*sweep, "workload.sizes.n=100,200,300,400", "measure.samples=7")
    assert "2 trials to run: workload.sizes.n\n" in done.stdout
    done = stored.run(*sweep, "workload.sizes.n=100,200", "measure.samples=3")
    assert "2 trials to run: measure.samples 7 -> 3\n" in done.stdout


def test_what_was_never_run_says_so(stored: Project) -> None:
    trial = stored.json("plan", "workload=axpy").trial
    assert (trial["reason"], trial["nearest"]) == ("nothing like it is stored", "")


def test_what_is_stored_and_yet_to_run_says_why(project: Project) -> None:
    project.add("good", "while (n) {} (void)x; (void)y;")
    assert project.run("run", "workload=good", "timeout=0.5").code == 1
    assert planned(project, "timeout=0.5")["reason"] == ""
    assert planned(project, "timeout=0.5", "rerun=all")["reason"] == "rerun=all"
    assert "it ended as timeout" in planned(project, "timeout=0.7")["reason"]


def test_the_code_of_a_reference_is_part_of_a_trial(project: Project) -> None:
    site = project.folder.parent / "site"
    (site / "doubling-1.0.dist-info").mkdir(parents=True)
    (site / "doubling.py").write_text(REFERENCE)
    (site / "doubling-1.0.dist-info/METADATA").write_text(METADATA)
    entries = "[kernloom.references]\ndouble = doubling:double\n"
    (site / "doubling-1.0.dist-info/entry_points.txt").write_text(entries)
    env = {"PYTHONPATH": os.pathsep.join([str(ENGINE), str(site)])}
    workload = WORKLOAD.format(name="good", n=100).replace("y: 2 * x", "y: double")
    project.add("good", DOUBLE, workload=workload)
    assert project.run("run", "workload=good", env=env).code == 0
    assert planned(project, env=env)["stored"]
    # Of another size: Python compares only sizes and seconds with what it has compiled.
    (site / "doubling.py").write_text(REFERENCE.replace("2 *", "3.0 *"))
    changed = planned(project, env=env)
    assert not changed["stored"]
    assert changed["reason"] == "code of reference double"
    assert project.json("run", "workload=good", env=env).trial["status"] == "wrong"


def test_another_build_of_numpy_of_the_same_version_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path(np.__file__).parent
    copy = tmp_path / "there" / "numpy"
    shutil.copytree(real, copy, copy_function=os.symlink)
    if (libraries := real.with_name("numpy.libs")).exists():
        copy.with_name("numpy.libs").symlink_to(libraries)
    before = numpy_build(tmp_path)
    assert before.startswith(f"{np.__version__} ")
    monkeypatch.setattr(np, "__file__", str(copy / "__init__.py"))
    (copy / ".#version.py").symlink_to("somebody@somewhere.1234:5678")
    assert numpy_build(tmp_path) == before
    changed = copy / "version.py"
    text = changed.read_text()
    changed.unlink()
    changed.write_text(f"{text}\n# rebuilt\n")
    assert numpy_build(tmp_path) != before
