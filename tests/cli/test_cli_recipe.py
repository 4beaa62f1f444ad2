"""Recipes replay a run exactly, and a stranger's recipe reaches nothing but the compiler."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_line import Project, listing
from kernloom.base.errors import ConfigError
from kernloom.config.reader import dump_yaml, read_yaml
from kernloom.recipe.flags import check_flags
from kernloom.recipe.lock import DIGEST, digest_of

AXPY = ("workload=axpy", "case=small")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, shared_project: Project) -> Project:
    project = Project(tmp_path_factory.mktemp("recipes"))
    project.take_runner_from(shared_project)
    done = project.run("run", *AXPY, "recipe=axpy.yaml")
    assert done.code == 0, done.stderr
    return project


def read(project: Project) -> Any:
    return read_yaml(project.folder / "axpy.yaml")


def locked_artifacts(project: Project) -> dict[str, str]:
    """Name -> key of each artifact in the recipe's lock."""
    lock = read(project)["lock"]
    (point,) = lock["points"]
    return {name: lock["artifacts"][n]["key"] for name, n in point["artifacts"].items()}


def test_replaying_gives_the_same_artifacts_and_parameters(home: Project) -> None:
    (original,) = home.json("results", "provider=model").trials
    replayed = home.json("recipe", "run", "axpy.yaml")
    assert replayed.code == 0
    trial = replayed.trial
    assert trial["params"] == original["params"]
    assert [a["key"] for a in trial["artifacts"]] == [a["key"] for a in original["artifacts"]]
    assert trial["verified"] is True


def test_a_recipe_expects_what_was_built(home: Project) -> None:
    trial = home.json("run", *AXPY).trial
    assert locked_artifacts(home) == {a["name"]: a["key"] for a in trial["artifacts"]}


def test_a_sweep_is_replayed_in_its_order(project: Project) -> None:
    words = ("run", "-m", "workload=axpy", "case=small,ragged", "select.fixed.unroll.vectors=1,2")
    swept = project.json(*words, "recipe=sweep.yaml")
    replayed = project.json("recipe", "run", "sweep.yaml")
    assert replayed.code == 0
    assert [t["point"] for t in replayed.trials] == [t["point"] for t in swept.trials]
    assert [t["params"] for t in replayed.trials] == [t["params"] for t in swept.trials]
    assert replayed.document["build"]["built"] == 0


def test_a_recipe_replays_in_another_project(home: Project, informed_project: Project) -> None:
    done = informed_project.json("recipe", "run", str(home.folder / "axpy.yaml"))
    assert (done.code, done.trial["status"]) == (0, "ok")
    assert {a["name"]: a["key"] for a in done.trial["artifacts"]} == locked_artifacts(home)


def kernel(config: Any) -> Any:
    return config["workload"]["kernels"]["axpy"]


def rename_kernel(config: Any) -> None:
    kernel(config)["name"] = "x(void) {} __attribute__((constructor)) static void y"


def rename_argument(config: Any) -> None:
    arguments = kernel(config)["arguments"]
    kernel(config)["arguments"] = {f"{name}) {{}} (": value for name, value in arguments.items()}


def text_as_tunable(config: Any) -> None:
    kernel(config)["tunables"]["unroll"]["vectors"]["values"] = ['1; system("true")']


def other_variant(config: Any) -> None:
    config["target"] |= {"variant": "../../v", "variants": ["../../v"]}
    config["toolchain"]["variants"]["../../v"] = []


def read_by_stage(config: Any) -> None:
    stage = config["pipeline"]["stages"]["choice"]
    stage |= {"providers": ["file", "fixed"], "file": "/etc/passwd"}


def set_at(path: str, value: Any) -> Callable[[Any], None]:
    def change(config: Any) -> None:
        *folders, last = path.split(".")
        for name in folders:
            config = config[name]
        config[last] = value

    return change


HARMFUL: dict[str, Callable[[Any], None]] = {
    "other tools": set_at("toolchain.tools", {"cc": "/bin/sh"}),
    "more tools": set_at("toolchain.tools", {"cc": "gcc", "as": "/bin/sh"}),
    "a toolchain outside configs": set_at("toolchain.name", "../../../axpy"),
    "an unknown toolchain": set_at("toolchain.name", "evilcc"),
    "flags of an arch": set_at("arch.flags", {"gcc": ["-B/tmp"]}),
    "flags of a variant": set_at("toolchain.variants", {"release": ["-wrapper"]}),
    "an arch outside build": set_at("arch.name", "../../../../escaped"),
    "a variant outside build": other_variant,
    "a template outside": set_at(
        "workload.kernels.axpy.sources.host", {"template": "../../../x.c.j2"}
    ),
    "a C file outside": set_at(
        "workload.kernels.axpy.sources.host", {"file": "/etc/passwd", "function": "f"}
    ),
    "data outside": set_at("workload.tensors.x.fill", {"kind": "file", "path": "/etc/passwd"}),
    "an unknown stage type": set_at("pipeline.stages.library.use", "python"),
    "an unknown device": set_at("target.device", "os.system"),
    "code in a kernel's name": rename_kernel,
    "code in an argument's name": rename_argument,
    "code in a tunable": text_as_tunable,
    "a store elsewhere": set_at("store", {"name": "sqlite", "path": "/tmp/evil.db"}),
    "an unknown key": set_at("hooks", ["true"]),
}
REPLACED: dict[str, Callable[[Any], None]] = {
    "a file of parameters": set_at("select", {"providers": ["file"], "file": "/etc/passwd"}),
    "a file of parameters in a stage": read_by_stage,
    "an unknown provider": set_at("pipeline.stages.choice.providers", ["os.system"]),
}
FIRST = (
    "other tools",
    "a toolchain outside configs",
    "an arch outside build",
    "a template outside",
    "an unknown stage type",
    "code in a kernel's name",
)
"""Tried in every run of the tests; the others in the slow ones."""
FLAGS = [
    "-wrapper",
    "-fplugin=./evil.so",
    "-fplugin-arg-evil-x",
    "-B/tmp",
    "-B",
    "@flags",
    "-specs=evil.specs",
    "-Wl,-rpath,/tmp",
    "-Wa,-x",
    "-Wp,-x",
    "-Xlinker",
    "-Xclang",
    "-I/tmp",
    "-L/tmp",
    "-include",
    "-imacros",
    "-o",
    "-fuse-ld=/tmp/ld",
    "-fpass-plugin=/tmp/x.so",
    "-fprofile-use=/tmp/x",
    "-fdump-tree-all",
    "-mllvm",
    "-print-prog-name=x",
    "/etc/passwd",
    "evil.c",
    "",
    "-O2 -wrapper x",
    "-D'X=\"a\"'",
    "-fopt-info-all=report",
    "-fopt-info",
    "-fstack-usage",
    "-fcallgraph-info",
    "-fsave-optimization-record",
    "-foptimization-record-file=x",
    "-ftime-trace=x",
    "-fcs-profile-generate",
    "-fmemory-profile",
    "-ftest-coverage",
    "-fdiagnostics-format=sarif-file",
    "-fsanitize-ignorelist=x",
    "-foffload=x",
    "-fopenmp-targets=x",
    "-finstrument-functions",
    "-fxray-instrument",
    "--specs=picolibc.specs",
    "--target=riscv64-linux-gnu",
    "-cl-std=CL1.2 -I/tmp",
]


def refused(project: Project, path: Path) -> str:
    """The message with which a recipe is refused before anything is done."""
    around = project.folder.parent
    before = {name for name in listing(around) if "/cache/" not in name}
    done = project.run("recipe", "run", str(path))
    assert done.code == 2, done
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert {name for name in listing(around) if "/cache/" not in name} == before
    return done.stderr


def changed(project: Project, change: Callable[[Any], None], path: Path) -> Path:
    """The recipe with another config in its lock, under a right digest."""
    document = read(project)
    lock = document["lock"]
    config = {name: copy.deepcopy(rows[0]["is"]) for name, rows in lock["configs"].items()}
    change(config)
    lock["configs"] = {name: [{"is": value}] for name, value in config.items()}
    lock[DIGEST] = digest_of(lock)
    path.write_text(dump_yaml(document), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "what",
    [what if what in FIRST else pytest.param(what, marks=pytest.mark.slow) for what in HARMFUL],
)
def test_a_strangers_recipe_is_refused(home: Project, tmp_path: Path, what: str) -> None:
    message = refused(home, changed(home, HARMFUL[what], tmp_path / "stranger.yaml"))
    assert message.startswith("kernloom: error: ")
    assert "its digest is another" not in message
    assert "root:" not in message  # what a file outside holds is not repeated


@pytest.mark.parametrize("what", REPLACED)
def test_the_parameters_of_a_lock_replace_its_providers(
    home: Project, tmp_path: Path, what: str
) -> None:
    done = home.json("recipe", "run", str(changed(home, REPLACED[what], tmp_path / "other.yaml")))
    assert (done.code, done.trial["provider"]) == (0, "fixed"), done.stderr


def test_flags_that_reach_beyond_compiling_are_refused() -> None:
    check_flags(["-O3", "-ffast-math", "-march=native", "--param=max-unroll-times=4"], [], "flags")
    for flag in FLAGS:
        with pytest.raises(ConfigError, match="cannot use the flag"):
            check_flags([flag], [], "flags")


def test_flags_of_this_machines_own_toolchain_are_allowed() -> None:
    ours = ["--specs=picolibc.specs", "-include", "own.h", "-O2"]
    check_flags(ours, ours, "flags")
    check_flags(["-O3", "--specs=picolibc.specs"], ours, "flags")
    for flags in (["-include", "-O2"], ["own.h"], ["--specs=other.specs"]):
        with pytest.raises(ConfigError, match="cannot use the flag"):
            check_flags(flags, ours, "flags")


@pytest.mark.parametrize("flag", ["-wrapper", "-fplugin=./evil.so", "-B/tmp", "@f", "-specs=x"])
def test_the_command_line_names_the_flag_it_refuses(
    home: Project, tmp_path: Path, flag: str
) -> None:
    path = changed(home, set_at("toolchain.extra_flags", [flag]), tmp_path / "stranger.yaml")
    message = refused(home, path)
    assert flag in message
    assert "toolchain.extra_flags" in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "recipe.yaml:"),
        ("just text", "is not a recipe"),
        ("recipe: 99\ntrials: []\n", "format 99"),
        ("recipe: 1\n", "no trials"),
        ("recipe: 1\ntrials: []\n", "no trials"),
        ("recipe: 1\ntrials: [3]\n", "no config"),
        ("recipe: 1\ntrials: {a: 1}\n", "no trials"),
        ("recipe: 1\ntrials: [{config: {}}]\n", "no toolchain"),
        ("recipe: 1\ntrials: [{config: {toolchain: {name: gcc}}}]\n", "tools"),
        ("recipe: !!python/object/apply:os.system ['true']\n", "python/object"),
        ("recipe: 1\nrecipe: 1\n", "twice"),
        ("\x00\x01", "recipe.yaml"),
    ],
)
def test_what_is_not_a_recipe_is_refused(
    home: Project, tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    assert says in refused(home, path)


def test_a_section_of_a_recipe_that_is_nonsense_is_refused(home: Project, tmp_path: Path) -> None:
    path = changed(home, set_at("pipeline", 3), tmp_path / "recipe.yaml")
    done = home.run("recipe", "run", str(path))
    assert "Traceback" not in done.stderr, done.stderr
    assert done.code == 2, done


def test_a_recipe_that_cannot_be_written_is_refused_before_the_run(home: Project) -> None:
    done = home.json("run", *AXPY, "seed=77", "recipe=no/folder/r.yaml")
    assert done.code == 2
    assert set(done.document) == {"error"}
    assert home.json("results", "seed=77").trials == []


def test_a_recipe_that_a_replay_will_refuse_is_written_with_a_warning(project: Project) -> None:
    project.add("good")
    done = project.run("run", "workload=good", "toolchain.extra_flags=[-lm]", "recipe=r.yaml")
    assert done.code == 0, done.stderr
    assert (
        "warning: `recipe run` will refuse it: toolchain.extra_flags: a recipe cannot use the flag "
        "'-lm'\n  Put toolchain.extra_flags into configs/toolchain/NAME.yaml" in done.stderr
    )
    own = "defaults: [gcc, _self_]\nname: mine\nextra_flags: [-lm]\n"
    project.write("configs/toolchain/mine.yaml", own)
    done = project.run("run", "workload=good", "toolchain=mine", "recipe=r.yaml")
    assert (done.code, "warning" in done.stderr) == (0, False), done.stderr
    assert project.run("recipe", "run", "r.yaml").code == 0
