"""Folders for work in progress: one's own, and gone afterwards, however a process ends."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernloom.device.scratch import Scratch
from kernloom.temporary import own_folder, remove_folder, sweep

NOBODY = 65534


@pytest.fixture
def ordinary() -> Iterator[Path]:
    """A folder of an ordinary user, whom permissions stop; the test runs as that user."""
    with tempfile.TemporaryDirectory() as name:
        if os.geteuid() == 0:
            os.chown(name, NOBODY, NOBODY)
            os.seteuid(NOBODY)
            try:
                yield Path(name)
            finally:
                os.seteuid(0)
        else:
            yield Path(name)


def forbid(folder: Path) -> None:
    """A tree as a kernel may leave it: without any permissions."""
    for name in ("one/two/three", "four"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").touch()
    for name in ("one/two/three", "one/two", "one", "four"):
        (folder / name).chmod(0)


def test_folders_without_permissions_are_removed(ordinary: Path) -> None:
    forbid(ordinary / "left")
    (ordinary / "left").chmod(0)
    remove_folder(ordinary / "left")
    assert not list(ordinary.iterdir())


def test_folders_without_permissions_that_a_killed_process_left_are_swept(ordinary: Path) -> None:
    for name in ("inner", "whole"):
        forbid(ordinary / name)
    (ordinary / "whole").chmod(0)
    sweep(ordinary)
    assert not list(ordinary.iterdir())


def test_a_session_whose_kernel_took_permissions_is_removed(ordinary: Path) -> None:
    scratch = Scratch(ordinary)
    forbid(Path(scratch.path))
    scratch.remove()
    assert not list(ordinary.iterdir())


def test_removing_a_folder_changes_nothing_beside_it(ordinary: Path) -> None:
    ordinary.chmod(0o755)
    left, beside = ordinary / "left", ordinary / "beside"
    beside.mkdir()
    beside.chmod(0o500)
    (ordinary / "file").touch(0o400)
    forbid(left)
    (left / "link").symlink_to(beside)
    (left / "hard").hardlink_to(ordinary / "file")
    remove_folder(left)
    assert not left.exists()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in ordinary.iterdir()}
    assert modes == {"beside": 0o500, "file": 0o400}
    assert stat.S_IMODE(ordinary.stat().st_mode) == 0o755


def test_a_folder_in_use_is_not_swept(tmp_path: Path) -> None:
    with own_folder(tmp_path) as first, own_folder(tmp_path) as second:
        sweep(tmp_path)
        assert {*tmp_path.iterdir()} == {first, second}
    assert not list(tmp_path.iterdir())


def test_a_fork_that_ends_leaves_the_folder_alone(tmp_path: Path) -> None:
    using = own_folder(tmp_path)
    with using as folder:
        child = os.fork()
        if child == 0:
            using.__exit__(None, None, None)
            os._exit(0)
        os.waitpid(child, 0)
        assert folder.is_dir()
