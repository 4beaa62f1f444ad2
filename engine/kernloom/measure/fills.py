"""Contents of tensors: one function for each kind of fill."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from kernloom.base.errors import ConfigError
from kernloom.base.places import confined
from kernloom.base.registry import Registry
from kernloom.config.schema import Fill
from kernloom.plan.schedule import TensorSpec

Array = npt.NDArray[Any]
Generator = Callable[[TensorSpec, np.random.Generator], Array]
"""A registered function that fills a tensor (entry-point group kernloom.generators)."""
SPRINKLED = 64
"""One element in so many has the value of a `sprinkled` fill, and at least one."""


def _arange(spec: TensorSpec, random: np.random.Generator) -> Array:
    return np.arange(spec.elements).reshape(spec.shape)


GENERATORS: Registry[Generator] = Registry(
    "generator", {"arange": _arange}, group="kernloom.generators"
)


@dataclass(frozen=True)
class Filling:
    """One tensor to fill."""

    spec: TensorSpec
    fill: Fill
    random: np.random.Generator
    folders: list[Path]
    key: str


def check_shape(shape: tuple[int, ...], filling: Filling) -> None:
    if shape != filling.spec.shape:
        raise ConfigError(
            f"gives shape {list(shape)}, but the tensor is {list(filling.spec.shape)}",
            key=filling.key,
        )


def _is_integer(filling: Filling) -> bool:
    return np.dtype(filling.spec.dtype).kind in "iu"


def _uniform(filling: Filling) -> Array:
    fill, spec = filling.fill, filling.spec
    if not _is_integer(filling):
        return filling.random.uniform(fill.low, fill.high, spec.shape)
    # Truncated to integers, the default range of -1 to 1 would be all zeros.
    given = (fill.low, fill.high)
    return _whole_numbers(filling, *((-100, 100) if given == (Fill().low, Fill().high) else given))


def _whole_numbers(filling: Filling, low: float, high: float) -> Array:
    """Random integers from low to high, within the range of the tensor's type."""
    kind = np.dtype(filling.spec.dtype)
    bounds = np.iinfo(kind if kind.kind in "iu" else np.int64)
    least, most = max(int(low), int(bounds.min)), min(int(high), int(bounds.max))
    if least > most:
        raise ConfigError(f"no whole number from {low:g} to {high:g} fits {kind}", key=filling.key)
    return filling.random.integers(least, most, filling.spec.shape, endpoint=True)


def _normal(filling: Filling) -> Array:
    values = filling.random.normal(filling.fill.mean, filling.fill.std, filling.spec.shape)
    return np.rint(values) if _is_integer(filling) else values


def _integers(filling: Filling) -> Array:
    return _whole_numbers(filling, filling.fill.low, filling.fill.high)


def _pattern(filling: Filling) -> Array:
    spec, fill = filling.spec, filling.fill
    if fill.pattern in ("ramp", "steps"):
        values = np.linspace(fill.low, fill.high, spec.elements).reshape(spec.shape)
        return values if fill.pattern == "ramp" else np.rint(values)
    index = np.indices(spec.shape)
    if fill.pattern == "identity":
        same = np.ones(spec.shape, dtype=bool)
        for axis in index[1:]:
            same &= axis == index[0]
        return same.astype(float)
    even = (index[-1] if fill.pattern == "alternating" else index.sum(axis=0)) % 2 == 0
    return np.where(even, fill.high, fill.low)


def _file(filling: Filling) -> Array:
    """The numbers of a .npy file, read rather than mapped: truncating a mapped file would kill the
    process that reads it. Reads no more than the tensor's elements."""
    key = f"{filling.key}.path"
    path = confined(str(filling.fill.path), filling.folders, key=key, what="data file")
    try:
        # Non-blocking, because opening a FIFO would block.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise ConfigError(f"'{path}' is not a regular file", key=key)
            header = _npy_header(file)
            if header is None:
                raise ConfigError(f"'{path}' is not a .npy file of numbers", key=key)
            if header.dtype.kind not in "fiub":
                raise ConfigError(f"'{path}' is not a .npy file of real numbers", key=key)
            check_shape(header.shape, filling)
            needed = filling.spec.elements * header.dtype.itemsize
            data = file.read(needed)
    except OSError as error:
        raise ConfigError(f"'{path}' cannot be read: {error.strerror}", key=key) from None
    if len(data) < needed:
        raise ConfigError(
            f"'{path}' is cut short: its header announces {needed} bytes of numbers, and "
            f"{len(data)} are there",
            key=key,
        )
    flat: Array = np.frombuffer(data, header.dtype, filling.spec.elements)
    return flat.reshape(header.shape, order=header.order)


@dataclass(frozen=True)
class _NpyHeader:
    """Element type, order and shape in the header of a .npy file."""

    shape: tuple[int, ...]
    order: Literal["C", "F"]
    dtype: np.dtype[Any]


def _npy_header(file: BinaryIO) -> _NpyHeader | None:
    """The header of a file; None if it has none."""
    try:
        version = np.lib.format.read_magic(file)
        # Version 3 differs from 2 only in field names, which plain numbers do not have.
        first = version == (1, 0)
        form = np.lib.format
        read = form.read_array_header_1_0 if first else form.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except Exception:  # numpy can raise anything for a damaged header
        return None
    return _NpyHeader(tuple(shape), "F" if fortran else "C", dtype)


def _generated(filling: Filling) -> Array:
    name = str(filling.fill.generator)
    generator = GENERATORS.get(name, key=f"{filling.key}.generator")
    try:
        return np.asarray(generator(filling.spec, filling.random))
    except Exception as error:  # code from outside
        raise ConfigError(
            f"generator '{name}' failed: {type(error).__name__}: {error}",
            key=filling.key,
            hint=f"It is called as {name}(spec, random): the tensor's name, shape, dtype and "
            "elements, and a numpy random generator.",
        ) from error


def _sprinkled(filling: Filling) -> Array:
    """Uniform numbers, a few of which are replaced by one value, such as NaN."""
    values = _uniform(filling)
    if _is_integer(filling) and not np.isfinite(filling.fill.value):
        raise ConfigError(f"{filling.spec.dtype} has no {filling.fill.value}", key=filling.key)
    count = -(-values.size // SPRINKLED)
    places = filling.random.choice(values.size, count, replace=False)
    values.reshape(-1)[places] = filling.fill.value
    return values


FILLS: dict[str, Callable[[Filling], Array]] = {
    "uniform": _uniform,
    "sprinkled": _sprinkled,
    "normal": _normal,
    "integers": _integers,
    "constant": lambda f: np.full(f.spec.shape, f.fill.value),
    "pattern": _pattern,
    "file": _file,
    "generator": _generated,
}
