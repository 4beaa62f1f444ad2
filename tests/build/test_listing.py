"""Files that a compiler reads: hashed once, and again when they have changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernloom.base.files import sha256_file
from kernloom.build import listing
from kernloom.build.listing import Listing, outside_files


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were hashed, in order."""
    found: list[Path] = []

    def count(path: Path) -> str:
        found.append(path)
        return sha256_file(path)

    monkeypatch.setattr(listing, "sha256_file", count)
    return found


def settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if all files were old enough for their stamps to prove that they are the same."""
    monkeypatch.setattr(listing, "_SETTLED_NS", -1)


def listed(file: Path) -> dict[str, str]:
    """A listing without a record, as of a linker that is searched for each time."""
    return dict(outside_files(None, lambda: Listing({str(file): "file"}, lasting=False)).hashes)


def test_a_file_is_hashed_once_until_it_changes(
    tmp_path: Path, hashed: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(monkeypatch)
    file = tmp_path / "libLarge.so"
    file.write_text("first")
    first = listed(file)
    assert listed(file) == first
    assert hashed == [file]
    before = file.stat()
    file.write_text("other")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert listed(file) != first
    assert hashed == [file, file]


def test_a_file_that_was_written_just_now_is_hashed_each_time(
    tmp_path: Path, hashed: list[Path]
) -> None:
    file = tmp_path / "libNew.so"
    file.write_text("first")
    assert listed(file) == listed(file)
    assert hashed == [file, file]
