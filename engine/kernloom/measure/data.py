"""Seeded inputs and golden results for a workload's tensors."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from kernloom.base.digest import DigestCache, digest_of
from kernloom.base.errors import ConfigError
from kernloom.base.expressions import parse
from kernloom.base.registry import Registry
from kernloom.config.goldens import golden_file
from kernloom.config.schema import Fill, Workload
from kernloom.measure.allowances import Allowances
from kernloom.measure.fills import FILLS, Filling, check_shape
from kernloom.measure.fills import Array as Array
from kernloom.measure.golden_files import call_golden, golden_digests
from kernloom.measure.references import REFERENCES
from kernloom.measure.regions import check_region, region_of
from kernloom.plan.inspect import accesses_from, inputs_of, sizes_of, tensors_of
from kernloom.plan.schedule import TensorSpec

MAX_CACHED_BYTES = 128 * 2**20
"""Bytes of input and golden data that a sweep keeps for its next points."""

FIRST, STREAM = 1 << 12, 1 << 20
"""Elements of a random stream generated at first, and kept at most."""

ELEMENTWISE = ("uniform", "normal", "integers")
"""Fills whose elements do not depend on each other: parts of two data sets can be mixed."""
SEEDED = (*ELEMENTWISE, "sprinkled", "generator")
"""Fills that depend on the seed."""
OTHER_SEEDS = 1 << 20


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
            return goldens_of(workload, sizes_of(workload), inputs, self._folders)

    def regions_from(self, workload: Workload, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The regions for given inputs; not kept."""
        if not workload.region:
            return {}
        return regions_of(workload, sizes_of(workload), inputs, self._folders)

    def is_mixable(self, workload: Workload, name: str) -> bool:
        """Whether an input with parts of two data sets is as valid as either."""
        return workload.tensors[name].fill.kind in ELEMENTWISE

    def regions(self, workload: Workload, seed: int) -> dict[str, Array]:
        """Masks of the elements that count, for outputs of which not all do."""
        if not workload.region:
            return {}
        return self._cached("regions", workload, seed, self._regions)

    def _regions(self, workload: Workload, seed: int) -> dict[str, Array]:
        if not self.goldens(workload, seed):
            return {}
        masks = regions_of(workload, sizes_of(workload), self.inputs(workload, seed), self._folders)
        return self._checked_regions(masks)

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
            lambda: self._checked(
                goldens_of(workload, sizes, self.inputs(workload, seed), self._folders)
            ),
        )

    def _checked_regions(self, masks: dict[str, Array]) -> dict[str, Array]:
        for name, mask in masks.items():
            check_region(name, mask)
        return masks

    def _checked(self, goldens: dict[str, Array]) -> dict[str, Array]:
        return check_finite(goldens)

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
        filling = Filling(spec, fill, random, self._folders, key)
        values = FILLS[fill.kind](filling)
        check_shape(values.shape, filling)
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
            if _total(self._streams) > MAX_CACHED_BYTES:
                self._streams.clear()
            self._streams[place] = stream
        return stream[: spec.elements].reshape(spec.shape)


def _total(arrays: Mapping[Any, Array]) -> int:
    return sum(array.nbytes for array in arrays.values())


def goldens_of(
    workload: Workload,
    sizes: Mapping[str, int],
    inputs: Mapping[str, Array],
    folders: Sequence[Path],
) -> dict[str, Array]:
    """Every golden, computed in float64 and checked against its tensor's shape."""
    compute = _Computation(workload, sizes, inputs, folders)
    goldens: dict[str, Array] = {}
    for name, text in workload.golden.items():
        key = f"workload.golden.{name}"
        result = np.asarray(compute(text, name, key))
        shape = compute.tensors[name].shape
        if result.shape != shape:
            raise ConfigError(
                f"'{text}' has shape {list(result.shape)}, but tensor '{name}' is {list(shape)}",
                key=key,
            )
        goldens[name] = result
    return goldens


def regions_of(
    workload: Workload,
    sizes: Mapping[str, int],
    inputs: Mapping[str, Array],
    folders: Sequence[Path],
) -> dict[str, Array]:
    """The masks of all outputs that have a region."""
    compute = _Computation(workload, sizes, inputs, folders)

    def mask(name: str, region: str | tuple[int | str, ...]) -> Array:
        shape = compute.tensors[name].shape
        return region_of(name, region, shape, sizes, lambda text, key: compute(text, name, key))

    return {name: mask(name, region) for name, region in workload.region.items()}


class _Computation:
    """Evaluates goldens and masks on the inputs of a workload, in float64."""

    def __init__(
        self,
        workload: Workload,
        sizes: Mapping[str, int],
        inputs: Mapping[str, Array],
        folders: Sequence[Path],
    ) -> None:
        self.tensors = tensors_of(workload)
        self._sizes = sizes
        self._folders = folders
        self._inputs = {
            name: array.astype(np.float64) if array.dtype.kind == "f" else array
            for name, array in inputs.items()
        }
        self._scalars = {
            name: _rounded(value, workload.dtype) for name, value in workload.scalars.items()
        }

    def __call__(self, text: str, name: str, key: str) -> Any:
        if file := golden_file(text):
            shape = self.tensors[name].shape
            return call_golden(
                *(file, self._folders, self._inputs, self._scalars, self._sizes, shape, key)
            )
        return _golden(text, self._inputs, self._scalars, self._sizes, key)


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


def check_goldens(workload: Workload, cache: DigestCache, folders: Sequence[Path]) -> None:
    """Find a golden that does not fit its tensor early, with a trial run on tiny tensors.

    Each size shrinks to a small number of its own, larger ones to larger numbers; sizes that cannot
    shrink are left to the check on the real data.
    """
    numbers = [(size, name) for name, size in workload.sizes.items() if isinstance(size, int)]
    order = [name for _, name in sorted(numbers, key=lambda one: one[0])]
    shrunk = {
        name: min(size, 3 + order.index(name)) if isinstance(size, int) else size
        for name, size in workload.sizes.items()
    }
    # Every tensor is filled with ones.
    tensors = {name: [*tensor.shape, tensor.dtype] for name, tensor in workload.tensors.items()}
    parts = (workload.dtype, workload.golden, workload.region, tensors, workload.scalars)
    parts += accesses_from(workload)
    files = golden_digests(workload, folders, cache)
    key = (check_goldens, *shrunk.items(), *map(digest_of, parts), *files.items())
    cache.by_key(key, lambda: _try_goldens(replace(workload, sizes=shrunk), folders))


def _try_goldens(small: Workload, folders: Sequence[Path]) -> None:
    try:
        sizes = sizes_of(small)
        tensors = tensors_of(small)
    except ConfigError:
        return
    names = inputs_of(small)
    inputs = {name: np.ones(tensors[name].shape, tensors[name].dtype) for name in names}
    try:
        with np.errstate(all="ignore"):
            for compute, section in ((goldens_of, "golden"), (regions_of, "region")):
                found = compute(small, sizes, inputs, folders)
                again = compute(small, sizes, inputs, folders)
                _check_same(found, again, section)
    except ConfigError as error:
        tried = ", ".join(f"{name}={sizes[name]}" for name in small.sizes)
        raise ConfigError(error.message, hint=error.hint or f"Tried with {tried}.") from None


def _check_same(found: Mapping[str, Array], again: Mapping[str, Array], section: str) -> None:
    """Refuse what depends on more than its arguments."""
    for name, array in found.items():
        if not np.array_equal(array, again[name], equal_nan=array.dtype.kind == "f"):
            raise ConfigError(
                "differs between two calls with the same arguments",
                key=f"workload.{section}.{name}",
                hint="Seed its random numbers; it may depend on its arguments only.",
            )
