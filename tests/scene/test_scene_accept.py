"""What `--accept` commits, where, and what it refuses to commit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from command_line import Project
from kernloom.base.errors import UsageError
from kernloom.base.places import Places
from kernloom.run.assembly import Assembly
from kernloom.scene import committed
from kernloom.scene.choosing import Choice, Pick
from kernloom.scene.reading import SceneSpec
from kernloom.scene.running import SceneRunner
from kernloom.scene.scene import Case


def scene_in(folder: Path) -> SceneSpec:
    file = folder / "scenes/lines.yaml"
    return SceneSpec("lines", "softmax", (Case("tiny", targets=("a5",)),), file)


def test_nothing_is_accepted_into_an_installed_package(tmp_path: Path) -> None:
    share = tmp_path / "site-packages/kernloom/share"
    installed = Places(share, None, tmp_path / "cache/build", tmp_path / "cache/store.db")
    shipped, beside = scene_in(share), share / "scenes/expected/lines.txt"
    assert committed.file_of(shipped, installed) == beside, "it is read from there"
    with pytest.raises(UsageError, match="'lines' is installed with Kernloom") as error:
        committed.file_to_write(shipped, installed)
    assert "kernloom.yaml" in str(error.value)
    project = replace(installed, project=tmp_path / "mine")
    own = tmp_path / "mine/scenes/expected/lines.txt"
    assert committed.file_to_write(shipped, project) == own
    source_tree = replace(installed, build=share / "build")
    assert committed.file_to_write(shipped, source_tree) == beside
    elsewhere = scene_in(tmp_path / "tests")
    expected = tmp_path / "tests/scenes/expected/lines.txt"
    assert committed.file_to_write(elsewhere, installed) == expected


def test_an_installed_scene_is_refused_before_it_runs(assembly: Assembly, tmp_path: Path) -> None:
    places = replace(assembly.places, project=None, build=tmp_path / "build")
    scene = scene_in(places.share)
    assembly = Assembly(places)
    with pytest.raises(UsageError, match="installed with Kernloom"):
        SceneRunner(assembly, Choice()).run([Pick(scene, scene.cases[0], "a5")], accept=True)
    assert not (tmp_path / "build").exists()


def test_results_without_goldens_are_not_accepted(assembly: Assembly) -> None:
    scene = scene_in(Path("/nowhere"))
    with pytest.raises(UsageError, match="not compared with their goldens") as error:
        runner = SceneRunner(assembly, Choice(skip_golden=True))
        runner.run([Pick(scene, scene.cases[0], "a5")], accept=True)
    assert "--skip-golden" in str(error.value)


@pytest.fixture
def lines(scenery: Project, request: pytest.FixtureRequest) -> Project:
    """A scene on a simulated accelerator that names no runtimes."""
    scene = "workload: softmax\ntargets: [a5]\nsizes: {M: 4, N: 32}\ncases: {tiny: {}}\n"
    path = scenery.write("scenes/lines.yaml", scene)
    expected = scenery.folder / "scenes/expected/lines.txt"
    request.addfinalizer(lambda: path.unlink(missing_ok=True))
    request.addfinalizer(lambda: expected.unlink(missing_ok=True))
    return scenery


def test_accepting_with_one_runtime_keeps_the_results_of_others(lines: Project) -> None:
    words = ("check", "--scene", "lines", "--accept", "target=a5")
    assert "lines::tiny on a5-ringmap: new" in lines.run(*words, "runtime=ringmap").stderr
    done = lines.run(*words)
    assert "lines::tiny on a5-hostgraph: new" in done.stderr
    assert "removed" not in done.stderr
    found = committed.read_committed(lines.folder / "scenes/expected/lines.txt")
    assert sorted(found) == [("tiny", "a5", "hostgraph"), ("tiny", "a5", "ringmap")]
    scene = lines.folder / "scenes/lines.yaml"
    scene.write_text(f"{scene.read_text()}runtimes: [hostgraph]\n", encoding="utf-8")
    assert "lines::tiny a5 ringmap: removed" in lines.run(*words).stderr
