"""Platforms: the hardware as an accelerator's programs see it, by the name in `target.machines`.

The simulator ships with Kernloom. The package of a vendor adds its own by entry point:

    [project.entry-points."kernloom.platforms"]
    mychip = "my_package:PLATFORM"

with PLATFORM = Platform(program="my_platform", folder=Path(__file__).parent, toolchain="mychip").
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernloom.base.errors import ConfigError, UnavailableError
from kernloom.base.registry import Registry

GROUP = "kernloom.platforms"
KEY = "target.machines"


@dataclass(frozen=True)
class Platform:
    """The library that gives programs access to the hardware, and how it is compiled."""

    program: str
    """Name of the program: a library that exports `kl_platform` (kernloom/platform.h)."""
    folder: Path | None = None
    """Folder with native/, where a program.yaml declares the program, and with configs/ for its
    toolchain; None: Kernloom's own."""
    toolchain: str = ""
    """Name of a toolchain config; default: that of the machine."""


PLATFORMS: Registry[Platform] = Registry(
    "platform", {"sim": Platform("accelerator_platform_sim")}, group=GROUP
)


def find_platform(name: str) -> Platform:
    """The platform of a name, or UnavailableError if no package adds it."""
    if not PLATFORMS.knows(name):
        raise UnavailableError(
            f"no package on this machine adds the platform '{name}' ({KEY})",
            hint=f"Install the vendor's package for Kernloom, which adds it by the entry point "
            f"{GROUP}. Known here: {', '.join(PLATFORMS.names())}.",
        )
    found = PLATFORMS.get(name, key=KEY)
    if not isinstance(found, Platform):
        raise ConfigError(
            f"the entry point of platform '{name}' is {type(found).__name__}, not a Platform",
            key=KEY,
            hint="Mend or remove the package that adds it.",
        )
    return found
