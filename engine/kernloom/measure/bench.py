"""A bench: one trial's tensors placed on a device, ready to be launched."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeVar

import numpy as np

from kernloom.base.errors import DeviceError
from kernloom.base.expressions import format_size
from kernloom.config.schema import Experiment
from kernloom.device.contract import (
    BUFFER,
    Buffer,
    BufferRequest,
    Call,
    Device,
    KernelRequest,
    LaunchResult,
    LaunchSettings,
    Scalar,
    Session,
    Transfer,
    Variation,
    VariedPiece,
)
from kernloom.device.messages import Documents
from kernloom.device.sessions import SessionSlots
from kernloom.measure.data import Array, DataSets
from kernloom.measure.placement import COPIED, ON_DEVICE
from kernloom.plan.inspect import tensors_of
from kernloom.plan.orchestration import ENTRY as ORCHESTRATE
from kernloom.plan.orchestration import Launch
from kernloom.plan.planned import PlannedOrchestration, StepArtifact
from kernloom.plan.schedule import BoundArgument, TensorSpec
from kernloom.plan.source import ENTRY
from kernloom.plan.tiling import partial_results

_OUTSIDE = re.compile(r"buffer '(.+?)' of \d+ bytes, at byte offset (-?\d+)")
"""Format of a device's out-of-bounds message."""
LONGEST_S = 1e8
"""Three years: the longest wait that every system accepts."""
T = TypeVar("T")
POISON = 0xFF
"""Fills outputs before a launch: NaN in every float type."""


class Bench:
    """Opens sessions for one trial; the last one stays open for the next stage to use."""

    def __init__(
        self,
        experiment: Experiment,
        device: Device,
        data: DataSets,
        paths: Mapping[str, Path],
        slots: SessionSlots | None = None,
        placement: Mapping[str, str] | None = None,
        entries: Mapping[str, str] | None = None,
        memory_limit: int = 0,
        orchestration: PlannedOrchestration | None = None,
        libraries: bool = False,
    ) -> None:
        """`placement` says for each tensor whether it is copied, read in place or on the device
        when the clock starts; the default is the device. `entries` are the symbols to call in
        libraries of several kernels, by the key of each kernel's artifact. `memory_limit` is in
        bytes; 0: none. `orchestration` submits the steps as tasks; without one they are called one
        after the other."""
        self.experiment = experiment
        self.device = device
        self.data = data
        self.placement = placement or {}
        self.memory_limit = memory_limit
        self.orchestration = orchestration
        self.run_s: float | None = None
        """Duration of the first launch: one run, which was verified."""
        self.local_updates: bool | None = None
        """Whether each part of the tensors that kernels update follows from itself; None: not found
        out yet."""
        self.proof_cost = 0.0
        """Time of the last comparison of a measured launch, as a share of that of the launch."""
        self.libraries = libraries
        """Whether kernels call libraries, which may have threads of their own."""
        self._paths = paths
        self._entries = entries or {}
        self._slots = slots
        self._stack = ExitStack()
        self._setup: Setup | None = None

    def setup(
        self, steps: Sequence[StepArtifact], *, fresh: bool, seed: int | None = None
    ) -> Setup:
        """Place tensors and kernels on the device: in a new session, or in the open one.

        `seed` chooses the data set; the default is the experiment's. In an open session another
        one replaces it, and outputs are poisoned again.
        """
        seed = self.experiment.seed if seed is None else seed
        if self._setup is not None and not fresh:
            if seed != self._setup.seed:
                self._setup.renew(seed)
            return self._setup
        self.close()
        if self._slots:
            self._stack.enter_context(self._slots.held())
        session = self._stack.enter_context(
            self.device.open(timeout=min(self.experiment.timeout, LONGEST_S))
        )
        self._setup = Setup(self, session, steps, seed)
        return self._setup

    def other_seed(self, seed: int) -> int:
        """The seed of the data set that replaces this one: of the experiment's, another one, and of
        that one the experiment's."""
        own = self.experiment.seed
        return own if seed != own else self.data.other_seed(self.experiment.workload, own)

    def path(self, key: str) -> Path:
        return self._paths[key]

    def entry(self, key: str) -> str:
        return self._entries.get(key, ENTRY)

    def close(self) -> None:
        self._setup = None
        self._stack.close()

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True)
class NamedPiece:
    """A VariedPiece of a tensor by name."""

    tensor: str
    place: tuple[int, int]
    """Offset and number of its bytes."""
    own: bytes = b""
    other: bytes = b""


@dataclass(frozen=True)
class NamedVariation:
    """A Variation of tensors by name."""

    secret: int
    pieces: tuple[NamedPiece, ...]
    poisoned: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class VariedArrays:
    """Tensors after a varied launch, and around the run that was drawn."""

    end: Mapping[str, Array]
    before: Mapping[str, Array]
    after: Mapping[str, Array]
    """Empty if the device copied nothing."""


class Setup:
    """One session with every tensor written, every output poisoned, every kernel loaded."""

    def __init__(
        self, bench: Bench, session: Session, steps: Sequence[StepArtifact], seed: int
    ) -> None:
        experiment = bench.experiment
        workload = experiment.workload
        self.seed = seed
        """Of the data set in its tensors."""
        self._bench = bench
        self._session = session
        self.tensors: dict[str, TensorSpec] = tensors_of(workload)
        bound = [a for s in steps for a in s.step.arguments if a.kind == "tensor"]
        tasks = bench.orchestration
        used = set(tasks.launch.tensors) if tasks else {str(a.binding) for a in bound}
        _check_memory(bench, [spec for name, spec in self.tensors.items() if name in used])
        inputs = bench.data.inputs(workload, seed)
        accesses = workload.accesses() if workload.orchestration else ()
        self.written = {str(a.binding) for a in bound if a.access != "read" and a.binding} | {
            name for name, access in accesses if access != "read"
        }
        self.inputs = {name: array for name, array in inputs.items() if name in used}
        names = [name for name in self.tensors if name in used]
        kernels = {_loaded_as(bench, item): _kernel(bench, item) for item in steps}
        if tasks:
            kernels[tasks.artifact.key] = _orchestration(bench, tasks)
        buffers, handles = session.prepare(
            [
                BufferRequest(
                    self.tensors[name].nbytes,
                    name,
                    inputs.get(name, POISON),
                    self._placement(name) if tasks else "",
                )
                for name in names
            ],
            list(kernels.values()),
        )
        self._buffers = dict(zip(names, buffers, strict=True))
        loaded = dict(zip(kernels, handles, strict=True))
        of_steps = [loaded[_loaded_as(bench, item)] for item in steps]
        if tasks:
            calls = [
                Call(loaded[tasks.artifact.key], self._launched(tasks.launch), tuple(of_steps))
            ]
        else:
            calls = [
                Call(kernel, tuple(self._argument(argument) for argument in item.step.arguments))
                for kernel, item in zip(of_steps, steps, strict=True)
            ]
        on_host = [
            name
            for name, place in bench.placement.items()
            if place != ON_DEVICE and "transfers" in bench.device.capabilities
        ]
        before = [name for name in on_host if name in self.inputs]
        after = [name for name in on_host if name in self.written]
        self._calls: list[Call | Transfer] = [
            *(Transfer(self._buffers[name], "in") for name in before),
            *calls,
            *(Transfer(self._buffers[name], "out") for name in after),
        ]
        self.transfer_bytes = sum(
            self._buffers[name].nbytes
            for name in (*before, *after)
            if bench.placement[name] == COPIED
        )
        """Bytes that one run copies between host and device."""

    @property
    def left_processes(self) -> bool:
        """Whether kernels had left processes when the session was closed."""
        return self._session.left_processes

    @property
    def updated(self) -> set[str]:
        """Inputs that kernels write: their content depends on the number of runs."""
        return self.written & self.inputs.keys()

    @property
    def output_bytes(self) -> int:
        """Bytes of what kernels write."""
        return sum(self.tensors[name].nbytes for name in self.written)

    def renew(self, seed: int) -> None:
        """Write another data set, and poison what kernels write."""
        inputs = self._bench.data.inputs(self._bench.experiment.workload, seed)
        self.seed = seed
        self.inputs = {name: inputs[name] for name in self.inputs}
        self._session.refill(
            [(buffer, self.inputs.get(name, POISON)) for name, buffer in self._buffers.items()]
        )

    def _launched(self, launch: Launch) -> tuple[Buffer | Scalar, ...]:
        """The arguments of an orchestration."""
        return (
            *(self._buffers[name] for name in launch.tensors),
            *(Scalar(one.value, one.dtype) for one in launch.values),
        )

    def _placement(self, name: str) -> Literal["shard", "owner", "replicate"]:
        assert self._bench.orchestration
        placement = self._bench.orchestration.launch.placement
        if placement == "replicate":
            # What one PE writes the others have to see.
            return "shard" if name in self.written else "replicate"
        return "owner" if placement == "owner" else "shard"

    def _argument(self, argument: BoundArgument) -> Buffer | Scalar:
        if argument.kind == "tensor":
            return self._buffers[str(argument.binding)]
        value = argument.binding
        return Scalar(value if isinstance(value, int) else float(value), argument.dtype)

    def trace(self) -> bytes:
        """The trace of the session so far."""
        return self._session.trace()

    def document(self, document: Documents) -> bytes:
        """A document about the last launch."""
        return self._session.document(document)

    def launch(self, settings: LaunchSettings) -> LaunchResult:
        return self._timed(lambda: self._session.launch(self._calls, settings))

    def launch_and_view(
        self, settings: LaunchSettings, names: Sequence[str]
    ) -> tuple[LaunchResult, dict[str, Array]]:
        """A launch, and views of tensors after it, which are valid until the session's next
        operation."""
        buffers = [self._buffers[name] for name in names]
        result, found = self._timed(
            lambda: self._session.launch_and_view(self._calls, settings, buffers)
        )
        return result, self._arrays(names, found)

    def view(self, names: Sequence[str]) -> dict[str, Array]:
        """Views of tensors, which are valid until the session's next operation."""
        return self._arrays(names, self._session.view([self._buffers[name] for name in names]))

    def launch_varied(
        self, settings: LaunchSettings, variation: NamedVariation, names: Sequence[str]
    ) -> tuple[LaunchResult, VariedArrays]:
        """The same while tensors change, with views around a run that the device draws."""
        found = Variation(
            variation.secret,
            tuple(
                VariedPiece(self._buffers[piece.tensor], *piece.place, piece.own, piece.other)
                for piece in variation.pieces
            ),
            *(
                tuple(self._buffers[name] for name in group)
                for group in (variation.poisoned, variation.before, variation.after)
            ),
        )
        buffers = [self._buffers[name] for name in names]
        result, views = self._timed(
            lambda: self._session.launch_varied(self._calls, settings, found, buffers)
        )
        kept = bool(views.after)
        return result, VariedArrays(
            self._arrays(names, views.end),
            self._arrays(variation.before if kept else (), views.before),
            self._arrays(variation.after if kept else (), views.after),
        )

    def _arrays(self, names: Sequence[str], found: Sequence[memoryview]) -> dict[str, Array]:
        arrays = {}
        for name, data in zip(names, found, strict=True):
            spec = self.tensors[name]
            arrays[name] = np.frombuffer(data, dtype=spec.dtype).reshape(spec.shape)
        return arrays

    def _timed(self, launch: Callable[[], T]) -> T:
        """Measure the first launch, as the duration of a run; a launch that times out names the
        limit."""
        start = time.monotonic()
        try:
            result = launch()
        except DeviceError as error:
            detail = ""
            # By code: a timeout in virtual time (`no_answer`) names its own limit.
            if error.code == "timeout":
                detail = f" (timeout={self._bench.experiment.timeout:g})"
            elif error.status == "out_of_bounds":
                detail = _element(error.message, self.tensors)
            if not detail:
                raise
            raise DeviceError(
                error.message + detail,
                status=error.status,
                stderr=error.stderr,
                code=error.code,
            ) from None
        if self._bench.run_s is None:
            self._bench.run_s = time.monotonic() - start
        return result


def _element(message: str, tensors: Mapping[str, TensorSpec]) -> str:
    """The element that a kernel accessed, if the device names the tensor and the byte."""
    found = _OUTSIDE.search(message)
    spec = tensors.get(found[1]) if found else None
    if found is None or spec is None:
        return ""
    # Rounded down: the last byte of y[-1] is byte -1, which belongs to element -1.
    index = int(found[2]) // np.dtype(spec.dtype).itemsize
    return f" (element {index} of {spec.dtype})"


def _loaded_as(bench: Bench, item: StepArtifact) -> str:
    """Equal for steps that share a loaded kernel; an orchestration knows each by its name."""
    return f"{item.artifact.key} {item.step.name}" if bench.orchestration else item.artifact.key


def _kernel(bench: Bench, item: StepArtifact) -> KernelRequest:
    types = [BUFFER if a.kind == "tensor" else a.dtype for a in item.step.arguments]
    types += [BUFFER] * partial_results(item.step)
    key = item.artifact.key
    name = item.step.name if bench.orchestration else ""
    return KernelRequest(bench.path(key), types, bench.entry(key), name)


def _orchestration(bench: Bench, tasks: PlannedOrchestration) -> KernelRequest:
    launch = tasks.launch
    types = [*(BUFFER for _ in launch.tensors), *(one.dtype for one in launch.values)]
    name = f"{bench.experiment.workload.name}.orchestration"
    return KernelRequest(bench.path(tasks.artifact.key), types, ORCHESTRATE, name)


def _check_memory(bench: Bench, tensors: Sequence[TensorSpec]) -> None:
    """Checked before any tensor is filled, because the engine holds them too."""
    needed = sum(spec.nbytes for spec in tensors)
    if bench.memory_limit and needed > bench.memory_limit:
        raise DeviceError(
            f"the tensors take {format_size(needed)}, and a trial may take "
            f"{format_size(bench.memory_limit)} (memory_limit)",
            status="out_of_memory",
        )
