"""The write-ahead log beside a SQLite file: whether all that was committed to it can be read.

SQLite takes the first frame with a wrong checksum for the end of the log: there a process was
killed, or the power failed. What comes after is forgotten without a word, also where the frame is
damaged and a hundred commits follow it.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HEADER, FRAME_HEADER = 32, 24
WORDS = {0x377F0682: "<", 0x377F0683: ">"}
"""First number of a log -> the byte order of the numbers that its checksums are sums of."""
PAGE_SIZE = 4096
"""What Kernloom's stores have, for when the header does not say."""
READINGS = 10
FEW = 1000
"""So many frames are summed one by one before numpy, which sums them at once, is imported."""
_MASK = 0xFFFFFFFF

_Sums = tuple[int, int]
"""SQLite's checksum."""


@dataclass(frozen=True)
class Gap:
    """A damaged place in a log, and what is not read because of it."""

    header: bytes
    frame: int
    """Which frame is damaged, from 0; -1 is the header of the log."""
    content: bytes
    commits: int
    """How many come after it; the first may be the one that it is a part of."""
    between: bool
    """Whether all of them surely began after it."""


def gap_in(log: Path) -> Gap | None:
    """Where commits are cut off from those before them, if anywhere.

    Another process may be writing the log, from its beginning again, too. What one reading then
    takes for damage the next one does not: that sees all that was written before whatever the first
    one saw.
    """
    before = None
    for _ in range(READINGS):
        try:
            found = _gap(log.read_bytes())
        except FileNotFoundError:
            return None
        if found is None:
            return None
        if found == before:
            # A power failure may leave the end of a commit without its beginning. Nobody was told
            # that it was stored.
            certain = found.between or found.commits > 1 or _written_since_boot(log)
            return found if certain else None
        before = found
    return None


def page_size(header: bytes) -> int:
    """Of the pages in a log that begins so."""
    size = struct.unpack_from(">I", header, 8)[0] if is_log(header) else PAGE_SIZE
    return size if 512 <= size <= 65536 and not size & (size - 1) else PAGE_SIZE


def is_log(header: bytes) -> bool:
    return len(header) >= HEADER and struct.unpack_from(">I", header)[0] in WORDS


def _gap(data: bytes) -> Gap | None:
    header = data[:HEADER]
    size = FRAME_HEADER + page_size(header)
    starts = range(HEADER, len(data) - size + 1, size)
    if not starts:
        return None
    magic, *_, salt_one, salt_two, sum_one, sum_two = struct.unpack(">8I", header)
    order = WORDS.get(magic, "<")
    heads = [struct.unpack_from(">6I", data, start) for start in starts]
    marks = [head[1] != 0 for head in heads]
    before = [(sum_one, sum_two), *(head[4:] for head in heads[:-1])]
    sums = (_each_sum if len(starts) <= FEW else _all_sums)(data, starts, order, before)
    right = [head[4:] == summed for head, summed in zip(heads, sums, strict=True)]
    if not is_log(header) or _sums(header[:24], order) != (sum_one, sum_two):
        commits = sum(map(all, zip(right[1:], marks[1:], strict=True)))
        return Gap(header, -1, b"", commits, False) if commits else None
    # What is left of an earlier use of the file has other salts.
    ours = [head[2:4] == (salt_one, salt_two) for head in heads]
    sound = [all(both) for both in zip(right, ours, strict=True)]
    if all(sound):
        return None
    first = sound.index(False)
    commits = sum(map(all, zip(ours[first + 1 :], marks[first + 1 :], strict=True)))
    content = data[starts[first] : starts[first] + size]
    return Gap(header, first, content, commits, marks[first]) if commits else None


def _sums(data: bytes, order: str, before: _Sums = (0, 0)) -> _Sums:
    """The checksum of some numbers that come after others."""
    one, two = before
    numbers = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for first, second in zip(numbers, numbers, strict=True):
        one = (one + first + two) & _MASK
        two = (two + second + one) & _MASK
    return one, two


def _each_sum(data: bytes, starts: range, order: str, before: Sequence[_Sums]) -> list[_Sums]:
    """The checksums of frames, each from that of the frame before it."""
    return [
        _sums(
            data[start : start + 8] + data[start + FRAME_HEADER : start + starts.step], order, sums
        )
        for start, sums in zip(starts, before, strict=True)
    ]


def _all_sums(data: bytes, starts: range, order: str, before: Sequence[_Sums]) -> list[_Sums]:
    """The same, of all frames at once.

    Every number is added to the two before it, so each counts as often as Fibonacci's numbers say.
    """
    import numpy

    whole = numpy.frombuffer(data, numpy.uint8, len(starts) * starts.step, HEADER)
    frames = whole.reshape(len(starts), starts.step)
    summed = numpy.concatenate([frames[:, :8], frames[:, FRAME_HEADER:]], axis=1)
    words = numpy.ascontiguousarray(summed).view(f"{order}u4").astype("u4")
    count = words.shape[1]
    often = [0, 1]
    while len(often) < count + 2:
        often.append((often[-1] + often[-2]) & _MASK)
    begun = numpy.array(before, "u4")
    one = words @ numpy.array(often[count - 1 :: -1], "u4")
    two = words @ numpy.array(often[count:0:-1], "u4")
    one += begun @ numpy.array(often[count - 1 : count + 1], "u4")
    two += begun @ numpy.array(often[count : count + 2], "u4")
    return list(zip(one.tolist(), two.tolist(), strict=True))


def _written_since_boot(log: Path) -> bool:
    return log.stat().st_mtime > time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
