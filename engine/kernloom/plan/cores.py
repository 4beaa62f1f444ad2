"""Cores of an accelerator: which core type and unit a kernel runs on, and how fast they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kernloom.base.errors import ConfigError
from kernloom.base.expressions import parse_size
from kernloom.config.accelerator import CORE_TYPES
from kernloom.config.schema import CORE, WRAPPED, Arch, KernelSource, Scalar, Target

SRAM = "arch.sram.bytes"
INTERLEAVE = "arch.hbm.interleave"


def core_choice(
    source: KernelSource, family: str, arch: Arch, dtype: str, *, matrix: bool
) -> dict[str, Scalar]:
    """Core type and unit of a kernel, from the rates of the arch. `matrix`: whether matrix units
    may be used.

    A kernel for matrix units runs on vector units where no matrix unit computes its element type.
    """
    if arch.compute is None:
        raise ConfigError(
            f"arch '{arch.name}' is no accelerator: it has no compute rates",
            key="arch.compute",
            hint="Core kernels need an arch such as a5.",
        )
    if family != CORE or not (source.template or source.core):
        unit: str = source.charge.unit if source.charge else "scalar"
        choices = [(unit, core_type) for core_type in ("vector", "matrix")]
    else:
        preferred = ["matrix"] if source.core == "matrix" and matrix else []
        choices = [(unit, type_) for unit in preferred for type_ in CORE_TYPES]
        # The faster vector unit first; of equal ones that of a vector PE.
        by_rate = sorted(
            ("vector", "matrix"), key=lambda type_: -rate_of(arch, type_, "vector", dtype)
        )
        choices += [("vector", type_) for type_ in by_rate]
        choices += [("scalar", type_) for type_ in by_rate]
    for unit, core_type in choices:
        if rate_of(arch, core_type, unit, dtype):
            return {"type": core_type, "unit": unit}
    units = ", ".join(dict.fromkeys(unit for unit, _ in choices))
    raise ConfigError(
        f"no PE of arch '{arch.name}' computes {dtype} on its {units} unit", key="arch.compute"
    )


def rate_of(arch: Arch, core_type: str, unit: str, dtype: str) -> float:
    """Operations per cycle; 0 if a cube has no such PE, or the PE no such unit."""
    if arch.compute is None or arch.topology is None or not arch.topology.pes.get(core_type):
        return 0.0
    return arch.compute.rates(core_type).get(unit, {}).get(dtype, 0.0)


def sram_bytes(arch: Arch) -> int:
    """SRAM of each PE."""
    return parse_size(arch.sram.bytes, key=SRAM) if arch.sram else 0


def core_variables(core: Mapping[str, Scalar], arch: Arch, dtype: str) -> dict[str, Any]:
    """Variables of the constraints and models of core kernels; see VARIABLES."""
    return dict(_variables(core, arch, dtype)) if core and arch.compute else {}


def _variables(core: Mapping[str, Scalar], arch: Arch, dtype: str) -> Iterator[tuple[str, Any]]:
    assert arch.compute and arch.hbm and arch.dma and arch.links and arch.clock
    core_type, unit = str(core["type"]), str(core["unit"])
    per_ns = arch.clock.core_mhz / 1000
    yield "sram", sram_bytes(arch)
    yield "hbm_bandwidth", arch.hbm.bandwidth
    yield "stripe", arch.hbm.channels * parse_size(arch.hbm.interleave, key=INTERLEAVE)
    yield "dma_bandwidth", arch.dma.bandwidth
    yield "noc_bandwidth", arch.links.noc.bandwidth
    yield "bandwidth", min(arch.hbm.bandwidth, arch.dma.bandwidth, arch.links.noc.bandwidth)
    yield "latency", arch.dma.issue_ns + arch.links.noc.latency_ns + arch.hbm.latency_ns
    yield "core_mhz", arch.clock.core_mhz
    yield "matrix_rate", rate_of(arch, core_type, "matrix", dtype)
    yield "vector_rate", rate_of(arch, core_type, "vector", dtype)
    yield "speed", rate_of(arch, core_type, unit, dtype) * per_ns
    yield "startup", arch.compute.startup_cycles.get(unit, 0) / per_ns
    control = arch.control
    pes, cubes = pes_of(arch, core_type), cubes_of(arch)
    yield "pes", pes
    yield "cubes", cubes
    yield "cube_pes", pes // max(1, cubes)
    yield (
        "overhead",
        control.dispatch_ns + control.switch_ns + control.complete_ns if control else 0,
    )
    yield "handling", control.register_store_ns + control.register_load_ns if control else 0
    yield "submit", control.submit_ns if control else 0


def pes_of(arch: Arch, core_type: str) -> int:
    """PEs of a core type."""
    return cubes_of(arch) * arch.topology.pes.get(core_type, 0) if arch.topology else 0


def cubes_of(arch: Arch) -> int:
    """Cubes of all sips."""
    return arch.topology.sips * arch.topology.cubes if arch.topology else 0


def runs_on_cores(target: Target) -> bool:
    """Whether kernels run on the PEs of an accelerator."""
    return CORE in target.sources


def is_wrapped(family: str, target: Target) -> bool:
    """Whether a source of this family needs a wrapper to run on PEs."""
    return runs_on_cores(target) and family in WRAPPED
