"""`doctor --calibrate` measures this machine, and results then show their share of its roof."""

from __future__ import annotations

import json
import re

import pytest

from command_line import Project
from kernloom.measure.roof import MIXES, PATTERNS
from parts import needs


def test_doctor_says_how_to_calibrate(project: Project) -> None:
    assert "kernloom doctor --calibrate" in project.run("doctor").stdout
    assert project.json("doctor").document["calibration"] is None


def test_calibrating_and_installing_are_not_mixed(project: Project) -> None:
    done = project.run("doctor", "--calibrate", "--install")
    assert done.code == 2
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_calibrated_machine_shows_the_share_of_its_roof(project: Project) -> None:
    needs("gcc")
    before = project.json("run", "workload=axpy").trial
    assert "roof_fraction" not in before["metrics"]

    done = project.json("doctor", "--calibrate")
    assert done.code == 0, done.stderr
    found = done.document["calibration"]
    (path,) = (project.folder / ".kernloom" / "calibration").iterdir()
    assert found["file"] == str(path)
    assert json.loads(path.read_text())["peaks"] == found["peaks"]
    assert {peak["dtype"] for peak in found["peaks"]} == {"float32", "float64", "int32"}
    assert {peak["arch"] for peak in found["peaks"]} == set(found["arches"])
    assert all(peak["gflops"] > 0 for peak in found["peaks"])
    assert {"L1", "L2", "memory"} <= {entry["level"] for entry in found["bandwidths"]}
    assert {entry["pattern"] for entry in found["bandwidths"]} == set(PATTERNS)
    assert {peak["mix"] for peak in found["peaks"]} == set(MIXES)
    assert all(entry["gbytes_per_s"] > 0 for entry in found["bandwidths"])

    shown = project.run("doctor")
    assert "float32" in shown.stdout and "memory" in shown.stdout
    assert "--calibrate" not in shown.stdout
    assert re.search(r"suspicious beyond.*float32.* GFLOP/s \+\d+%.*L1 .*memory", shown.stdout)

    known = project.json("run", "workload=axpy").trial
    assert known["id"] == before["id"]
    assert known["metrics"]["roof_fraction"] > 0
    assert known["conditions"]["roof"].endswith("bandwidth")
    again = project.json("run", "workload=axpy", "rerun=all").trial
    assert again["id"] == before["id"]
    assert again["metrics"]["roof_fraction"] > 0
    assert "roof" in project.run("run", "workload=axpy").stdout

    sanitized = project.json("run", "workload=axpy", "target.variant=asan").trial
    assert "roof_fraction" not in sanitized["metrics"]
    cold = project.json("run", "workload=axpy", "measure.cache=cold").trial
    assert cold["metrics"]["roof_fraction"] > 0
