"""The topology of an accelerator as plain text: sips, cubes, PEs, memories and links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernloom.base.expressions import format_size
from kernloom.base.units import count
from kernloom.config.accelerator import (
    CORE_TYPES,
    UNITS,
    provenance_counts,
    settings_of,
    summary,
)
from kernloom.config.schema import Arch

HOPS = (("pcie", "PCIe"), ("io_cpu", "IO CPU"), ("management", "management CPU"), ("noc", "NoC"))
"""Links from the host to a PE, in order, with the names of their ends."""
SHOWN_PES = 4
"""PEs of each core type that are drawn one by one."""


def topology_lines(arch: Arch, sources: Mapping[str, str]) -> Iterator[str]:
    """The drawing. `sources` is the provenance of each value by its key."""
    topology = arch.topology
    if topology is None:
        return
    values = settings_of(arch)

    def known(key: str) -> str:
        return sources.get(key, "assumed")

    def link(name: str) -> str:
        bandwidth = f"links.{name}.bandwidth"
        return (
            f"{values[f'links.{name}.latency_ns']} ns, {values[bandwidth]} GB/s"
            f" ({known(bandwidth)})"
        )

    yield f"{summary(arch)}, {values['clock.core_mhz']} MHz ({known('clock.core_mhz')})"
    yield ""
    yield "host"
    for depth, (name, end) in enumerate(HOPS):
        yield f"{'   ' * depth}└─ {name} {link(name)} ─ {end}"
    sips = topology.sips
    indent = "   " * len(HOPS)
    sip_name = "sip 0" if sips == 1 else f"sips 0 to {sips - 1}"
    between = f", linked by sip {link('sip')}" if sips > 1 else ""
    yield f"{indent}{sip_name}{between}"
    cubes = topology.cubes
    cube_name = "cube 0" if cubes == 1 else f"cubes 0 to {cubes - 1}, each:"
    yield f"{indent}└─ {cube_name}"
    inner = f"{indent}   "
    channels = count(_int(values, "hbm.channels"), "channel")
    yield (
        f"{inner}├─ HBM {values['hbm.bandwidth']} GB/s on {channels}"
        f", {values['hbm.latency_ns']} ns ({known('hbm.bandwidth')})"
    )
    yield (
        f"{inner}├─ MMU {count(_int(values, 'mmu.walkers'), 'walker')} of "
        f"{values['mmu.walk_ns']} ns, pages of {_size(values, 'mmu.page')} ({known('mmu.page')})"
    )
    yield from _pe_lines(arch, values, inner)
    banks = count(_int(values, "sram.banks"), "bank")
    engines = count(_int(values, "dma.engines"), "DMA engine")
    yield "each PE:"
    yield f"   HBM {_size(values, 'hbm.bytes')} ({known('hbm.bytes')})"
    yield f"   SRAM {_size(values, 'sram.bytes')} in {banks} ({known('sram.bytes')})"
    yield f"   {engines} of {values['dma.bandwidth']} GB/s ({known('dma.bandwidth')})"
    yield f"   {values['mmu.tlb_entries']} TLB entries ({known('mmu.tlb_entries')})"
    yield f"values: {counts_text(provenance_counts(sources))}"


def counts_text(counts: Mapping[str, int]) -> str:
    """`10 published, 41 assumed, 1 override`."""
    return ", ".join(f"{number} {source}" for source, number in counts.items())


def _pe_lines(arch: Arch, values: Mapping[str, str], indent: str) -> Iterator[str]:
    """The PEs of a cube: matrix PEs first, as they are numbered."""
    assert arch.topology is not None
    first, rows = 0, []
    for core_type in CORE_TYPES:
        number = arch.topology.pes.get(core_type, 0)
        if not number:
            continue
        names = (
            [f"PE {first + place}" for place in range(number)]
            if number <= SHOWN_PES
            else [f"PEs {first} to {first + number - 1}"]
        )
        rows += [f"{name}  {core_type}: {_rates(values, core_type)}" for name in names]
        first += number
    for place, row in enumerate(rows):
        yield f"{indent}{'└' if place + 1 == len(rows) else '├'}─ {row}"


def _rates(values: Mapping[str, str], core_type: str) -> str:
    """The float32 operations per cycle of each unit."""
    found = [
        f"{unit} unit {rate}"
        for unit in UNITS
        if (rate := values.get(f"compute.{core_type}.{unit}.float32"))
    ]
    return f"{', '.join(found)} float32 operations per cycle"


def _int(values: Mapping[str, str], key: str) -> int:
    return int(values[key])


def _size(values: Mapping[str, str], key: str) -> str:
    return format_size(int(values[key]))
