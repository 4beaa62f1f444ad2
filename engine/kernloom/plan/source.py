"""Source of a kernel library: the complete C text from rendering, and its origins."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

ENTRY = "kl_entry"
"""The only symbol that a kernel library exports: `void kl_entry(void *const *args)`."""


class Texts(Mapping[str, str]):
    """Files of a source by name, compressed: a sweep over tunables has one source per point."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._compressed = {
            name: zlib.compress(text.encode("utf-8", "surrogatepass"), level=1)
            for name, text in texts.items()
        }

    def __getitem__(self, name: str) -> str:
        return zlib.decompress(self._compressed[name]).decode("utf-8", "surrogatepass")

    def __iter__(self) -> Iterator[str]:
        return iter(self._compressed)

    def __len__(self) -> int:
        return len(self._compressed)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Texts):
            return self._compressed == other._compressed
        return dict(self) == other

    def __hash__(self) -> int:
        return hash(tuple(self._compressed.items()))


@dataclass(frozen=True)
class Launched:
    """Launch data for a driver that compiles the source itself."""

    function: str
    dtypes: tuple[str, ...]
    """Type of each argument as declared in the function: a size may be an `int` there."""
    include: str = ""
    """Base folder of `#include "..."`, relative to the source's files."""


@dataclass(frozen=True)
class Source:
    """The source of one kernel library: every file that the compiler sees, by relative path."""

    name: str
    """Name for people, and the slot by which older builds are found: `matmul.multiply`."""
    files: Mapping[str, str]
    """File name -> text. `kernel.c` is compiled; it includes the others."""
    origins: Mapping[str, str]
    """Path below templates/ -> text of each file it was rendered from, to explain rebuilds."""
    params: Mapping[str, Any]
    """The dtype, and transform -> decisions that the source was rendered with."""
    main: str = "kernel.c"
    flags: tuple[str, ...] = ()
    """Flags that the source needs, after all others."""
    language: Literal["c", "c++"] = "c"
    launched: Launched | None = None
    """None if `kl_entry` calls the function."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", Texts(self.files))

    @property
    def whole_text(self) -> str:
        """The complete text that the compiler sees; included files come first, under their
        names."""
        included = {name: text for name, text in self.files.items() if name != self.main}
        parts = [f"/* {name} */\n{text}" for name, text in included.items()]
        return "\n".join([*parts, self.files[self.main]])
