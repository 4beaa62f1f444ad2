"""Options of groups read one by one are the same as those that a run composes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from command_line import ENGINE
from kernloom.base.errors import ConfigError
from kernloom.base.places import share_folder
from kernloom.config.compose import Composer
from kernloom.config.groups import Groups

CONFIGS = share_folder() / "configs"
INHERITING = {
    "toolchain/mine.yaml": "defaults: [gcc, _self_]\nname: mine\ntools: {cc: gcc-12}\n",
    "toolchain/again.yaml": "defaults: [mine]\nname: again\nextra_flags: [-O3]\n",
    "toolchain/weaker.yaml": "defaults: [_self_, gcc]\nname: weaker\nextra_flags: [-O3]\n",
    "toolchain/absolute.yaml": "defaults: [/toolchain/clang, _self_]\nname: absolute\n",
    "toolchain/alone.yaml": (CONFIGS / "toolchain/gcc.yaml").read_text() + "\ndefaults: [_self_]\n",
    "arch/narrow.yaml": "defaults: [x86_64_v3, _self_]\nname: narrow\ncaches: {l1: 16KiB}\n",
    "measure/brief.yaml": "defaults: [standard, _self_]\nname: brief\nmax_rounds: 5\n",
    "target/mine.yaml": (
        "# @package _global_\n# Ours.\n"
        "defaults: [host, {override /toolchain: mine}, {override /arch: narrow}, _self_]\n"
        "target: {name: mine, about: This machine with a narrow arch.}\n"
    ),
}


def folders(tmp_path: Path, files: Mapping[str, str] = INHERITING) -> list[Path]:
    for name, text in files.items():
        path = tmp_path / "configs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [tmp_path / "configs", CONFIGS]


@pytest.mark.parametrize("path", INHERITING)
def test_an_option_that_inherits_is_read_as_a_run_composes_it(tmp_path: Path, path: str) -> None:
    found = folders(tmp_path)
    group, _, name = path.removesuffix(".yaml").partition("/")
    words = [f"{group}={name}"]
    composer = Composer(found, tmp_path / "cache", lambda data: data["arch"])
    (point,) = composer.points(words, multirun=False)
    data = Groups(found).read(group, name)
    assert (data["target"] if group == "target" else data) == point.data[group]


def test_a_target_that_inherits_chooses_what_its_parent_does(tmp_path: Path) -> None:
    groups = Groups(folders(tmp_path))
    assert groups.defaults(groups.read("target", "mine")) == {
        "toolchain": "mine",
        "arch": "narrow",
        "runtime": "none",
        "pipeline": "native",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("defaults: [gccc, _self_]\n", "unknown toolchain 'gccc' in a defaults list"),
        ("defaults: [bad, _self_]\n", "toolchain/bad.yaml .* lead back to themselves"),
        ("defaults: 7\n", "defaults must be a list"),
        ("defaults: [{'': x}]\n", "toolchain/bad.yaml has a defaults list that makes no"),
        ("defaults: ['${x}']\n", "interpolation"),
    ],
)
def test_a_defaults_list_that_is_wrong_is_said(tmp_path: Path, text: str, said: str) -> None:
    groups = Groups(folders(tmp_path, {"toolchain/bad.yaml": text}))
    with pytest.raises(ConfigError, match=said):
        groups.read("toolchain", "bad")


def test_what_ships_is_read_without_hydra() -> None:
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from kernloom.config.groups import Groups\n"
        "groups = Groups([Path(sys.argv[1])])\n"
        "for group in ('', 'target', 'toolchain', 'arch', 'measure', 'store', 'fleet'):\n"
        "    for name in groups.options(group):\n"
        "        groups.read(group, name)\n"
        "assert 'hydra' not in sys.modules\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ENGINE)}
    subprocess.run([sys.executable, "-c", script, str(CONFIGS)], check=True, env=environment)
