"""Draws the topology of an accelerator from its config in configs/arch.

python draw_topology.py a5 topology.svg
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

from svg import Picture

from kernloom.base.expressions import format_size
from kernloom.base.places import share_folder
from kernloom.base.units import count
from kernloom.config.accelerator import CORE_TYPES, UNITS, provenances, settings_of, summary
from kernloom.config.convert import convert
from kernloom.config.groups import Groups
from kernloom.config.schema import Arch
from kernloom.report.topology import HOPS

WIDTH, CELL, PE_WIDTH = 900, 34, 194
HOST, END = 60, 104
"""Widths of the boxes on a message's path."""
COLOURS = {"measured": "#d3f9d8", "published": "#d0ebff", "assumed": "#fff3bf"}
"""Provenance -> colour of what shows the value."""
FABRIC, CUBE, PE = "#e9ecef", "#f1f3f5", "#ffffff"


def picture(name: str) -> str:
    arch = convert(Arch, Groups([share_folder() / "configs"]).read("arch", name), "arch")
    assert arch.topology is not None
    values, sources = settings_of(arch), provenances(arch)
    rows = math.ceil(arch.topology.cubes / grid_columns(arch))
    bottom = max(170 + rows * CELL, 396)
    drawing = Picture(WIDTH, bottom + 60, f"Topology of {name}")
    drawing.text(20, 28, f"{name}: {summary(arch)}, {values['clock.core_mhz']} MHz", bold=True)
    _fabric(drawing, values, sources)
    _sip(drawing, arch, sources)
    _cube(drawing, arch, values, sources)
    for place, (source, colour) in enumerate(COLOURS.items()):
        drawing.box(20 + 110 * place, bottom + 24, 14, 14, fill=colour)
        drawing.text(40 + 110 * place, bottom + 36, source)
    return drawing.svg()


def grid_columns(arch: Arch) -> int:
    assert arch.topology is not None
    return max(1, math.ceil(math.sqrt(arch.topology.cubes)))


def _fabric(drawing: Picture, values: dict[str, str], sources: dict[str, str]) -> None:
    """The path of a message: host, then the end of each link."""
    x, gap = 20 + HOST, (WIDTH - 40 - HOST - len(HOPS) * END) / len(HOPS)
    drawing.box(20, 52, HOST, 44, fill=FABRIC)
    drawing.text(20 + HOST / 2, 79, "host", middle=True)
    for link, end in HOPS:
        key = f"links.{link}.bandwidth"
        drawing.line(x, 74, x + gap, 74)
        drawing.box(x + 8, 56, gap - 16, 36, fill=COLOURS[sources[key]])
        drawing.text(x + gap / 2, 71, f"{values[f'links.{link}.latency_ns']} ns", middle=True)
        drawing.text(x + gap / 2, 86, f"{values[key]} GB/s", middle=True)
        drawing.box(x + gap, 52, END, 44, fill=FABRIC)
        drawing.text(x + gap + END / 2, 79, end, middle=True)
        x += gap + END


def _sip(drawing: Picture, arch: Arch, sources: dict[str, str]) -> None:
    """The cubes of a sip; the first is drawn in full beside them."""
    assert arch.topology is not None
    topology, columns = arch.topology, grid_columns(arch)
    sip = "sip 0" if topology.sips == 1 else f"each of {topology.sips} sips"
    drawing.text(20, 134, f"{sip}: {count(topology.cubes, 'cube')}", bold=True)
    for cube in range(topology.cubes):
        x, y = 20 + CELL * (cube % columns), 146 + CELL * (cube // columns)
        drawing.box(x, y, CELL - 6, CELL - 6, fill=COLOURS[sources["topology.cubes"]])
        drawing.text(x + (CELL - 6) / 2, y + 18, str(cube), middle=True)


def _cube(drawing: Picture, arch: Arch, values: dict[str, str], sources: dict[str, str]) -> None:
    assert arch.topology is not None
    x = 20 + CELL * grid_columns(arch) + 30
    drawing.text(x, 134, "each cube", bold=True)
    drawing.line(20 + CELL - 6, 160, x, 160)
    drawing.box(x, 146, WIDTH - 20 - x, 250, fill=CUBE)
    width = (WIDTH - 20 - x - 36) / 2
    channels = count(int(values["hbm.channels"]), "channel")
    hbm = f"HBM {values['hbm.bandwidth']} GB/s, {channels}, {values['hbm.latency_ns']} ns"
    walkers = count(int(values["mmu.walkers"]), "walker")
    page = format_size(int(values["mmu.page"]))
    mmu = f"MMU {walkers} of {values['mmu.walk_ns']} ns, pages of {page}"
    for place, (text, key) in enumerate(((hbm, "hbm.bandwidth"), (mmu, "mmu.page"))):
        left = x + 12 + (width + 12) * place
        drawing.box(left, 158, width, 28, fill=COLOURS[sources[key]])
        drawing.text(left + width / 2, 176, text, middle=True)
    pes = list(_pes(arch))
    for place, (label, core_type) in enumerate(pes):
        left = x + 12 + (PE_WIDTH + 10) * place
        drawing.box(left, 200, PE_WIDTH, 184, fill=PE)
        drawing.text(left + 10, 220, f"{label}: {core_type}", bold=True)
        for line, (text, key) in enumerate(_pe_lines(values, core_type)):
            drawing.box(left + 8, 228 + 22 * line, PE_WIDTH - 16, 20, fill=COLOURS[sources[key]])
            drawing.text(left + 14, 242 + 22 * line, text)


def _pes(arch: Arch) -> Iterator[tuple[str, str]]:
    """Label and core type of each box: one by one if they fit beside each other."""
    assert arch.topology is not None
    numbers = {name: arch.topology.pes.get(name, 0) for name in CORE_TYPES}
    first = 0
    for core_type, number in numbers.items():
        if sum(numbers.values()) <= 3:
            yield from ((f"PE {first + place}", core_type) for place in range(number))
        elif number:
            last = first + number - 1
            yield (f"PE {first}" if number == 1 else f"PEs {first} to {last}"), core_type
        first += number


def _pe_lines(values: dict[str, str], core_type: str) -> Iterator[tuple[str, str]]:
    """Text and key of each value of a PE."""
    for unit in UNITS:
        key = f"compute.{core_type}.{unit}.float32"
        if key in values:
            yield f"{unit} unit {values[key]} op/cycle", key
    yield f"SRAM {format_size(int(values['sram.bytes']))}", "sram.bytes"
    yield f"{values['dma.engines']} DMA of {values['dma.bandwidth']} GB/s", "dma.bandwidth"
    yield f"{values['mmu.tlb_entries']} TLB entries", "mmu.tlb_entries"
    yield f"HBM {format_size(int(values['hbm.bytes']))}", "hbm.bytes"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(picture(sys.argv[1]), encoding="utf-8")
