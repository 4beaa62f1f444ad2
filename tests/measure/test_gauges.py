"""A gauge that a package's device brings is measured, ranked, compared and shown like ours."""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from command_line import ENGINE, Project
from kernloom.base.gauges import (
    GAUGES,
    INSTRUCTIONS,
    SHIPPED,
    TIME,
    VIRTUAL_TIME,
    Gauge,
    Gauges,
    leading_gauge,
    metric_named,
    ranking_gauge,
)
from kernloom.measure.comparison import Compared, Comparison, Entry, counted
from kernloom.measure.ranking import objective, standings
from kernloom.measure.trial import Trial
from kernloom.report.comparisons import comparisons_document, print_comparisons
from kernloom.report.documents import run_document, screened_document
from kernloom.report.formats.t4 import t4_result
from kernloom.report.questions import Summary, groups, parse_keys
from kernloom.report.tables import print_run
from kernloom.run.screening import Screening

METERS = '''
"""Devices that measure more than time; kernels run on this machine."""

from dataclasses import replace

from kernloom.base.gauges import TIME, Gauge
from kernloom.base.units import three_digits
from kernloom.device.host import HostDevice

ENERGY = Gauge(
    name="energy_j",
    heading="energy",
    unit="J",
    label="J",
    text=three_digits,
    rank=5,
    low="energy_low_j",
    high="energy_high_j",
)
FRUGALITY = Gauge(name="frugality", heading="frugality", better="larger", exact=True)


class Metered:
    """A session with readings."""

    def __init__(self, session, read):
        self._session, self._read = session, read

    def __getattr__(self, name):
        return getattr(self._session, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self._session.close()

    def launch(self, calls, settings=None):
        result = self._session.launch(calls, settings)
        return replace(result, readings=self._read(calls, result))

    def launch_and_view(self, calls, settings, buffers):
        result, seen = self._session.launch_and_view(calls, settings, buffers)
        return replace(result, readings=self._read(calls, result)), seen

    def launch_varied(self, calls, settings, variation, buffers):
        result, seen = self._session.launch_varied(calls, settings, variation, buffers)
        return replace(result, readings=self._read(calls, result)), seen


class EnergyMeter(HostDevice):
    """Energy is sampled, beside the time."""

    name = "energy_meter"
    gauges = (TIME, ENERGY)

    def open(self, *, timeout=60.0):
        return Metered(super().open(timeout=timeout), self._energy)

    def _energy(self, calls, result):
        joules = calls[0].kernel.path.stat().st_size / 1e3
        return {ENERGY.name: tuple(joules * result.inner for _ in result.wall_ns)}


class FrugalityMeter(HostDevice):
    """Frugality is exact, and more of it is better."""

    name = "frugality_meter"
    gauges = (FRUGALITY,)

    def open(self, *, timeout=60.0):
        return Metered(super().open(timeout=timeout), self._frugality)

    def _frugality(self, calls, result):
        total = 10**9 // calls[0].kernel.path.stat().st_size * result.inner
        return {FRUGALITY.name: tuple(total for _ in result.wall_ns)}
'''
ENTRY_POINTS = """\
[kernloom.devices]
energy_meter = outside_meters:EnergyMeter
frugality_meter = outside_meters:FrugalityMeter
"""
TARGET = """\
# @package _global_
defaults:
  - /toolchain: gcc
  - /arch: native
  - /runtime: none
  - /pipeline: native
  - _self_

target:
  name: {name}
  family: host
  device: {name}
  sources: [host]
  variant: release
  variants: [release]
  systems: [linux]
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """What `pip install` leaves of a package with two devices."""
    folder = tmp_path / "packages"
    info = folder / "outside_meters-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: outside-meters\nVersion: 1\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")
    (folder / "outside_meters.py").write_text(METERS, encoding="utf-8")
    return folder


@pytest.fixture
def installed(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package in this process, which has not looked for any yet."""
    monkeypatch.syspath_prepend(package)
    for name, value in vars(Gauges()).items():
        monkeypatch.setattr(GAUGES, name, value)
    yield
    sys.modules.pop("outside_meters", None)


@pytest.fixture
def measured(make_trial: Callable[..., Trial]) -> Callable[..., Trial]:
    def make(id: str, **metrics: Any) -> Trial:
        return make_trial(id=id, metrics=metrics)

    return make


def test_every_gauge_says_what_the_table_asks_for() -> None:
    assert leading_gauge(SHIPPED) == VIRTUAL_TIME
    assert [gauge.name for gauge in sorted(SHIPPED, key=lambda gauge: gauge.rank)] == [
        "virtual_ns",
        "instructions",
        "median_ns",
    ]
    assert [gauge.with_label(1500) for gauge in SHIPPED] == [
        "1.50 µs",
        "1.50 µs virtual",
        "1,500 instructions",
    ]
    assert [gauge.exact for gauge in SHIPPED] == [False, True, True]
    assert TIME.keys == ("median_ns", "ci_low_ns", "ci_high_ns")
    assert metric_named("peers.numpy.median_ns") == TIME
    assert metric_named("instructions") == INSTRUCTIONS


def test_more_is_better_where_the_gauge_says_so() -> None:
    gauge = Gauge("frugality", better="larger")
    assert gauge.best([1, 3, 2]) == 3
    assert gauge.cost(3) < gauge.cost(1)
    assert gauge.gain(2, 6) == 3
    assert TIME.gain(6, 2) == 3
    found = counted("a", "b", {"a": 100, "b": 300}, 0.01, gauge)
    assert (found.speedup, found.verdict) == (3, "faster")


def test_packages_are_looked_for_only_when_a_metric_is_not_ours(installed: None) -> None:
    assert GAUGES.all(["median_ns", "samples", "deterministic", "peers"]) == SHIPPED
    assert "outside_meters" not in sys.modules
    names = [gauge.name for gauge in GAUGES.all(["median_ns", "energy_j"])]
    assert names == ["median_ns", "virtual_ns", "instructions", "energy_j", "frugality"]


def test_trials_are_ranked_by_a_gauge_from_outside(
    installed: None, measured: Callable[..., Trial]
) -> None:
    poor, good = (measured(str(f), frugality=f, deterministic=["frugality"]) for f in (200, 500))
    found = standings([poor, good])
    assert found["500"].best
    assert (found["200"].ratio, found["200"].certain) == (2.5, True)
    assert objective(good).metric == "frugality"
    assert objective(good).value < objective(poor).value
    # Its rank says that energy comes before time.
    sampled = measured("s", median_ns=5.0, energy_j=2.0)
    gauge = ranking_gauge(sampled.metrics)
    assert gauge and gauge.name == "energy_j"


def test_a_sampled_gauge_from_outside_has_intervals(
    installed: None, measured: Callable[..., Trial]
) -> None:
    def joules(value: float, low: float, high: float) -> Trial:
        bounds = {"energy_low_j": low, "energy_high_j": high}
        return measured(str(value), energy_j=value, **bounds, samples=30, processes=3)

    found = standings([joules(10, 9, 11), joules(12, 10.5, 13), joules(20, 18, 22)])
    assert [found[id].certain for id in ("12", "20")] == [False, True]


def test_tables_documents_and_exports_show_it(
    installed: None, measured: Callable[..., Trial]
) -> None:
    trials = [
        measured(
            str(value),
            energy_j=value,
            energy_low_j=0.9 * value,
            energy_high_j=1.1 * value,
            deterministic=[],
        )
        for value in (2.0, 3.0)
    ]
    page = io.StringIO()
    print_run(trials, {}, page)
    assert "energy" in page.getvalue()
    assert "2.00 ±10.0%" in page.getvalue()
    assert run_document(trials, {})["trials"][0]["metrics"]["energy_j"] == 2.0
    assert screened_document(trials[0])["energy_j"] == 2.0
    answer = groups(Summary(trials, parse_keys("workload", "group")))
    assert answer.documents()[0] | {"workload": ""} == {
        "workload": "",
        "trials": 2,
        "verified": 2,
        "metric": "energy_j",
        "best": 2.0,
        "median": 2.5,
    }
    exported = t4_result(trials[0], "energy_j", ())["measurements"]
    assert {"name": "energy_j", "value": 2.0, "unit": "J"} in exported
    text = Screening(trials=tuple(trials)).text
    assert ": best 2.00 J, median 2.50 J" in text


def test_comparisons_show_it(installed: None) -> None:
    energy = next(gauge for gauge in GAUGES.all(["energy_j"]) if gauge.name == "energy_j")
    entries = [Entry("a", metrics={"energy_j": 4.0}), Entry("b", metrics={"energy_j": 2.0})]
    judged = Comparison("a", "b", 2.0, 1.9, 2.1, "faster", 12)
    found = replace(Compared(entries, [judged]), clock="energy_j", gauge=energy)
    page = io.StringIO()
    print_comparisons(found, page)
    heading, *_ = page.getvalue().splitlines()
    assert heading.split() == ["what", "energy", "speedup", "interval", "verdict", "rounds"]
    contender = comparisons_document(found)["contenders"][1]
    assert (contender["energy_j"], contender["median_ns"]) == (2.0, None)


def test_documents_of_comparisons_have_the_keys_of_time_and_instructions() -> None:
    found = Compared([Entry("a", metrics={"instructions": 5})], [], gauge=INSTRUCTIONS)
    assert comparisons_document(found)["contenders"] == [
        {
            "name": "a",
            "status": "ok",
            "message": "",
            "median_ns": None,
            "ci_low_ns": None,
            "ci_high_ns": None,
            "instructions": 5,
            "artifacts": [],
            "rounds_ns": [],
        }
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "metric", "deterministic"),
    [("energy_meter", "energy_j", []), ("frugality_meter", "frugality", ["frugality"])],
)
def test_a_device_from_outside_measures_and_compares_by_its_own_gauge(
    project: Project, package: Path, device: str, metric: str, deterministic: list[str]
) -> None:
    project.write(f"configs/target/{device}.yaml", TARGET.format(name=device))
    project.add("small")
    # Its file is larger: more joules, less frugality.
    project.add("large", head="static const char waste[100000] __attribute__((used)) = {1};")
    env = {"PYTHONPATH": os.pathsep.join([str(ENGINE), str(package)])}
    words = ("-m", "workload=small,large", f"target={device}", "measure=quick")
    done = project.json("run", *words, env=env)
    assert done.code == 0, done.stderr + done.stdout
    metrics = [trial["metrics"] for trial in done.trials]
    assert [found["deterministic"] for found in metrics] == [deterministic] * 2
    assert ("median_ns" in metrics[0]) == (device == "energy_meter")
    shown = project.run("run", *words, env=env)
    assert metric.removesuffix("_j") in shown.stdout
    names = [f"workload={name} target={device}" for name in ("large", "small")]
    done = project.json("compare", *names, "--with", "measure=quick", env=env)
    [found] = done.document["comparisons"]
    large, small = (entry[metric] for entry in done.document["contenders"])
    ratio = large / small if device == "energy_meter" else small / large
    assert ratio > 1
    assert math.isclose(found["speedup"], ratio)


def test_what_is_timed_is_not_compared_with_what_is_not(project: Project, package: Path) -> None:
    project.write("configs/target/frugality_meter.yaml", TARGET.format(name="frugality_meter"))
    project.add("small")
    env = {"PYTHONPATH": os.pathsep.join([str(ENGINE), str(package)])}
    names = [f"workload=small target={name}" for name in ("host", "frugality_meter")]
    done = project.run("compare", *names, env=env)
    assert done.code == 2
    assert "their devices measure different things (time and frugality)" in done.stderr
