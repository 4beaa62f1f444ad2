"""Simpler draws: smaller sizes, the workload's own contents, no offsets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from kernloom.config.schema import SizeRange
from kernloom.run.fuzzing.draws import Draw

T = TypeVar("T")
V = TypeVar("V")
FEW = 40
"""Number of the smallest values of each size that are tried one by one."""
MAX_ATTEMPTS = 200
"""Most draws that are tried to shrink a failure."""
MAX_SECONDS = 120.0
"""Time after which no further draw is tried: one that hangs takes until the timeout."""


def shrink(
    draw: Draw,
    limits: Mapping[str, SizeRange],
    fails: Callable[[Draw], bool],
    clock: Callable[[], float] = time.monotonic,
) -> Draw:
    """The simplest draw that still fails, as far as simpler ones were tried. Each simpler draw that
    fails is the start of the next attempts."""
    attempts, end = 0, clock() + MAX_SECONDS
    tried = {str(draw)}
    progress = True
    while progress and attempts < MAX_ATTEMPTS:
        progress = False
        for simpler in _simpler(draw, limits):
            if str(simpler) in tried:
                continue
            if clock() >= end:
                return draw
            tried.add(str(simpler))
            attempts += 1
            if fails(simpler):
                draw, progress = simpler, True
                break
            if attempts >= MAX_ATTEMPTS:
                break
    return draw


def shorten(
    draws: Sequence[T],
    fails: Callable[[Sequence[T]], bool],
    clock: Callable[[], float] = time.monotonic,
) -> list[T]:
    """Draws of a sequence after which the failure is still there, without parts that it does not
    need."""
    left, size, end = list(draws), len(draws) // 2, clock() + MAX_SECONDS
    while size:
        at = 0
        while at < len(left) and clock() < end:
            fewer = left[:at] + left[at + size :]
            if fewer and fails(fewer):
                left = fewer
            else:
                at += size
        size //= 2
    return left


def _simpler(draw: Draw, limits: Mapping[str, SizeRange]) -> Iterator[Draw]:
    if draw.offsets:
        yield replace(draw, offsets={})
    if draw.kinds:
        yield replace(draw, kinds={}, fills={})
    for name in draw.offsets:
        yield replace(draw, offsets=_without(draw.offsets, name))
    for name in draw.kinds:
        yield replace(draw, kinds=_without(draw.kinds, name), fills=_without(draw.fills, name))
    least = {name: _least(limits.get(name, SizeRange())) for name in draw.sizes}
    if any(size > least[name] for name, size in draw.sizes.items()):
        yield replace(draw, sizes=least)
    for name, size in sorted(draw.sizes.items(), key=lambda pair: -pair[1]):
        step = limits.get(name, SizeRange()).multiple
        for smaller in (least[name], size // 4, *_less(size, step)):
            fitting = max(smaller // step * step, least[name])
            if fitting < size:
                yield replace(draw, sizes={**draw.sizes, name: fitting})
    for name, size in draw.sizes.items():
        step = limits.get(name, SizeRange()).multiple
        for smaller in range(least[name], min(size, least[name] + FEW * step), step):
            yield replace(draw, sizes={**draw.sizes, name: smaller})


def _less(size: int, step: int) -> Iterator[int]:
    """Smaller sizes, beginning with half. Most keep the remainder modulo a power of two, because
    the failure may be in the tail of a loop over vectors or tiles."""
    yield size // 2
    power = 1 << max(size // step - 1, 1).bit_length() - 1
    while power:
        yield size - power * step
        power //= 2


def _least(limits: SizeRange) -> int:
    return -(-limits.low // limits.multiple) * limits.multiple


def _without(values: Mapping[str, V], name: str) -> dict[str, V]:
    return {key: value for key, value in values.items() if key != name}
