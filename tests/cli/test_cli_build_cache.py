"""`build.cache`: projects share what they have built, and nothing damaged gets through."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from command_line import Project

RUN = ("run", "workload=axpy", "rerun=all")


def built(project: Project, *words: str) -> tuple[int, int]:
    done = project.json(*RUN, *words)
    assert done.code == 0, done.stderr
    build = done.document["build"]
    return build["built"], build["cached"]


def forget(project: Project) -> None:
    for name in ("kernels", "objects", "runtimes", "lib"):
        shutil.rmtree(project.build / name, ignore_errors=True)


def test_what_one_project_has_built_another_need_not(project: Project, tmp_path: Path) -> None:
    cache = f"build.cache={tmp_path / 'shared'}"
    assert sum(built(project, cache)) == 2
    forget(project)
    assert built(project, cache) == (0, 2)
    assert not list((project.build / "tmp").iterdir())


def test_a_damaged_entry_is_built_again_and_told(project: Project, tmp_path: Path) -> None:
    cache = tmp_path / "shared"
    built(project, f"build.cache={cache}")
    (kernel,) = cache.glob("kernels/*/kernel.so")
    good = kernel.read_bytes()
    kernel.write_bytes(b"garbage")
    forget(project)
    assert built(project, f"build.cache={cache}") == (1, 1)
    told = project.run("explain", "workload=axpy").stdout
    assert "the copy in build.cache was damaged: kernel.so is not the file that was built" in told
    assert next(cache.glob("kernels/*/kernel.so")).read_bytes() == good


def test_garbage_in_the_folder_is_left_alone(project: Project, tmp_path: Path) -> None:
    cache = tmp_path / "shared"
    (cache / "kernels" / "notes").mkdir(parents=True)
    (cache / "kernels" / "notes" / "mine.txt").write_text("mine")
    assert sum(built(project, f"build.cache={cache}")) == 2
    assert (cache / "kernels" / "notes" / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("place", ["a file", "/proc/nothing"])
def test_a_folder_that_cannot_be_made_is_said(project: Project, tmp_path: Path, place: str) -> None:
    (tmp_path / "a file").write_text("")
    where = place if place.startswith("/") else str(tmp_path / place)
    done = project.run(*RUN, f"build.cache='{where}'")
    assert done.code == 2 and "build.cache" in done.stderr and "Traceback" not in done.stderr


def test_the_name_of_the_folder_may_have_any_characters(project: Project, tmp_path: Path) -> None:
    cache = tmp_path / "ours (all), [x=1]"
    assert sum(built(project, f"build.cache={cache}")) == 2
    assert list(cache.glob("kernels/*/kernel.so"))
