"""Kernels of the table as workloads of a project, and how they end.

.venv/bin/python tests/attack/cheat_trials.py [--opencl] [POLICY [NAME ...]]
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    _ROOT = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(_ROOT / "engine"), str(_ROOT / "tests")]

import cheats
import cheats_opencl
from cheats import WORK, Cheat

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
OPENCL_SOURCE = """\
{extra}

static void honest(long item, long last, {parameters})
{{
{work}
}}

__kernel void {name}({parameters})
{{
    const long item = get_global_id(0), last = get_global_size(0) - 1;
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
OPENCL_KERNEL = """\
name: {name}
dtypes: [float32]
arguments:
{kernel}
sources:
  opencl:
    file: {name}.cl
    function: {name}
    work: {{items: [{items}], group: [32]}}
"""


@dataclass(frozen=True)
class Language:
    """What kernels of a table are written in."""

    cheats: Mapping[str, Cheat]
    suffix: str
    source: str
    kernel: str
    call: str
    words: tuple[str, ...]


C = Language(
    cheats.CHEATS, "c", SOURCE, KERNEL, "honest({arguments})", ("target=host", "timeout=4")
)
OPENCL = Language(
    cheats_opencl.CHEATS,
    "cl",
    OPENCL_SOURCE,
    OPENCL_KERNEL,
    "honest(item, last, {arguments})",
    # Variables of the program.
    ("target=opencl", "timeout=30", "toolchain.flags=['-cl-std=CL2.0']"),
)
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


def add(
    project: Project, name: str, cheat: Cheat, body: str, lines: str, language: Language = C
) -> None:
    """A kernel and a workload of this name."""
    of = cheat.operation
    source = language.source.format(
        head=cheats.HEAD,
        extra=cheat.head,
        parameters=of.parameters,
        work=of.honest,
        name=name,
        body=body.replace(WORK, language.call.format(arguments=of.arguments)) + ";",
    )
    project.write(f"templates/{name}.{language.suffix}", source)
    items = cheats_opencl.ITEMS.get(of, "")
    kernel = language.kernel.format(name=name, kernel=of.kernel, items=items)
    project.write(f"configs/kernel/{name}.yaml", kernel)
    workload = WORKLOAD.format(
        name=name,
        sizes=of.sizes,
        tensors=of.tensors,
        golden=of.golden,
        lines=of.more + lines,
    )
    project.write(f"configs/workload/{name}.yaml", workload)


def ends(
    project: Project, names: Iterable[str], policy: str, language: Language = C
) -> Mapping[str, dict[str, Any]]:
    """The trials of these kernels and of their twins, by name."""
    order = []
    for name in names:
        cheat = language.cheats[name]
        add(project, name, cheat, cheat.body, cheat.lines, language)
        add(project, name + TWIN, cheat, cheat.twin, cheat.lines + cheat.twin_lines, language)
        order += [name, name + TWIN]
    words = (f"workload={','.join(order)}", f"measure={policy}", *language.words)
    done = project.json("run", "-m", *words)
    return {trial["workload"]: trial for trial in done.trials}


def verdict(name: str, trials: Mapping[str, dict[str, Any]], language: Language = C) -> str:
    """What is wrong with how a kernel and its twin ended; empty: nothing."""
    cheat, trial, twin = language.cheats[name], trials[name], trials[name + TWIN]
    if trial["status"] not in cheat.status.split("|") or cheat.says not in trial["message"]:
        return f"{name}: {trial['status']}: {trial['message']}"
    if twin["status"] not in ("ok", "unconverged"):
        return f"{name}{TWIN}: {twin['status']}: {twin['message']}"
    return ""


def main() -> int:
    """Print the table: kernel, what it does, status, message."""
    words = sys.argv[1:]
    language = OPENCL if "--opencl" in words else C
    policy, *names = [word for word in words if word != "--opencl"] or ["quick"]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault(COMPILED, folder)
        chosen = names or list(language.cheats)
        trials = ends(Project(Path(folder)), chosen, policy, language)
    for name in chosen:
        trial, twin = trials[name], trials[name + TWIN]
        message = " ".join(trial["message"].split())
        problem = verdict(name, trials, language)
        failed += bool(problem)
        print(f"{name:22}{language.cheats[name].about}")
        print(f"{'':22}{trial['status']}: {message[:SHOWN]}")
        print(f"{'':22}twin: {twin['status']} {twin['message'][:SHOWN]}".rstrip())
        if problem:
            print(f"{'':22}NOT AS EXPECTED: {language.cheats[name].status}")
    print(f"{len(chosen)} kernels, {failed} not as expected")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
