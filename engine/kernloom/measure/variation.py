"""Proof that every run of a measured launch does its work: inputs change between the runs, outputs
are poisoned, and a run that the device draws is compared with the golden, as is the last one.

A kernel cannot know the drawn run before it is over: the run has the mixture of two data sets that
its neighbours have, and no pause before it. The device tells the mixture, of which the golden is
computed. A kernel that reuses earlier results, skips runs, or works only while it is verified is
`wrong`.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np

from kernloom.base.errors import DeviceError
from kernloom.device.contract import LaunchResult, LaunchSettings
from kernloom.measure.bench import Bench, NamedPiece, NamedVariation, Setup, VariedArrays
from kernloom.measure.data import Array
from kernloom.measure.rounding import rounding_of
from kernloom.measure.verify import bounds_of, check_unchanged, compare, verified_launch

EXCHANGED, OTHERS = 12, 8
"""Pieces that are exchanged, over all tensors: they have 4096 mixtures of two data sets; and pieces
that are restored, and poisoned."""
PIECE_BYTES = 64
LAST = 0.5
"""Probability that the last piece of a tensor is among them."""
BOTH_BYTES = 1 << 20
"""Outputs up to which two runs of the first process are compared."""
MOST, LEAST, COST = 0.5, 0.1, 0.03
"""Share of the other processes whose runs are compared: at most, at least, and the share of
measuring time that it may take."""
DRAWN = 0.75
"""Share of these of which the drawn run is compared; of the others it is the last."""
_random = random.Random(secrets.randbits(128))  # noqa: S311 (its seed is a secret)


@dataclass(frozen=True)
class _Mixtures:
    """The inputs of the runs that are compared."""

    drawn: Mapping[str, Array]
    last: Mapping[str, Array]
    restored: NamedPiece | None = None
    """The piece of an updated tensor that was restored just before the drawn run,"""
    content: bytes = b""
    """and its content after it."""

    @classmethod
    def of(
        cls, report: Mapping[str, str], inputs: Mapping[str, Array], pieces: Sequence[NamedPiece]
    ) -> _Mixtures:
        restored = [piece for piece in pieces if piece.own and not piece.other]
        number = int(report.get("restored", -1))
        return cls(
            _mixture(report.get("drawn", ""), inputs, pieces),
            _mixture(report.get("last", ""), inputs, pieces),
            restored[number] if 0 <= number < len(restored) else None,
            bytes.fromhex(report.get("content", "")),
        )


def _mixture(
    digits: str, inputs: Mapping[str, Array], pieces: Sequence[NamedPiece]
) -> Mapping[str, Array]:
    """The inputs with the content of the other data set in the pieces whose digit is 1."""
    exchanged = [piece for piece in pieces if piece.other]
    mixed = dict(inputs)
    for digit, piece in zip(digits, exchanged, strict=False):
        if digit == "1":
            if mixed[piece.tensor] is inputs[piece.tensor]:
                mixed[piece.tensor] = inputs[piece.tensor].copy()
            offset, nbytes = piece.place
            flat = mixed[piece.tensor].reshape(-1).view(np.uint8)
            flat[offset : offset + nbytes] = np.frombuffer(piece.other, np.uint8)
    return mixed


@dataclass(frozen=True)
class _Proof:
    """What the results of a launch are compared with."""

    bench: Bench
    setup: Setup

    @property
    def goldens(self) -> dict[str, Array]:
        return self.bench.data.goldens(self.bench.experiment.workload, self.setup.seed)

    @property
    def only_read(self) -> set[str]:
        return self.setup.inputs.keys() - self.setup.written

    def check(self, found: VariedArrays, mixtures: _Mixtures, proven: Proven) -> None:
        """Raise if a run that was copied gave a wrong result, or an input changed."""
        drawn = found.after if proven.drawn else {}
        if not self.setup.updated:
            self.compare(drawn, mixtures.drawn, "a run drawn from the samples")
            self.compare(found.end, mixtures.last, "the last run")
        elif drawn:
            before = {**self.setup.inputs, **found.before}
            self.compare(drawn, before, "a run drawn from the samples")
            if mixtures.restored and _is_local(self.bench, self.setup):
                self.compare_piece(mixtures, mixtures.restored)
        with named(self.setup, "the last run"):
            unchanged = found.end.keys() & self.only_read
            check_unchanged(found.end, mixtures.last, unchanged)

    def compare_piece(self, mixtures: _Mixtures, piece: NamedPiece) -> None:
        """Raise if a piece that was restored before a run is wrong after it."""
        name, (offset, nbytes) = piece.tensor, piece.place
        result = self.setup.inputs[name].copy()
        flat = result.reshape(-1).view(np.uint8)
        flat[offset : offset + nbytes] = np.frombuffer(mixtures.content, np.uint8)
        part = _elements(piece, self.setup)
        self.compare({name: result}, mixtures.drawn, "a run drawn from the samples", part)

    def compare(
        self,
        found: Mapping[str, Array],
        inputs: Mapping[str, Array],
        run: str,
        part: Mapping[str, Array] | None = None,
    ) -> None:
        """Raise if outputs differ from the goldens of these inputs, where they count."""
        workload, data, seed = self.bench.experiment.workload, self.bench.data, self.setup.seed
        if not found.keys() & self.goldens.keys():
            return
        pure = all(inputs[name] is array for name, array in self.setup.inputs.items())
        goldens = self.goldens if pure else data.goldens_from(workload, inputs)
        regions = data.regions(workload, seed) if pure else data.regions_from(workload, inputs)
        for name, mask in (part or {}).items():
            regions = {**regions, name: mask & regions[name] if name in regions else mask}
        allowances = data.allowances if pure else None
        rounding: Mapping[str, Array] | None = None
        with named(self.setup, run, mixed=not pure):
            for name in found.keys() & goldens.keys():
                result, golden, region = found[name], goldens[name], regions.get(name)
                try:
                    compare(name, result, golden, workload, allowances, region)
                except DeviceError:
                    bounds = workload.derive(bounds_of, result.dtype.name)
                    if golden.dtype.kind != "f" or result.dtype.kind != "f" or bounds.exact:
                        raise
                    # The tolerance suits the workload's own data, and this is other data.
                    rounding = rounding or rounding_of(
                        workload, inputs, goldens, partial(data.goldens_from, workload), seed
                    )
                    compare(
                        *(name, result, golden, workload),
                        region=region,
                        rounding=rounding[name],
                    )


def _elements(piece: NamedPiece, setup: Setup) -> dict[str, Array]:
    """Tensor -> mask of the elements of a piece."""
    spec = setup.tensors[piece.tensor]
    itemsize = np.dtype(spec.dtype).itemsize
    offset, nbytes = piece.place
    mask = np.zeros(spec.elements, dtype=bool)
    mask[offset // itemsize : (offset + nbytes) // itemsize] = True
    return {piece.tensor: mask.reshape(spec.shape)}


def _is_local(bench: Bench, setup: Setup) -> bool:
    """Whether a part of an updated tensor follows from that part before: then a piece that was
    restored proves a run that nothing else is known of."""
    if bench.local_updates is None:
        bench.local_updates = _found_local(bench, setup)
    return bench.local_updates


def _found_local(bench: Bench, setup: Setup) -> bool:
    workload, data = bench.experiment.workload, bench.data
    goldens = data.goldens(workload, setup.seed)
    mixed = all(data.is_mixable(workload, name) for name in setup.updated)
    if not mixed or not goldens.keys() <= setup.updated or workload.region:
        return False
    other = data.inputs(workload, bench.other_seed(setup.seed))
    for name in sorted(goldens):
        spec = setup.tensors[name]
        mask = np.zeros(spec.elements, dtype=bool)
        first = _random.randrange(max(1, spec.elements - 16))
        mask[first : first + 16] = True
        mask = mask.reshape(spec.shape)
        changed = {one: other[one] for one in setup.updated}
        changed[name] = np.where(mask, setup.inputs[name], other[name])
        found = data.goldens_from(workload, {**setup.inputs, **changed})[name]
        if not np.array_equal(found[mask], goldens[name][mask]):
            return False
    return True


@dataclass(frozen=True)
class Proven:
    """The runs of a launch whose results are compared; which, a kernel cannot know."""

    drawn: bool = True
    last: bool = True
    """Not where kernels update their inputs: its golden is not known."""

    @classmethod
    def choose(cls, setup: Setup, processes: int, cost: float) -> Proven:
        """Both in the first process, and one of them in a share of the others. `cost` is the time
        of a comparison as a share of that of a launch."""
        wanted = min(MOST, max(LEAST, COST / cost)) if cost else MOST
        if setup.updated:
            return cls(processes == 0 or _random.random() < wanted, False)
        if processes == 0:
            both = setup.output_bytes <= BOTH_BYTES
            return cls(True, both)
        if _random.random() >= wanted:
            return cls(False, False)
        drawn = _random.random() < DRAWN
        return cls(drawn, not drawn)


def varied_launch(
    bench: Bench, setup: Setup, settings: LaunchSettings, proven: Proven | None = None
) -> LaunchResult:
    """A measured launch whose runs are proven."""
    if "variation" not in bench.device.capabilities:
        return _proven_after(bench, setup, settings)
    proven = proven or Proven(last=not setup.updated)
    of = _Proof(bench, setup)
    pieces = tuple(_pieces(bench, setup))
    variation = NamedVariation(
        secrets.randbits(64),
        pieces,
        poisoned=tuple(sorted(setup.written - setup.inputs.keys())),
        before=tuple(sorted(setup.updated)),
        # Also where nothing is compared, so that kernels see no difference.
        after=tuple(of.goldens),
    )
    any_proven = proven.drawn or proven.last
    read = [*(of.goldens if proven.last else ()), *(of.only_read if any_proven else ())]
    result, found = setup.launch_varied(settings, variation, read)
    if any_proven:
        start = time.monotonic()
        of.check(found, _Mixtures.of(result.report, setup.inputs, pieces), proven)
        bench.proof_cost = (time.monotonic() - start) / max(result.elapsed_ns / 1e9, 1e-6)
    if setup.updated and proven.drawn and not found.after:
        # The device had no room for copies.
        _prove_again(bench, setup)
    return result


def _proven_after(bench: Bench, setup: Setup, settings: LaunchSettings) -> LaunchResult:
    """A launch whose results are proven by its last run, or, where kernels update their inputs, by
    another launch."""
    if not setup.updated:
        with named(setup, "the last run"):
            return verified_launch(bench, setup, settings)[0]
    result = setup.launch(settings)
    _prove_again(bench, setup)
    return result


def _prove_again(bench: Bench, setup: Setup) -> None:
    setup.renew(setup.seed)
    with named(setup, "another run"):
        verified_launch(bench, setup, LaunchSettings())


@contextmanager
def named(setup: Setup, run: str, *, mixed: bool = False) -> Iterator[None]:
    """Names the run and its data set in the message of a wrong result."""
    try:
        yield
    except DeviceError as error:
        if error.status == "wrong":
            error.message += (
                f". This is {run}, with the inputs of seed={setup.seed}"
                f"{' and others in places' if mixed else ''}: every run must do its own work"
            )
        raise


def _pieces(bench: Bench, setup: Setup) -> Iterator[NamedPiece]:
    """Pieces at random places: exchanged in inputs, restored in inputs that kernels update, and
    poisoned in outputs."""
    workload, data = bench.experiment.workload, bench.data
    mixed = [name for name in setup.inputs if data.is_mixable(workload, name)]
    other = data.inputs(workload, bench.other_seed(setup.seed))
    for name, place in _places(
        setup, [name for name in mixed if name not in setup.updated], EXCHANGED
    ):
        yield NamedPiece(name, place, _bytes(setup.inputs[name], place), _bytes(other[name], place))
    for name, place in _places(setup, [name for name in mixed if name in setup.updated], OTHERS):
        yield NamedPiece(name, place, _bytes(setup.inputs[name], place))
    for name, place in _places(setup, sorted(setup.written - setup.inputs.keys()), OTHERS):
        yield NamedPiece(name, place)


def _places(setup: Setup, names: Sequence[str], most: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """Offset and number of bytes of pieces in a random order."""
    found = []
    for name in names:
        nbytes = setup.tensors[name].nbytes
        pieces = -(-nbytes // PIECE_BYTES)
        count = min(pieces, max(2, most // len(names)))
        numbers = {_random.randrange(pieces) for _ in range(count)}
        # A kernel may leave out a tail, or look at a tensor's start for signs of a new run.
        if _random.random() < LAST:
            numbers.add(pieces - 1)
        for number in numbers:
            offset = number * PIECE_BYTES
            found.append((name, (offset, min(PIECE_BYTES, nbytes - offset))))
    _random.shuffle(found)
    yield from found


def _bytes(array: Array, place: tuple[int, int]) -> bytes:
    offset, nbytes = place
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat[offset : offset + nbytes].tobytes()
