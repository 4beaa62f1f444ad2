"""A source tree with small programs of a test's own, and the shipped configs, engine and
SConstruct."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import kernloom
from kernloom.base.places import Places, share_folder

RUNTIMES = ("hostgraph", "ringmap")
ONE = 'extern "C" const char *where() {{ return "{name}"; }}\n'
LIBRARY = """\
name: accelerator_{name}
kind: library
language: c++
family: accelerator
output: {output}
sources: {sources}
varies_by: {varies}
"""
RUNNER = """\
name: runner
kind: executable
sources: [main.c]
varies_by: [isa, variant]
"""


def library(folder: str, name: str, output: str, *, runtime: bool = False) -> dict[str, str]:
    """The files of a library of one line in the place of an accelerator's program."""
    sources = [f"{name}.cpp", *(["runtimes/{runtime}/*.cpp"] if runtime else [])]
    varies = ["isa", "variant", *(["runtime"] if runtime else [])]
    text = LIBRARY.format(name=name, output=output, sources=sources, varies=varies)
    files = {f"{folder}/program.yaml": text, f"{folder}/{name}.cpp": ONE.format(name=name)}
    for one in RUNTIMES if runtime else ():
        files[f"{folder}/runtimes/{one}/runtime.cpp"] = f"int {one}_runtime() {{ return 1; }}"
    return files


ACCELERATOR = {
    **library("accelerator/host", "host", "host.so"),
    **library("accelerator/control", "control", "control.so", runtime=True),
    **library("accelerator/core", "core", "core.so"),
    **library("accelerator/platform/sim", "platform_sim", "platform_sim.so"),
    "runner/program.yaml": RUNNER,
    "runner/main.c": "int main(void) { return 0; }\n",
}
"""The programs of an accelerator, of a line each."""


def small_tree(share: Path, native: Mapping[str, str], facts: Path | None = None) -> Path:
    """The tree; `native` has the files below native/ by their path, `facts` is what another tree
    knows of this machine's compilers."""
    for name, text in native.items():
        path = share / "native" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    shutil.copytree(share_folder() / "configs", share / "configs")
    shutil.copy(share_folder() / "SConstruct", share)
    engine = Path(kernloom.__file__).parent
    # With what Python has compiled of it, less what another process is just writing.
    unfinished = shutil.ignore_patterns("*.pyc.*")
    shutil.copytree(engine, share / "engine" / engine.name, ignore=unfinished)
    if facts:
        shutil.copytree(facts, places_in(share).cache)
    return share


def places_in(share: Path) -> Places:
    return Places(share, None, share / "build", share / ".kernloom" / "store.db")
