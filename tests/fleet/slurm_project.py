"""A project whose sweeps go to Slurm, with kernels that wait until a test lets them go."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster

from command_line import DOUBLE, ENGINE, PATIENCE_S, Project

OTHER_LOGIN = """
import kernloom.base.machine
from kernloom.base.machine import machine_class as real
kernloom.base.machine.machine_class = lambda: {**real(), "cpu": "other", "cores": 99}
import kernloom.build.arches
kernloom.build.arches.host_caches = lambda: {"l1": 1 << 14, "l2": 1 << 18, "l3": 1 << 22}
"""
"""A login of another kind, by what Python loads first."""
KILLED_AT = """
import os
import {module} as module
def killed(*arguments, **named):
    {before}
    os.kill(os.getpid(), 9)
module.{name} = killed
"""
"""A login whose engine is killed where it would call this."""
HEAD = "#include <fcntl.h>\n#include <unistd.h>"


def login(project: Project, code: str) -> dict[str, str]:
    """The environment of a login on which every Python loads this first."""
    folder = project.home / "login"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(code, encoding="utf-8")
    return {"PYTHONPATH": f"{folder}:{ENGINE}"}


def killed_at(module: str, name: str, before: str = "pass") -> str:
    return KILLED_AT.format(module=module, name=name, before=before)


def files_with(text: str, folder: Path) -> list[Path]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in found if text.encode() in path.read_bytes()]


class SlurmProject:
    """Commands with `fleet=slurm` that ask the queue often."""

    def __init__(self, project: Project, slurm: Cluster) -> None:
        self.project = project
        self.slurm = slurm
        self.gate = project.folder / "gate"
        self.reached = project.folder / "reached"

    def words(self, *words: str) -> list[str]:
        return ["run", "-m", *words, "fleet=slurm", "fleet.poll=0.2"]

    def add_waiting(self, name: str) -> None:
        """A kernel that says that it runs and goes on when the gate is open."""
        wait = f'while (access("{self.gate}", F_OK)) usleep(1000);'
        say = f'close(open("{self.reached}", O_CREAT | O_WRONLY, 0600));'
        self.project.add(name, f"{say} {wait} {DOUBLE}", head=HEAD)

    def with_sbatch(self, script: str) -> dict[str, str]:
        """The environment with an sbatch that does this first, `$@` being its arguments."""
        real = shutil.which("sbatch")
        folder = self.project.home / "bin"
        folder.mkdir(exist_ok=True)
        path = folder / "sbatch"
        path.write_text(f'#!/bin/sh\n{script}\nexec {real} "$@"\n', encoding="utf-8")
        path.chmod(0o755)
        return {"PATH": f"{folder}:{os.environ['PATH']}"}

    def dead_config(self) -> Path:
        """Of a Slurm whose controller nobody can reach."""
        text = (self.slurm.folder / "slurm.conf").read_text()
        dead = text.replace("SlurmctldPort=", "SlurmctldPort=1\nMessageTimeout=1\n#")
        return self.project.write("dead.conf", dead)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return self.project.start(*self.words(*words), "output=json")

    def until_reached(self, engine: subprocess.Popen[str]) -> None:
        """Wait until a task runs the waiting kernel."""
        self.until(self.reached.exists, engine)

    def until(self, true: Callable[[], Any], engine: subprocess.Popen[str] | None = None) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            if engine and engine.poll() is not None:
                pytest.fail(f"the engine has ended: {engine.communicate()}")
            if time.monotonic() > deadline:
                pytest.fail(f"nothing happens: {self.slurm.jobs()}")
            time.sleep(0.02)

    def attempts(self) -> int:
        """How many trials were ever stored."""
        path = self.project.folder / ".kernloom/store.db"
        if not path.exists():
            return 0
        with closing(sqlite3.connect(path)) as store:
            tables = [name for (name,) in store.execute("SELECT name FROM sqlite_master")]
            if "trials" not in tables:
                return 0
            count: int = store.execute("SELECT count(*) FROM trials").fetchone()[0]
            return count

    def names(self) -> list[str]:
        """Of the jobs in the queue."""
        return sorted({line.split()[0] for line in self.slurm.jobs()})

    def cancel(self) -> None:
        for name in self.names():
            self.slurm.ask("scancel", f"--name={name}")

    def end_tasks(self) -> None:
        self.gate.touch()
        self.cancel()
        self.until(lambda: not self.slurm.jobs())

    def leftovers(self) -> list[Path]:
        """Submissions that were not taken away."""
        return list((self.project.build / "fleet").glob("*/submission.json"))
