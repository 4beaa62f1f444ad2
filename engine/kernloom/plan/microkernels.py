"""The transform `catch`: inner tiles that a micro-kernel computes, in place of a template's loops.

A micro-kernel is declared by the arch or the kernel. It is a function

    void NAME(long depth, const T *a, long lda, const T *b, long ldb, T *c, long ldc)

that adds the product of m x depth elements of a and depth x n elements of b to m x n elements of c;
depth is a multiple of k. The renderer puts its text in front of the kernel's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from kernloom.base.errors import ConfigError
from kernloom.base.expressions import evaluate
from kernloom.config.schema import CORE, Arch, MicroKernel, Scalar, Target
from kernloom.pipeline.stage import Context
from kernloom.plan.cores import rate_of
from kernloom.plan.schedule import Schedule, StepRecord
from kernloom.plan.transforms import Transform, TransformOptions

FAMILIES = ("host", "core")
"""Families of sources with such a place."""
ASSEMBLY = (".s", ".S")


@dataclass(frozen=True)
class CatchOptions(TransformOptions):
    """Whether anything is caught."""

    enabled: Literal["on", "off"] = "on"


class Catch(Transform):
    """Replaces the inner tile of a step by a micro-kernel of the arch or the kernel."""

    transform: ClassVar[str] = "catch"
    inputs: ClassVar[Mapping[str, str]] = {"schedule": "schedule"}
    outputs: ClassVar[Mapping[str, str]] = {"schedule": "schedule", "caught": "caught"}
    Options = CatchOptions

    def run(self, context: Context, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        schedule: Schedule = inputs["schedule"]
        names = self.check_steps(schedule)
        chosen = self.options.steps or names
        records: list[StepRecord] = []
        reports: dict[str, Any] = {}
        for record in schedule:
            refused = "catch=off" if self.options.enabled == "off" else ""
            refused = refused or ("" if record.name in chosen else "the step is not among `steps`")
            found = find(record, context.experiment.target, context.experiment.arch, refused)
            reports[record.name] = found.report
            if found.micro_kernel:
                record = caught(record, found.name, found.micro_kernel)
            records.append(record)
        return {"schedule": tuple(records), "caught": reports}


@dataclass(frozen=True)
class Found:
    """The micro-kernel of a step, and why the others were not used."""

    name: str
    micro_kernel: MicroKernel | None
    reasons: Mapping[str, str]
    """Micro-kernel -> why it was not caught."""

    @property
    def report(self) -> dict[str, Any]:
        return {"caught": self.name or None, "not caught": dict(self.reasons)}


def find(record: StepRecord, target: Target, arch: Arch, refused: str = "") -> Found:
    """The first micro-kernel that can compute the inner tile of a step. `refused`: why none may."""
    source = record.kernel.source_for(target.sources)
    family = source[0] if source else ""
    name, micro_kernel = "", None
    reasons: dict[str, str] = {}
    for candidate, micro in candidates(record, arch):
        reason = refused or why_not(record, micro, family, arch)
        reason = reason or (f"'{name}' was caught before" if name else "")
        if reason:
            reasons[candidate] = reason
        else:
            name, micro_kernel = candidate, micro
    if not name and not reasons:
        reasons["(none)"] = f"arch '{arch.name}' and kernel '{record.kernel.name}' declare none"
    return Found(name, micro_kernel, reasons)


def candidates(record: StepRecord, arch: Arch) -> Iterator[tuple[str, MicroKernel]]:
    """Micro-kernels of the kernel, then those of the arch that the kernel does not redefine."""
    yield from record.kernel.micro_kernels.items()
    own = record.kernel.micro_kernels
    yield from ((name, micro) for name, micro in arch.micro_kernels.items() if name not in own)


def why_not(record: StepRecord, micro: MicroKernel, family: str, arch: Arch) -> str:
    """Why a micro-kernel cannot compute the inner tile of a step; empty if it can."""
    if micro.operation != record.kernel.name:
        return f"it computes {micro.operation}, and the step is {record.kernel.name}"
    source = record.kernel.sources.get(family)
    if source is None or not source.template or family not in FAMILIES:
        return f"the source '{family}' of kernel '{record.kernel.name}' has no place for one"
    if micro.dtype != record.dtype:
        return f"it computes {micro.dtype}, and the step is {record.dtype}"
    if micro.isa and micro.isa != arch.isa:
        return f"it is written for {micro.isa}, and arch '{arch.name}' is {arch.isa}"
    return (
        _why_not_on_core(record, micro, arch) if family == CORE else _why_not_on_host(record, micro)
    )


def _why_not_on_core(record: StepRecord, micro: MicroKernel, arch: Arch) -> str:
    core, chosen = record.decisions["core"], record.decisions.get("tile", {})
    if core["unit"] != micro.unit:
        return f"it needs the {micro.unit} unit, and the step runs on the {core['unit']} unit"
    if not rate_of(arch, str(core["type"]), micro.unit, record.dtype):
        return f"a {core['type']} PE has no {micro.unit} unit for {record.dtype}"
    for name, wanted in vars(micro.tile).items():
        has = min(int(chosen.get(name, wanted)), record.sizes.get(name.upper(), wanted))
        if has < wanted:
            return f"its tile has {name}={wanted}, and those of the step {name}={has}"
        if name == "n" and micro.layout == "packed_b" and has != wanted:
            return f"it needs rows of B of {wanted} elements, and those of the tiles have {has}"
    return ""


def _why_not_on_host(record: StepRecord, micro: MicroKernel) -> str:
    tile, decisions = micro.tile, record.decisions
    lanes = int(decisions.get("vectorize", {}).get("lanes", 1))
    if tile.n % lanes:
        return f"its {tile.n} columns are no multiple of the {lanes} lanes of the loops"
    rows, columns = record.sizes.get("M", tile.m), record.sizes.get("N", tile.n)
    if tile.m > rows or tile.n > columns:
        return f"its tile of {tile.m} x {tile.n} is larger than the result of {rows} x {columns}"
    if micro.layout == "packed_b" and decisions.get("pack", {}).get("b") is not True:
        return "it needs a packed B, and pack.b is false"
    return ""


def caught(record: StepRecord, name: str, micro: MicroKernel) -> StepRecord:
    """The step with a micro-kernel for its inner tile. Register tiles have its shape."""
    chosen = record.decisions.get("tile", {})
    if {"mr", "nv"} <= chosen.keys():
        lanes = int(record.decisions.get("vectorize", {}).get("lanes", 1))
        record = record.decided("tile", {"mr": micro.tile.m, "nv": micro.tile.n // lanes})
    return record.decided("catch", decision(name, micro, key_of(record, name)))


def key_of(record: StepRecord, name: str) -> str:
    """The key under which the micro-kernel of a step is declared."""
    own = name in record.kernel.micro_kernels
    return f"{record.key if own else 'arch'}.micro_kernels.{name}"


def decision(name: str, micro: MicroKernel, key: str) -> dict[str, Scalar]:
    """What the template and the renderer need to know."""
    tile = micro.tile
    chosen: dict[str, Scalar] = {
        "micro_kernel": name,
        "m": tile.m,
        "n": tile.n,
        "k": tile.k,
        "function": micro.function,
        "file": micro.file,
    }
    if micro.cost is not None:
        chosen["cycles"] = _cycles(micro, f"{key}.cost")
    return chosen


def _cycles(micro: MicroKernel, key: str) -> int:
    known = {"m": micro.tile.m, "n": micro.tile.n, "k": micro.tile.k}
    cycles = evaluate(micro.cost or 0, known, key=key)
    if isinstance(cycles, bool) or not isinstance(cycles, (int, float)) or not 1 <= cycles < 2**31:
        raise ConfigError(f"{cycles!r} is no number of cycles", key=key, hint="Allowed: 1 or more.")
    return round(cycles)


def micro_kernel_text(file: str, function: str, text: str, ctype: str) -> str:
    """C that makes a micro-kernel's function known: its declaration, and assembly as it is."""
    if not file.endswith(ASSEMBLY):
        return f'#include "{file}"\n\n'
    lines = [*text.splitlines(), f".hidden {function}"]
    body = "\n".join(f'    "{_escaped(line)}\\n"' for line in lines)
    parameters = (
        f"long depth, const {ctype} *a, long lda, const {ctype} *b, long ldb, {ctype} *c, long ldc"
    )
    return (
        f'/* {file} */\n__asm__(\n{body}\n    ".text\\n");\n\n'
        f'__attribute__((visibility("hidden"))) void {function}({parameters});\n\n'
    )


def _escaped(line: str) -> str:
    return line.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
