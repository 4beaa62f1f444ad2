"""What rendering hands to the build: complete C sources, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ENTRY = "kl_entry"
"""The one symbol a kernel library exports: `void kl_entry(void *const *args)`."""


@dataclass(frozen=True)
class Launched:
    """How a driver that compiles the source itself launches it."""

    function: str
    dtypes: tuple[str, ...]
    """Of each argument, as the function declares it: a size may be an `int` there."""
    include: str = ""
    """The folder that `#include "..."` starts from, relative to the source's files."""


@dataclass(frozen=True)
class Source:
    """The source of one kernel library; everything the compiler will see, by relative path."""

    name: str
    """For people, and the slot by which an older build is found: `matmul.multiply`."""
    files: Mapping[str, str]
    """File name -> text. `kernel.c` is compiled; the others are what it includes."""
    origins: Mapping[str, str]
    """Path below templates/ -> text of each file this was rendered from, to explain rebuilds."""
    params: Mapping[str, Any]
    """The dtype, and transform -> decisions that this source was rendered with."""
    main: str = "kernel.c"
    launched: Launched | None = None
    """None where `kl_entry` calls the function."""
