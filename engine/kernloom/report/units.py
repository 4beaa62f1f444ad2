"""Numbers for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_TIME_UNITS = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))


def three_digits(value: float) -> str:
    """At least three significant digits: 0.0123, 1.23, 12.3, 123, 12,345."""
    if not math.isfinite(value):
        return str(value)
    if value == 0 or abs(value) >= 99.95:
        return f"{value:,.0f}"
    decimals = 2 - math.floor(math.log10(abs(float(f"{value:.3g}"))))
    return f"{value:.{max(0, decimals)}f}" if decimals <= 6 else f"{value:.2e}"


def time_text(nanoseconds: float) -> str:
    """`532 ns`, `12.3 µs`, `1.50 s`."""
    for unit, size in _TIME_UNITS:
        if abs(nanoseconds) >= 0.9995 * size:
            return f"{three_digits(nanoseconds / size)} {unit}"
    return f"{three_digits(nanoseconds)} ns"


def measured_time(metrics: Mapping[str, Any]) -> str:
    """The median with half its confidence interval, `12.3 µs ±0.8%`; one sample has none."""
    median = metrics.get("median_ns")
    if median is None:
        return ""
    low, high = metrics.get("ci_low_ns"), metrics.get("ci_high_ns")
    if low is None or high is None or not median or metrics.get("samples") == 1:
        return time_text(median)
    return f"{time_text(median)} ±{(high - low) / 2 / median * 100:.1f}%"


def count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
