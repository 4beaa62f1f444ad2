"""Long texts for other programs: written piece by piece, and shown only when they are whole."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO, cast

IN_MEMORY = 2**20
"""A text of up to so many bytes needs no file."""


@contextmanager
def held_back(out: TextIO) -> Iterator[TextIO]:
    """A file whose text appears in `out` when all of it is written: nothing does if it fails."""
    with _temporary() as file:
        yield file
        file.seek(0)
        shutil.copyfileobj(file, out)


def write_list(name: str, documents: Iterable[str], rest: Mapping[str, Any], out: TextIO) -> int:
    """One JSON object: a list of documents, given as texts, and after it the rest; how many."""
    count = 0
    out.write(f"{{{json.dumps(name)}: [")
    for text in documents:
        out.write(f", {text}" if count else text)
        count += 1
    others = "".join(f", {json.dumps(key)}: {json.dumps(value)}" for key, value in rest.items())
    out.write(f"]{others}}}\n")
    return count


def _temporary() -> TextIO:
    # Nothing is added to line ends, and what a program printed may be no valid Unicode.
    file = tempfile.SpooledTemporaryFile(  # noqa: SIM115 (whoever asks for it closes it)
        IN_MEMORY, "w+", encoding="utf-8", errors="surrogatepass", newline=""
    )
    return cast("TextIO", file)
