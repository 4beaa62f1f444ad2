"""Kernels of the table as workloads of a project, and how they end.

.venv/bin/python tests/attack/cheat_trials.py [--opencl | --closed-door] [POLICY [NAME ...]]
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
import closed_door
from cheats import WORK, Cheat
from closed_door import TWIN

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
ALLOWED = "_allowed"
EVERYTHING = "allow: [everything]\n"
AT_ONCE = 8
"""Kernels of one sweep, each with its twin."""
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
    """The trials of these kernels, allowed to import everything where they need it, and of their
    twins, by name."""
    order = []
    for name in names:
        cheat = language.cheats[name]
        add(project, name, cheat, cheat.body, cheat.lines, language)
        add(project, name + TWIN, cheat, cheat.twin, cheat.lines + cheat.twin_lines, language)
        order += [name, name + TWIN]
        if cheat.imports:
            lines = cheat.lines + EVERYTHING
            add(project, name + ALLOWED, cheat, cheat.body, lines, language)
            order.append(name + ALLOWED)
    words = (f"workload={','.join(order)}", f"measure={policy}", *language.words)
    done = project.json("run", "-m", *words)
    return {trial["workload"]: trial for trial in done.trials}


def verdict(name: str, trials: Mapping[str, dict[str, Any]], language: Language = C) -> str:
    """What is wrong with how a kernel and its twin ended; empty: nothing."""
    cheat, twin = language.cheats[name], trials[name + TWIN]
    expected = {name: (cheat.status, cheat.says)}
    if cheat.imports:
        expected = {name: ("refused", f"imports '{cheat.imports}'")}
        expected[name + ALLOWED] = (cheat.status, cheat.says)
    for one, (statuses, says) in expected.items():
        trial = trials[one]
        if trial["status"] not in statuses.split("|") or says not in trial["message"]:
            return f"{one}: {trial['status']}: {trial['message']}"
    if twin["status"] not in ("ok", "unconverged"):
        return f"{name}{TWIN}: {twin['status']}: {twin['message']}"
    return ""


def show(
    name: str, about: str, expected: str, trials: Mapping[str, dict[str, Any]], problem: str
) -> bool:
    """Print how a kernel ended; whether that is not as expected."""
    print(f"{name:22}{about}")
    for label, one in (("", name), ("allowed: ", name + ALLOWED), ("twin: ", name + TWIN)):
        if one in trials:
            message = " ".join(trials[one]["message"].split())
            print(f"{'':22}{label}{trials[one]['status']}: {message[:SHOWN]}".rstrip(": "))
    if problem:
        print(f"{'':22}NOT AS EXPECTED: {expected}")
    return bool(problem)


def main() -> int:
    """Print the table: kernel, what it does, status, message."""
    words = sys.argv[1:]
    policy, *names = [word for word in words if not word.startswith("--")] or ["quick"]
    language = OPENCL if "--opencl" in words else C
    table: Mapping[str, Cheat | closed_door.Cheat] = language.cheats
    if "--closed-door" in words:
        table = closed_door.CHEATS
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault(COMPILED, folder)
        chosen = names or list(table)
        project = Project(Path(folder))
        for start in range(0, len(chosen), AT_ONCE):
            some = chosen[start : start + AT_ONCE]
            if table is closed_door.CHEATS:
                trials = closed_door.ends(project, some, policy)
                problems = [closed_door.verdict(name, trials) for name in some]
            else:
                trials = ends(project, some, policy, language)
                problems = [verdict(name, trials, language) for name in some]
            for name, problem in zip(some, problems, strict=True):
                failed += show(name, table[name].about, table[name].status, trials, problem)
    print(f"{len(chosen)} kernels, {failed} not as expected")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
