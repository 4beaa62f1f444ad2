"""Kills at random moments of a sweep: the same command then ends with the same store, and neither
processes nor temporary files are left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from attacks import Attack
from command_line import DOUBLE, KERNEL, PATIENCE_S, Project, command, environment, working_in

POINTS = 12
BODY = f"""\
{DOUBLE}
#if POINT == 3
    y[0] += 1;
#elif POINT == 7
    *(volatile int *)8 = POINT;
#endif
"""
VICTIMS = ("engine", "engine", "engine", "scons", "compiler", "runner", "supervisor")
"""The engine most of the time: what it leaves is nobody else's to clean up."""
PROGRAMS = {"scons": "SCons", "compiler": "cc1", "runner": "runner", "supervisor": "runner"}


def swept(project: Project) -> tuple[str, ...]:
    """A kernel of several points, one of them wrong and one that crashes; the command for it."""
    values = ",".join(map(str, range(POINTS)))
    kernel = KERNEL.format(name="points").replace(
        "function: points", "function: points, macros: {POINT: point}"
    )
    tunables = f'tunables:\n  tile:\n    point: {{values: [{values}], "off": 0}}\n'
    project.add("points", BODY, kernel=kernel + tunables)
    return "run", "-m", "workload=points", f"select.fixed.tile.point={values}"


def stored(project: Project, *words: str) -> list[tuple[Any, ...]]:
    """What a store holds, without what differs from run to run."""
    return sorted(
        (
            trial["id"],
            str(trial["params"]),
            trial["status"],
            trial["stage"],
            tuple((item["name"], item["key"]) for item in trial["artifacts"]),
        )
        for trial in project.json("results", "--limit=1000", *words).trials
    )


def descendants(pid: int) -> Iterator[tuple[int, str]]:
    """Every process below one, with its command line; parents come first."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            words = Path(f"/proc/{child}/cmdline").read_bytes().decode(errors="replace")
            yield child, words
            yield from descendants(child)


def victims(engine: int, victim: str) -> list[int]:
    try:
        if victim == "engine":
            return [engine]
        named = [(p, w) for p, w in descendants(engine) if PROGRAMS[victim] in w]
    except OSError:
        return []
    if victim == "runner":
        # The supervisor has the same command line, and comes first.
        return [pid for pid, _ in named[1:2]]
    return [pid for pid, _ in named[:1]]


def kill_one(project: Project, words: tuple[str, ...], victim: str, random: Random) -> None:
    """Start the command and kill one of its processes, or the first there is after a while."""
    with subprocess.Popen(
        command(*words),
        cwd=project.folder,
        env=environment(project.home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    ) as engine:
        try:
            engine.wait(random.uniform(0.05, 2.5))
        except subprocess.TimeoutExpired:
            while engine.poll() is None and not (found := victims(engine.pid, victim)):
                time.sleep(0.001)
            if engine.poll() is None:
                for pid in found:
                    os.kill(pid, signal.SIGKILL)
            if victim == "engine":
                engine.kill()
            engine.wait(PATIENCE_S)


def test_attack_kills(attack: Attack, project: Project, tmp_path: Path) -> None:
    sweep = swept(project)
    shutil.copytree(project.folder / ".kernloom", tmp_path / "fresh", symlinks=True)
    project.run(*sweep)
    wanted, attempts = stored(project), stored(project, "--history")
    assert len(wanted) == len(attempts) == POINTS
    for number in attack.cases(range(60), small=1):
        random = Random(number)
        shutil.rmtree(project.folder / ".kernloom")
        shutil.copytree(tmp_path / "fresh", project.folder / ".kernloom", symlinks=True)
        killed = [random.choice(VICTIMS) for _ in range(random.randint(1, 3))]
        for victim in killed:
            kill_one(project, sweep, victim, random)
        project.run(*sweep)
        what = f"case {number}, killed: {', '.join(killed)}"
        if stored(project) != wanted:
            attack.failed(f"{what}: another store: {set(stored(project)) ^ set(wanted)}")
        elif set(killed) == {"engine"} and stored(project, "--history") != attempts:
            attack.failed(f"{what}: {len(stored(project, '--history'))} rows")
        tmp = project.build / "tmp"
        if left := [*tmp.iterdir(), *project.build.glob("**/.*.json.*")]:
            attack.failed(f"{what}: files are left: {left}")
        if still := working_in(project.folder):
            attack.failed(f"{what}: processes are left: {still}")
    attack.check()
