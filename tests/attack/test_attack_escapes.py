"""Escape sequences in every field of a project's configs and of a recipe."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attacks import Attack
from command_line import Project
from kernloom.config.reader import RECIPE, dump_yaml, read_yaml

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\r\u202e"
RUNS = 150
"""Recipes that are run: each takes about a second."""
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def test_attack_escapes_in_configs(attack: Attack, tmp_path: Path) -> None:
    """Whatever key or value holds them, and whether that is accepted or refused."""
    project = Project(tmp_path)
    project.add("good")
    files = [project.folder / f"configs/{kind}/good.yaml" for kind in ("workload", "kernel")]
    cases = [(file, changed) for file in files for changed in _changed(read_yaml(file))]
    for file, changed in attack.cases(cases, small=3):
        before = file.read_text(encoding="utf-8")
        file.write_text(json.dumps(changed), encoding="utf-8")
        _check(attack, project, json.dumps(changed), "plan", "workload=good")
        _check(attack, project, json.dumps(changed), "targets")
        file.write_text(before, encoding="utf-8")
    attack.check()


def test_attack_escapes_in_recipes(attack: Attack, tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.add("good")
    done = project.run("run", "workload=good", "measure=quick", "recipe=good.yaml")
    assert done.code == 0, done.stderr
    recipe = project.folder / "good.yaml"
    every = list(_changed(read_yaml(recipe, RECIPE)))
    cases = attack.random.sample(every, min(len(every), RUNS))
    for changed in attack.cases(cases, small=3):
        recipe.write_text(dump_yaml(changed), encoding="utf-8")
        _check(attack, project, "recipe", "recipe", "run", "good.yaml")
    attack.check()


def _check(attack: Attack, project: Project, what: str, *words: str) -> None:
    done = project.run(*words)
    said = done.stdout + done.stderr
    if CONTROL.search(said):
        attack.failed(f"{what[:200]}: {said[:300]!a}")
    if "Traceback" in said:
        attack.failed(f"{what[:200]}: {said[-500:]}")


def _changed(data: Any) -> Iterator[Any]:
    """The data, once for each key and each text in it, with escape sequences there."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield {
                (f"{name}{ESCAPES}" if name == key else name): inner for name, inner in data.items()
            }
            for inner in _changed(value):
                yield {**data, key: inner}
    elif isinstance(data, list):
        for index, value in enumerate(data):
            for inner in _changed(value):
                yield [*data[:index], inner, *data[index + 1 :]]
    elif isinstance(data, str):
        yield f"{data}{ESCAPES}"
