"""A session that many draws share: tensors at offsets of their own, kernels loaded once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kernloom.base.errors import DeviceError
from kernloom.device.contract import (
    Arguments,
    Buffer,
    BufferRequest,
    Call,
    KernelRequest,
    LaunchResult,
    LaunchSettings,
    LoadedKernel,
    Session,
    Transfer,
)

if TYPE_CHECKING:
    from kernloom.device.contract import Data

_BEFORE = bytes.fromhex("a5ff") * 32
"""Contents of the bytes before a tensor that is not at the beginning of its buffer: NaN as floats,
so that a kernel that reads there cannot be right by chance."""


class SharedSession(Session):
    """Passes everything on to the session of a device."""

    def __init__(self, inner: Session) -> None:
        self._inner = inner
        self._offsets: Mapping[str, int] = {}
        self._whole: list[tuple[Buffer, int]] = []
        """Allocated buffers of the draw, with the offset of the tensor in each."""
        self._loaded: dict[Any, LoadedKernel] = {}
        self.draws = 0

    def begin(self, offsets: Mapping[str, int]) -> None:
        """The next draw: its tensors begin at these offsets."""
        self._offsets = offsets
        self.draws += 1

    def prepare(
        self, buffers: Sequence[BufferRequest], kernels: Sequence[KernelRequest]
    ) -> tuple[list[Buffer], list[LoadedKernel]]:
        offsets = [self._offsets.get(request.label, 0) for request in buffers]
        wanted = [_moved(request, offset) for request, offset in zip(buffers, offsets, strict=True)]
        new = [kernel for kernel in kernels if _key(kernel) not in self._loaded]
        made, loaded = self._inner.prepare(wanted, new)
        self._loaded |= {_key(k): found for k, found in zip(new, loaded, strict=True)}
        self._whole = list(zip(made, offsets, strict=True))
        inside = [
            replace(buffer, address=buffer.address + offset, nbytes=buffer.nbytes - offset)
            for buffer, offset in self._whole
        ]
        return inside, [self._loaded[_key(kernel)] for kernel in kernels]

    def end(self) -> None:
        """Check the bytes before the tensors, and free the buffers of the draw."""
        whole, self._whole = self._whole, []
        for buffer, offset in whole:
            before = bytes(self._inner.read(buffer, offset)) if offset else b""
            if before != _BEFORE[:offset]:
                raise DeviceError(
                    f"the kernel wrote outside buffer '{buffer.label}', before its beginning",
                    status="out_of_bounds",
                )
            self._inner.free(buffer)

    def allocate(self, nbytes: int, label: str = "") -> Buffer:
        return self._inner.allocate(nbytes, label)

    def free(self, buffer: Buffer) -> None:
        self._inner.free(buffer)

    def write(self, buffer: Buffer, data: Data, offset: int = 0) -> None:
        self._inner.write(buffer, data, offset)

    def read(self, buffer: Buffer, nbytes: int | None = None, offset: int = 0) -> bytearray:
        return self._inner.read(buffer, nbytes, offset)

    def fill(self, buffer: Buffer, value: int) -> None:
        self._inner.fill(buffer, value)

    def load(self, path: Path, arguments: Arguments, entry: str = "kl_entry") -> LoadedKernel:
        return self._inner.load(path, arguments, entry)

    def launch(
        self, calls: Sequence[Call | Transfer], settings: LaunchSettings | None = None
    ) -> LaunchResult:
        return self._inner.launch(calls, settings)

    def view(self, buffers: Sequence[Buffer]) -> list[memoryview]:
        return self._inner.view(buffers)

    def launch_and_view(
        self,
        calls: Sequence[Call | Transfer],
        settings: LaunchSettings,
        buffers: Sequence[Buffer],
    ) -> tuple[LaunchResult, list[memoryview]]:
        return self._inner.launch_and_view(calls, settings, buffers)

    def close(self) -> None:
        self._inner.close()


def _moved(request: BufferRequest, offset: int) -> BufferRequest:
    """A request with room before the tensor."""
    if not offset:
        return request
    content = request.content
    if isinstance(content, int):
        rest = bytes([content]) * request.nbytes
    else:
        rest = np.ascontiguousarray(content).tobytes()
    return replace(request, nbytes=request.nbytes + offset, content=_BEFORE[:offset] + rest)


def _key(kernel: KernelRequest) -> tuple[Any, ...]:
    arguments = kernel.arguments
    kinds = arguments if isinstance(arguments, int) else tuple(arguments)
    return kernel.path, kernel.entry, kernel.name, kinds
