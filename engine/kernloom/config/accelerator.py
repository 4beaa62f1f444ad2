"""Accelerators as data: topology, memories, links, rates and costs, each with its provenance.

These sections of an arch are read when a device is opened and are compiled into nothing, so every
value can be an override or an axis of a sweep.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from fnmatch import fnmatchcase
from typing import Any

from kernloom.base.digest import Digested
from kernloom.base.errors import ConfigError, nearest
from kernloom.base.expressions import parse_size
from kernloom.base.units import count
from kernloom.config.limits import between

CORE_TYPES = ("matrix", "vector")
"""What a PE computes with."""
UNITS = ("matrix", "vector", "scalar")
"""Compute units of a PE."""
MAX_PES = 64
"""PEs of a cube: KL_MAX_PES_PER_CUBE of kernloom/platform.h."""
OVERRIDE = "override"
"""Provenance of a value from the command line or a sweep; a recipe states it for the values that
its run had overridden."""
PROVENANCE = "arch_provenance"
"""Condition of a trial in virtual time: provenance -> number of values of the arch."""
OVERRIDDEN = "arch_overrides"
"""Condition of a trial: the keys of the arch that the command line or the sweep has set."""
PROVENANCES = ("measured", "published", "assumed")
"""Provenance of a value in a config file, the most trustworthy first."""

Size = int | str
"""Bytes, or a size as text."""
_LATENCY = between(0, 1e9)
_BANDWIDTH = between(0, 1e6)
"""GB/s, the same as bytes per ns; 0 is refused with a reason."""


@dataclass(frozen=True)
class Topology(Digested):
    """Sips of cubes of PEs."""

    pes: Mapping[str, int]
    """Core type -> PEs of each cube."""
    sips: int = field(default=1, metadata=between(1, 64))
    cubes: int = field(default=1, metadata=between(1, 1024))
    """Cubes of each sip."""


@dataclass(frozen=True)
class Clock(Digested):
    """Clock rates."""

    core_mhz: float = field(metadata=between(0, 1e6))


@dataclass(frozen=True)
class Hbm(Digested):
    """Device memory."""

    bytes: Size
    """Memory of each PE."""
    bandwidth: float = field(metadata=_BANDWIDTH)
    """GB/s of each cube, all channels together."""
    channels: int = field(metadata=between(1, 1024))
    """Channels of each cube."""
    interleave: Size
    """Consecutive bytes on one channel."""
    latency_ns: float = field(metadata=_LATENCY)


@dataclass(frozen=True)
class Sram(Digested):
    """Local memory of each PE."""

    bytes: Size
    banks: int = field(metadata=between(1, 1024))
    bank_bandwidth: float = field(metadata=_BANDWIDTH)
    """GB/s of each bank."""
    latency_ns: float = field(metadata=_LATENCY)


@dataclass(frozen=True)
class Mmu(Digested):
    """Address translation."""

    page: Size
    tlb_entries: int = field(metadata=between(1, 1 << 20))
    """Entries of each PE."""
    walkers: int = field(metadata=between(1, 1024))
    """Page walkers of each cube."""
    walk_ns: float = field(metadata=_LATENCY)
    hit_ns: float = field(metadata=_LATENCY)


@dataclass(frozen=True)
class Dma(Digested):
    """DMA engines of each PE."""

    engines: int = field(metadata=between(1, 64))
    bandwidth: float = field(metadata=_BANDWIDTH)
    """GB/s of each engine."""
    issue_ns: float = field(metadata=_LATENCY)


@dataclass(frozen=True)
class Link(Digested):
    """One hop of the fabric."""

    latency_ns: float = field(metadata=_LATENCY)
    bandwidth: float = field(metadata=_BANDWIDTH)
    """GB/s in each direction."""


@dataclass(frozen=True)
class Links(Digested):
    """The hops from the host to a PE, and between sips."""

    pcie: Link
    io_cpu: Link
    management: Link
    noc: Link
    """Of each cube."""
    sip: Link
    """Of each sip, to the others."""


@dataclass(frozen=True)
class Compute(Digested):
    """Operations per cycle: unit -> element type -> rate, for each core type."""

    matrix: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    vector: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    startup_cycles: Mapping[str, int] = field(default_factory=dict)
    """Unit -> cycles before its first result."""

    def rates(self, core_type: str) -> Mapping[str, Mapping[str, float]]:
        return self.matrix if core_type == "matrix" else self.vector


@dataclass(frozen=True)
class Control(Digested):
    """Costs of the task runtimes."""

    submit_ns: float = field(metadata=_LATENCY)
    """Host: build and submit one task."""
    dispatch_ns: float = field(metadata=_LATENCY)
    """Control to core."""
    complete_ns: float = field(metadata=_LATENCY)
    """Core to control."""
    switch_ns: float = field(metadata=_LATENCY)
    """Core: switch to its next task."""
    register_store_ns: float = field(metadata=_LATENCY)
    register_load_ns: float = field(metadata=_LATENCY)


SECTIONS = ("topology", "clock", "hbm", "sram", "mmu", "dma", "links", "compute", "control")
"""Sections of an arch that make it an accelerator; all of them or none."""
_SIZES = ("hbm.bytes", "hbm.interleave", "sram.bytes", "mmu.page")
"""Values that may be sizes as text,"""
_RUNTIME_SIZES = ("ring.heap", "graph.heap")
"""and those of a task runtime."""
_POSITIVE = {
    "clock.core_mhz": "no cycle would ever end",
    "hbm.bandwidth": "no transfer would ever end",
    "sram.bank_bandwidth": "no transfer would ever end",
    "dma.bandwidth": "no transfer would ever end",
    **{f"links.{item.name}.bandwidth": "no transfer would ever end" for item in fields(Links)},
}
"""Values that must not be 0, and why."""
_ABOVE_0 = "Allowed: above 0."


def check_accelerator(arch: Any, dtypes: tuple[str, ...]) -> None:
    """Refuse sections of an arch that make no device; an arch without any is no accelerator."""
    given = [name for name in SECTIONS if getattr(arch, name) is not None]
    if not given:
        return
    for name in SECTIONS:
        if name not in given:
            raise ConfigError(
                f"is missing: arch '{arch.name}' has {', '.join(given)}, and an accelerator needs "
                "all its sections",
                key=f"arch.{name}",
                hint="To change a few values of one: `defaults: [a5, _self_]` in an arch of yours.",
            )
    _check_topology(arch.topology)
    _check_rates(arch.topology, arch.compute, dtypes)
    values = settings_of(arch)
    for key, why in _POSITIVE.items():
        if not float(values[key]) > 0:
            raise ConfigError(f"is {values[key]}: {why}", key=f"arch.{key}", hint=_ABOVE_0)
    for key in _SIZES:
        if int(values[key]) < 1:
            raise ConfigError(f"is {values[key]} bytes", key=f"arch.{key}", hint=_ABOVE_0)
    page = int(values["mmu.page"])
    if page & (page - 1):
        raise ConfigError(
            f"a page of {page} bytes is not a power of two",
            key="arch.mmu.page",
            hint=f"Next to it: {1 << page.bit_length() - 1} and {1 << page.bit_length()}.",
        )
    for pattern, source in arch.provenance.items():
        if source not in (*PROVENANCES, OVERRIDE):
            raise ConfigError(
                f"unknown provenance '{source}'",
                key=f"arch.provenance.{pattern}",
                hint=nearest(source, PROVENANCES),
            )


def _check_topology(topology: Topology) -> None:
    key = "arch.topology.pes"
    for core_type, number in topology.pes.items():
        if core_type not in CORE_TYPES:
            raise ConfigError(
                f"unknown core type '{core_type}'", key=key, hint=nearest(core_type, CORE_TYPES)
            )
        if number < 0:
            raise ConfigError(f"{number} is too small", key=f"{key}.{core_type}")
    total = sum(topology.pes.values())
    if not 1 <= total <= MAX_PES:
        problem = "a cube has no PEs" if not total else f"a cube has {total} PEs"
        raise ConfigError(
            problem,
            key=key,
            hint=f"Allowed: 1 to {MAX_PES} in all, by core type: {{matrix: 1, vector: 2}}.",
        )


def _check_rates(topology: Topology, compute: Compute, dtypes: tuple[str, ...]) -> None:
    for core_type in CORE_TYPES:
        key = f"arch.compute.{core_type}"
        rates = compute.rates(core_type)
        if topology.pes.get(core_type) and not any(map(len, rates.values())):
            raise ConfigError(
                f"is missing: a cube has {topology.pes[core_type]} {core_type} PEs, which could "
                "compute nothing",
                key=key,
            )
        for unit, by_dtype in rates.items():
            _check_unit(unit, key)
            for dtype, rate in by_dtype.items():
                if dtype not in dtypes:
                    raise ConfigError(
                        f"unknown dtype '{dtype}'",
                        key=f"{key}.{unit}",
                        hint=nearest(dtype, dtypes),
                    )
                if not 0 < rate < 1e9:
                    raise ConfigError(
                        f"{rate} operations per cycle make no unit",
                        key=f"{key}.{unit}.{dtype}",
                        hint="Allowed: above 0; leave out what the unit does not compute.",
                    )
    for unit, cycles in compute.startup_cycles.items():
        _check_unit(unit, "arch.compute.startup_cycles")
        if not 0 <= cycles <= 1_000_000:
            raise ConfigError(
                f"{cycles} is no number of cycles", key=f"arch.compute.startup_cycles.{unit}"
            )


def _check_unit(unit: str, key: str) -> None:
    if unit not in UNITS:
        raise ConfigError(f"unknown unit '{unit}'", key=key, hint=nearest(unit, UNITS))


def settings_of(arch: Any) -> dict[str, str]:
    """Every value of an accelerator by its key below `arch`, as the platform reads it: sizes in
    bytes. Empty for other arches."""
    if arch.topology is None:
        return {}
    found: dict[str, str] = arch.derive(_flattened)
    return found


def _flattened(arch: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in SECTIONS:
        found |= flattened(name, getattr(arch, name))
    return found


def flattened(name: str, node: Any) -> dict[str, str]:
    """Dotted key -> value of every leaf of a section, as the platform reads it."""
    return {key: setting(key, value) for key, value in _leaves(name, node)}


def _leaves(name: str, node: Any) -> Iterator[tuple[str, Any]]:
    if is_dataclass(node):
        children = [(item.name, getattr(node, item.name)) for item in fields(node)]
    elif isinstance(node, Mapping):
        children = list(node.items())
    else:
        yield name, node
        return
    for key, child in children:
        yield from _leaves(f"{name}.{key}", child)


def setting(key: str, value: Any) -> str:
    """A value as the platform reads it: sizes in bytes, booleans as 0 or 1."""
    if key in _SIZES:
        return str(parse_size(value, key=f"arch.{key}"))
    if key in _RUNTIME_SIZES:
        return str(parse_size(value, key=f"runtime.{key}"))
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return str(int(value)) if value == int(value) else repr(value)
    return str(value)


def pe_count(topology: Topology) -> int:
    """All PEs of a device."""
    return topology.sips * topology.cubes * sum(topology.pes.values())


def summary(arch: Any) -> str:
    """One line: `1 sip of 36 cubes of 1 matrix and 2 vector PEs: 108 PEs`."""
    topology = arch.topology
    if topology is None:
        return ""
    of_types = " and ".join(
        f"{topology.pes[name]} {name}" for name in CORE_TYPES if topology.pes.get(name)
    )
    return (
        f"{count(topology.sips, 'sip')} of {count(topology.cubes, 'cube')} of {of_types} PEs: "
        f"{pe_count(topology)} PEs"
    )


def provenance_of(arch: Any, key: str) -> str:
    """The provenance of the value at a key below `arch`: the first pattern that fits."""
    for pattern, source in arch.provenance.items():
        if fnmatchcase(key, pattern):
            return str(source)
    return "assumed"


def provenances(arch: Any, overridden: frozenset[str] = frozenset()) -> dict[str, str]:
    """Key -> provenance of every value; those at or below overridden keys have that of an
    override."""

    def source(key: str) -> str:
        over = any(key == top or key.startswith(f"{top}.") for top in overridden)
        return OVERRIDE if over else provenance_of(arch, key)

    return {key: source(key) for key in settings_of(arch)}


def recorded_provenance(
    provenance: Mapping[str, str], conditions: Mapping[str, Any]
) -> dict[str, str]:
    """`provenance` of an arch for the recipe of a trial: also states which values were
    overridden."""
    overridden = {key.removeprefix("arch."): OVERRIDE for key in conditions.get(OVERRIDDEN, ())}
    others = {key: source for key, source in provenance.items() if source != OVERRIDE}
    return overridden | {key: others[key] for key in others if key not in overridden}


def provenance_counts(found: Mapping[str, str]) -> dict[str, int]:
    """Provenance -> number of values, the most trustworthy first."""
    order = (*PROVENANCES, OVERRIDE)
    counts = {source: sum(one == source for one in found.values()) for source in order}
    return {source: number for source, number in counts.items() if number}
