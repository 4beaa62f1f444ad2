"""Two builders at once, a full disk, Ctrl-C, kill -9: nothing half-written or left running."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernloom.base.errors import BuildError
from kernloom.base.places import Places
from kernloom.build.builder import Builder
from kernloom.config.schema import Toolchain
from kernloom.plan.artifact import Artifact, to_plain

Kernel = Callable[..., Artifact]

BUILD = """
import json, sys
from pathlib import Path
from kernloom.plan.artifact import from_plain
from kernloom.build.builder import Builder
from kernloom.base.errors import BuildError
from kernloom.base.places import Places, share_folder

build, plan = Path(sys.argv[1]), Path(sys.argv[2])
artifacts = [from_plain(item) for item in json.loads(plan.read_text())]
builder = Builder(Places(share_folder(), None, build, build.parent / "store.db"))
try:
    outcomes = builder.build(artifacts).values()
except BuildError as error:
    sys.exit(f"BuildError: {error}")
print(sum(o.ok for o in outcomes), sum(o.cached for o in outcomes))
"""


def start(places: Places, artifacts: list[Artifact], **options: object) -> subprocess.Popen[str]:
    """Another process that builds the same."""
    plan = places.build.parent / "artifacts.json"
    plan.write_text(json.dumps([to_plain(artifact) for artifact in artifacts]))
    return subprocess.Popen(
        [sys.executable, "-c", BUILD, str(places.build), str(plan)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        **options,  # type: ignore[call-overload]
    )


def test_two_builders_at_once_both_succeed(kernel: Kernel, places: Places) -> None:
    artifacts = [kernel(header=f"#define COUNT {n}\n") for n in range(8)]
    processes = [start(places, artifacts) for _ in range(3)]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [out.split()[0] for out, _ in outputs] == ["8", "8", "8"], outputs
    assert all(Builder(places).state(artifact).cached for artifact in artifacts)
    assert list((places.build / "tmp").iterdir()) == []


@pytest.fixture
def stuck(tmp_path: Path, wrapped: Callable[..., Toolchain]) -> tuple[Toolchain, Path]:
    """A compiler that never ends, and a pipe that is open for as long as it lives."""
    pipe = tmp_path / "alive"
    os.mkfifo(pipe)
    script = f"""
case "$*" in *-shared*kernel.c*)
    exec 9>"{pipe}"
    echo compiling >&9
    echo half > kernel.so
    exec sleep 1000 ;;
esac
exec gcc "$@" """
    return wrapped(script), pipe


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_build_leaves_nothing_behind(
    kernel: Kernel, places: Places, stuck: tuple[Toolchain, Path], how: signal.Signals
) -> None:
    toolchain, pipe = stuck
    artifact = kernel(toolchain=toolchain)
    process = start(places, [artifact])
    with pipe.open() as alive:
        assert alive.readline() == "compiling\n"
        process.send_signal(how)
        assert alive.read() == ""  # The end of the file is the end of the compiler.
    process.communicate(timeout=60)
    assert process.returncode != 0
    if how == signal.SIGINT:
        assert list((places.build / "tmp").iterdir()) == []
    kernels = places.build / "kernels" / artifact.key
    assert not kernels.exists() or list(kernels.iterdir()) == []
    # The next builder sweeps what a killed one could not.
    good = kernel()
    assert Builder(places).build([good])[good.key].ok
    assert list((places.build / "tmp").iterdir()) == []
    assert Builder(places).state(artifact).explanation.kind != "corrupt"


def test_when_scons_is_killed_its_compilers_end_too(
    kernel: Kernel, places: Places, stuck: tuple[Toolchain, Path]
) -> None:
    toolchain, pipe = stuck
    process = start(places, [kernel(toolchain=toolchain)])
    with pipe.open() as alive:
        assert alive.readline() == "compiling\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        (scons,) = (
            pid for pid in children if b"SCons" in Path(f"/proc/{pid}/cmdline").read_bytes()
        )
        os.kill(int(scons), signal.SIGKILL)
        assert alive.read() == ""
    _, errors = process.communicate(timeout=60)
    assert "SCons ended with exit code -9" in errors
    assert list((places.build / "tmp").iterdir()) == []


DELETIONS = {
    "the source": "rm kernel.c",
    "the folder": 'rm -r "$(pwd -P)"',
    "a temporary file": 'echo "cannot open $TMPDIR/cc1.s: No such file or directory"; exit 1',
    "the result": 'gcc "$@"; rm kernel.so kernel.c; exit 0',
    "the list of what was read": "rm kernloom-*",
    "the log of SCons": 'rm ../../scons.log; rm -r "$(pwd -P)"',
    "the whole workspace": 'rm -r "$(pwd -P)/../.."',
}


@pytest.mark.parametrize("what", DELETIONS)
def test_a_build_folder_that_is_deleted_meanwhile_is_made_anew(
    kernel: Kernel, places: Places, wrapped: Callable[..., Toolchain], what: str
) -> None:
    script = f"""
here=$(dirname "$0")
case "$*" in *-shared*kernel.c*) if mkdir $here/once; then {DELETIONS[what]}; fi ;; esac
exec gcc "$@" """
    artifact = kernel(toolchain=wrapped(script))
    outcome = Builder(places).build([artifact])[artifact.key]
    assert outcome.ok, outcome.message
    assert Builder(places).state(artifact).cached
    assert not (places.build / "failed").exists()


def test_a_build_folder_that_is_always_deleted_is_one_clear_error(
    kernel: Kernel, places: Places, wrapped: Callable[..., Toolchain]
) -> None:
    script = 'case "$*" in *-shared*kernel.c*) rm kernel.c ;; esac\nexec gcc "$@"'
    with pytest.raises(BuildError, match="were deleted during the build, again and again"):
        Builder(places).build([kernel(toolchain=wrapped(script))])


def test_a_missing_header_is_no_deleted_folder(kernel: Kernel, places: Places) -> None:
    artifact = kernel(text='#include "none.h"\n')
    outcome = Builder(places).build([artifact])[artifact.key]
    assert not outcome.ok
    assert "none.h: No such file or directory" in outcome.message


def test_a_compiler_that_is_deleted_meanwhile_is_said(
    kernel: Kernel, places: Places, wrapped: Callable[..., Toolchain], tmp_path: Path
) -> None:
    artifact = kernel(toolchain=wrapped())
    (tmp_path / "wrapped").unlink()
    outcome = Builder(places).build([artifact])[artifact.key]
    assert not outcome.ok
    assert str(tmp_path / "wrapped") in outcome.message


def test_a_limit_on_file_size_is_one_clear_error(kernel: Kernel, places: Places) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))

    places.build.mkdir()
    process = start(places, [kernel()], preexec_fn=limit)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"BuildError: cannot write below {places.build}: File too large" in error
    assert "Traceback" not in error


def test_a_full_disk_is_one_clear_error(kernel: Kernel, places: Places) -> None:
    places.build.mkdir()
    mount = shutil.which("mount")
    options = ["-t", "tmpfs", "-o", "size=64k", "tmpfs", str(places.build)]
    if not mount or subprocess.run([mount, *options], capture_output=True).returncode:
        pytest.skip("mounting a small file system takes root")
    try:
        with pytest.raises(BuildError, match=r"cannot write below .*: No space left on device"):
            Builder(places).build([kernel(header=f"#define COUNT {'1' * 60_000}\n")])
        with pytest.raises(BuildError, match=r"No space left on device"):
            Builder(places).build([kernel(flags=("-g3",)), kernel(), kernel(variant="asan")])
        assert list((places.build / "tmp").iterdir()) == []
    finally:
        subprocess.run(["umount", str(places.build)], check=True)


def test_a_broken_sconstruct_is_one_clear_error(
    kernel: Kernel, places: Places, tmp_path: Path
) -> None:
    (tmp_path / "SConstruct").write_text("raise ValueError('no graph today')\n")
    broken = Places(tmp_path, None, places.build, places.store)
    with pytest.raises(BuildError, match=r"(?s)SCons ended with exit code 2.*no graph today"):
        Builder(broken).build([kernel()])
