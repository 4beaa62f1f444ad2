"""Seeded inputs and golden results for a workload's tensors."""

from __future__ import annotations

import os
import secrets
import stat
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from kernloom.base.digest import DigestCache, digest_of
from kernloom.base.errors import ConfigError
from kernloom.base.expressions import parse
from kernloom.base.places import confined
from kernloom.base.registry import Registry
from kernloom.config.schema import Fill, Workload
from kernloom.measure.allowances import Allowances
from kernloom.measure.references import REFERENCES
from kernloom.plan.inspect import accesses_from, inputs_of, sizes_of, tensors_of
from kernloom.plan.schedule import TensorSpec

Array = npt.NDArray[Any]
Generator = Callable[[TensorSpec, np.random.Generator], Array]
"""A registered function that fills a tensor (entry-point group kernloom.generators)."""

MAX_CACHED_BYTES = 128 * 2**20
"""Bytes of input and golden data that a sweep keeps for its next points."""

FIRST, STREAM = 1 << 12, 1 << 20
"""Elements of a random stream generated at first, and kept at most."""

ELEMENTWISE = ("uniform", "normal", "integers")
"""Fills whose elements do not depend on each other: parts of two data sets can be mixed."""
SEEDED = (*ELEMENTWISE, "generator")
"""Fills that depend on the seed."""
OTHER_SEEDS = 1 << 20


def _arange(spec: TensorSpec, random: np.random.Generator) -> Array:
    return np.arange(spec.elements).reshape(spec.shape)


GENERATORS: Registry[Generator] = Registry(
    "generator", {"arange": _arange}, group="kernloom.generators"
)
REFERENCE_FUNCTIONS = Registry("reference", REFERENCES, group="kernloom.references")


class DataSets:
    """Inputs and goldens of workloads; equal ones of a sweep are computed once."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = list(folders)
        self._kept: OrderedDict[tuple[Any, ...], dict[str, Array]] = OrderedDict()
        self._bytes = 0
        self._streams: dict[tuple[Any, ...], Array] = {}
        self._last: dict[tuple[str, bool], tuple[Workload, int, dict[str, Array]]] = {}
        """The latest request for each of two data sets: a trial asks for its data repeatedly."""
        self.allowances = Allowances()
        self._other = secrets.randbelow(OTHER_SEEDS)

    def other_seed(self, workload: Workload, seed: int) -> int:
        """The seed of another data set, which nobody knows beforehand; the same seed if every input
        has the same content in both."""
        random = (workload.tensors[name].fill.kind in SEEDED for name in workload.derive(inputs_of))
        if not any(random):
            return seed
        return self._other + (self._other >= seed)

    def inputs(self, workload: Workload, seed: int) -> dict[str, Array]:
        """Every tensor that a step reads before it is written, filled."""
        return self._cached("inputs", workload, seed, self._inputs)

    def goldens(self, workload: Workload, seed: int) -> dict[str, Array]:
        """The expected value of each output, in float64."""
        return self._cached("goldens", workload, seed, self._goldens)

    def goldens_from(self, workload: Workload, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The same for given inputs; not kept, and not finite where inputs are not."""
        with np.errstate(all="ignore"):
            return goldens_of(workload, sizes_of(workload), inputs)

    def is_mixable(self, workload: Workload, name: str) -> bool:
        """Whether an input with parts of two data sets is as valid as either."""
        return workload.tensors[name].fill.kind in ELEMENTWISE

    def _cached(
        self,
        what: str,
        workload: Workload,
        seed: int,
        find: Callable[[Workload, int], dict[str, Array]],
    ) -> dict[str, Array]:
        place = (what, seed in (self._other, self._other + 1))
        last = self._last.get(place)
        if last is None or last[0] is not workload or last[1] != seed:
            last = self._last[place] = (workload, seed, find(workload, seed))
        return last[2]

    def _inputs(self, workload: Workload, seed: int) -> dict[str, Array]:
        tensors = tensors_of(workload)
        names = workload.derive(inputs_of)
        shapes = tuple((name, tensors[name].shape, tensors[name].dtype) for name in names)
        key = ("inputs", digest_of(workload.tensors), shapes, seed)
        return self._remember(
            key, lambda: {name: self._filled(tensors[name], workload, seed) for name in names}
        )

    def _goldens(self, workload: Workload, seed: int) -> dict[str, Array]:
        sizes = sizes_of(workload)
        key = (
            "golden",
            *map(digest_of, (workload.golden, workload.scalars, workload.tensors)),
            workload.dtype,
            tuple(sizes.items()),
            seed,
        )
        return self._remember(
            key,
            lambda: check_finite(goldens_of(workload, sizes, self.inputs(workload, seed))),
        )

    def _remember(
        self, key: tuple[Any, ...], make: Callable[[], dict[str, Array]]
    ) -> dict[str, Array]:
        if key not in self._kept:
            made = make()
            self._kept[key] = made
            self._bytes += _total(made)
            while len(self._kept) > 1 and self._bytes > MAX_CACHED_BYTES:
                self._bytes -= _total(self._kept.popitem(last=False)[1])
            return made
        self._kept.move_to_end(key)
        return self._kept[key]

    def _filled(self, spec: TensorSpec, workload: Workload, seed: int) -> Array:
        fill = workload.tensors[spec.name].fill
        if fill.kind == "uniform" and np.dtype(spec.dtype).kind == "f" and spec.elements <= STREAM:
            return self._from_stream(spec, fill, seed)
        # Each tensor has its own random stream, so that adding one does not change the others.
        random = np.random.default_rng([seed, *spec.name.encode()])
        key = f"workload.tensors.{spec.name}.fill"
        filling = _Filling(spec, fill, random, self._folders, key)
        values = _FILLS[fill.kind](filling)
        _check_shape(values.shape, filling)
        with np.errstate(all="ignore"):
            return np.ascontiguousarray(values.astype(spec.dtype))

    def _from_stream(self, spec: TensorSpec, fill: Fill, seed: int) -> Array:
        """Uniform numbers: a smaller tensor is a prefix of a larger one, so that the tensors of a
        sweep over sizes share one stream."""
        place = (spec.name, spec.dtype, fill.low, fill.high, seed)
        stream = self._streams.get(place)
        if stream is None or stream.size < spec.elements:
            count = max(FIRST, 1 << (spec.elements - 1).bit_length())
            random = np.random.default_rng([seed, *spec.name.encode()])
            with np.errstate(all="ignore"):
                stream = random.uniform(fill.low, fill.high, count).astype(spec.dtype)
            # Shared by many, hence read-only.
            stream.flags.writeable = False
            self._streams[place] = stream
        return stream[: spec.elements].reshape(spec.shape)


def _total(arrays: Mapping[str, Array]) -> int:
    return sum(array.nbytes for array in arrays.values())


def goldens_of(
    workload: Workload, sizes: Mapping[str, int], inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """Every golden, computed in float64 and checked against its tensor's shape."""
    exact = {
        name: array.astype(np.float64) if array.dtype.kind == "f" else array
        for name, array in inputs.items()
    }
    scalars = {name: _rounded(value, workload.dtype) for name, value in workload.scalars.items()}
    tensors = tensors_of(workload)
    goldens: dict[str, Array] = {}
    for name, text in workload.golden.items():
        key = f"workload.golden.{name}"
        result = np.asarray(_golden(text, exact, scalars, sizes, key))
        if result.shape != tensors[name].shape:
            raise ConfigError(
                f"'{text}' has shape {list(result.shape)}, but tensor '{name}' is "
                f"{list(tensors[name].shape)}",
                key=key,
            )
        goldens[name] = result
    return goldens


@lru_cache
def _rounded(value: float, dtype: str) -> float:
    """A number as an element of a type has it."""
    return float(np.dtype(dtype).type(value))


def check_finite(goldens: dict[str, Array]) -> dict[str, Array]:
    """The goldens, if each has a finite number: one without would prove nothing."""
    for name, golden in goldens.items():
        # Nearly always the first number is finite already.
        if not np.isfinite(golden.flat[:1]).any() and not np.isfinite(golden).any():
            what = "NaN" if np.isnan(golden).all() else "NaN or infinite"
            raise ConfigError(
                f"the golden of '{name}' proves nothing: all of its {golden.size} elements are "
                f"{what}",
                key=f"workload.golden.{name}",
                hint="Mend the golden, or the fill of the tensors that it is computed from.",
            )
    return goldens


def nan_warnings(goldens: Mapping[str, Array]) -> tuple[str, ...]:
    """For each golden with NaN, the share of its output that it does not prove."""
    return tuple(
        f"{int(np.isnan(golden).sum())} of {golden.size} elements of the golden of '{name}' are "
        "NaN: they prove nothing"
        for name, golden in goldens.items()
        if np.isnan(golden.min())  # needs no temporary array, as hardly any golden has NaN
    )


def _golden(
    text: str,
    inputs: Mapping[str, Array],
    scalars: Mapping[str, float],
    sizes: Mapping[str, int],
    key: str,
) -> Any:
    if text.isidentifier() and text not in inputs:
        reference = REFERENCE_FUNCTIONS.get(text, key=key)
        try:
            return reference(dict(inputs), dict(scalars), dict(sizes))
        except Exception as error:  # code from outside
            raise ConfigError(
                f"reference '{text}' failed: {type(error).__name__}: {error}",
                key=key,
                hint=f"It is called as {text}(inputs, scalars, sizes), each a dict by the "
                "workload's names, and returns the golden.",
            ) from error
    try:
        return parse(text)({**sizes, **scalars, **inputs})
    except ConfigError as error:
        raise ConfigError(error.message, key=key, hint=error.hint) from None


def check_goldens(workload: Workload, cache: DigestCache) -> None:
    """Find a golden that does not fit its tensor early, with a trial run on tiny tensors.

    Each size shrinks to a small number of its own; sizes that cannot shrink are left to the check
    on the real data.
    """
    shrunk = {
        name: min(size, 3 + index) if isinstance(size, int) else size
        for index, (name, size) in enumerate(workload.sizes.items())
    }
    parts = (workload.dtype, workload.golden, workload.tensors, workload.scalars)
    parts += accesses_from(workload)
    key = (check_goldens, *shrunk.items(), *map(digest_of, parts))
    cache.by_key(key, lambda: _try_goldens(replace(workload, sizes=shrunk)))


def _try_goldens(small: Workload) -> None:
    try:
        sizes = sizes_of(small)
        tensors = tensors_of(small)
    except ConfigError:
        return
    names = inputs_of(small)
    inputs = {name: np.ones(tensors[name].shape, tensors[name].dtype) for name in names}
    try:
        with np.errstate(all="ignore"):
            goldens_of(small, sizes, inputs)
    except ConfigError as error:
        tried = ", ".join(f"{name}={sizes[name]}" for name in small.sizes)
        raise ConfigError(error.message, hint=error.hint or f"Tried with {tried}.") from None


@dataclass(frozen=True)
class _Filling:
    """One tensor to fill."""

    spec: TensorSpec
    fill: Fill
    random: np.random.Generator
    folders: list[Path]
    key: str


def _check_shape(shape: tuple[int, ...], filling: _Filling) -> None:
    if shape != filling.spec.shape:
        raise ConfigError(
            f"gives shape {list(shape)}, but the tensor is {list(filling.spec.shape)}",
            key=filling.key,
        )


def _is_integer(filling: _Filling) -> bool:
    return np.dtype(filling.spec.dtype).kind in "iu"


def _uniform(filling: _Filling) -> Array:
    fill, spec = filling.fill, filling.spec
    if not _is_integer(filling):
        return filling.random.uniform(fill.low, fill.high, spec.shape)
    # Truncated to integers, the default range of -1 to 1 would be all zeros.
    given = (fill.low, fill.high)
    return _whole_numbers(filling, *((-100, 100) if given == (Fill().low, Fill().high) else given))


def _whole_numbers(filling: _Filling, low: float, high: float) -> Array:
    """Random integers from low to high, within the range of the tensor's type."""
    kind = np.dtype(filling.spec.dtype)
    bounds = np.iinfo(kind if kind.kind in "iu" else np.int64)
    least, most = max(int(low), int(bounds.min)), min(int(high), int(bounds.max))
    if least > most:
        raise ConfigError(f"no whole number from {low:g} to {high:g} fits {kind}", key=filling.key)
    return filling.random.integers(least, most, filling.spec.shape, endpoint=True)


def _normal(filling: _Filling) -> Array:
    values = filling.random.normal(filling.fill.mean, filling.fill.std, filling.spec.shape)
    return np.rint(values) if _is_integer(filling) else values


def _integers(filling: _Filling) -> Array:
    return _whole_numbers(filling, filling.fill.low, filling.fill.high)


def _pattern(filling: _Filling) -> Array:
    spec, fill = filling.spec, filling.fill
    if fill.pattern == "ramp":
        return np.linspace(fill.low, fill.high, spec.elements).reshape(spec.shape)
    index = np.indices(spec.shape)
    if fill.pattern == "identity":
        same = np.ones(spec.shape, dtype=bool)
        for axis in index[1:]:
            same &= axis == index[0]
        return same.astype(float)
    even = (index[-1] if fill.pattern == "alternating" else index.sum(axis=0)) % 2 == 0
    return np.where(even, fill.high, fill.low)


def _file(filling: _Filling) -> Array:
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
            _check_shape(header.shape, filling)
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


def _generated(filling: _Filling) -> Array:
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


_FILLS: dict[str, Callable[[_Filling], Array]] = {
    "uniform": _uniform,
    "normal": _normal,
    "integers": _integers,
    "constant": lambda f: np.full(f.spec.shape, f.fill.value),
    "pattern": _pattern,
    "file": _file,
    "generator": _generated,
}
