"""Checkouts share what they have built through a folder, whatever is in it."""
# ruff: noqa: F811 (fixtures of other files)

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from test_plain_scons import RUNNER, Scons, built, compiled, tree  # noqa: F401 (fixtures)
from test_runtimes import run, scons, share  # noqa: F401 (a fixture)

from kernloom.base.files import sha256_file
from kernloom.base.places import Places
from kernloom.base.sealed import read_sealed, write_sealed
from kernloom.build.builder import Builder
from kernloom.build.shared_cache import SharedCache
from kernloom.plan.artifact import Artifact


@pytest.fixture
def shared(tmp_path: Path) -> SharedCache:
    return SharedCache.at("shared", tmp_path)


@pytest.fixture
def published(
    kernel: Callable[..., Artifact], places: Places, shared: SharedCache
) -> tuple[Artifact, Path]:
    """A kernel that is in the cache and nowhere else, and its folder there."""
    artifact = kernel()
    assert Builder(places, shared=shared).build([artifact])[artifact.key].ok
    shutil.rmtree(places.build)
    return artifact, artifact.folder(shared.folder)


def test_what_is_fetched_says_so(
    published: tuple[Artifact, Path], places: Places, shared: SharedCache
) -> None:
    artifact, entry = published
    outcome = Builder(places, shared=shared).build([artifact])[artifact.key]
    assert outcome.ok and outcome.cached
    assert "fetched from the shared cache (build.cache)" in outcome.explanation.text
    later = Builder(places).state(artifact).explanation
    assert later.kind == "kept" and "fetched from the shared cache" in later.text
    assert "nothing was built under this name" not in later.text
    there, here = (read_sealed(f / "manifest.json") for f in (entry, outcome.path.parent))
    assert there["because"]["kind"] == "new" and there["created"] == here["created"]
    assert outcome.source.read_text() == artifact.files[artifact.main]


def test_permissions_and_other_files_of_an_entry_are_not_taken(
    published: tuple[Artifact, Path], places: Places, shared: SharedCache
) -> None:
    artifact, entry = published
    (entry / artifact.output).chmod(0o4666)
    (entry / "manifest.json").chmod(0o777)
    (entry / "elsewhere").symlink_to("/")
    (entry / artifact.main).write_text("other text")
    os.mkfifo(entry / "pipe")
    outcome = Builder(places, shared=shared).build([artifact])[artifact.key]
    assert outcome.cached
    assert stat.S_IMODE(outcome.path.stat().st_mode) == 0o755
    assert not (outcome.path.parent / "manifest.json").stat().st_mode & stat.S_IXUSR
    assert {path.name for path in outcome.path.parent.iterdir()} == {
        *("manifest.json", "origins", artifact.output, *artifact.files)
    }
    assert outcome.source.read_text() == artifact.files[artifact.main]


def _link(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to("real")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("change", [_link, _pipe, _folder, Path.unlink])
@pytest.mark.parametrize("name", ["output", "manifest.json"])
def test_what_is_no_plain_file_is_damaged(
    published: tuple[Artifact, Path],
    places: Places,
    shared: SharedCache,
    change: Callable[[Path], None],
    name: str,
) -> None:
    artifact, entry = published
    change(entry / (artifact.output if name == "output" else name))
    outcome = Builder(places, shared=shared).build([artifact])[artifact.key]
    assert outcome.ok and not outcome.cached
    assert "the copy in build.cache was damaged" in outcome.explanation.text
    assert (entry / artifact.output).is_file() and not (entry / artifact.output).is_symlink()


@pytest.mark.parametrize("at", ["entry", "folder", "tmp"])
def test_a_file_in_place_of_a_folder_only_costs_speed(
    published: tuple[Artifact, Path], places: Places, shared: SharedCache, at: str
) -> None:
    artifact, entry = published
    place = {"entry": entry, "folder": entry.parent, "tmp": shared.folder / "tmp"}[at]
    shutil.rmtree(place)
    place.write_text("garbage")
    assert Builder(places, shared=shared).build([artifact])[artifact.key].ok
    assert at != "entry" or entry.is_dir(), "published again"


def test_a_manifest_about_another_file_is_damaged(
    published: tuple[Artifact, Path], places: Places, shared: SharedCache
) -> None:
    artifact, entry = published
    manifest = read_sealed(entry / "manifest.json")
    write_sealed(entry / "manifest.json", {**manifest, "key": "0" * 32})
    outcome = Builder(places, shared=shared).build([artifact])[artifact.key]
    assert outcome.ok and not outcome.cached
    assert sha256_file(outcome.path) == manifest["output_sha256"]


def hashes(tree: Path) -> dict[str, bytes]:
    folder = tree / "build/runtimes"
    return {p.parent.name: p.read_bytes() for p in folder.glob("*/runner")}


def test_checkouts_share_what_they_build(
    tree: Path,
    built: Scons,
    tmp_path: Path,
) -> None:
    cache = tmp_path / "shared"
    first = built(f"--build-cache={cache}")
    other = tmp_path / "another place"
    shutil.copytree(tree, other)
    shutil.rmtree(other / "build")
    done = scons(other, f"--build-cache={cache}")
    assert done.returncode == 0, done.stderr
    assert hashes(other) == hashes(tree) != {}
    assert run(other / RUNNER) == "42"
    assert compiled(first) and compiled(done.stdout) == set()
    assert not list(other.glob("build/failed/*"))
    assert not (other / "build/objects").exists(), "nothing needs them"
    assert f"fetched build/runtimes/{next(iter(hashes(tree)))}/runner" in done.stdout
    assert scons(other, f"--build-cache={cache}").stdout == "scons: `all' is up to date.\n"
    manifests = [json.loads(p.read_text()) for p in other.glob("build/runtimes/*/manifest.json")]
    origin = [json.loads(p.read_text()) for p in tree.glob("build/runtimes/*/manifest.json")]
    assert {m["created"] for m in manifests} <= {m["created"] for m in origin}


def test_a_damaged_entry_of_the_shared_cache_is_built_again(
    tree: Path, built: Scons, tmp_path: Path
) -> None:
    cache = tmp_path / "shared"
    built(f"--build-cache={cache}", RUNNER)
    wanted = hashes(tree)
    for path in cache.rglob("*.o"):
        path.write_bytes(b"garbage")
    for path in cache.rglob("runner"):
        if path.is_file():
            path.write_bytes(b"garbage")
    shutil.rmtree(tree / "build")
    built(f"--build-cache={cache}", RUNNER)
    assert hashes(tree) == wanted and run(tree / RUNNER) == "42"
    shutil.rmtree(tree / "build")
    built(f"--build-cache={cache}", RUNNER)
    assert hashes(tree) == wanted


def test_a_cache_that_cannot_be_written_is_said(built: Scons, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    output = built(f"--build-cache={tmp_path / 'file' / 'below'}", code=2)
    assert "cannot be made" in output and "Traceback" not in output


def test_only_what_is_asked_for_is_fetched(
    tree: Path,
    built: Scons,
    tmp_path: Path,
) -> None:
    cache = f"--build-cache={tmp_path / 'shared'}"
    built(cache)
    every = hashes(tree)
    for targets in ((RUNNER,), ("-n",), ("-h",)):
        shutil.rmtree(tree / "build")
        output = built(cache, *targets)
        assert len(hashes(tree)) == output.count("fetched ") == (targets == (RUNNER,))
    assert len(every) > 1


def test_objects_are_fetched_where_the_program_is_not_there(
    tree: Path,
    built: Scons,
    tmp_path: Path,
) -> None:
    cache = f"--build-cache={tmp_path / 'shared'}"
    built(cache, RUNNER)
    (tree / "native/runner/part.c").write_text("int part(void) { return 1; }\n")
    shutil.rmtree(tree / "build")
    output = built(cache, RUNNER)
    assert compiled(output) == {"part.o", "runner"}
    assert "/main.o" in output.partition("gcc ")[0], "fetched before"


def test_what_is_here_already_is_shared(
    tree: Path,
    built: Scons,
    tmp_path: Path,
) -> None:
    built()
    cache = tmp_path / "shared"
    assert compiled(built(f"--build-cache={cache}")) == set()
    assert {p.name for p in (cache / "runtimes").iterdir()} == {*hashes(tree)}


def test_what_comes_from_the_cache_is_known_to_editors(
    tree: Path, built: Scons, tmp_path: Path
) -> None:
    cache = f"--build-cache={tmp_path / 'shared'}"
    built(cache)
    shutil.rmtree(tree / "build")
    built(cache)
    assert len(json.loads((tree / "build/compile_commands.json").read_text())) == 2


def test_a_copy_from_the_cache_is_not_shown_as_a_compilation(
    tree: Path, built: Scons, tmp_path: Path
) -> None:
    cache = f"--build-cache={tmp_path / 'shared'}"
    assert "fetch" not in built(cache, RUNNER)
    (key,) = hashes(tree)
    shutil.rmtree(tree / "build")
    for option, said in (("-n", "would fetch"), ("--debug=explain", "fetched")):
        output = built(cache, option, RUNNER)
        assert compiled(output) == set(), output
        shown = [line for line in output.splitlines() if "fetch" in line]
        assert shown == [f"{said} build/runtimes/{key}/runner"]


def test_a_dry_run_shows_what_is_compiled_beside_what_is_fetched(
    tree: Path, built: Scons, tmp_path: Path
) -> None:
    cache = f"--build-cache={tmp_path / 'shared'}"
    built(cache, RUNNER)
    (tree / "native/runner/part.c").write_text("int part(void) { return 1; }\n")
    shutil.rmtree(tree / "build")
    output = built(cache, "-n", RUNNER)
    assert compiled(output) == {"part.o", "runner"}
    (fetched,) = [line for line in output.splitlines() if line.startswith("would fetch ")]
    assert fetched.endswith("/main.o")


def test_a_damaged_copy_is_the_reason_that_is_shown(
    tree: Path, built: Scons, tmp_path: Path
) -> None:
    cache = f"--build-cache={tmp_path / 'shared'}"
    built(cache, RUNNER)
    shutil.rmtree(tree / "build")
    for path in (tmp_path / "shared").rglob("*"):
        if path.is_file() and path.name in ("part.o", "runner"):
            path.write_bytes(b"garbage")
    output = built(cache, RUNNER)
    assert compiled(output) == {"part.o", "runner"}
    assert output.count("the copy in build.cache was damaged") == 2
    assert "/main.o\n" in output.partition("gcc ")[0], "fetched before"
