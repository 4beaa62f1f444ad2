"""What is missing is built, once; what is there and whole is left alone."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernloom.base.errors import BuildError
from kernloom.base.files import sha256_file
from kernloom.base.places import Places, share_folder
from kernloom.build.builder import Builder
from kernloom.build.make import INTERMEDIATES
from kernloom.build.manifest import Damaged, Missing, Verifier, Whole
from kernloom.plan.artifact import Artifact

Kernel = Callable[..., Artifact]
BROKEN = "void kl_entry(void *const *args)\n{\n    undeclared(args);\n}\n"


@pytest.fixture
def no_scons(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on, a builder that starts SCons fails the test."""

    def forbid() -> None:
        monkeypatch.setattr(Builder, "_scons", lambda *_: pytest.fail("SCons was started"))

    return forbid


def test_a_built_kernel_runs(kernel: Kernel, places: Places) -> None:
    artifact = kernel()
    outcome = Builder(places).build([artifact])[artifact.key]
    assert outcome.ok and not outcome.cached and outcome.seconds > 0
    values = (ctypes.c_float * 64)(*range(64))
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(values))
    ctypes.CDLL(str(outcome.path)).kl_entry(arguments)
    assert list(values) == [2.0 * i for i in range(64)]


def test_the_manifest_tells_all_that_went_in(kernel: Kernel, places: Places) -> None:
    artifact = kernel()
    outcome = Builder(places).build([artifact])[artifact.key]
    folder = places.build / "kernels" / artifact.key
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["output_sha256"] == sha256_file(outcome.path)
    assert manifest["inputs"].keys() == {"kernel.c", "scale.h"}
    assert manifest["argv"] == list(artifact.argv)
    assert manifest["toolchain"]["version"] and manifest["toolchain"]["triple"]
    assert manifest["because"]["kind"] == "new"
    assert outcome.source == folder / "kernel.c" and outcome.source.is_file()
    assert (folder / "origins/kernels/scale/host.c.j2").is_file()


def test_nothing_missing_starts_nothing(
    kernel: Kernel, places: Places, no_scons: Callable[[], None]
) -> None:
    artifact = kernel()
    Builder(places).build([artifact])
    no_scons()
    outcome = Builder(places).build([artifact])[artifact.key]
    assert outcome.ok and outcome.cached
    assert Builder(places).state(artifact).explanation.kind == "kept"


def test_touching_files_rebuilds_nothing(
    kernel: Kernel, places: Places, no_scons: Callable[[], None]
) -> None:
    artifact = kernel()
    outcome = Builder(places).build([artifact])[artifact.key]
    for path in outcome.path.parent.iterdir():
        os.utime(path, (1, 1))
    no_scons()
    assert Builder(places).build([kernel()])[artifact.key].cached


def damage_output(folder: Path) -> None:
    data = bytearray((folder / "kernel.so").read_bytes())
    data[len(data) // 2] ^= 0xFF
    (folder / "kernel.so").write_bytes(data)


def truncate_output(folder: Path) -> None:
    os.truncate(folder / "kernel.so", 100)


def remove_output(folder: Path) -> None:
    (folder / "kernel.so").unlink()


def truncate_manifest(folder: Path) -> None:
    os.truncate(folder / "manifest.json", 50)


def remove_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


@pytest.mark.parametrize(
    "damage",
    [damage_output, truncate_output, remove_output, truncate_manifest, remove_manifest],
)
def test_a_damaged_artifact_is_noticed_and_built_again(
    kernel: Kernel, places: Places, damage: Callable[[Path], None]
) -> None:
    artifact = kernel()
    good = Builder(places).build([artifact])[artifact.key].path.read_bytes()
    damage(places.build / "kernels" / artifact.key)
    builder = Builder(places)
    assert builder.state(artifact).explanation.kind == "corrupt"
    outcome = builder.build([artifact])[artifact.key]
    assert outcome.ok and not outcome.cached
    assert outcome.path.read_bytes() == good
    assert builder.state(artifact).cached


def test_damage_is_noticed_though_size_and_time_are_put_back(
    kernel: Kernel, places: Places
) -> None:
    artifact = kernel()
    verifier, path = Verifier(), Builder(places).build([artifact])[artifact.key].path
    status = path.stat()
    assert verifier.condition(artifact, places.build) == Whole()
    damage_output(path.parent)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    damaged = Damaged("kernel.so is not the file that was built")
    assert verifier.condition(artifact, places.build) == damaged
    shutil.rmtree(path.parent)
    assert verifier.condition(artifact, places.build) == Missing()


def test_a_compile_error_is_an_outcome_with_message_and_source(
    kernel: Kernel, places: Places
) -> None:
    bad, good = kernel(text=BROKEN), kernel()
    outcomes = Builder(places).build([bad, good])
    assert outcomes[good.key].ok
    failed = outcomes[bad.key]
    assert not failed.ok
    assert "kernel.c:3" in failed.message and "undeclared" in failed.message
    assert failed.source == places.build / "failed" / bad.key / "kernel.c"
    assert failed.source.read_text() == BROKEN
    assert not (places.build / "kernels" / bad.key).exists()
    assert not Builder(places).state(bad).cached


def test_intermediates_are_kept_only_when_asked_for(kernel: Kernel, places: Places) -> None:
    plain, kept = kernel(), kernel(flags=("-O1",))
    Builder(places).build([plain])
    Builder(places, keep=True).build([kept])
    names = set(INTERMEDIATES)
    assert not names & {path.name for path in (places.build / "kernels" / plain.key).iterdir()}
    assert names <= {path.name for path in (places.build / "kernels" / kept.key).iterdir()}


def test_intermediates_of_a_cached_artifact_are_made_beside_it(
    kernel: Kernel, places: Places
) -> None:
    artifact = kernel()
    path = Builder(places).build([artifact])[artifact.key].path
    before = path.stat().st_ino
    outcome = Builder(places, keep=True).build([artifact])[artifact.key]
    assert outcome.ok and outcome.cached
    assert path.stat().st_ino == before
    assert all((path.parent / name).stat().st_size for name in INTERMEDIATES)


def test_progress_counts_what_is_built(kernel: Kernel, places: Places) -> None:
    artifacts = [kernel(header=f"#define COUNT {n}\n") for n in (1, 2, 3)]
    Builder(places).build(artifacts[:1])
    seen: list[tuple[int, int]] = []
    Builder(places).build(artifacts, progress=lambda done, total: seen.append((done, total)))
    # Two that are built at the same time may be counted together.
    assert seen[0] == (0, 2) and seen[-1] == (2, 2)
    assert seen == sorted(set(seen)) and {total for _, total in seen} == {2}


def test_it_works_where_nothing_can_be_written(
    kernel: Kernel, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = kernel()
    monkeypatch.chdir("/proc")
    assert Builder(places).build([artifact])[artifact.key].ok


def test_a_build_folder_that_cannot_be_made_is_one_clear_error(kernel: Kernel) -> None:
    places = Places(share_folder(), None, Path("/proc/nowhere/build"), Path("/proc/nowhere/db"))
    with pytest.raises(BuildError, match="cannot write below /proc/nowhere/build"):
        Builder(places).build([kernel()])


def test_nothing_but_results_is_left_behind(kernel: Kernel, places: Places) -> None:
    Builder(places).build([kernel(), kernel(text=BROKEN)])
    assert list((places.build / "tmp").iterdir()) == []
    assert {path.name for path in places.build.iterdir()} == {
        ".lock",
        "cache",
        "compile_commands.json",
        "failed",
        "index",
        "kernels",
        "tmp",
    }


def test_editors_find_the_rendered_kernels(kernel: Kernel, places: Places) -> None:
    artifact = kernel()
    Builder(places).build([artifact])
    entries = json.loads((places.build / "compile_commands.json").read_text())
    generated = [entry["file"] for entry in entries if not entry["file"].startswith("native/")]
    assert generated == [entries[0]["file"]] == ["kernel.c"]
    assert Path(entries[0]["directory"], entries[0]["file"]).is_file()
    assert Path(entries[0]["arguments"][0]).is_absolute()
