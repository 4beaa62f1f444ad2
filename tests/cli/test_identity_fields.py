"""Every field of the schema: whether it can change a trial's result, and so its id.

A field that is not classified here fails the test, so that nobody adds one without deciding.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from command_line import Project
from kernloom.base.places import find_places
from kernloom.config.compose import Point
from kernloom.config.schema import Experiment, Fill, Policy
from kernloom.plan.facts import FILLED_BY, POLICY
from kernloom.plan.planned import Planned
from kernloom.run.assembly import Assembly
from kernloom.run.fleets import FLEETS
from kernloom.run.planning import plan_each
from parsed import points_of

TEMPLATE = """\
void {{ function }}(long n, const {{ ctype }} *x, float a, {{ ctype }} *y)
{
    for (long i = 0; i < n; i++) y[i] = a * x[i] + {{ unroll.k }} - {{ unroll.k }};
}
"""
KERNEL = """\
name: scale
about: y = a x
arguments:
  n: {kind: size}
  x: {kind: tensor, shape: [n]}
  a: {kind: scalar}
  y: {kind: tensor, access: write, shape: [n]}
sources:
  host: {template: scale.c.j2}
  cl:
    template: scale.cl.j2
    work: {items: [n], group: [1]}
    finish: {items: [n], group: [1]}
    tunables: {}
  plain: {file: scale.c, function: scale, macros: {K: 1}}
  core: {template: scale.c.j2}
tunables:
  unroll:
    k: {values: [1, 2], "off": 1, about: nothing much}
"""
WORKLOAD = """\
defaults:
  - /kernel@kernels.scale: scale
  - _self_
name: scaling
sizes: {n: 64}
scalars: {a: 2.0}
tensors:
  x: {shape: [n], fill: {kind: uniform}}
  y: {shape: [n]}
steps:
  call: {kernel: scale}
golden: {y: a * x}
tolerance: {float32: {rtol: 1.0e-5, atol: 1.0e-6}}
cost: {flops: n, bytes: 8 * n}
cases:
  big: {sizes: {n: 128}}
"""
CAUGHT = """\
{% if catch.function is defined %}
enum { CAUGHT = sizeof &{{ catch.function }} };
{% endif %}
"""
MICRO = "static inline void tile(void) {}\nstatic inline void tile2(void) {}\n"
MICRO_KERNEL = {
    "operation": "scale",
    "tile": {"m": 1, "n": 4},
    "dtype": "float32",
    "file": "tile.c",
    "function": "tile",
}
PLAIN = "void scale(long n, const float *x, float a, float *y) { while (n--) y[n] = a * x[n] * K; }"

TILED = {
    "template": "scale.c.j2",
    "tunables": {
        "unroll": {"k": {"values": [1, 2], "off": 1}},
        "distribute": {"group": {"values": [1, 2], "off": 1}},
    },
    "distribute": {
        "axes": {"part": {"size": "n", "tile": 16}},
        "regions": {"x": ["part"], "y": ["part"]},
    },
}
ORCHESTRATION = """\
#include "workload.hpp"
extern "C" void kl_orchestrate(struct kl_orchestrator *) {}
"""
OWN = {"file": "own.cpp", "kernels": {"scaled": {"kernel": "scale"}}}
KERNEL_AT = "workload.kernels.scale"
SOURCE_AT = f"{KERNEL_AT}.sources"
FILL_AT = "workload.tensors.x.fill"
MICRO_AT = "arch.micro_kernels.mine"
TILED_AT = f"{SOURCE_AT}.core.distribute"
OWN_AT = "workload.orchestration"


@dataclass(frozen=True)
class Change:
    """A value of a field other than the one it has."""

    path: str
    value: Any
    base: str = "host"
    """The experiment that is changed."""


def other(path: str, value: Any, base: str = "host") -> Change:
    return Change(path, value, base)


def fill(kind: str, **values: Any) -> Change:
    return Change(FILL_AT, {"kind": kind, **values}, f"filled {kind}")


CHANGES_THE_RESULT: dict[str, Change] = {
    "Experiment.seed": other("seed", 1),
    "Experiment.case": other("case", "big"),
    # What is filled in, and what is expected.
    "Workload.name": other("workload.name", "renamed"),
    "Workload.sizes": other("workload.sizes.n", 65),
    "Workload.scalars": other("workload.scalars.a", 3.0),
    "Workload.dtype": other("workload.dtype", "float64"),
    "Workload.golden": other("workload.golden.y", "x * a"),
    "Tensor.dtype": other("workload.tensors.y.dtype", "float64", "double"),
    "Tensor.place": other("workload.tensors.x.place", "host"),
    "Fill.kind": other(FILL_AT, {"kind": "normal"}),
    "Fill.low": other(f"{FILL_AT}.low", -2.0),
    "Fill.high": other(f"{FILL_AT}.high", 2.0),
    "Fill.mean": fill("normal", mean=1.0),
    "Fill.std": fill("normal", std=2.0),
    "Fill.value": fill("constant", value=1.0),
    "Fill.pattern": fill("pattern", pattern="identity"),
    "Fill.generator": fill("generator", generator="arange"),
    "Tolerance.rtol": other("workload.tolerance.float32.rtol", 1e-4),
    "Tolerance.atol": other("workload.tolerance.float32.atol", 1e-4),
    "Tolerance.ulp": other("workload.tolerance.float32.ulp", 2.0),
    "Workload.region": other("workload.region", {"y": ["1:n"]}),
    "Workload.tolerance": other("workload.tolerance", {}),
    "Cost.flops": other("workload.cost.flops", "2 * n"),
    "Cost.bytes": other("workload.cost.bytes", "9 * n"),
    "Workload.stateful": other("workload.stateful", True),
    "Workload.allow": other("workload.allow", ["printf"]),
    "Workload.cost": other("workload.cost", {}),
    # What is called, and with what.
    "Workload.steps": other("workload.steps", {"called": {"kernel": "scale"}}),
    "Step.args": other("workload.steps.call.args", {"a": 3.0}),
    "Argument.access": other(f"{KERNEL_AT}.arguments.y.access", "update"),
    "Kernel.name": other(f"{KERNEL_AT}.name", "scaled"),
    "Kernel.tunables": other(f"{KERNEL_AT}.tunables.unroll.k.values", [2, 1]),
    "Tunable.values": other(f"{KERNEL_AT}.tunables.unroll.k.values", [2]),
    "Kernel.sources": other(f"{SOURCE_AT}.host", {"template": "another.c.j2"}),
    "KernelSource.template": other(f"{SOURCE_AT}.host.template", "another.c.j2"),
    "KernelSource.file": other(f"{SOURCE_AT}.plain.file", "another.c", "plain"),
    "KernelSource.function": other(f"{SOURCE_AT}.plain.function", "scale2", "plain"),
    "KernelSource.macros": other(f"{SOURCE_AT}.plain.macros.K", 2, "plain"),
    "Kernel.model": other(f"{KERNEL_AT}.model", "0 - k"),
    "Kernel.constraints": other(f"{KERNEL_AT}.constraints", ["k > 1"]),
    # What computes inner tiles.
    "Experiment.catch": other("pipeline.stages.catching.enabled", "off", "caught"),
    # Which tasks there are.
    "Experiment.distribute": other("pipeline.stages.distributing.enabled", "off", "a5"),
    "KernelSource.distribute": other(TILED_AT, None, "tiled"),
    "Distribute.axes": other(f"{TILED_AT}.axes", {"part": {"size": "n", "tile": 8}}, "tiled"),
    "Distribute.regions": other(f"{TILED_AT}.regions.x", ["all"], "tiled"),
    "TileAxis.size": other(f"{TILED_AT}.axes.part.size", "2 * n", "tiled"),
    "TileAxis.tile": other(f"{TILED_AT}.axes.part.tile", 8, "tiled"),
    "Workload.orchestration": other(OWN_AT, {**OWN, "file": "another.cpp"}, "own"),
    "OwnOrchestration.file": other(f"{OWN_AT}.file", "another.cpp", "own"),
    "OwnOrchestration.kernels": other(f"{OWN_AT}.kernels", {"k": {"kernel": "scale"}}, "own"),
    "OwnOrchestration.access": other(f"{OWN_AT}.access", {"y": "update"}, "own"),
    "Toolchain.cxx_flags": other("toolchain.cxx_flags", ["-O1"], "a5"),
    "Arch.micro_kernels": other("arch.micro_kernels", {}, "caught"),
    "Kernel.micro_kernels": other(f"{KERNEL_AT}.micro_kernels.own", MICRO_KERNEL, "caught"),
    "MicroKernel.operation": other(f"{MICRO_AT}.operation", "softmax", "caught"),
    "MicroKernel.tile": other(f"{MICRO_AT}.tile", {"m": 2, "n": 8}, "caught"),
    "MicroTile.m": other(f"{MICRO_AT}.tile.m", 2, "caught"),
    "MicroTile.n": other(f"{MICRO_AT}.tile.n", 8, "caught"),
    "MicroTile.k": other(f"{MICRO_AT}.tile.k", 2, "caught"),
    "MicroKernel.dtype": other(f"{MICRO_AT}.dtype", "float64", "caught"),
    "MicroKernel.file": other(f"{MICRO_AT}.file", "another_tile.c", "caught"),
    "MicroKernel.function": other(f"{MICRO_AT}.function", "tile2", "caught"),
    "MicroKernel.isa": other(f"{MICRO_AT}.isa", "riscv64", "caught"),
    "MicroKernel.layout": other(f"{MICRO_AT}.layout", "packed_b", "caught"),
    "MicroKernel.cost": other(f"{MICRO_AT}.cost", "m * n", "caught"),
    "SelectSettings.fixed": other("pipeline.stages.choice.fixed", {"unroll": {"k": 2}}),
    # Where it runs.
    "Target.name": other("target.name", "elsewhere"),
    "Target.sources": other("target.sources", ["plain"]),
    "Target.variant": other("target.variant", "asan"),
    "Target.options": other("target.options", {"index": 0}),
    "Target.emulator": other("target.emulator.args", ["-cpu", "max,pauth=off"], "counted"),
    "Target.device": other("target.device", "host", "switched"),
    "Emulator.program": other("target.emulator.program", shutil.which("qemu-x86_64"), "counted"),
    "Emulator.args": other("target.emulator.args", ["-cpu", "Haswell"], "counted"),
    "Arch.name": other("arch.name", "mine"),
    "Arch.flags": other("arch.flags.gcc", ["-march=x86-64"]),
    "Arch.memory": other("arch.memory", {"ram": "1MiB"}),
    "Toolchain.name": other("toolchain.name", "mine"),
    "Toolchain.flags": other("toolchain.flags", ["-O1", "-fPIC"]),
    "Toolchain.kernel_flags": other("toolchain.kernel_flags", ["-O1"]),
    "Toolchain.extra_flags": other("toolchain.extra_flags", ["-DX=1"]),
    "Toolchain.variants": other("toolchain.variants.release", ["-DY=1"]),
    # What an accelerator is, and its task runtime.
    "Arch.topology": other("arch.topology", {"cubes": 2, "pes": {"vector": 2}}, "a5"),
    "Topology.sips": other("arch.topology.sips", 2, "a5"),
    "Topology.cubes": other("arch.topology.cubes", 2, "a5"),
    "Topology.pes": other("arch.topology.pes.vector", 3, "a5"),
    "Arch.clock": other("arch.clock", {"core_mhz": 1000}, "a5"),
    "Clock.core_mhz": other("arch.clock.core_mhz", 1000, "a5"),
    "Arch.hbm": other("arch.hbm.bytes", "2GiB", "a5"),
    "Hbm.bytes": other("arch.hbm.bytes", "2GiB", "a5"),
    "Hbm.bandwidth": other("arch.hbm.bandwidth", 64, "a5"),
    "Hbm.channels": other("arch.hbm.channels", 8, "a5"),
    "Hbm.interleave": other("arch.hbm.interleave", "1KiB", "a5"),
    "Hbm.latency_ns": other("arch.hbm.latency_ns", 90, "a5"),
    "Arch.sram": other("arch.sram.banks", 8, "a5"),
    "Sram.bytes": other("arch.sram.bytes", "1MiB", "a5"),
    "Sram.banks": other("arch.sram.banks", 8, "a5"),
    "Sram.bank_bandwidth": other("arch.sram.bank_bandwidth", 16, "a5"),
    "Sram.latency_ns": other("arch.sram.latency_ns", 9, "a5"),
    "Arch.mmu": other("arch.mmu.page", "4KiB", "a5"),
    "Mmu.page": other("arch.mmu.page", "4KiB", "a5"),
    "Mmu.tlb_entries": other("arch.mmu.tlb_entries", 8, "a5"),
    "Mmu.walkers": other("arch.mmu.walkers", 1, "a5"),
    "Mmu.walk_ns": other("arch.mmu.walk_ns", 100, "a5"),
    "Mmu.hit_ns": other("arch.mmu.hit_ns", 1, "a5"),
    "Arch.dma": other("arch.dma.engines", 1, "a5"),
    "Dma.engines": other("arch.dma.engines", 1, "a5"),
    "Dma.bandwidth": other("arch.dma.bandwidth", 48, "a5"),
    "Dma.issue_ns": other("arch.dma.issue_ns", 10, "a5"),
    "Arch.links": other("arch.links.pcie.bandwidth", 16, "a5"),
    **{
        f"Links.{name}": other(f"arch.links.{name}.bandwidth", 16, "a5")
        for name in ("pcie", "io_cpu", "management", "noc", "sip")
    },
    "Link.latency_ns": other("arch.links.noc.latency_ns", 30, "a5"),
    "Link.bandwidth": other("arch.links.noc.bandwidth", 16, "a5"),
    "Arch.compute": other("arch.compute.vector.vector.float32", 64, "a5"),
    "Compute.matrix": other("arch.compute.matrix.matrix.float32", 64, "a5"),
    "Compute.vector": other("arch.compute.vector.vector.float32", 64, "a5"),
    "Compute.startup_cycles": other("arch.compute.startup_cycles.vector", 4, "a5"),
    "Arch.control": other("arch.control.submit_ns", 1, "a5"),
    **{
        f"Control.{name}": other(f"arch.control.{name}", 1, "a5")
        for name in (
            *("submit_ns", "dispatch_ns", "complete_ns", "switch_ns"),
            *("register_store_ns", "register_load_ns"),
        )
    },
    "Runtime.name": other("runtime.name", "ringmap", "a5"),
    "Runtime.ring": other("runtime.ring", {"slots": 3}, "a5"),
    "Ring.slots": other("runtime.ring.slots", 3, "ringmap"),
    "Ring.heap": other("runtime.ring.heap", "1MiB", "ringmap"),
    "Ring.dependencies": other("runtime.ring.dependencies", 3, "ringmap"),
    "Ring.depths": other("runtime.ring.depths", 3, "ringmap"),
    "Ring.submissions": other("runtime.ring.submissions", 3, "ringmap"),
    "Runtime.graph": other("runtime.graph", {"tasks": 3}, "a5"),
    "Runtime.queue": other("runtime.queue", 3, "a5"),
    "GraphSizes.tasks": other("runtime.graph.tasks", 3, "a5"),
    "GraphSizes.heap": other("runtime.graph.heap", "1MiB", "a5"),
    "GraphSizes.edges": other("runtime.graph.edges", 3, "a5"),
    # How it is measured.
    "Pipeline.stages": other("pipeline.stages.timing.after", []),
    "Policy.name": other("measure.name", "mine"),
    "Policy.samples": other("measure.samples", 3),
    "Policy.warmup": other("measure.warmup", 3),
    "Policy.min_rounds": other("measure.min_rounds", 2, "rounds"),
    "Policy.max_rounds": other("measure.max_rounds", 9),
    "Policy.min_sample_us": other("measure.min_sample_us", 3.0),
    "Policy.bound": other("measure.bound", 0.5),
    "Policy.span_s": other("measure.span_s", 3.0),
    "Policy.drift": other("measure.drift", 0.3),
    "Policy.budget_s": other("measure.budget_s", 3.0),
    "Policy.clock": other("measure.clock", "wall"),
    "Policy.pin": other("measure.pin", False),
    "Policy.scheduling": other("measure.scheduling", "fifo"),
    "Policy.cache": other("measure.cache", "cold"),
    "Policy.aslr": other("measure.aslr", False),
    "Policy.peers": other("measure.peers", ["numpy"]),
}
"""Field -> a change of it that makes another trial. Names are what trials are filed under."""

CHANGES_NOTHING: dict[str, Change] = {
    # Descriptions, hints, and what belongs to other cases, types and targets.
    "Workload.about": other("workload.about", "typo fixed"),
    "Workload.fuzz": other("workload.fuzz", {"alignment": 4}),
    "Fuzzing.sizes": other("workload.fuzz.sizes", {"n": {"low": 2}}),
    "Fuzzing.values": other("workload.fuzz.values", {"x": ["fill"]}),
    "Fuzzing.alignment": other("workload.fuzz.alignment", 4),
    "SizeRange.low": other("workload.fuzz.sizes.n", {"low": 2}),
    "SizeRange.high": other("workload.fuzz.sizes.n", {"high": 20}),
    "SizeRange.multiple": other("workload.fuzz.sizes.n", {"multiple": 4}),
    "Kernel.about": other(f"{KERNEL_AT}.about", "typo fixed"),
    "Tunable.about": other(f"{KERNEL_AT}.tunables.unroll.k.about", "typo fixed"),
    "Target.about": other("target.about", "typo fixed"),
    "Arch.about": other("arch.about", "typo fixed"),
    "Toolchain.about": other("toolchain.about", "typo fixed"),
    "Pipeline.about": other("pipeline.about", "typo fixed"),
    "Pipeline.name": other("pipeline.name", "mine"),
    "Policy.about": other("measure.about", "typo fixed"),
    "SweepSettings.about": other("sweep.about", "typo fixed"),
    "Toolchain.install": other("toolchain.install", {"debian": "apt-get install other"}),
    "Emulator.install": other("target.emulator.install", {"debian": "other"}, "counted"),
    "Workload.cases": other("workload.cases.small", {"sizes": {"n": 8}}),
    "Workload.tensors": other("workload.tensors.unused", {"shape": ["n"]}),
    "Workload.kernels": other("workload.kernels.unused", "kernel", "unused"),
    "Work.items": other(f"{SOURCE_AT}.cl.work.items", [1]),
    "Work.group": other(f"{SOURCE_AT}.cl.work.group", [2]),
    "Work.scratch": other(f"{SOURCE_AT}.cl.work.scratch", 2),
    "KernelSource.work": other(f"{SOURCE_AT}.cl.work", {"items": [1], "group": [1]}),
    "KernelSource.finish": other(f"{SOURCE_AT}.cl.finish", None),
    # Of sources and micro-kernels on accelerators.
    "KernelSource.core": other(f"{SOURCE_AT}.host.core", "vector"),
    "KernelSource.charge": other(f"{SOURCE_AT}.host.charge", {"unit": "vector"}),
    "Charge.unit": other(f"{SOURCE_AT}.plain.charge.unit", "vector", "plain"),
    "Charge.operations": other(f"{SOURCE_AT}.plain.charge.operations", "2 * n", "plain"),
    "MicroKernel.unit": other(f"{MICRO_AT}.unit", "vector", "caught"),
    "MicroKernel.about": other(f"{MICRO_AT}.about", "typo fixed", "caught"),
    "KernelSource.tunables": other(f"{SOURCE_AT}.cl.tunables", None),
    "KernelSource.constraints": other(f"{SOURCE_AT}.cl.constraints", ["n > 0"]),
    "KernelSource.model": other(f"{SOURCE_AT}.cl.model", "1"),
    # What only checks, or decides nothing but which parameters are chosen: those are in the source.
    "Tensor.shape": other("workload.tensors.unused", {"shape": ["2 * n"]}),
    "Tensor.fill": other("workload.tensors.y.fill", {"kind": "constant"}),
    "Fill.path": fill("file", path="data/copy.npy"),
    "Argument.shape": other(f"{KERNEL_AT}.arguments.x.shape", ["1 * n"]),
    "Argument.dtype": other(f"{KERNEL_AT}.arguments.x.dtype", "float32"),
    "Kernel.dtypes": other(f"{KERNEL_AT}.dtypes", ["float32"]),
    "Kernel.epilogues": other(f"{KERNEL_AT}.epilogues", ["relu"]),
    "Tunable.off": other(f"{KERNEL_AT}.tunables.unroll.k.off", 2),
    "SelectSettings.providers": other("pipeline.stages.choice.providers", ["model"]),
    "SelectSettings.python": other("pipeline.stages.choice.python", "other", "unasked"),
    "SelectSettings.file": other("pipeline.stages.choice.file", "tuned.yaml", "unasked"),
    "Target.variants": other("target.variants", ["release"]),
    "Target.sanitized": other("target.sanitized", []),
    "Target.systems": other("target.systems", ["linux", "darwin"]),
    "Target.sessions": other("target.sessions", 3),
    "Emulator.isa": other("target.emulator.isa", "", "counted"),
    "Emulator.minimum_version": other("target.emulator.minimum_version", "1.0", "counted"),
    "Emulator.lacks": other("target.emulator.lacks", ["amx*"], "counted"),
    "Arch.vector_bytes": other("arch.vector_bytes", 16),
    "Arch.registers": other("arch.registers", 8),
    "Arch.caches": other("arch.caches", {"l1": 1024, "l2": 2048}),
    "Caches.l1": other("arch.caches.l1", 1024),
    "Caches.l2": other("arch.caches.l2", 2048),
    "Caches.l3": other("arch.caches.l3", 4096),
    "Arch.features": other("arch.features", []),
    "Arch.vector_bits": other("arch.vector_bits", None),
    "Arch.vector_lengths": other("arch.vector_lengths", [128]),
    "Arch.cores": other("arch.cores", 1),
    "Toolchain.minimum_version": other("toolchain.minimum_version", "1.0"),
    "Distribute.sum": other(f"{TILED_AT}.sum", {"sum": {"size": "n", "tile": 4}}, "tiled"),
    "SubmittedKernel.sizes": other(f"{OWN_AT}.kernels.scaled.sizes", {"n": 32}, "own"),
    # How differences are judged afterwards, and how many trials happen to be measured together.
    "Policy.floor": other("measure.floor", 0.5),
    "Policy.together": other("measure.together", 3),
    # Where numbers come from, other variants' machines, and what is written beside the result.
    "Arch.provenance": other("arch.provenance", {"*": "measured"}, "a5"),
    "Runtime.about": other("runtime.about", "typo fixed", "a5"),
    "Target.machines": other("target.machines.other", {}, "a5"),
    "Machine.isa": other("target.machines.qemu.isa", "aarch64", "a5"),
    "Machine.toolchain": other("target.machines.qemu.toolchain", "clang_riscv64", "a5"),
    "Machine.emulator": other("target.machines.qemu.emulator.program", "qemu", "a5"),
    "Machine.platform": other("target.machines.onboard.platform", "mine", "a5"),
    "Experiment.trace": other("trace", "trace.json", "a5"),
    "Experiment.trace_level": other("trace_level", 1, "a5"),
    "Experiment.deps": other("deps", "deps.json", "a5"),
    "Experiment.replay": other("replay", "fc1", "a5"),
    "Experiment.whatif": other("whatif", "hbm", "a5"),
    "Toolchain.search": other("toolchain.search", ["/opt/bin"]),
    "BuildSettings.mode": other("build.mode", "never"),
    # Limits, and how a run is organised.
    "BuildSettings.limit": other("build.limit", 3.0),
    "Experiment.timeout": other("timeout", 3.0),
    "Experiment.memory_limit": other("memory_limit", "1GiB"),
    "Experiment.output": other("output", "json"),
    "Experiment.rerun": other("rerun", "failed"),
    "Experiment.recipe": other("recipe", "recipe.yaml"),
    "Experiment.show": other("show", "source"),
    "StoreSettings.name": other("store.name", "postgres"),
    "StoreSettings.path": other("store.path", "other.db"),
    "StoreSettings.url": other("store.url", "postgresql://somewhere/else"),
    "LocalSettings.name": other("fleet.name", "mine"),
    "LocalSettings.kind": other("fleet", {"name": "away", "kind": "slurm"}),
    "LocalSettings.exclusive": other("fleet.exclusive", "node"),
    "LocalSettings.overlap": other("fleet.overlap", True),
    "SlurmSettings.name": other("fleet.name", "mine", "slurm"),
    "SlurmSettings.kind": other("fleet", {"name": "here", "kind": "local"}, "slurm"),
    "SlurmSettings.exclusive": other("fleet.exclusive", "measuring", "slurm"),
    "SlurmSettings.chunk": other("fleet.chunk", 3, "slurm"),
    "SlurmSettings.max_tasks": other("fleet.max_tasks", 3, "slurm"),
    "SlurmSettings.time": other("fleet.time", 3, "slurm"),
    "SlurmSettings.retries": other("fleet.retries", 3, "slurm"),
    "SlurmSettings.build": other("fleet.build", "first", "slurm"),
    "SlurmSettings.partition": other("fleet.partition", "fast", "slurm"),
    "SlurmSettings.options": other("fleet.options", {"mem": "1G"}, "slurm"),
    "SlurmSettings.poll": other("fleet.poll", 3.0, "slurm"),
    "SlurmSettings.folder": other("fleet.folder", "shared", "slurm"),
    "SweepSettings.axes": other("sweep.axes", {"seed": [1]}),
    "SweepSettings.zip": other("sweep.zip", [{"seed": [1]}]),
    "SweepSettings.nested": other("sweep.nested", [{"axes": {"seed": [1]}}]),
    "SweepSettings.where": other("sweep.where", ["seed > 0"]),
    "SweepSettings.exclude": other("sweep.exclude", [{"seed": 1}]),
    "SweepSettings.sample": other("sweep.sample", {"count": 1}),
    "SampleSettings.count": other("sweep.sample", {"count": 2}),
    "SampleSettings.method": other("sweep.sample", {"count": 2, "method": "latin_hypercube"}),
    "SampleSettings.seed": other("sweep.sample", {"count": 2, "seed": 1}),
    "SweepSettings.points": other("sweep.points", {"one": {"seed": 1}}),
    "BuildSettings.keep": other("build.keep", True),
    "BuildSettings.jobs": other("build.jobs", 1),
    "BuildSettings.cache": other("build.cache", "shared"),
    "ScreenSettings.keep": other("screen.keep", 3),
    "ScreenSettings.batch": other("screen.batch", 3),
    "SearchSettings.name": other("search.name", "mine"),
    "SearchSettings.about": other("search.about", "typo fixed"),
    "SearchSettings.strategy": other("search.strategy", "grid"),
    "SearchSettings.trials": other("search.trials", 3),
    "SearchSettings.seconds": other("search.seconds", 3.0),
    "SearchSettings.patience": other("search.patience", 3),
    "SearchSettings.batch": other("search.batch", 3),
    "SearchSettings.seed": other("search.seed", 3),
    "SearchSettings.objective": other("search.objective", "gflops"),
    "SearchSettings.steps": other("search.steps", ["multiply"]),
    "SearchSettings.memory": other("search.memory", False),
    "SearchSettings.screening": other("search.screening", "standard"),
    "SearchSettings.racing": other("search.racing", "rigorous"),
    "SearchSettings.leaders": other("search.leaders", 3),
    "SearchSettings.stages": other("search.stages", 1),
    "SearchSettings.limit": other("search.limit", 3.0),
    "SearchSettings.build_limit": other("search.build_limit", 3.0),
}
"""Field -> a change of it that leaves the trial what it is."""

NO_OTHER_VALUE = {
    "Target.family": "another family is another device class, with a target of its own",
    "Toolchain.tools": "compilers are told apart by their files, in the keys of artifacts",
    "Arch.isa": "this machine runs no other",
    "Toolchain.family": "another compiler, which another toolchain names",
    "Argument.kind": "another kind is another function",
    "Kernel.arguments": "their fields are here one by one",
    "Step.kernel": "the only kernel there is",
    "SubmittedKernel.kernel": "the only kernel there is",
}
"""Field -> why nothing but what it is can be planned here."""
SECTIONS = {
    f"Experiment.{name}"
    for name in (
        *("workload", "target", "arch", "toolchain", "runtime", "pipeline", "select"),
        *("measure", "store", "fleet", "sweep", "build", "screen", "search"),
    )
}
"""Fields that are classified by what is inside."""
SHIPPED_FLEETS = ("local", "slurm")


def dataclasses_in(cls: type[Any], found: dict[str, type[Any]]) -> Iterator[type[Any]]:
    """A dataclass, and all that its fields lead to."""
    if cls.__name__ in found:
        return
    found[cls.__name__] = cls
    yield cls

    def inside(hint: Any) -> Iterator[type[Any]]:
        if is_dataclass(hint) and isinstance(hint, type):
            yield from dataclasses_in(hint, found)
        for part in get_args(hint):
            yield from inside(part)

    for hint in get_type_hints(cls).values():
        yield from inside(hint)


def all_fields() -> set[str]:
    # The section `fleet` has the schema of its kind.
    sections = [Experiment, *(FLEETS.get(name, key="").Settings for name in SHIPPED_FLEETS)]
    found: dict[str, type[Any]] = {}
    classes = [cls for section in sections for cls in dataclasses_in(section, found)]
    return {f"{cls.__name__}.{field.name}" for cls in classes for field in fields(cls)}


def test_every_field_of_the_schema_is_classified_once() -> None:
    tables = [set(CHANGES_THE_RESULT), set(CHANGES_NOTHING), set(NO_OTHER_VALUE), SECTIONS]
    classified = set().union(*tables)
    assert all_fields() - classified == set(), "decide whether it can change a trial's result"
    assert classified - all_fields() == set(), "the schema has no such field"
    assert sum(map(len, tables)) == len(classified)


def test_the_lists_of_facts_name_fields_that_exist() -> None:
    assert set(POLICY) <= {field.name for field in fields(Policy)}
    assert set(FILLED_BY) == set(get_args(get_type_hints(Fill)["kind"]))
    assert {name for names in FILLED_BY.values() for name in names} < {f.name for f in fields(Fill)}


def changed(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of a config with another value."""
    data = copy.deepcopy(data)
    *above, last = path.split(".")
    section = data
    for name in above:
        if section.get(name) is None:
            section[name] = {}
        section = section[name]
    section[last] = value
    return data


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, shared_project: Project) -> Project:
    project = Project(tmp_path_factory.mktemp("fields"))
    project.take_runner_from(shared_project)
    project.write("configs/kernel/scale.yaml", KERNEL)
    project.write("configs/workload/scaling.yaml", WORKLOAD)
    project.write("templates/scale.c.j2", TEMPLATE)
    project.write("templates/another.c.j2", f"{TEMPLATE}\n/* another */")
    project.write("templates/caught.c.j2", f"{CAUGHT}{TEMPLATE}")
    project.write("templates/tile.c", MICRO)
    project.write("templates/another_tile.c", f"{MICRO}/* another */\n")
    project.write("templates/another.c", f"{PLAIN} /* another */")
    project.write("templates/own.cpp", ORCHESTRATION)
    project.write("templates/another.cpp", f"{ORCHESTRATION}// another\n")
    project.write("templates/scale.c", f"{PLAIN}\n{PLAIN.replace('scale', 'scale2')}")
    return project


@pytest.fixture(scope="module")
def assembly(project: Project) -> Assembly:
    return Assembly(find_places(project.folder))


@pytest.fixture(scope="module")
def base(assembly: Assembly, project: Project) -> Callable[[str], dict[str, Any]]:
    """The config that a change is made to."""
    folder: Path = project.folder / "data"
    folder.mkdir()
    for name in ("values", "copy"):
        np.save(folder / f"{name}.npy", np.arange(64, dtype=np.float32))

    def composed(*words: str) -> dict[str, Any]:
        (point,) = points_of(assembly.composer, ["workload=scaling", *words], multirun=False)
        return dict(point.data)

    host, counted = composed(), composed("target=host_counted")
    slurm = composed("fleet=slurm")
    a5, ringmap = composed("target=a5"), composed("target=a5", "runtime=ringmap")
    tiled = changed(a5, f"{SOURCE_AT}.core", TILED)
    own = changed(changed(a5, "workload.steps", {}), OWN_AT, OWN)
    plain = changed(host, "target.sources", ["plain"])
    caught = changed(host, f"{SOURCE_AT}.host.template", "caught.c.j2")
    caught = changed(caught, "arch.micro_kernels", {"mine": MICRO_KERNEL})
    unasked = changed(host, "pipeline.stages.choice.providers", ["fixed", "model"])

    def find(name: str) -> dict[str, Any]:
        if name.startswith("filled"):
            _, kind = name.split()
            given: dict[str, Any] = {"kind": kind}
            given |= {"path": "data/values.npy"} if kind == "file" else {}
            return changed(host, FILL_AT, given) if kind != "generator" else host
        bases = {
            "counted": counted,
            "plain": plain,
            "unasked": unasked,
            "slurm": slurm,
            "caught": caught,
        }
        bases |= {"a5": a5, "ringmap": ringmap, "tiled": tiled, "own": own}
        return bases.get(name, host)

    return find


def planned(assembly: Assembly, data: dict[str, Any]) -> Planned:
    (plan,) = plan_each(assembly, [Point({}, data)], alone=True)
    return plan


def ids(assembly: Assembly, base: Callable[[str], dict[str, Any]], change: Change) -> list[str]:
    """The ids before and after a change."""
    before = base(change.base)
    path, value = change.path, change.value
    if change.base == "switched":
        before = base("counted")
        after = changed(changed(before, path, value), "target.emulator", None)
    elif change.base == "double":
        doubled = {f"{KERNEL_AT}.arguments.y.dtype": "float64", path: value}
        after = before
        for place, text in doubled.items():
            after = changed(after, place, text)
    elif change.base == "unused":
        kernel = {**before["workload"]["kernels"]["scale"], "name": "unused"}
        after = changed(before, path, kernel)
    elif change.base == "rounds":
        before = changed(before, "measure.max_rounds", 5)
        after = changed(before, path, value)
    else:
        after = changed(before, path, value)
    assert before != after
    return [planned(assembly, before).id, planned(assembly, after).id]


@pytest.mark.parametrize("field", sorted(CHANGES_THE_RESULT))
def test_what_can_change_the_result_makes_another_trial(
    field: str, assembly: Assembly, base: Callable[[str], dict[str, Any]]
) -> None:
    before, after = ids(assembly, base, CHANGES_THE_RESULT[field])
    assert before != after


@pytest.mark.parametrize("field", sorted(CHANGES_NOTHING))
def test_what_cannot_change_the_result_leaves_the_trial_what_it_is(
    field: str, assembly: Assembly, base: Callable[[str], dict[str, Any]]
) -> None:
    before, after = ids(assembly, base, CHANGES_NOTHING[field])
    assert before == after
