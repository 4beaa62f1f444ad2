"""Latencies from a PE to HBM as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernloom.base.expressions import format_size
from kernloom.base.units import time_text

_HEAD = ("memory of", "bytes", "read", "write")


def probe_lines(probes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One line for each size and distance."""
    yield "PE 0.0.0 to HBM and back to its SRAM, by its own DMA engine, with a warm TLB:"
    rows = [_HEAD] + [
        (
            str(one["distance"]),
            format_size(one["bytes"]),
            time_text(one["read_ns"]),
            time_text(one["write_ns"]),
        )
        for one in probes
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEAD))]
    for name, *numbers in rows:
        cells = [text.rjust(width) for text, width in zip(numbers, widths[1:], strict=True)]
        yield "  ".join([name.ljust(widths[0]), *cells])
