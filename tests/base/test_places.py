"""Places: where files are found and written, and that nothing leads outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernloom.base.errors import ConfigError
from kernloom.base.places import Places, confined, find_places, find_project, share_folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "configs" / "workload").mkdir(parents=True)
    (root / "templates").mkdir()
    (root / "kernloom.yaml").write_text("# marks a project\n")
    return root


def test_the_source_tree_is_found_from_anywhere(tmp_path: Path) -> None:
    places = find_places(tmp_path)
    assert (places.share / "configs" / "kernloom.yaml").is_file()
    assert places.project is None
    assert places.build.is_relative_to(places.share)


def test_a_project_is_the_nearest_folder_with_a_kernloom_yaml(project: Path) -> None:
    places = find_places(project / "configs" / "workload")
    assert places.project == project
    assert places.build == project / ".kernloom" / "build"
    assert places.store == project / ".kernloom" / "store.db"


def test_the_projects_folders_come_first(project: Path) -> None:
    places = find_places(project)
    assert places.folders("configs") == [project / "configs", share_folder() / "configs"]
    assert places.folders("nothing") == []


def test_our_own_configs_folder_is_not_taken_for_a_project() -> None:
    assert find_places(share_folder() / "configs" / "workload").project is None


def test_a_root_config_of_the_projects_own_does_not_make_a_second_project(project: Path) -> None:
    (project / "configs" / "kernloom.yaml").write_text("seed: 1\n")
    assert find_project(project / "configs" / "workload") == project


def test_a_folder_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(Exception, match="current folder cannot be read"):
        find_places()


def test_cache_lies_inside_the_build_folder(tmp_path: Path) -> None:
    places = Places(tmp_path, None, tmp_path / "b", tmp_path / "s")
    assert places.cache.is_relative_to(places.build)


def test_the_first_root_that_has_a_file_wins(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for root in (first, second):
        root.mkdir()
        (root / "both.c").write_text(root.name)
    (second / "only.c").write_text("second")
    roots = [first, second]
    assert confined("both.c", roots, key="k", what="file").read_text() == "first"
    assert confined("only.c", roots, key="k", what="file").read_text() == "second"


@pytest.mark.parametrize("path", ["../secret", "a/../../secret", "/etc/passwd", "link"])
def test_no_path_leaves_its_root(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("x")
    (root / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigError, match="leaves"):
        confined(path, [root], key="workload.tensors.x.fill.path", what="data file")


def test_a_missing_file_is_named_with_the_folders_looked_in(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        confined("no.c", [tmp_path], key="k", what="kernel file")
    assert "k: kernel file 'no.c' does not exist" in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000])
def test_an_impossible_path_is_an_error_for_people(tmp_path: Path, path: str) -> None:
    with pytest.raises(ConfigError, match="k: file"):
        confined(path, [tmp_path], key="k", what="file")
