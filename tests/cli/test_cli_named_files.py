"""Whatever file a user names is read within bounds, or refused with one clear message."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import Project

NAMED: dict[str, Callable[[Project, Path], list[str]]] = {
    "recipe": lambda project, file: ["recipe", "run", str(file)],
    "compare": lambda project, file: ["compare", "workload=good", str(file)],
    "parameters": lambda project, file: ["plan", "workload=matmul", f"select.file={file}"],
    "store": lambda project, file: ["run", "workload=good", f"store.path={file}"],
    "stored": lambda project, file: ["results", f"store.path={file}"],
    "recipe to write": lambda project, file: ["run", "workload=good", f"recipe={file}"],
    "report to write": lambda project, file: ["check", "workload=good", "--junit", str(file)],
    "workload": lambda project, file: [
        *linked(project, "configs/workload/odd.yaml", file),
        "workload=odd",
    ],
    "source": lambda project, file: [*linked(project, "templates/good.c", file), "workload=good"],
}


def linked(project: Project, name: str, file: Path) -> list[str]:
    path = project.folder / name
    path.unlink(missing_ok=True)
    path.symlink_to(file)
    return ["plan"]


@pytest.mark.parametrize("kind", ["fifo", "device", "folder"])
@pytest.mark.parametrize("named", NAMED)
def test_odd_files_end_in_one_message(tmp_path: Path, named: str, kind: str) -> None:
    project = Project(tmp_path)
    project.add("good")
    file = {"fifo": tmp_path / "fifo", "device": Path("/dev/zero"), "folder": tmp_path}[kind]
    if kind == "fifo":
        os.mkfifo(file)
    before = file.stat()
    done = project.run(*NAMED[named](project, file))
    assert done.code == 2, done.stderr
    assert "kernloom: error: " in done.stderr
    assert "Traceback" not in done.stderr
    assert file.stat().st_mode == before.st_mode


def test_bombs_in_recipes_and_configs_end_in_one_message(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.add("good")
    merges = "\n".join(
        ["m0: &m0 {a: 1, b: 2}"]
        + [f"m{i}: &m{i} {{<<: [{', '.join([f'*m{i - 1}'] * 9)}]}}" for i in range(1, 12)]
    )
    for bomb in ("[" * 30_000 + "]" * 30_000, merges):
        recipe = project.write("bomb.yaml", bomb)
        project.write("configs/workload/bomb.yaml", bomb)
        for words in (["recipe", "run", str(recipe)], ["plan", "workload=bomb"]):
            done = project.run(*words)
            assert done.code == 2, (words, done.stderr)
            assert "bomb.yaml: is nested too deeply" in done.stderr or (
                "bomb.yaml: holds too many values" in done.stderr
            )
