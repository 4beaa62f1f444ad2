"""The section and symbol in which two builds of a file differ, by binutils' readelf."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_SECTION = re.compile(
    r"^\s*\[\s*\d+\]\s+(\S+)\s+(\S+)\s+([0-9a-f]+)\s+([0-9a-f]+)\s+([0-9a-f]+)\s", re.MULTILINE
)
_SYMBOL = re.compile(
    r"^\s*\d+:\s+([0-9a-f]+)\s+(\d+|0x[0-9a-f]+)\s+(?:FUNC|OBJECT|NOTYPE)\s+\S+\s+\S+\s+\d+\s+(\S+)",
    re.MULTILINE,
)
_PATIENCE_S = 60


@dataclass(frozen=True)
class _Section:
    name: str
    address: int
    offset: int
    size: int


def first_difference(old: Path, new: Path) -> str:
    """The first place where two files differ, in words; '' if they are equal."""
    before, after = old.read_bytes(), new.read_bytes()
    if before == after:
        return ""
    sections = _sections(new)
    same = {section.name: section for section in _sections(old)}
    # Loaded sections first: those after them, such as symbol tables, often follow from them.
    for section in sorted(sections, key=lambda one: (not one.address, one.offset)):
        other = same.get(section.name)
        if other is None:
            return f"section {section.name}, which only one has"
        theirs = before[other.offset : other.offset + other.size]
        ours = after[section.offset : section.offset + section.size]
        if theirs == ours:
            continue
        place = _first(theirs, ours)
        symbol = _symbol_at(new, section, place)
        return f"section {section.name}" + (f", symbol {symbol}" if symbol else f" at byte {place}")
    return f"byte {_first(before, after)}"


def _first(old: bytes, new: bytes) -> int:
    """The index of the first byte that differs."""
    pairs = zip(old, new, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(old), len(new)))


def _sections(path: Path) -> list[_Section]:
    found = _SECTION.findall(_readelf("--section-headers", path))
    return [
        _Section(name, int(address, 16), int(offset, 16), int(size, 16))
        for name, kind, address, offset, size in found
        if kind != "NOBITS"
    ]


def _symbol_at(path: Path, section: _Section, place: int) -> str:
    """The symbol that holds a byte of a section."""
    address = section.address + place
    for start, size, name in _SYMBOL.findall(_readelf("--symbols", path)):
        first = int(start, 16)
        if first <= address < first + int(size, 0):
            return str(name)
    return ""


def _readelf(question: str, path: Path) -> str:
    tool = shutil.which("readelf")
    if tool is None:
        return ""
    try:
        done = subprocess.run(
            [tool, "--wide", question, str(path)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout
