"""Installed packages add resolvers by entry point, and options by Hydra's ConfigStore."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest

from command_line import ENGINE, Done, Project
from example_package import install
from kernloom.config.reader import dump_yaml, read_yaml
from kernloom.recipe.lock import DIGEST, digest_of

PYPROJECT = """\
[project]
name = "my-lab"
version = "1"
[project.entry-points."kernloom.resolvers"]
"lab.double" = "my_lab:double"
"lab.calls" = "my_lab:calls"
"lab.broken" = "my_lab:broken"
"lab.odd" = "my_lab:odd"
"lab.seeing" = "my_lab:seeing"
"lab.number" = "my_lab:NUMBER"
"lab.missing" = "my_lab:no_such"
"lab.leaving" = "my_lab:leaving"
"lab.printing" = "my_lab:printing"
"lab.endless" = "my_lab:endless"
"lab.many" = "my_lab:many"
"lab.huge" = "my_lab:huge"
"lab.speechless" = "my_lab:speechless"
"oc.env" = "my_lab:double"
"""
MODULE = """\
import os
import sys

NUMBER = 7
print("imported")


def double(value):
    return 2 * value


def calls(*values):
    with open(os.environ["CALLS"], "a") as file:
        file.write(f"{values}\\n")
    return 1


def broken(name):
    raise LookupError(f"there is no board {name}")


def odd():
    return object()


def seeing(_root_):
    return _root_


def leaving():
    sys.exit(0)


def printing(value):
    print("from Python")
    os.system("echo from a child process")
    return value


def endless():
    found = []
    found.append(found)
    return found


def many():
    return [0] * 100_000


def huge():
    return 10**5000


class Speechless(Exception):
    def __str__(self):
        raise ValueError


def speechless():
    raise Speechless
"""
PLUGIN = """\
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore

from my_lab_configs import ABOUT


@dataclass
class Thorough:
    defaults: list[Any] = field(default_factory=lambda: ["quick", "_self_"])
    about: str = ABOUT
    samples: int = 11


ConfigStore.instance().store(group="measure", name="thorough", node=Thorough)
TARGET = {"defaults": [{"/toolchain": "clang"}, {"/arch": "native"}, {"/runtime": "none"},
                       {"/pipeline": "native"}, "_self_"],
          "target": {"about": "of a package", "family": "host", "device": "host",
                     "sources": ["host"], "variant": "release", "variants": ["release"],
                     "systems": ["linux"]}}
ConfigStore.instance().store(group="target", name="lab", node=TARGET, package="_global_")
"""


class Lab:
    """A project beside an installed package."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.package = project.folder.parent / "package"
        self.package.mkdir()
        self.calls = project.folder.parent / "calls"
        self.write("pyproject.toml", PYPROJECT)
        self.write("my_lab.py", MODULE)
        install(self.package)

    def write(self, name: str, text: str) -> None:
        path = self.package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, *words: str) -> Done:
        path = f"{ENGINE}:{self.package}"
        return self.project.run(*words, env={"PYTHONPATH": path, "CALLS": str(self.calls)})


@pytest.fixture
def lab(project: Project) -> Lab:
    project.add("good")
    return Lab(project)


def test_a_resolver_of_a_package_is_used(lab: Lab) -> None:
    words = ("workload=good", "workload.sizes.n='${lab.double:${seed}}'", "seed=21")
    done = lab.run("run", *words, "output=json")
    assert done.code == 0, done.stderr
    (trial,) = lab.run("results", "output=json").trials
    assert trial["config"]["workload"]["sizes"] == {"n": 42}
    shown = lab.run("plan", *words, "--cfg", "job", "--resolve", "-p", "workload.sizes.n")
    assert (shown.code, shown.stdout) == (0, "42\n")


def test_a_resolver_is_called_once_for_the_same_arguments(lab: Lab) -> None:
    about = "workload.about='a ${lab.calls:${seed}}'"
    done = lab.run("plan", "-m", "workload=good", "seed=1,2,3", "workload.sizes.n=1,2", about)
    assert done.code == 0, done.stderr
    assert sorted(lab.calls.read_text().split("\n")) == ["", "(1,)", "(2,)", "(3,)"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "${lab.broken:a5}",
            ["the resolver lab.broken('a5') failed: LookupError: there is no board"],
        ),
        ("${lab.broken:a5}", ["Correct its arguments; the resolver is code of my-lab 1."]),
        ("${lab.double:1,2}", ["the resolver lab.double(1, 2) failed: TypeError"]),
        ("${lab.odd:}", ["the resolver lab.odd() returned a object", "Allowed: text, numbers"]),
        ("${lab.leaving:}", ["the resolver lab.leaving() failed: SystemExit: 0"]),
        ("${lab.endless:}", ["lab.endless() returned data nested more than 50 deep"]),
        ("${lab.many:}", ["the resolver lab.many() returned more than 50,000 values"]),
        ("${lab.huge:}", ["the resolver lab.huge() returned an integer of 16,610 bits"]),
        ("${lab.speechless:}", ["lab.speechless() failed: Speechless: its message cannot be"]),
        ("${lab.seeing:}", ["'lab.seeing' takes _root_"]),
        ("${lab.number:}", ["'lab.number' is a int, not a function"]),
        ("${lab.missing:}", ["resolver 'lab.missing' cannot be loaded from my_lab:no_such"]),
        ("${lab.duoble:1}", ["unknown resolver 'lab.duoble'", "Did you mean 'lab.double'?"]),
        ("${oc.select:${lab.broken:x},1}", ["the resolver lab.broken('x') failed"]),
        ("${lab.double:${no.such}}", ["'${no.such}' refers to nothing"]),
    ],
)
def test_a_resolver_that_fails_is_explained(lab: Lab, text: str, said: list[str]) -> None:
    done = lab.run("plan", "workload=good", f"workload.about='{text}'")
    assert done.code == 2, done.stderr
    assert "workload.about" in done.stderr
    for part in said:
        assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_what_a_package_prints_is_not_on_stdout(lab: Lab) -> None:
    lab.write("hydra_plugins/my_lab/__init__.py", "print('from a plugin')\n")
    word = "workload.about='${lab.printing:text}'"
    done = lab.run("plan", "workload=good", word, "output=json")
    assert done.code == 0, done.stderr
    assert done.document["trials"]
    for said in ("imported", "from Python", "from a child process", "from a plugin"):
        assert said in done.stderr
    shown = lab.run("plan", word, "--cfg", "job", "--resolve", "-p", "workload.about")
    assert shown.stdout == "text\n"


def test_a_resolver_of_omegaconf_is_not_replaced(lab: Lab) -> None:
    word = "workload.about='${oc.env:HOME}'"
    shown = lab.run("plan", word, "--cfg", "job", "--resolve", "-p", "workload.about")
    assert (shown.code, shown.stdout) == (0, f"{lab.project.home}\n")


def test_a_failing_resolver_is_explained_by_cfg_too(lab: Lab) -> None:
    word = "workload.about='${lab.broken:a5}'"
    done = lab.run("plan", "workload=good", word, "--cfg", "job")
    assert done.code == 0, "nothing is resolved: " + done.stderr
    done = lab.run("plan", "workload=good", word, "--cfg", "job", "--resolve")
    assert done.code == 2
    assert "workload.about: the resolver lab.broken('a5') failed" in done.stderr


def test_a_recipe_calls_no_resolver(lab: Lab, tmp_path: Path) -> None:
    recipe = lab.project.folder / "made.yaml"
    done = lab.run("run", "workload=good", f"recipe={recipe}")
    assert done.code == 0, done.stderr
    written = read_yaml(recipe)
    for change in ({"about": "${lab.calls:1}"}, {"sizes": {"n": "${lab.calls:1}"}}):
        lock = deepcopy(written["lock"])
        lock["configs"]["workload"][0]["is"] |= change
        lock[DIGEST] = digest_of(lock)
        recipe.write_text(dump_yaml(written | {"lock": lock}))
        lab.run("recipe", "run", str(recipe))
    requested = {"recipe": 2, "run": "workload=good 'workload.about=${lab.calls:1}'"}
    recipe.write_text(dump_yaml(requested))
    done = lab.run("recipe", "run", str(recipe))
    assert done.code == 2 and "does more than name a key of the config" in done.stderr
    assert not lab.calls.exists()


def test_a_project_s_files_define_no_resolver(lab: Lab) -> None:
    lab.project.write("configs/resolvers/mine.yaml", "mine: my_lab:double\n")
    done = lab.run("plan", "workload=good", "workload.about='${mine:1}'")
    assert done.code == 2
    assert "unknown resolver 'mine'" in done.stderr


def test_an_option_in_hydra_s_config_store_is_like_any_other(lab: Lab) -> None:
    lab.write("hydra_plugins/my_lab/__init__.py", PLUGIN)
    lab.write("my_lab_configs.py", "ABOUT = 'of a package'\n")

    def planned(*words: str) -> dict[str, object]:
        done = lab.run("plan", "workload=good", *words, "--cfg", "job", "output=json")
        assert done.code == 0, done.stderr
        measure: dict[str, object] = done.document["measure"]
        return measure

    assert planned("measure=thorough")["samples"] == 11
    done = lab.run("run", "-m", "workload=good", "measure=glob(th*)", "output=json")
    assert done.code == 0, done.stderr
    (trial,) = lab.run("results", "output=json").trials
    assert trial["config"]["measure"]["name"] == "thorough"
    assert trial["config"]["measure"]["about"] == "of a package"
    completed = lab.run("completion", "bash", "--words", "2", "--", "kernloom", "run", "measure=t")
    assert completed.stdout == "word measure=thorough\n"
    wrong = lab.run("plan", "measure=thoroug")
    assert "Did you mean 'thorough'?" in wrong.stderr
    # The cached composition is not used when the package changes.
    lab.write("my_lab_configs.py", "ABOUT = 'changed'\n")
    lab.run("run", "workload=good", "measure=thorough", "rerun=all")
    (trial,) = lab.run("results", "measure.about=changed", "output=json").trials
    completed = lab.run("completion", "bash", "--words", "2", "--", "kernloom", "run", "measure=t")
    assert completed.stdout == "word measure=thorough\n"
    # A target of a package is listed and chosen.
    listed = lab.run("targets", "output=json").document
    (target,) = [entry for entry in listed if entry["name"] == "lab"]
    assert target["about"] == "of a package"
    shown = lab.run("plan", "target=lab", "--cfg", "job", "-p", "toolchain.name")
    assert shown.stdout == "clang\n"


@pytest.mark.parametrize(
    ("statement", "said"),
    [("raise ValueError('no licence')", "ValueError: no licence"), ("exit(0)", "SystemExit: 0")],
)
def test_a_plugin_that_cannot_be_loaded_is_named(lab: Lab, statement: str, said: str) -> None:
    lab.write("hydra_plugins/my_lab/__init__.py", f"{statement}\n")
    assert lab.run("results").code == 0, "it needs no plugin"
    done = lab.run("plan", "workload=good")
    assert done.code == 3
    assert "a plugin of Hydra cannot be loaded: " in done.stderr
    assert f"hydra_plugins/my_lab/__init__.py:1: {said}" in done.stderr
    assert "Traceback" not in done.stderr
