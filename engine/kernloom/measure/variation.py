"""Proof that every run of a measured launch does its work: inputs change between the runs, outputs
are poisoned, and a run that the device draws is compared with the golden, as is the last one.

A kernel that reuses earlier results, skips runs, or works only while it is verified is `wrong`.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from kernloom.base.errors import DeviceError
from kernloom.device.contract import LaunchResult, LaunchSettings
from kernloom.measure.bench import Bench, NamedPiece, NamedVariation, Setup, VariedArrays
from kernloom.measure.data import Array
from kernloom.measure.verify import check_unchanged, compare, verified_launch

EXCHANGED, OTHERS = 12, 8
"""Pieces that are exchanged, over all tensors: they have 4096 mixtures of two data sets; and pieces
that are restored, and poisoned."""
PIECE_BYTES = 64
LAST = 0.5
"""Probability that the last piece of a tensor is among them."""
BOTH_BYTES = 1 << 20
"""Outputs up to which two runs of the first process are compared."""
DRAWN, DRAWN_UPDATES = 0.5, 0.1
"""Share of the other processes whose drawn run is compared, and of those with a golden of their
own."""
_random = random.Random(secrets.randbits(128))  # noqa: S311 (its seed is a secret)


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

    def check(self, found: VariedArrays) -> None:
        """Raise if a run that was copied gave a wrong result, or an input changed."""
        if not self.setup.updated:
            workload, data = self.bench.experiment.workload, self.bench.data
            regions = data.regions(workload, self.setup.seed)
            self.compare(found.after, self.goldens, regions, "a run drawn from the samples")
            self.compare(found.end, self.goldens, regions, "the last run")
        elif found.after:
            workload = self.bench.experiment.workload
            inputs = {**self.setup.inputs, **found.before}
            goldens = self.bench.data.goldens_from(workload, inputs)
            regions = self.bench.data.regions_from(workload, inputs)
            self.compare(found.after, goldens, regions, "a run drawn from the samples")
        with named(self.setup, "the last run"):
            check_unchanged(found.end, self.setup, found.end.keys() & self.only_read)

    def compare(
        self,
        found: Mapping[str, Array],
        goldens: Mapping[str, Array],
        regions: Mapping[str, Array],
        run: str,
    ) -> None:
        workload, allowances = self.bench.experiment.workload, self.bench.data.allowances
        with named(self.setup, run):
            for name, result in found.items():
                if name in goldens:
                    region = regions.get(name)
                    compare(name, result, goldens[name], workload, allowances, region)


@dataclass(frozen=True)
class Proven:
    """The runs of a launch whose results are compared; which, a kernel cannot know."""

    drawn: bool = True
    last: bool = True
    """Not where kernels update their inputs: its golden is not known."""

    @classmethod
    def choose(cls, setup: Setup, processes: int) -> Proven:
        """Both in the first process, and one of them in the others, since comparing takes time. A
        golden that has to be computed for a process alone takes more."""
        if setup.updated:
            return cls(processes == 0 or _random.random() < DRAWN_UPDATES, False)
        if processes == 0 and setup.output_bytes <= BOTH_BYTES:
            return cls()
        drawn = _random.random() < DRAWN
        return cls(drawn, not drawn)


def varied_launch(
    bench: Bench, setup: Setup, settings: LaunchSettings, proven: Proven | None = None
) -> LaunchResult:
    """A measured launch whose runs are proven."""
    if "variation" not in bench.device.capabilities:
        return _proven_after(bench, setup, settings)
    proven = proven or Proven(last=not setup.updated)
    any_proven = proven.drawn or proven.last
    of = _Proof(bench, setup)
    copied = tuple(of.goldens) if proven.drawn else ()
    variation = NamedVariation(
        secrets.randbits(64),
        tuple(_pieces(bench, setup)),
        poisoned=tuple(sorted(setup.written - setup.inputs.keys())),
        before=tuple(sorted(setup.updated)) if copied else (),
        after=copied,
    )
    read = [*(of.goldens if proven.last else ()), *(of.only_read if any_proven else ())]
    result, found = setup.launch_varied(settings, variation, read)
    of.check(found)
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
def named(setup: Setup, run: str) -> Iterator[None]:
    """Names the run and its data set in the message of a wrong result."""
    try:
        yield
    except DeviceError as error:
        if error.status == "wrong":
            error.message += (
                f". This is {run}, with the inputs of seed={setup.seed}: results must not depend "
                "on the runs before"
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
