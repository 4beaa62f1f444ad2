"""An OpenCL device on the engine's side: every session is a worker process with the driver in
it."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

from kernloom.base.files import canonical_json
from kernloom.base.temporary import process_folder
from kernloom.config.convert import convert
from kernloom.config.schema import Target
from kernloom.device.contract import Device, DeviceSetup, Session
from kernloom.device.opencl.choice import (
    Found,
    Options,
    check_dtypes,
    check_host_memory,
    choose,
    in_place,
)
from kernloom.device.opencl.probe import (
    WORKER,
    devices,
    settings_that_matter,
    worker_environment,
)
from kernloom.device.scratch import ScratchPool
from kernloom.device.window import WindowPool


class OpenClDevice(Device):
    """A device, or sub-device, of an OpenCL platform; any number can be open at once."""

    name = "opencl"
    capabilities = frozenset(
        {"memory", "launch", "calibrate", "wall_clock", "transfers", "variation"}
    )

    def __init__(
        self,
        options: Options,
        *,
        arch: str = "opencl",
        cache: Path | None = None,
        scratch: Path | None = None,
    ) -> None:
        self.options = options
        self.arch = arch
        self.index = options.index
        self.scratch = ScratchPool(scratch)
        """The folders that kernels run in."""
        self._windows = WindowPool()
        # By default drivers cache compiled kernels in the user's home, which must stay untouched.
        self._own = None if cache else tempfile.TemporaryDirectory(dir=process_folder())
        self._cache = Path(self._own.name) if self._own else Path(cache or ".")

    @classmethod
    def from_setup(cls, setup: DeviceSetup) -> OpenClDevice:
        cache = setup.cache / "opencl" if setup.cache else None
        return cls(
            options_of(setup.target), arch=setup.arch.name, cache=cache, scratch=setup.scratch
        )

    @classmethod
    def check(
        cls, target: Target, dtypes: Collection[str] = (), *, cache: Path | None = None
    ) -> None:
        item = selected_device(target, cache)
        check_host_memory(item, options_of(target))
        check_dtypes(item, dtypes)

    @classmethod
    def facts(cls, target: Target, *, cache: Path | None = None) -> dict[str, str]:
        item = selected_device(target, cache)
        return {
            "platform": item.version,
            "device": item.device,
            "kind": item.kind,
            "driver": item.driver,
            "units": str(item.units),
            # No other fact covers how a driver compiles and runs kernels.
            "settings": canonical_json(settings_that_matter()),
        }

    @classmethod
    def reads_in_place(cls, target: Target, *, cache: Path | None = None) -> bool:
        return in_place(selected_device(target, cache), options_of(target))

    def open(self, *, timeout: float = 60.0) -> Session:
        # Imported late: listing the devices does not need it.
        from kernloom.device.runner import RunnerSession

        self._cache.mkdir(parents=True, exist_ok=True)
        environment = worker_environment(self._cache.absolute())
        scratch = self.scratch.take()
        options = json.dumps(vars(self.options))
        words = (*WORKER, f"--options={options}", f"--scratch={scratch.descriptor}")
        command = [sys.executable, *words]
        return RunnerSession(
            self, command, self._windows, timeout, scratch, environment=environment
        )


def options_of(target: Target) -> Options:
    return convert(Options, dict(target.options), "target.options")


def selected_device(target: Target, cache: Path | None = None) -> Found:
    """The device that a target selects, as its driver describes it."""
    options = options_of(target)
    found = devices(options.compute_units, cache)
    return found[choose(found, options)]
