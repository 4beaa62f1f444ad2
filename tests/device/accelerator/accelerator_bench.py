"""An open accelerator and its test kernels."""

from __future__ import annotations

from pathlib import Path

from building import types

from kernloom.device.accelerator.session import AcceleratorSession
from kernloom.device.contract import Buffer, Call, LaunchResult, LoadedKernel, Scalar


class Bench:
    """A session and the library of test kernels."""

    def __init__(self, session: AcceleratorSession, library: Path) -> None:
        self.session = session
        self.library = library

    def load(self, name: str) -> LoadedKernel:
        return self.session.load(self.library, types(name), entry=name)

    def builtin(self, name: str, arguments: int) -> LoadedKernel:
        return self.session.load(Path(f"builtin:{name}"), arguments)

    def run(self, name: str, *args: Buffer | Scalar) -> LaunchResult:
        return self.session.launch([Call(self.load(name), args)])
