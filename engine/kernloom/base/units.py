"""Numbers as text for people."""

from __future__ import annotations

import math

from kernloom.base.visible_text import visible

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


def whole_number(value: float) -> str:
    """`87,555`."""
    return f"{value:,.0f}"


def number_text(value: float) -> str:
    """`87,555` for a count, three digits for anything else."""
    return f"{value:,}" if isinstance(value, int) else three_digits(value)


def ratio_text(ratio: float, low: float, high: float) -> str:
    """`1.13× (1.11..1.15)`; `~1.01× (0.98..1.02)` if it may be 1; exact ones have no interval.

    Shows both bounds, since intervals are often asymmetric: a half-width could misplace 1.
    """
    decimals = 0 if ratio >= 99.95 else 1 if ratio >= 9.995 else 2 if ratio >= 0.0995 else 4
    text = f"{ratio:,.{decimals}f}×"
    if low == high:
        return text
    bounds = f"({low:,.{decimals}f}..{high:,.{decimals}f})"
    return f"{'~' if contains_one(low, high) else ''}{text} {bounds}"


def contains_one(low: float, high: float) -> bool:
    """Whether the interval of a ratio contains values above and below 1."""
    return low <= 1 <= high and low != high


def count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def xml_text(text: str) -> str:
    """Text that XML 1.0 allows: control characters are made visible, other characters dropped."""
    return "".join(c for c in visible(text) if c.isprintable() or c in "\n\t\xa0\xad")
