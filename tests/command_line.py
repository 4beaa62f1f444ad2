"""A user's project, and the command line run in it as the real process it is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import kernloom
from prefork import Forked, Server

ENGINE = Path(kernloom.__file__).resolve().parents[1]
PATIENCE_S = 240
"""Less than a test may take (conftest.py): what hangs is named by what waits for it."""
COMPILED = "KERNLOOM_TESTS_COMPILED"
"""Names the folder with what Python has compiled of the engine, PoCL of kernels and Kernloom of
both, for all processes of the tests: the names depend on what was compiled, and with what."""

KERNEL = """\
name: {name}
arguments:
  n: {{kind: size}}
  x: {{kind: tensor, shape: [n]}}
  y: {{kind: tensor, access: write, shape: [n]}}
sources:
  host: {{file: {name}.c, function: {name}}}
"""
WORKLOAD = """\
defaults:
  - /kernel@kernels.{name}: {name}
  - _self_
name: {name}
sizes: {{n: {n}}}
tensors:
  x: {{shape: [n]}}
  y: {{shape: [n]}}
steps:
  call: {{kernel: {name}}}
golden: {{y: 2 * x}}
"""
SYSTEM = re.compile(r"#include <(dlfcn|fcntl|pthread|sched|setjmp|signal|std|sys/|time|unistd)")
"""Headers of functions that a kernel calls only if its workload allows it."""
FUNCTION = """\
{head}
void {name}(long n, const float *x, float *y)
{{
    {body}
}}
"""
DOUBLE = "for (long i = 0; i < n; i++) y[i] = 2 * x[i];"
"""The body of a kernel that is right."""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.stdout)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def trials(self) -> list[dict[str, Any]]:
        trials: list[dict[str, Any]] = self.document["trials"]
        return trials

    @property
    def trial(self) -> dict[str, Any]:
        (trial,) = self.trials
        return trial


def environment(home: Path, **others: str) -> dict[str, str]:
    """Ours, less what would lead a test to the files of whoever runs it, and with others; those
    that are empty are left out."""
    left_out = ("XDG_", "KERNLOOM", "PYTEST", "PYTHONDONTWRITEBYTECODE")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(left_out)}
    compiled = Path(os.environ[COMPILED])
    chosen = {
        "HOME": str(home),
        "PYTHONPATH": str(ENGINE),
        "PYTHONPYCACHEPREFIX": str(compiled / "python"),
        "POCL_CACHE_DIR": str(compiled / "pocl"),
        **others,
    }
    return {name: value for name, value in (kept | chosen).items() if others.get(name) != ""}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "kernloom", *words]


@cache
def forks() -> Server:
    """What runs commands that need no new interpreter; one for all tests of this process."""
    return Server(environment(Path.home()))


class Project:
    """A folder with a kernloom.yaml, and a home of its own beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.home = folder / "home"
        for place in (self.home, self.folder / "configs", self.folder / "templates"):
            place.mkdir(parents=True, exist_ok=True)
        self.write("kernloom.yaml", "")

    @property
    def build(self) -> Path:
        return self.folder / ".kernloom" / "build"

    def write(self, path: str, text: str) -> Path:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        return target

    def add(
        self, name: str, body: str = DOUBLE, *, head: str = "", n: int = 1000, **changed: str
    ) -> None:
        """A plain C kernel and a workload of the same name that should double a vector."""
        self.write(f"templates/{name}.c", FUNCTION.format(name=name, body=body, head=head))
        self.write(f"configs/kernel/{name}.yaml", changed.get("kernel", KERNEL.format(name=name)))
        workload = WORKLOAD.format(name=name, n=n)
        if SYSTEM.search(head):
            workload += "allow: [everything]\n"
        self.write(f"configs/workload/{name}.yaml", changed.get("workload", workload))

    def run(
        self,
        *words: str,
        cwd: Path | None = None,
        before: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> Done:
        """`kernloom WORDS` in the project; `before` is a program that starts it, if any."""
        folder, variables = cwd or self.folder, environment(self.home, **(env or {}))
        request = None if before else forks().request(words, folder, variables)
        if request:
            forked = forks().start(request)
            stdout, stderr = forked.communicate(PATIENCE_S)
            return Done(forked.wait(), stdout, stderr)
        done = subprocess.run(
            [*before, *command(*words)],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def json(self, *words: str, **how: Any) -> Done:
        return self.run(*words, "output=json", **how)

    def start(self, *words: str) -> Forked | subprocess.Popen[str]:
        """The command in a process group of its own, as a terminal would start it."""
        variables = environment(self.home)
        request = forks().request(words, self.folder, variables, group=True)
        if request:
            return forks().start(request)
        return subprocess.Popen(
            command(*words),
            cwd=self.folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    def take_runner_from(self, other: Project) -> None:
        """Start with the runner and the compiler facts that another project already has."""
        for name in ("runtimes", "index"):
            shutil.copytree(other.build / name, self.build / name, symlinks=True)
        self.take_facts_from(other)

    def share_artifacts(self) -> None:
        """Find built whatever a project that shares has built, in any process of the tests: the
        names of artifacts are those of all that goes into them."""
        share_artifacts(self.build)

    def take_facts_from(self, other: Project) -> None:
        """Start with what another project knows of this machine's compilers and devices."""
        shutil.copytree(other.build / "cache", self.build / "cache", symlinks=True)


def share_artifacts(build: Path) -> None:
    """Let a build folder share its artifacts with all that do, in any process of the tests."""
    build.mkdir(parents=True, exist_ok=True)
    for name in ("kernels", "runtimes"):
        shared = Path(os.environ[COMPILED]) / name
        shared.mkdir(exist_ok=True)
        (build / name).symlink_to(shared)


def listing(*folders: Path) -> dict[str, tuple[int, int]]:
    """Every file below the folders with size and time of change."""
    found = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            status = path.lstat()
            is_file = path.is_file()
            found[str(path)] = (status.st_size, status.st_mtime_ns) if is_file else (0, 0)
    return found


def in_group(group: int) -> list[int]:
    """The living processes of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def working_in(folder: Path) -> list[str]:
    """The command lines of living processes that run from `folder` or name it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
                place = os.readlink(entry / "cwd")  # noqa: PTH115 (a deleted folder is fine here)
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state != "Z" and (str(folder) in words or place.startswith(str(folder))):
                found.append(words.replace("\0", " "))
    return found


def unshare(project: Project, script: str) -> list[str]:
    """What starts a command in a mount namespace of its own, after `script` has changed it."""
    start = ["unshare", "--mount", "--map-root-user"]
    if not shutil.which("unshare") or subprocess.run([*start, "true"], check=False).returncode:
        pytest.skip("this system does not let us make a mount namespace")
    return [*start, "sh", "-c", f'{script} && cd "$0" && exec "$@"', str(project.folder)]
