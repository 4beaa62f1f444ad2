"""Corruption: whatever happens to a file that Kernloom reads back, the result is the same, or said.

Bytes are flipped, zeroed, cut off and exchanged at seeded places. A damaged cache costs time only;
of anything else, less may be known than before, but nothing that was not written.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from attacks import Attack
from command_line import Project
from kernloom.base.errors import KernloomError
from kernloom.base.places import Places, find_places
from kernloom.base.sealed import read_cache, write_cache
from kernloom.build.builder import Builder
from kernloom.build.compile_commands import write_compile_commands
from kernloom.build.explain import Index
from kernloom.build.manifest import read_manifest
from kernloom.device.opencl import probe
from kernloom.fleet.slurm.settings import SlurmSettings
from kernloom.fleet.slurm.submission import (
    ResultReader,
    Submission,
    TaskRow,
    append_row,
    begin,
    read_submission,
)
from kernloom.fleet.slurm.trial_ids import TrialIdLog
from kernloom.measure.openblas import find_openblas
from kernloom.measure.roof import Bandwidth, Calibration, Peak, load_calibration, save_calibration
from kernloom.measure.trial import Samples, Trial
from kernloom.plan.artifact import COMMANDS as COMPILE_COMMANDS
from kernloom.run.assembly import Assembly
from parsed import plans_of
from parts import without

WORDS = ("workload=axpy,good,matmul", "toolchain=gcc")
CACHES = ("composed", "rendered", "headers", "linked", "arch.json", "toolchains.json")
EACH, SMALL = 60, 8
"""How many places are damaged of each kind of file: in a whole attack, and else."""
SLURM = SlurmSettings("slurm")


@dataclass(frozen=True)
class Damage:
    """What is done to a file."""

    how: str
    seed: int

    def damaged(self, data: bytes, other: bytes) -> bytes:
        """The bytes after it; `other` are those of another file of the same kind."""
        choose = random.Random(f"{self.how}{self.seed}")
        at = choose.randrange(len(data))
        if self.how == "flip":
            return data[:at] + bytes([data[at] ^ 1 << choose.randrange(8)]) + data[at + 1 :]
        if self.how == "digit":
            digits = [place for place, byte in enumerate(data) if chr(byte).isdigit()]
            at = choose.choice(digits or [at])
            new = choose.choice([d for d in b"0123456789" if d != data[at]])
            return data[:at] + bytes([new]) + data[at + 1 :]
        if self.how == "zero":
            end = min(len(data), at + choose.randrange(1, 64))
            return data[:at] + bytes(end - at) + data[end:]
        if self.how == "truncate":
            return data[:at]
        return other


HOW = ("flip", "digit", "zero", "truncate", "swap")
DAMAGES = [Damage(HOW[number % len(HOW)], number) for number in range(EACH)]


def damaged_one_by_one(
    attack: Attack, paths: list[Path], small: int = SMALL
) -> Iterator[tuple[str, Path]]:
    """Each case damages one of the files, which is as it was when the next case begins."""
    whole = {path: path.read_bytes() for path in paths}
    for damage in attack.cases(DAMAGES, small=small):
        number = damage.seed % len(paths)
        path, other = paths[number], paths[number - 1]
        new = damage.damaged(whole[path], whole[other])
        path.write_bytes(new)
        yield f"{damage.how} {damage.seed} of {path.name}", path
        for file, data in whole.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project in which every kind of cache has entries."""
    project = Project(tmp_path_factory.mktemp("corruption"))
    project.add("good", head="#include <math.h>")
    done = project.run("build", "-m", *WORDS)
    assert done.code == 0, done.stderr
    return project


@pytest.fixture
def places(built: Project) -> Places:
    return find_places(built.folder)


def planned(places: Places) -> list[Any]:
    """All that planning finds out, by a fresh engine."""
    plans = plans_of(Assembly(places), WORDS, multirun=True)
    return [
        (plan.id, plan.params, [(item.key, item.files, item.argv) for item in plan.artifacts])
        for plan in plans
    ]


@pytest.mark.parametrize("kind", CACHES)
def test_attack_cache(attack: Attack, places: Places, kind: str) -> None:
    place = places.cache / kind
    paths = sorted(place.glob("*.json")) if place.is_dir() else [place]
    assert paths
    expected = planned(places)
    for case, _ in damaged_one_by_one(attack, paths, small=4):
        try:
            if planned(places) != expected:
                attack.failed(f"{case}: another plan")
        except Exception as error:
            attack.failed(f"{case}: {error!r}")
    attack.check()


def test_attack_manifest(attack: Attack, places: Places) -> None:
    artifacts = {
        item.key: item
        for plan in plans_of(Assembly(places), WORDS, multirun=True)
        for item in plan.artifacts
    }
    paths = [item.folder(places.build) / "manifest.json" for item in artifacts.values()]
    whole = {path: read_manifest(path.parent) for path in paths}
    for case, path in damaged_one_by_one(attack, paths):
        state = Builder(places).state(artifacts[path.parent.name])
        if state.cached and read_manifest(path.parent) != whole[path]:
            attack.failed(f"{case}: cached")
        if not state.cached and "manifest" not in state.explanation.text:
            attack.failed(f"{case}: {state.explanation.text}")
    attack.check()


def test_attack_index(attack: Attack, places: Places) -> None:
    artifacts = [plan.artifacts[0] for plan in plans_of(Assembly(places), WORDS, multirun=True)]
    index = Index(places.build)
    paths = [index.path(artifact.name) for artifact in artifacts]
    whole = {path: set(map(str, Index(places.build)._read(path.stem).entries)) for path in paths}
    for case, path in damaged_one_by_one(attack, paths):
        found = set(map(str, Index(places.build)._read(path.stem).entries))
        if not found <= whole[path]:
            attack.failed(case)
    attack.check()


def test_attack_compile_commands(attack: Attack, places: Places) -> None:
    path = places.build / COMPILE_COMMANDS
    known = json.loads(path.read_text())
    native = [entry for entry in known if entry["directory"] == str(places.share)]
    for case, _ in damaged_one_by_one(attack, [path]):
        write_compile_commands(places, [])
        found = json.loads(path.read_text())
        if found != known and not {e["file"] for e in found} <= {e["file"] for e in native}:
            attack.failed(case)
    attack.check()


def test_attack_cache_of_many_entries(attack: Attack, tmp_path: Path) -> None:
    """As emulators, OpenCL devices and OpenBLAS libraries are remembered."""
    paths = [tmp_path / "cache" / f"{name}.json" for name in ("emulators", "opencl", "openblas")]
    entries = {f"/usr/bin/{name}": {"stamp": [17, 4], "version": "8.2"} for name in "abc"}
    for path in paths:
        for name, record in entries.items():
            write_cache(path, name, record)
    for case, path in damaged_one_by_one(attack, paths):
        if read_cache(path) not in ({}, entries):
            attack.failed(case)
    attack.check()


def test_attack_openblas(attack: Attack, tmp_path: Path) -> None:
    expected = find_openblas(tmp_path)
    for case, _ in damaged_one_by_one(attack, [tmp_path / "openblas.json"], small=4):
        if find_openblas(tmp_path) != expected:
            attack.failed(case)
    attack.check()


def test_attack_opencl_devices(attack: Attack, tmp_path: Path) -> None:
    try:
        expected = probe.devices(cache=tmp_path)
    except KernloomError as error:
        without(str(error))
    paths = [tmp_path / "opencl.json"]
    if not paths[0].exists():
        without("there is no OpenCL device")
    for case, _ in damaged_one_by_one(attack, paths, small=2):
        probe._devices.cache_clear()
        if probe.devices(cache=tmp_path) != expected:
            attack.failed(case)
    attack.check()


def test_attack_calibration(attack: Attack, tmp_path: Path) -> None:
    calibration = Calibration(
        created="2025-01-02T03:04:05+00:00",
        kernloom="1",
        toolchain="gcc 12",
        machine={"cpu": "x"},
        levels={"L1": 32768},
        arches={},
        peaks=(Peak("native", "float32", 1, 100.25, (99.5, 100.25)),),
        bandwidths=(Bandwidth("native", "L1", "read", 1, 123.5, (120.0,)),),
        windows={"L1": 16384},
    )
    path = save_calibration(calibration, tmp_path)
    for case, _ in damaged_one_by_one(attack, [path, tmp_path / path.name]):
        said: list[str] = []
        found = load_calibration(tmp_path, calibration.machine, said.append)
        if found != calibration and not (found is None and said):
            attack.failed(case)
    attack.check()


def trial(number: int) -> Trial:
    return Trial(
        f"{number:016}",
        "axpy",
        "default",
        "host",
        "ok",
        True,
        metrics={"median_ns": 1000.5 + number},
        samples=(Samples(3, (1.5, 2.5), (1.25, 2.25), (0, 1)),),
    )


@pytest.fixture
def submission(tmp_path: Path) -> Submission:
    submission = begin(tmp_path / "abcdef", {}, SLURM)
    submission.add_round([[0, 1], [2, 3]])
    for number in range(4):
        append_row(submission.results(0, number // 2), TaskRow(number, trial(number)))
        submission.note_taken(number, replace(trial(number), created=f"2025-01-0{number + 1}"))
        submission.note_failure(0, number % 2, f"no compiler {number % 2}")
    return submission


def facts(submission: Submission) -> set[str]:
    """All that is known of a submission."""
    folder = submission.folder
    again = read_submission(folder)
    assert again is not None
    rounds = again.rounds()
    rows = ResultReader(again).rows(rounds, range(4))
    failed = [again.why_failed(0, task) for task in range(2)]
    return {
        str(again.token),
        *map(str, rounds),
        *map(str, rows),
        *map(str, again.taken().items()),
        *(why for why in failed if "cannot be read" not in why),
    }


def test_attack_submission(attack: Attack, submission: Submission) -> None:
    folder = submission.folder
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    whole = facts(submission)
    assert len(whole) == 12
    for case, _ in damaged_one_by_one(attack, paths, small=2 * SMALL):
        try:
            if not facts(submission) <= whole:
                attack.failed(case)
        except KernloomError as error:
            if str(folder) not in str(error):
                attack.failed(f"{case}: {error}")
    attack.check()


def test_attack_gathered(attack: Attack, tmp_path: Path) -> None:
    gathered = TrialIdLog(tmp_path)
    for number in range(8):
        gathered.add(f"sweep{number % 2}", f"{number:032}", f"{number:016}")
    whole = set(gathered.trials().items())
    assert len(whole) == 8
    for case, _ in damaged_one_by_one(attack, sorted(tmp_path.glob("*.jsonl"))):
        if not set(gathered.trials().items()) <= whole:
            attack.failed(case)
    attack.check()


COMMANDS: dict[str, Callable[[Project], Any]] = {
    "run": lambda project: project.json("run", "workload=good").trial["id"],
    "plan": lambda project: project.json("plan", "-m", *WORDS).document["trials"],
}


def test_attack_command_line(attack: Attack, built: Project, tmp_path: Path) -> None:
    """The same with the commands themselves, and any file of the build folder."""
    project = Project(tmp_path)
    shutil.copytree(built.folder / "configs", project.folder / "configs", dirs_exist_ok=True)
    shutil.copytree(built.folder / "templates", project.folder / "templates", dirs_exist_ok=True)
    shutil.copytree(built.build, project.build, symlinks=True)
    expected = {name: run(project) for name, run in COMMANDS.items()}
    paths = sorted(project.build.rglob("*.json*"))
    for case, _ in damaged_one_by_one(attack, paths, small=2):
        for name, run in COMMANDS.items():
            try:
                same = run(project) == expected[name]
            except Exception as error:
                same = False
                case = f"{case}: {error!r}"
            if not same:
                attack.failed(f"{name}: {case}")
    attack.check()
