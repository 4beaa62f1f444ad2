"""Kernels of the table as workloads of a project, and how they end.

.venv/bin/python tests/attack/cheat_trials.py [POLICY [NAME ...]]
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    _ROOT = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(_ROOT / "engine"), str(_ROOT / "tests")]

from cheats import CHEATS, HEAD, WORK, Cheat

from command_line import COMPILED, Project

SOURCE = """\
{head}
{extra}
static void honest({parameters}) {{
{work}
}}

void {name}({parameters}) {{
    (void)honest;
    {body}
}}
"""
KERNEL = """\
name: {name}
arguments:
{kernel}
sources:
  host: {{file: {name}.c, function: {name}}}
"""
WORKLOAD = """\
defaults:
  - /kernel@kernels.{name}: {name}
  - _self_
name: {name}
sizes: {sizes}
tensors:
{tensors}
steps:
  call: {{kernel: {name}}}
golden: {{{golden}}}
{lines}"""
TWIN = "_twin"
SHOWN = 150
"""Characters of a message in the table."""


def add(project: Project, name: str, cheat: Cheat, body: str, lines: str) -> None:
    """A kernel and a workload of this name."""
    of = cheat.operation
    source = SOURCE.format(
        head=HEAD,
        extra=cheat.head,
        parameters=of.parameters,
        work=of.honest,
        name=name,
        body=body.replace(WORK, f"honest({of.arguments})") + ";",
    )
    project.write(f"templates/{name}.c", source)
    project.write(f"configs/kernel/{name}.yaml", KERNEL.format(name=name, kernel=of.kernel))
    workload = WORKLOAD.format(
        name=name,
        sizes=of.sizes,
        tensors=of.tensors,
        golden=of.golden,
        lines=of.more + lines,
    )
    project.write(f"configs/workload/{name}.yaml", workload)


def ends(
    project: Project, names: Iterable[str], policy: str, *, target: str = "host"
) -> Mapping[str, dict[str, Any]]:
    """The trials of these kernels and of their twins, by name."""
    order = []
    for name in names:
        cheat = CHEATS[name]
        add(project, name, cheat, cheat.body, cheat.lines)
        add(project, name + TWIN, cheat, cheat.twin, cheat.lines + cheat.twin_lines)
        order += [name, name + TWIN]
    words = (f"workload={','.join(order)}", f"measure={policy}", f"target={target}", "timeout=4")
    done = project.json("run", "-m", *words)
    return {trial["workload"]: trial for trial in done.trials}


def verdict(name: str, trials: Mapping[str, dict[str, Any]]) -> str:
    """What is wrong with how a kernel and its twin ended; empty: nothing."""
    cheat, trial, twin = CHEATS[name], trials[name], trials[name + TWIN]
    if trial["status"] not in cheat.status.split("|") or cheat.says not in trial["message"]:
        return f"{name}: {trial['status']}: {trial['message']}"
    if twin["status"] not in ("ok", "unconverged"):
        return f"{name}{TWIN}: {twin['status']}: {twin['message']}"
    return ""


def main() -> int:
    """Print the table: kernel, what it does, status, message."""
    policy, *names = sys.argv[1:] or ["quick"]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault(COMPILED, folder)
        chosen = names or list(CHEATS)
        trials = ends(Project(Path(folder)), chosen, policy)
    for name in chosen:
        trial, twin = trials[name], trials[name + TWIN]
        message = " ".join(trial["message"].split())
        problem = verdict(name, trials)
        failed += bool(problem)
        print(f"{name:22}{CHEATS[name].about}")
        print(f"{'':22}{trial['status']}: {message[:SHOWN]}")
        print(f"{'':22}twin: {twin['status']} {twin['message'][:SHOWN]}".rstrip())
        if problem:
            print(f"{'':22}NOT AS EXPECTED: {CHEATS[name].status}")
    print(f"{len(chosen)} kernels, {failed} not as expected")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
