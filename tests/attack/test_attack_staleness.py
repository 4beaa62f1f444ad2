"""Changes by kind: what can alter a result is noticed and named, what cannot leaves it stored."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from attacks import Attack
from command_line import ENGINE, Project

KERNEL = """\
name: bend
about: y = a x + c
arguments:
  n: {kind: size}
  x: {kind: tensor, shape: [n]}
  c: {kind: tensor, shape: [n]}
  a: {kind: scalar}
  y: {kind: tensor, access: write, shape: [n]}
sources:
  host: {template: bend.c.j2}
  opencl: {template: bend.cl.j2, work: {items: [n], group: [1]}}
tunables:
  unroll:
    k: {values: [1, 2], "off": 1, about: nothing much}
"""
TEMPLATE = """\
{# a note that is not rendered #}
#include "bend.h"
void {{ function }}(long n, const float *x, const float *c, float a, float *y)
{
    for (long i = 0; i < n; i++) y[i] = BEND(a, x[i], c[i]) + {{ unroll.k }} - {{ unroll.k }};
}
"""
PLAIN = """\
#include "bend.h"
void bend(long n, const float *x, const float *c, float a, float *y)
{
    for (long i = 0; i < n; i++) y[i] = BEND(a, x[i], c[i]) * SCALE;
}
"""
WORKLOAD = """\
defaults:
  - /kernel@kernels.bend: bend
  - _self_
name: bending
about: a vector is bent
sizes: {n: 64}
scalars: {a: 2.0}
tensors:
  x: {shape: [n], fill: {kind: file, path: data/x.npy}}
  c: {shape: [n], fill: {kind: generator, generator: outside_fill}}
  y: {shape: [n]}
steps:
  call: {kernel: bend}
golden: {y: outside_bend}
tolerance:
  float32: {rtol: 1.0e-4, atol: 1.0e-4}
  float64: {rtol: 1.0e-9, atol: 1.0e-9}
cost: {flops: 2 * n, bytes: 12 * n}
cases:
  big: {sizes: {n: 128}}
"""
OUTSIDE = """\
from outside.helper import bent


def reference(inputs, scalars, sizes):
    from lazy_outside import offset
    return bent(inputs, scalars) + offset


def fill(spec, random):
    import numpy
    return numpy.full(spec.shape, 0.5)
"""
HELPER = """\
def bent(inputs, scalars):
    return scalars["a"] * inputs["x"] + inputs["c"]
"""
STAGE = """\
from kernloom.pipeline.stage import Stage


class Note(Stage):
    phase = "run"
    inputs = {"artifacts": "artifacts"}
    outputs = {"warnings": "warnings"}

    def run(self, context, inputs):
        return {"warnings": ()}
"""
ENTRY_POINTS = """\
[kernloom.references]
outside_bend = outside:reference
[kernloom.generators]
outside_fill = outside:fill
[kernloom.stages]
note = outside.stage:Note
"""
METADATA = "Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n"
NOTE = "+pipeline.stages.note={use: note, in: {artifacts: {ref: library.artifacts}}}"
COUNTED = "target=host_counted"
PLAIN_FILE = (
    "+workload.kernels.bend.sources.host="
    "{template: null, file: bend.c, function: bend, macros: {SCALE: 1}}"
)
OTHER = ("workload=axpy", "case=small")


@dataclass(frozen=True)
class Case:
    """One change, and what a plan must say about it."""

    what: str
    names: str = ""
    """How one of the differing facts is called; nothing if the trial must stay stored."""
    words: tuple[str, ...] = ()
    files: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """File -> a part of its text, and what stands there instead; to the end, if there is none."""
    base: tuple[str, ...] = ()
    """Words of the stored trial that is changed."""
    env: str = ""
    """Another folder of packages."""


def edit(what: str, names: str, file: str, old: str, new: str, *base: str) -> Case:
    return Case(what, names, files={file: (old, new)}, base=base)


def say(what: str, names: str, *words: str, base: tuple[str, ...] = ()) -> Case:
    return Case(what, names, words, base=base)


SITE = "../site/outside"
KERNEL_FILE, WORKLOAD_FILE = "configs/kernel/bend.yaml", "configs/workload/bending.yaml"

ALTERING = [
    edit("reference code", "code of reference", f"{SITE}/__init__.py", "+ offset", "- offset"),
    edit("a module of the reference", "code of reference", f"{SITE}/helper.py", "] +", "] + 0 +"),
    edit("a module imported late", "code of reference", "../site/lazy_outside.py", "0", "0.0"),
    edit("generator code", "code of generator", f"{SITE}/__init__.py", "0.5", "0.25"),
    edit("its version", "code of reference", f"{SITE}-1.0.dist-info/METADATA", "1.0\n", "1.1\n"),
    edit("code of a run stage", "code of stage", f"{SITE}/stage.py", "()}", "[]}", NOTE),
    Case("numpy", "code of numpy", env="other_numpy"),
    Case("data file", "data file of tensor x", files={"data/x.npy": ("", "")}),
    edit("golden", "workload.golden", WORKLOAD_FILE, "outside_bend", "a * x + c"),
    edit("tolerance", "workload.tolerance", WORKLOAD_FILE, "rtol: 1.0e-4", "rtol: 1.0e-3"),
    edit("cost", "workload.cost", WORKLOAD_FILE, "2 * n", "3 * n"),
    edit(
        "fill", "workload.tensors.c", WORKLOAD_FILE, "generator: outside_fill", "generator: arange"
    ),
    edit("kind of fill", "workload.tensors.c", WORKLOAD_FILE, "kind: generator", "kind: normal"),
    edit("scalar in YAML", "workload.scalars", WORKLOAD_FILE, "a: 2.0", "a: 2.5"),
    edit(
        "step arguments",
        "arguments of step",
        WORKLOAD_FILE,
        "{kernel: bend}",
        "{kernel: bend, args: {a: 2}}",
    ),
    edit("kernel source", "kernel of step", "templates/bend.c.j2", "i < n;", "i <= n - 1;"),
    edit(
        "header of a kernel", "kernel of step", "templates/bend.h", "(a) *", "1 * (a) *", PLAIN_FILE
    ),
    edit("kernel file", "kernel of step", "templates/bend.c", "i < n;", "i <= n - 1;", PLAIN_FILE),
    edit("access", "arguments of step", KERNEL_FILE, "access: write", "access: update"),
    edit("values of a tunable", "kernel of step", KERNEL_FILE, "[1, 2]", "[2, 1]"),
    say("seed", "seed", "seed=1"),
    say(
        "size",
        "workload.sizes.n",
        "workload.sizes.n=32",
        base=("workload.tensors.x.fill.kind=normal",),
    ),
    say("scalar", "workload.scalars.a", "workload.scalars.a=3"),
    say("case", "case", "+workload.cases.same={}", "case=same"),
    say("place", "placement of tensor x", "+workload.tensors.x.place=host"),
    say("tunable", "kernel of step", "+select.fixed.unroll.k=2"),
    say("flag", "kernel of step", "toolchain.extra_flags=[-DOTHER]"),
    say("toolchain", "toolchain", "toolchain=clang"),
    say("arch", "arch", "arch=x86_64_v2"),
    say("variant", "variant", "target.variant=asan"),
    say("peer", "peer", "measure.peers=[numpy]"),
    say(
        "emulated CPU",
        "target.emulator.args",
        "target.emulator.args=[-cpu,Haswell]",
        base=(*OTHER, COUNTED),
    ),
    say("options of a device", "target.options", "+target.options.index=0"),
    say("order of stages", "pipeline.stages.timing", "pipeline.stages.timing.after=[]"),
    *(
        say(f"measure.{name}", f"measure.{name}", f"measure.{name}={value}")
        for name, value in {
            "samples": 3,
            "warmup": 2,
            "max_rounds": 2,
            "min_sample_us": 100,
            "bound": 0.5,
            "budget_s": 7,
            "clock": "wall",
            "pin": "false",
            "scheduling": "fifo",
            "cache": "cold",
            "aslr": "false",
        }.items()
    ),
    say("policy", "measure", "measure=standard"),
]

HARMLESS = [
    edit("about a kernel", "", KERNEL_FILE, "y = a x + c", "typo fixed"),
    edit("about a workload", "", WORKLOAD_FILE, "a vector is bent", "typo fixed"),
    edit("about a tunable", "", KERNEL_FILE, "nothing much", "typo fixed"),
    edit("about, added", "", KERNEL_FILE, "", "epilogues: []\n"),
    edit("a comment in YAML", "", WORKLOAD_FILE, "", "# a comment\n"),
    edit("a comment in a kernel's YAML", "", KERNEL_FILE, "", "# a comment\n"),
    edit("order in YAML", "", WORKLOAD_FILE, "scalars: {a: 2.0}\n", "scalars: {'a': 2.0}\n"),
    edit("a case", "", WORKLOAD_FILE, "", "  small: {sizes: {n: 8}}\n"),
    edit("another case", "", WORKLOAD_FILE, "n: 128", "n: 256"),
    edit(
        "a source for another target",
        "",
        KERNEL_FILE,
        "sources:\n",
        "sources:\n  cm4: {template: m.c}\n",
    ),
    edit("another target's source", "", KERNEL_FILE, "bend.cl.j2", "bent.cl.j2"),
    edit("another type's tolerance", "", WORKLOAD_FILE, "rtol: 1.0e-9", "rtol: 1.0e-8"),
    edit("a value of a tunable", "", KERNEL_FILE, "[1, 2]", "[1, 2, 4]"),
    edit("a constraint that holds", "", KERNEL_FILE, "", "constraints: [k > 0]\n"),
    edit("an unused tensor", "", WORKLOAD_FILE, "tensors:\n", "tensors:\n  z: {shape: [n]}\n"),
    edit(
        "the fill of an output",
        "",
        WORKLOAD_FILE,
        "y: {shape: [n]}",
        "y: {shape: [n], fill: {kind: constant}}",
    ),
    edit("a comment in a template", "", "templates/bend.c.j2", "a note", "another note"),
    edit("a file beside the templates", "", "templates/other.c", "", "int x;\n"),
    edit("a module beside the plug-ins", "", "../site/unrelated.py", "", "x = 1\n"),
    edit(
        "a stage that is not used",
        "",
        f"{SITE}-1.0.dist-info/entry_points.txt",
        "note =",
        "noted =",
    ),
    Case("a data file written again", files={"data/x.npy": ("same", "")}),
    Case("a data file of another name", words=("workload.tensors.x.fill.path=data/copy.npy",)),
    Case("code written again", files={f"{SITE}/helper.py": ("def", "def")}),
    *(
        say(word, "", word)
        for word in (
            *("timeout=7", "memory_limit=1GiB", "output=json", "measure.floor=0.5"),
            *("measure.together=3", "measure.about=other", "build.jobs=1", "fleet.overlap=true"),
            *("target.about=other", "toolchain.about=other", "target.sessions=2"),
            *("toolchain.install.debian=other", "toolchain.minimum_version='1'", "arch.cores=1"),
            *("pipeline.name=other", "select.providers=[model]", "screen.batch=3"),
        )
    ),
    say("an emulator's hint", "", "target.emulator.install.debian=other", base=(*OTHER, COUNTED)),
    say(
        "an emulator's least version",
        "",
        "target.emulator.minimum_version='1'",
        base=(*OTHER, COUNTED),
    ),
]


class Stale:
    """A project with stored trials whose inputs are then changed."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._site = project.folder.parent / "site"
        project.write(KERNEL_FILE, KERNEL)
        project.write(WORKLOAD_FILE, WORKLOAD)
        project.write("templates/bend.c.j2", TEMPLATE.replace('#include "bend.h"\n', MACRO))
        project.write("templates/bend.c", PLAIN)
        project.write("templates/bend.h", MACRO)
        project.write("templates/other.c", "")
        for path, text in {
            f"{SITE}/__init__.py": OUTSIDE,
            f"{SITE}/helper.py": HELPER,
            f"{SITE}/stage.py": STAGE,
            "../site/lazy_outside.py": "offset = 0\n",
            "../site/unrelated.py": "",
            f"{SITE}-1.0.dist-info/METADATA": METADATA,
            f"{SITE}-1.0.dist-info/entry_points.txt": ENTRY_POINTS,
        }.items():
            project.write(path, text)
        (project.folder / "data").mkdir()
        for name in ("x", "copy"):
            np.save(project.folder / f"data/{name}.npy", np.arange(64, dtype=np.float32))
        self._stored: set[tuple[str, ...]] = set()

    def _env(self, other: str = "") -> dict[str, str]:
        folders = [str(ENGINE), str(self._site)]
        if other:
            folders.insert(0, str(self._other_numpy()))
        return {"PYTHONPATH": os.pathsep.join(folders)}

    def _other_numpy(self) -> Path:
        """The same numpy, but for one file."""
        top = self._site.parent / "other_numpy"
        if not top.exists():
            here = Path(np.__file__).parent
            shutil.copytree(here, top / "numpy", copy_function=os.symlink)
            if here.with_name("numpy.libs").exists():
                (top / "numpy.libs").symlink_to(here.with_name("numpy.libs"))
            changed = top / "numpy/linalg/__init__.py"
            text = changed.read_text()
            changed.unlink()
            changed.write_text(f"{text}\n# another build\n")
        return top

    def plan(self, case: Case) -> tuple[bool, list[str]]:
        """Whether the changed trial is still stored, and the names of the facts that differ."""
        words = case.base if "workload=axpy" in case.base else ("workload=bending", *case.base)
        if case.base not in self._stored:
            done = self._project.json("run", *words, env=self._env())
            assert done.code == 0, done.stdout + done.stderr
            self._stored.add(case.base)
        before = {name: (self._project.folder / name).read_bytes() for name in case.files}
        try:
            for name, (old, new) in case.files.items():
                self._change(self._project.folder / name, old, new)
            done = self._project.json("plan", *words, *case.words, env=self._env(case.env))
        finally:
            for name, data in before.items():
                (self._project.folder / name).write_bytes(data)
        assert done.code == 0, f"{case.what}: {done.stderr}"
        return done.trial["stored"], done.trial["differs"]

    def _change(self, path: Path, old: str, new: str) -> None:
        if path.suffix == ".npy":
            values = np.arange(64, dtype=np.float32)
            np.save(path, values if old else values + 1)
            return
        text = path.read_text(encoding="utf-8")
        assert old in text, (path, old)
        path.write_text(text.replace(old, new) if old else text + new, encoding="utf-8")


MACRO = "#define BEND(a, x, c) ((a) * (x) + (c))\n"


@pytest.fixture
def stale(project: Project) -> Stale:
    return Stale(project)


def test_attack_staleness_of_trials(stale: Stale, attack: Attack) -> None:
    for case in attack.cases(ALTERING, small=3):
        stored, differs = stale.plan(case)
        if stored:
            attack.failed(f"{case.what}: goes unnoticed")
        elif not any(label.startswith(case.names) for label in differs):
            attack.failed(f"{case.what}: {differs} does not name {case.names}")
    attack.check()


def test_attack_harmless_changes_to_trials(stale: Stale, attack: Attack) -> None:
    for case in attack.cases(HARMLESS, small=2):
        stored, differs = stale.plan(case)
        if not stored:
            attack.failed(f"{case.what}: makes another trial by {differs}")
    attack.check()
