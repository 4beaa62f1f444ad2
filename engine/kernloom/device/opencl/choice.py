"""Chooses the OpenCL device that a target asks for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kernloom.base.errors import ConfigError, UnavailableError
from kernloom.config.limits import at_least

INSTALL = (
    "Install a driver, e.g. apt-get install ocl-icd-libopencl1 pocl-opencl-icd, and "
    "the Python package pyopencl: `kernloom doctor --install` installs what is missing of them."
)


@dataclass(frozen=True)
class Options:
    """The options of an OpenCL target."""

    platform: str = ""
    """Substring of the platform's name or version, case-insensitive."""
    device: str = ""
    """Substring of the device's name, case-insensitive."""
    index: int = field(default=0, metadata=at_least(0))
    """Index among the devices that match."""
    compute_units: int = field(default=0, metadata=at_least(0))
    """Compute units per sub-device; 0 leaves devices whole."""
    host_memory: Literal["auto", "copy", "in_place"] = "auto"
    """Handling of tensors in host memory: `auto` reads them in place where the device can."""


@dataclass(frozen=True)
class Found:
    """A device as its driver describes it."""

    platform: str
    version: str
    device: str
    kind: str
    """The device's version, which with PoCL names the processor it compiles for."""
    driver: str
    units: int
    fp64: bool
    memory: int
    unified: bool
    """Whether device and host share one memory."""

    @property
    def title(self) -> str:
        return f"{self.device} ({self.platform}, {self.units} compute units)"


def choose(found: Sequence[Found], options: Options) -> int:
    """Index in `found` of the device that the options select."""
    if not found:
        raise UnavailableError(
            "no OpenCL platform has a device here",
            hint=INSTALL,
        )
    named = [
        place
        for place, item in enumerate(found)
        if _part(options.platform, f"{item.platform} {item.version}")
        and _part(options.device, item.device)
    ]
    if options.index < len(named):
        return named[options.index]
    wanted = [
        f"target.options.{name}={value}"
        for name, value in vars(options).items()
        if value and name in ("platform", "device", "index")
    ]
    raise UnavailableError(
        f"no OpenCL device fits {' '.join(wanted)}",
        hint="Here are: " + "; ".join(f"{i}: {item.title}" for i, item in enumerate(found)) + ".",
    )


def in_place(item: Found, options: Options) -> bool:
    """Whether tensors in host memory are read in place."""
    return item.unified and options.host_memory != "copy"


def check_host_memory(item: Found, options: Options) -> None:
    """Refuse reading in place if the device cannot access host memory."""
    if options.host_memory == "in_place" and not item.unified:
        raise ConfigError(
            f"OpenCL device '{item.device}' cannot read in place: its memory is not the host's",
            key="target.options.host_memory",
            hint="Allowed: auto, copy.",
        )


def check_dtypes(item: Found, dtypes: Collection[str]) -> None:
    """Refuse element types that the device does not support."""
    if "float64" in dtypes and not item.fp64:
        raise ConfigError(
            f"float64 is not possible: OpenCL device '{item.device}' has no double precision",
            key="workload.dtype",
            hint="Use workload.dtype=float32, or another device (target.options.device).",
        )


def _part(wanted: str, text: str) -> bool:
    return wanted.casefold() in text.casefold()
