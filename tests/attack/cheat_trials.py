"""Kernels of the table as workloads of a project, and how they end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cheats import CHEATS, HEAD, WORK, Cheat

from command_line import Project

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
