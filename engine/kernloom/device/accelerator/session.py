"""A session with an accelerator: tensors on PEs, mappings, launches in virtual time."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

from kernloom.base.errors import DeviceError
from kernloom.base.gauges import VIRTUAL_TIME
from kernloom.device.accelerator.tensors import DeviceTensor
from kernloom.device.contract import (
    Arguments,
    Buffer,
    BufferRequest,
    Device,
    KernelRequest,
    LaunchResult,
    LoadedKernel,
)
from kernloom.device.conversation import Answer
from kernloom.device.messages import (
    EVERY,
    Addressee,
    Condition,
    Configure,
    Document,
    Documents,
    Free,
    Load,
    MemoryFill,
    MemoryRead,
    MemoryWrite,
    Message,
    MmuMap,
    MmuUnmap,
    PeDma,
    Place,
    Policy,
    Response,
    Trace,
)
from kernloom.device.messages import (
    Mapping as MmuMapping,
)
from kernloom.device.runner import RunnerSession, report_of
from kernloom.device.scratch import Scratch
from kernloom.device.window import WindowPool

BUILTIN = "builtin:"
"""Start of the path of a timing model that the core program has built in."""
HOST_ENTRY = "kl_entry"
CORE_ENTRY = "kl_core_entry"
EVERYWHERE = Addressee(EVERY, EVERY, EVERY)
VIRTUAL_BASE = 1 << 40
"""Lower addresses are physical, of one PE: KL_VIRTUAL_BASE."""
SRAM_BASE = 1 << 62
"""Address of a PE's own SRAM in a DMA probe: KL_SRAM_BASE."""


class AcceleratorSession(RunnerSession):
    """One device in one runner process."""

    def __init__(
        self,
        device: Device,
        command: Sequence[str],
        windows: WindowPool,
        timeout: float,
        scratch: Scratch,
        *,
        settings: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._abandoned: deque[Buffer] = deque()
        super().__init__(device, command, windows, timeout, scratch, environment=environment)
        self._topology = _topology(settings)
        self._stripe = _stripe(settings)
        try:
            lines = (f"{key}={value}\n" for key, value in settings.items())
            self.exchange(Configure("".join(lines)))
        except BaseException:
            self.close()
            raise

    @property
    def pes(self) -> list[Addressee]:
        """All PEs of the device."""
        return self.expand([EVERYWHERE])

    def expand(self, addressees: Sequence[Addressee]) -> list[Addressee]:
        """The parts that wildcards stand for, each once; it is who answers."""
        found: dict[Addressee, None] = {}
        for one in addressees:
            ranges = [
                range(count) if part == EVERY else (part,)
                for part, count in zip(vars(one).values(), self._topology, strict=True)
            ]
            found |= {Addressee(*parts): None for parts in product(*ranges)}
        return list(found)

    def _exchange_with(
        self,
        message: MmuMap | MmuUnmap | PeDma | Place | MemoryWrite | MemoryRead | MemoryFill,
        addressees: Sequence[Addressee],
    ) -> list[Answer]:
        parts = self.expand(addressees)
        if not parts:
            raise DeviceError("a message for no PE", status="refused", code="invalid")
        return self.exchange_each(message, addressees, len(parts))

    def place(
        self,
        nbytes: int,
        policy: Policy = Policy.OWNER,
        unit: int = 0,
        pes: Sequence[Addressee] = (EVERYWHERE,),
        label: str = "",
    ) -> DeviceTensor:
        """Allocate a tensor on PEs and map it: on the first one (OWNER), a copy on each
        (REPLICATE), or `unit` bytes on each in turn (SHARD; 0: equal parts)."""
        answers = self._exchange_with(Place(nbytes, unit, policy, label), pes)
        buffer = Buffer(answers[0].response.value, nbytes, label)
        return DeviceTensor(buffer, policy, self._free_tensor, self._abandoned.append)

    def _free_tensor(self, buffer: Buffer) -> None:
        # A closed session has freed everything.
        if self._ended is None:
            self.free(buffer)

    def _free_abandoned(self) -> None:
        """Free the tensors that were garbage collected since the last operation."""
        if self._abandoned:
            self._settle()
        while self._abandoned and self._ended is None:
            # Its buffer may have been freed by the session.
            with contextlib.suppress(DeviceError):
                super().exchange_all([Free(self._abandoned.popleft().address)])

    def exchange_all(
        self,
        batch: Sequence[Message],
        operation: int | None = None,
        *,
        timeout: float | None = None,
    ) -> list[Response]:
        self._free_abandoned()
        return super().exchange_all(batch, operation, timeout=timeout)

    def exchange_each(
        self,
        message: Message,
        addressees: Sequence[Addressee],
        responses: int,
        *,
        timeout: float | None = None,
    ) -> list[Answer]:
        self._free_abandoned()
        return super().exchange_each(message, addressees, responses, timeout=timeout)

    def mmu_map(
        self, mappings: Sequence[MmuMapping], pes: Sequence[Addressee] = (EVERYWHERE,)
    ) -> list[Answer]:
        """Teach PEs mappings; if one refuses them, none has them."""
        return self._exchange_with(MmuMap(tuple(mappings)), pes)

    def mmu_unmap(
        self, address: int, nbytes: int, pes: Sequence[Addressee] = (EVERYWHERE,)
    ) -> list[Answer]:
        return self._exchange_with(MmuUnmap(address, nbytes), pes)

    def dma_probe(
        self, source: int, destination: int, nbytes: int, pes: Sequence[Addressee]
    ) -> list[Answer]:
        """Copies by the DMA engines of PEs; each answer's value is the picoseconds that its copy
        took."""
        return self._exchange_with(PeDma(source, destination, nbytes), pes)

    def write_on(self, pe: Addressee, address: int, data: bytes) -> Answer:
        """Write as a PE sees its memory: through its MMU, or to its own physical memory."""
        self._settle()
        self._connection.window.memory[: len(data)] = data
        return self._exchange_with(MemoryWrite(address, 0, len(data)), [pe])[0]

    def read_on(self, pe: Addressee, address: int, nbytes: int) -> bytes:
        """Read as a PE sees its memory."""
        self._exchange_with(MemoryRead(address, 0, nbytes), [pe])
        return bytes(self._connection.window.memory[:nbytes])

    def fill_on(self, pe: Addressee, address: int, nbytes: int, value: int) -> Answer:
        return self._exchange_with(MemoryFill(address, nbytes, value), [pe])[0]

    def load(self, path: Path, arguments: Arguments, entry: str = HOST_ENTRY) -> LoadedKernel:
        """Deploy a library of core kernels; the same library is uploaded once. A path
        `builtin:NAME` is a timing model of the core program."""
        loaded = LoadedKernel.of(0, path, arguments)
        response = self.exchange(
            Load(loaded.arguments, _path(path), _entry(entry), buffers=loaded.buffers)
        )
        return replace(loaded, handle=response.value)

    def unload(self, kernel: LoadedKernel) -> None:
        """Give up a kernel; a library without kernels in use is removed from the device."""
        self.exchange(Free(kernel.handle))

    def prepare(
        self, buffers: Sequence[BufferRequest], kernels: Sequence[KernelRequest]
    ) -> tuple[list[Buffer], list[LoadedKernel]]:
        named = [replace(kernel, entry=_entry(kernel.entry)) for kernel in kernels]
        if not any(item.placement for item in buffers):
            return super().prepare(buffers, named)
        made = [self._placed(item) for item in buffers]
        _, loaded = super().prepare([], named)
        self._put([(buffer, item.content) for buffer, item in zip(made, buffers, strict=True)])
        return made, loaded

    def _placed(self, wanted: BufferRequest) -> Buffer:
        """A buffer on all PEs, or on the first. Shards are of whole stripes, so that a copy of a
        part of one uses all channels, and go from cube to cube, for each has a memory of its own.
        """
        if not wanted.placement:
            return self.allocate(wanted.nbytes, wanted.label)
        policy = Policy[wanted.placement.upper()]
        pes = [EVERYWHERE]
        unit = 0
        if policy == Policy.SHARD:
            pes = [Addressee(EVERY, EVERY, pe) for pe in range(self._topology[2])]
            unit = -(-wanted.nbytes // (len(self.pes) * self._stripe)) * self._stripe
        answers = self._exchange_with(Place(wanted.nbytes, unit, policy, wanted.label), pes)
        return Buffer(answers[0].response.value, wanted.nbytes, wanted.label)

    def trace(self) -> bytes:
        return self._fetched(Trace)

    def document(self, document: Documents) -> bytes:
        return self._fetched(partial(Document, document))

    def _fetched(self, request: Callable[[int, int, int], Message]) -> bytes:
        """All bytes of something that requests copy into the window, part by part."""
        window = self._connection.window
        total = self.exchange(request(0, 0, 0)).value
        parts = []
        for start in range(0, total, window.nbytes):
            count = min(window.nbytes, total - start)
            self.exchange(request(start, 0, count))
            parts.append(bytes(window.memory[:count]))
        return b"".join(parts)

    def _result(self, response: Response) -> LaunchResult:
        readings = {VIRTUAL_TIME.name: tuple(_ns(one.virtual_ps) for one in response.samples)}
        report = report_of(response)
        return LaunchResult(
            *(response.value, (), (), (), (), readings),
            report=report,
            sandboxed=bool(response.conditions & Condition.SANDBOXED),
        )


def _ns(picoseconds: int) -> float:
    """Nanoseconds; an integer if they are whole."""
    return picoseconds / 1000 if picoseconds % 1000 else picoseconds // 1000


def _path(path: Path) -> str:
    return str(path) if str(path).startswith(BUILTIN) else str(path.absolute())


def _entry(entry: str) -> str:
    return CORE_ENTRY if entry == HOST_ENTRY else entry


def _topology(settings: Mapping[str, str]) -> tuple[int, int, int]:
    """Numbers of sips, of cubes in each, and of PEs in each of these; the platform refuses what
    makes no device."""
    pes = [value for key, value in settings.items() if key.startswith("topology.pes.")]
    numbers = (settings.get("topology.sips"), settings.get("topology.cubes"))
    sips, cubes = (int(number) if number and number.isdigit() else 0 for number in numbers)
    return sips, cubes, sum(int(number) for number in pes if number.isdigit())


def _stripe(settings: Mapping[str, str]) -> int:
    """Consecutive bytes that are on all channels of an HBM."""
    numbers = (settings.get("hbm.channels", ""), settings.get("hbm.interleave", ""))
    channels, interleave = (int(number) if number.isdigit() else 1 for number in numbers)
    return max(channels * interleave, 1)
