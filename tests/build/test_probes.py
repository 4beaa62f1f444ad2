"""A compiler that cannot answer is an error, never another compiler."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from demo_kernel import make_source

from kernloom.base.errors import UnavailableError
from kernloom.base.places import Places
from kernloom.build import probe
from kernloom.build.arches import resolve_native
from kernloom.build.builder import Builder
from kernloom.build.compile import kernel_artifact
from kernloom.build.probe import ProbeError
from kernloom.build.toolchains import accepts, detect
from kernloom.config.schema import Arch, Toolchain

KILLED = {
    "version": "-dumpfullversion",
    "driver": "-###",
    "program": "-print-prog-name=cc1",
    "start file": "-print-file-name=crti.o",
    "headers": "stdlib.h",
    "machine": "-dumpmachine",
    "linked": "nothing.c",
}
HOW = {
    "killed": "kill -9 $$",
    "child killed": "sh -c 'kill -9 $$'; exit $?",
    "silent": "exit 1",
    "no room": "echo 'cc1: fatal error: No space left on device' >&2; exit 1",
    "compiler killed": "echo 'gcc: fatal error: Killed signal terminated program cc1' >&2; exit 1",
    "linker killed": "echo 'collect2: fatal error: ld terminated with signal 9' >&2; exit 1",
}


@pytest.mark.parametrize(
    ("what", "how"),
    [*((what, "killed") for what in KILLED), *(("linked", how) for how in HOW if how != "killed")],
)
def test_a_probe_that_fails_is_an_error(
    arch: Arch, tmp_path: Path, wrapped: Callable[..., Toolchain], what: str, how: str
) -> None:
    script = f'case "$*" in *{KILLED[what]}*) {HOW[how]} ;; esac\nexec gcc "$@"'
    toolchain = wrapped(script)
    with pytest.raises(UnavailableError, match=r"does not work|its C library is missing"):
        found = detect(toolchain, tmp_path / "cache")
        kernel_artifact(make_source(), toolchain, arch, "release", found)
    assert not (tmp_path / "cache/linked").exists()


def test_a_probe_of_headers_that_fails_is_an_error(
    arch: Arch, tmp_path: Path, wrapped: Callable[..., Toolchain]
) -> None:
    toolchain = wrapped('case "$*" in *kernel.c*) kill -9 $$ ;; esac\nexec gcc "$@"')
    found = detect(toolchain, tmp_path)
    source = make_source("#include <stddef.h>\nvoid kl_entry(void) {}\n")
    with pytest.raises(ProbeError, match="does not work: it was ended: Killed"):
        kernel_artifact(source, toolchain, arch, "release", found)


def test_a_flag_is_not_refused_because_the_compiler_was_killed(
    tmp_path: Path, wrapped: Callable[..., Toolchain]
) -> None:
    toolchain = wrapped('case "$*" in *-fsyntax-only*) kill -9 $$ ;; esac\nexec gcc "$@"')
    found = detect(toolchain, tmp_path)
    with pytest.raises(ProbeError):
        accepts(found, ["-O2"])
    with pytest.raises(ProbeError):
        resolve_native({"name": "native"}, {"gcc": found}, tmp_path)


def test_a_probe_that_prints_nothing_is_an_error(
    tmp_path: Path, wrapped: Callable[..., Toolchain]
) -> None:
    script = 'case "$*" in *-print-file-name=crti.o*) exit 0 ;; esac\nexec gcc "$@"'
    with pytest.raises(UnavailableError, match=r"-print-file-name=crti\.o printed nothing"):
        detect(wrapped(script), tmp_path)


def test_an_error_of_the_compiler_about_flags_is_told_by_the_build(
    gcc: Toolchain, arch: Arch, places: Places, tmp_path: Path
) -> None:
    toolchain = replace(gcc, extra_flags=("-lnowhere",))
    found = detect(toolchain, tmp_path)
    artifact = kernel_artifact(make_source(), toolchain, arch, "release", found)
    outcome = Builder(places).build([artifact])[artifact.key]
    assert not outcome.ok and "-lnowhere" in outcome.message


def test_probes_leave_the_systems_temporary_folder_alone(
    any_toolchain: Toolchain, arch: Arch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path] = []
    run = probe._run

    def watched(argv: list[str], folder: Path, *others: object) -> object:
        seen.append(folder)
        return run(argv, folder, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(probe, "_run", watched)
    found = detect(any_toolchain, tmp_path / "cache")
    source = make_source("#include <stddef.h>\nvoid kl_entry(void) {}\n")
    kernel_artifact(source, any_toolchain, arch, "release", found)
    assert seen and all(folder.is_relative_to(tmp_path / "cache") for folder in seen)
    assert list((tmp_path / "cache/tmp").iterdir()) == []


def test_a_full_folder_for_temporary_files_is_an_error(
    gcc: Toolchain, arch: Arch, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    mount = shutil.which("mount")
    options = ["-t", "tmpfs", "-o", "size=16k", "tmpfs", str(cache)]
    if not mount or subprocess.run([mount, *options], capture_output=True).returncode:
        pytest.skip("mounting a small file system takes root")
    try:
        with pytest.raises(UnavailableError, match="No space left on device"):
            found = detect(gcc, cache)
            kernel_artifact(make_source(), gcc, arch, "asan", found)
    finally:
        subprocess.run(["umount", str(cache)], check=True)


def test_what_a_killed_probe_leaves_is_swept_by_the_next(gcc: Toolchain, tmp_path: Path) -> None:
    left = tmp_path / "tmp" / "left"
    left.mkdir(parents=True)
    (left / "ccXXXXXX.s").touch()
    detect(gcc, tmp_path)
    assert list((tmp_path / "tmp").iterdir()) == []
