"""Which of a machine's OpenCL devices a target means."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from kernloom.config.schema import at_least
from kernloom.errors import ConfigError, UnavailableError

INSTALL = (
    "Install a driver, e.g. apt-get install ocl-icd-libopencl1 pocl-opencl-icd, and "
    "python -m pip install 'kernloom[opencl]'. `kernloom doctor --install` does both."
)


@dataclass(frozen=True)
class Options:
    """What a target's options may say."""

    platform: str = ""
    """A part of the platform's name or version, in any case."""
    device: str = ""
    """A part of the device's name, in any case."""
    index: int = field(default=0, metadata=at_least(0))
    """Which of those that are left."""
    compute_units: int = field(default=0, metadata=at_least(0))
    """Devices are cut into sub-devices of so many units each; 0 leaves them whole."""


@dataclass(frozen=True)
class Found:
    """A device as its driver describes it."""

    platform: str
    version: str
    device: str
    driver: str
    units: int
    fp64: bool
    memory: int

    @property
    def title(self) -> str:
        return f"{self.device} ({self.platform}, {self.units} compute units)"


def choose(found: Sequence[Found], options: Options) -> int:
    """The place in `found` of the device that the options mean."""
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
        if value and name != "compute_units"
    ]
    raise UnavailableError(
        f"no OpenCL device fits {' '.join(wanted)}",
        hint="Here are: " + "; ".join(f"{i}: {item.title}" for i, item in enumerate(found)) + ".",
    )


def check_dtypes(item: Found, dtypes: Collection[str]) -> None:
    """Refuse element types that the device does not have."""
    if "float64" in dtypes and not item.fp64:
        raise ConfigError(
            f"float64 is not possible: OpenCL device '{item.device}' has no double precision",
            key="workload.dtype",
            hint="Use workload.dtype=float32, or another device (target.options.device).",
        )


def _part(wanted: str, text: str) -> bool:
    return wanted.casefold() in text.casefold()
