"""The part of each output that is compared with its golden: slices, or a mask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernloom.base.errors import ConfigError
from kernloom.base.expressions import evaluate
from kernloom.measure.fills import Array


def region_of(
    name: str,
    region: str | tuple[int | str, ...],
    shape: tuple[int, ...],
    sizes: Mapping[str, int],
    compute: Callable[[str, str], Any],
) -> Array:
    """A mask of the elements that count. `compute(text, key)` evaluates a mask as a golden."""
    key = f"workload.region.{name}"
    if isinstance(region, str):
        mask = np.asarray(compute(region, key))
        if mask.dtype.kind != "b":
            raise ConfigError(
                f"'{region}' is no mask: its elements are {mask.dtype}, not true or false",
                key=key,
                hint="A mask is a comparison, such as 'x > 0'; a region is a list of slices.",
            )
        if mask.shape != shape:
            raise ConfigError(
                f"the mask '{region}' has shape {list(mask.shape)}, but tensor '{name}' is "
                f"{list(shape)}",
                key=key,
            )
        return mask
    if len(region) != len(shape):
        raise ConfigError(
            f"{len(region)} slices are given, but tensor '{name}' has {len(shape)} dimensions",
            key=key,
        )
    mask = np.zeros(shape, dtype=bool)
    mask[tuple(_slice(part, sizes, key) for part in region)] = True
    return mask


def check_region(name: str, mask: Array) -> None:
    """Refuse a region without an element: nothing would be compared."""
    if not mask.any():
        raise ConfigError(
            f"the region leaves nothing of '{name}' to compare", key=f"workload.region.{name}"
        )


def _slice(part: int | str, sizes: Mapping[str, int], key: str) -> slice:
    """`a:b` with expressions over the sizes, either of which may be left out; or one index."""
    texts = [text.strip() for text in str(part).split(":")]
    if len(texts) > 2:
        raise ConfigError(f"'{part}' is no slice", key=key, hint="Write it as 1:M-1, or ':'.")
    ends = [_index(text, sizes, key) if text else None for text in texts]
    if len(ends) == 1:
        if ends[0] is None:
            raise ConfigError("a slice is empty", key=key, hint="':' is a whole dimension.")
        return slice(ends[0], ends[0] + 1 or None)
    return slice(*ends)


def _index(text: str, sizes: Mapping[str, int], key: str) -> int:
    value = evaluate(text, sizes, key=key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"'{text}' is {value!r}, which is no index", key=key)
    return value
