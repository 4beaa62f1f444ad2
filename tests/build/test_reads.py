"""What compilers and linkers say they read is heard, whatever its size and wherever they work."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kernloom.build import reads
from kernloom.build.reads import ASSEMBLING, COMPILING, LINKING, read_log

PATIENCE_S = 60
"""Beyond it a program has been waiting for room in a pipe."""
NAMES = [f"{number:05}-{'x' * 200}.h" for number in range(4000)]


@pytest.fixture(params=["named pipes", "links", "tiny pipes"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place to compile in, on a file system of some kind."""

    def refused(path: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))

    if request.param == "links":
        monkeypatch.setattr(os, "mkfifo", refused)
    if request.param == "tiny pipes":
        monkeypatch.setattr(reads, "PIPE_BYTES", 4096)
    return tmp_path


def descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def test_a_rule_longer_than_any_pipe_is_read(folder: Path) -> None:
    rule = " \\\n ".join(["a.o:", *NAMES]) + "\n"
    with read_log(folder) as log:
        for name in (COMPILING[-1], LINKING[0].partition("=")[2]):
            command = ["sh", "-c", f"cat > {name}; cat rule >> {name}"]
            (folder / "rule").write_text(rule)
            with (folder / "rule").open() as given:
                subprocess.run(command, cwd=folder, stdin=given, check=True, timeout=PATIENCE_S)
        assert log.files() == [str(folder / name) for name in NAMES]
        assert log.intact
    assert not list(folder.glob("kernloom-*"))


def test_a_compiler_that_includes_many_files_is_heard(folder: Path) -> None:
    for name in NAMES[:500]:
        (folder / name).touch()
    text = "".join(f'#include "{name}"\n' for name in NAMES[:500])
    (folder / "many.c").write_text(text + "int x;\n")
    (folder / "other.c").write_text("#include <stddef.h>\n")
    command = ["gcc", "-shared", "-nostdlib", "many.c", "other.c", "-o", "out"]
    with read_log(folder) as log:
        command += [*COMPILING, *LINKING]
        subprocess.run(command, cwd=folder, check=True, timeout=PATIENCE_S)
        found = log.files()
    assert {str(folder / name) for name in NAMES[:500]} < set(found)
    assert any(path.endswith("/stddef.h") for path in found)


def test_a_command_that_never_runs_leaves_nothing(folder: Path) -> None:
    threads = threading.active_count()
    opened = descriptors()
    with pytest.raises(KeyError), read_log(folder):
        raise KeyError
    assert threading.active_count() == threads
    assert descriptors() == opened
    assert not list(folder.iterdir())


KILLED = """\
import os, signal, subprocess, sys
from pathlib import Path
from kernloom.build.reads import read_log

folder = Path(sys.argv[1])
with read_log(folder) as log:
    # Writes once its parent is gone.
    writes = "cat rule > kernloom-compiled; cat rule > kernloom-linked"
    tool = f"cat > /dev/null; {writes}; echo ended"
    subprocess.Popen(
        ["sh", "-c", tool], cwd=folder, stdin=subprocess.PIPE, pass_fds=log.inherited
    )
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_tool_ends_even_if_who_listens_was_killed(tmp_path: Path) -> None:
    """A linker waited for ever, in opening a pipe that nobody reads."""
    (tmp_path / "rule").write_text(" \\\n ".join(["a.o:", *NAMES]) + "\n")
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.stdout == "ended\n"


def test_what_assemblers_read_is_listed_apart(folder: Path) -> None:
    (folder / "da ta").write_text("data")
    text = '__asm__(".pushsection .rodata\\n.incbin \\"da ta\\"\\n.popsection");\nint x;\n'
    for name in ("one.c", "two.c"):
        (folder / name).write_text(
            f'#line 1 "not there.c"\n{text if name == "two.c" else "int y;"}'
        )
    with read_log(folder) as log:
        command = ["gcc", "-shared", "-nostdlib", "one.c", "two.c", "-o", "out", *ASSEMBLING]
        subprocess.run(command, cwd=folder, check=True, timeout=PATIENCE_S)
        assert log.listed_assembly
        found = {path for path in log.assembled() if path.startswith(str(folder))}
        assert found == {str(folder / name) for name in ("one.c", "two.c", "da ta")}
        assert log.files() == []
    with read_log(folder) as log:
        assert not log.listed_assembly


def test_a_file_in_the_place_of_a_pipe_is_read(tmp_path: Path) -> None:
    with read_log(tmp_path) as log:
        (tmp_path / "new").write_text("a.o: b.h\n")
        (tmp_path / "new").replace(tmp_path / COMPILING[-1])
        assert log.files() == [str(tmp_path / "b.h")]
        assert log.intact


def test_a_pipe_that_is_deleted_is_noticed(tmp_path: Path) -> None:
    with read_log(tmp_path) as log:
        (tmp_path / COMPILING[-1]).unlink()
        assert not log.intact


def test_a_folder_without_pipes_and_links_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*names: object) -> None:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), str(names[-1]))

    opened = descriptors()
    monkeypatch.setattr(os, "mkfifo", refused)
    monkeypatch.setattr(os, "symlink", refused)
    with pytest.raises(OSError, match="named pipes and symbolic links"), read_log(tmp_path):
        pytest.fail("there is nothing to write to")
    assert descriptors() == opened
