"""Translation units of tests in C++."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def unit(path: Path, sources: Iterable[Path]) -> Path:
    """A translation unit of several sources: parsing the standard headers for each takes longer
    than compiling all of them."""
    path.write_text("".join(f'#include "{source}"\n' for source in sources))
    return path
