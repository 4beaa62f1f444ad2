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
from parsed import points_of

CONFIGS = share_folder() / "configs"
INHERITING = {
    "toolchain/mine.yaml": "defaults: [gcc, _self_]\nname: mine\ntools: {cc: gcc-12}\n",
    "toolchain/again.yaml": "defaults: [mine]\nname: again\nextra_flags: [-O3]\n",
    "toolchain/weaker.yaml": "defaults: [_self_, gcc]\nname: weaker\nextra_flags: [-O3]\n",
    "toolchain/absolute.yaml": "defaults: [/toolchain/clang, _self_]\nname: absolute\n",
    "toolchain/alone.yaml": (CONFIGS / "toolchain/gcc.yaml")
    .read_text()
    .replace("name: gcc\n", "defaults: [_self_]\n"),
    "toolchain/nameless.yaml": "defaults: [gcc, _self_]\nextra_flags: [-O3]\n",
    "toolchain/last.yaml": "defaults: [_self_, nameless]\n",
    "workload/doubled.yaml": "defaults: [axpy, _self_]\nsizes: {N: 2000}\n",
    "arch/narrow.yaml": "defaults: [x86_64_v3, _self_]\nname: narrow\ncaches: {l1: 16KiB}\n",
    "measure/brief.yaml": "defaults: [standard, _self_]\nname: brief\nmax_rounds: 5\n",
    "target/mine.yaml": (
        "# @package _global_\n# Ours.\n"
        "defaults: [host, {override /toolchain: mine}, {override /arch: narrow}, _self_]\n"
        "target: {name: mine, about: This machine with a narrow arch.}\n"
    ),
    "target/nameless.yaml": "# @package _global_\ndefaults: [host, _self_]\n",
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
    (point,) = points_of(composer, words, multirun=False)
    data = Groups(found).read(group, name)
    section = data["target"] if group == "target" else data
    if group == "workload":
        # What a workload brings besides its own keys is composed for a run alone.
        section = {**point.data[group], **section}
    assert section == point.data[group]
    assert section["name"] == name


NAMED_OTHERWISE = {
    "workload": "defaults: [axpy, _self_]\nname: axpy\n",
    "kernel": "defaults: [axpy, _self_]\nname: axpy\n",
    "toolchain": "defaults: [gcc, _self_]\nname: gcc\n",
    "arch": "defaults: [x86_64_v3, _self_]\nname: x86_64_v3\n",
    "measure": "defaults: [quick, _self_]\nname: quick\n",
    "pipeline": "defaults: [native, _self_]\nname: native\n",
    "runtime": "name: none\n",
    "target": "# @package _global_\ndefaults: [host, _self_]\ntarget: {name: host}\n",
}


def refusals(tmp_path: Path, group: str, text: str) -> list[ConfigError]:
    """What reading the option `mine` alone says, and what a run that chooses it says."""
    found = folders(tmp_path, {f"{group}/mine.yaml": text})
    composer = Composer(found, tmp_path / "cache", lambda data: data["arch"])
    key = "kernel@workload.kernels.matmul" if group == "kernel" else group
    with pytest.raises(ConfigError) as read:
        Groups(found).read(group, "mine")
    with pytest.raises(ConfigError) as run:
        list(points_of(composer, [f"{key}=mine"], multirun=False))
    return [read.value, run.value]


@pytest.mark.parametrize("group", NAMED_OTHERWISE)
def test_a_file_that_says_the_name_of_another_is_refused(tmp_path: Path, group: str) -> None:
    for error in refusals(tmp_path, group, NAMED_OTHERWISE[group]):
        assert f"{group}/mine.yaml: says name: " in error.message
        assert error.message.endswith(", but the file is mine.yaml")
        assert error.hint.startswith("Say name: mine, or leave that line out")


@pytest.mark.parametrize(
    "text",
    [
        "defaults: [host, _self_]\n",
        "defaults: [{/toolchain: gcc}, {/arch: native}, _self_]\ntarget: {name: mine}\n",
    ],
)
def test_a_target_without_its_first_line_is_told_which(tmp_path: Path, text: str) -> None:
    for error in refusals(tmp_path, "target", text):
        assert "target/mine.yaml: the first line" in error.message
        assert "`# @package _global_`" in error.message


def test_kernels_have_the_name_of_their_file(tmp_path: Path) -> None:
    kernel = "defaults: [axpy, _self_]\nabout: ours\n"
    found = folders(tmp_path, {"kernel/mine.yaml": kernel})
    composer = Composer(found, tmp_path / "cache", lambda data: data["arch"])
    words = ["workload=axpy", "kernel@workload.kernels.axpy=mine"]
    (point,) = points_of(composer, words, multirun=False)
    assert point.data["workload"]["kernels"]["axpy"]["name"] == "mine"


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
