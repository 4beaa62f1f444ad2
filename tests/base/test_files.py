"""Files that somebody names are read within bounds; files are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernloom.base.errors import ConfigError
from kernloom.base.files import files_below, read_text, replacing, write_atomically


def test_text_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("ä\r\n", encoding="utf-8", newline="")
    (tmp_path / "link").symlink_to("file")
    assert read_text(tmp_path / "link", limit=4) == "ä\r\n"


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(ConfigError, match="cannot be read: it is not a regular file"):
            read_text(path, limit=10)
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_text(tmp_path, limit=10)
    with pytest.raises(ConfigError, match=r"key: '.*none' cannot be read: No such file"):
        read_text(tmp_path / "none", limit=10, key="key")
    with pytest.raises(ConfigError, match="cannot be read: embedded null byte"):
        read_text(Path("a\0b"), limit=10)


def test_what_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match=r"it has 1.05e\+06 MiB, and at most 1 MiB are read"):
        read_text(tmp_path / "sparse", limit=1 << 20)
    # These say that they are empty.
    with pytest.raises(ConfigError, match="it has more than"):
        read_text(Path("/proc/self/maps"), limit=100)


def test_what_is_not_utf8_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes("a: ü".encode("utf-16"))
    with pytest.raises(ConfigError, match=r"it is not UTF-8 text \(byte 0\)"):
        read_text(tmp_path / "file", limit=100)


@pytest.mark.parametrize("data", ["ä\n\r\n", b"\xff\x00\r\n"])
def test_a_file_is_replaced_by_the_very_bytes(tmp_path: Path, data: str | bytes) -> None:
    path = tmp_path / "new" / "file"
    write_atomically(path, "old and longer than the new one")
    write_atomically(path, data)
    assert path.read_bytes() == (data.encode() if isinstance(data, str) else data)
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_not_written_to_its_end_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")
    with pytest.raises(KeyError), replacing(path) as file:
        file.write("half")
        raise KeyError
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "\ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_files_below_a_folder_are_regular_and_not_hidden(tmp_path: Path) -> None:
    for name in ("b.c", "a.h", "deep/c.c", "other.txt", ".hidden.c", ".git/d.c", "__pycache__/e.c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".#b.c").symlink_to("somebody@somewhere.1234:5678")
    (tmp_path / "gone.c").symlink_to("nowhere.c")
    (tmp_path / "link.c").symlink_to("b.c")
    os.mkfifo(tmp_path / "pipe.c")
    found = [str(path.relative_to(tmp_path)) for path in files_below(tmp_path, (".c", ".h"))]
    assert found == ["a.h", "b.c", "deep/c.c", "link.c"]
    assert files_below(tmp_path, (".h",), deep=False) == [tmp_path / "a.h"]
    assert not files_below(tmp_path / "none", (".c",))
