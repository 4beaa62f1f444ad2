"""Folders for work in progress: one's own, and gone afterwards, however a process ends."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernloom.base.temporary import (
    own_folder,
    process_folder,
    remove_folder,
    sweep,
    temporary_folder,
)
from kernloom.device.scratch import Scratch

NOBODY = 65534
ENGINE = """
from kernloom.device.scratch import Scratch
scratch = Scratch()
print(scratch.path, flush=True)
input()
"""


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


def test_the_systems_temporary_files_have_one_folder_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with temporary_folder() as one, temporary_folder() as two:
        assert one.parent == two.parent == tmp_path / f"kernloom-{os.geteuid()}"
        assert stat.S_IMODE(one.parent.stat().st_mode) == 0o700
        assert process_folder() == process_folder() != one
        assert process_folder().parent == one.parent


def test_a_folder_that_others_can_reach_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    name = f"kernloom-{os.geteuid()}"
    (tmp_path / "elsewhere").mkdir(0o700)
    (tmp_path / name).mkdir(0o755)
    (tmp_path / f"{name}-2").symlink_to(tmp_path / "elsewhere")
    (tmp_path / f"{name}-3").touch(0o700)
    free = 4
    if os.geteuid() == 0:
        (tmp_path / f"{name}-4").mkdir(0o700)
        os.chown(tmp_path / f"{name}-4", NOBODY, NOBODY)
        free = 5
    with temporary_folder() as folder:
        assert folder.parent == tmp_path / f"{name}-{free}"


def engine(tmp_path: Path) -> subprocess.Popen[str]:
    """A process that has made a folder for a session among the system's temporary files."""
    return subprocess.Popen(
        [sys.executable, "-c", ENGINE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)},
    )


def test_sessions_of_a_killed_engine_are_swept_by_the_next(tmp_path: Path) -> None:
    with engine(tmp_path) as killed, engine(tmp_path) as lives:
        assert killed.stdout and lives.stdout
        left, used = (Path(process.stdout.readline().strip()) for process in (killed, lives))
        killed.kill()
        killed.wait()
        assert left.is_dir() and used.is_dir()
        with engine(tmp_path) as last:
            assert last.stdout
            assert Path(last.stdout.readline().strip()).is_dir()
            assert used.is_dir() and not left.parent.exists()
            last.communicate("\n")
        lives.communicate("\n")
    assert not list((tmp_path / f"kernloom-{os.geteuid()}").iterdir())
