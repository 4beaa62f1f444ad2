"""Long texts for other programs: written in pieces, and output only when complete."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO, cast

IN_MEMORY = 2**20
"""Limit in bytes of a text that is kept in memory."""


@contextmanager
def written_when_complete(out: TextIO) -> Iterator[TextIO]:
    """A file that is copied to `out` when complete; nothing is written to `out` on failure."""
    with _temporary() as file:
        yield file
        file.seek(0)
        shutil.copyfileobj(file, out)


def write_list(name: str, documents: Iterable[str], rest: Mapping[str, Any], out: TextIO) -> int:
    """Write one JSON object: a list of documents, given as texts, then the rest; returns their
    number."""
    count = 0
    out.write(f"{{{json.dumps(name)}: [")
    for text in documents:
        out.write(f", {text}" if count else text)
        count += 1
    others = "".join(f", {json.dumps(key)}: {json.dumps(value)}" for key, value in rest.items())
    out.write(f"]{others}}}\n")
    return count


def _temporary() -> TextIO:
    # Line ends are not translated, and a program's output may not be valid Unicode.
    file = tempfile.SpooledTemporaryFile(  # noqa: SIM115 (whoever asks for it closes it)
        IN_MEMORY, "w+", encoding="utf-8", errors="surrogatepass", newline=""
    )
    return cast("TextIO", file)
