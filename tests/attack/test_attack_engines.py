"""Many engines at once on one sweep, some of them killed: as many rows as trials, all of them
right."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path
from random import Random

from attacks import Attack
from command_line import Project, command, environment, working_in

SIZES = ",".join(str(size) for size in range(100, 140))
POINTS = 40
SWEEP = ("run", "-m", "workload=shared", f"workload.sizes.n={SIZES}")
PATIENCE_S = 900
WORDS = (
    (),
    ("fleet.overlap=true",),
    ("fleet.exclusive=measuring",),
    (
        *("measure=standard", "measure.max_rounds=2", "measure.min_rounds=2", "measure.bound=1"),
        "measure.span_s=0",
    ),
)
CASES = [
    (engines, killed, words)
    for engines, killed in ((4, 0), (8, 0), (8, 3), (16, 4))
    for words in WORDS
] + [(64, 16, ())]


def start(project: Project, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(*SWEEP, *words),
        cwd=project.folder,
        env=environment(project.home),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        process_group=0,
    )


def test_attack_engines_at_once(attack: Attack, project: Project, tmp_path: Path) -> None:
    project.add("shared")
    shutil.copytree(project.folder / ".kernloom", tmp_path / "fresh", symlinks=True)
    # The first is the smallest.
    for engines, killed, words in attack.cases(CASES if attack.whole else CASES[:1], small=1):
        random = Random(engines * 100 + killed)
        shutil.rmtree(project.folder / ".kernloom")
        shutil.copytree(tmp_path / "fresh", project.folder / ".kernloom", symlinks=True)
        running = [start(project, *words) for _ in range(engines)]
        for engine in random.sample(running, killed):
            try:
                engine.wait(random.uniform(0, 5))
            except subprocess.TimeoutExpired:
                engine.send_signal(signal.SIGKILL)
        ended = [(e.communicate(timeout=PATIENCE_S)[1], e.returncode) for e in running]
        what = f"{engines} engines, {killed} killed, {' '.join(words)}"
        if bad := [error.decode() for error, code in ended if code not in (0, -signal.SIGKILL)]:
            attack.failed(f"{what}: {bad[0][-500:]}")
        rows = project.json("results", "--history", "--limit=10000").trials
        if len(rows) != POINTS or any(row["status"] != "ok" for row in rows):
            attack.failed(f"{what}: {len(rows)} rows for {POINTS} trials")
        if still := working_in(project.folder):
            attack.failed(f"{what}: processes are left: {still}")
    attack.check()
