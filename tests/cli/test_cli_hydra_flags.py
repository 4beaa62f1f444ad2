"""Hydra's flags answer as a plain `hydra.main` application on the same config files does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from command_line import PATIENCE_S, Project, environment
from kernloom.base.places import share_folder
from kernloom.cli.hydra_flags import HYDRA_FLAGS, NOT_SERVED, SHORT

CONFIGS = share_folder() / "configs"
PLAIN_APP = """\
import contextlib, io, json, sys
import hydra


@hydra.main(version_base="1.3", config_path=sys.argv[1], config_name="kernloom")
def app(config):
    raise SystemExit("it must not run")


answers = []
for words in json.loads(sys.argv[2]):
    sys.argv = ["kernloom", *words]
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        app()
    answers.append(output.getvalue())
print(json.dumps(answers))
"""
ONE = ("workload=axpy", "toolchain=clang", "workload.sizes.N=64")
QUESTIONS = [
    ("--cfg", "job", *ONE),
    ("--cfg", "hydra", *ONE),
    ("--cfg", "all", *ONE),
    ("--cfg", "all", "hydra/sweeper=basic", "hydra.verbose=true"),
    ("--cfg", "job", "--resolve", *ONE, "workload.about=${workload.name}-${oc.env:HOME}"),
    ("--cfg", "job", "--package", "workload.sizes", *ONE),
    ("--cfg", "job", "-p", "seed", *ONE),
    ("--cfg", "hydra", "--package", "hydra.runtime.choices", "experiment=isa_levels"),
    ("--cfg", "job", "experiment=tile_screening", "screen.keep=3"),
    ("--info", "defaults", *ONE),
    ("--info", "defaults-tree", "experiment=gemm_roofline", "workload=axpy"),
    ("--info", "searchpath", *ONE),
    ("--info", "searchpath", f"--config-dir={CONFIGS.parent / 'docs'}"),
    ("--info", "searchpath", f"hydra.searchpath=['file://{CONFIGS.parent}']"),
    ("--info", "config", *ONE),
    ("--info", "plugins"),
    ("--hydra-help",),
]


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A folder without a project, so that the shipped folder is the only one."""
    project = Project(tmp_path_factory.mktemp("elsewhere"))
    (project.folder / "kernloom.yaml").unlink()
    return project


@pytest.fixture(scope="module")
def plain_answers(elsewhere: Project) -> dict[tuple[str, ...], str]:
    app = elsewhere.folder / "kernloom.py"
    app.write_text(PLAIN_APP)
    done = subprocess.run(
        [sys.executable, str(app), str(CONFIGS), json.dumps(QUESTIONS)],
        cwd=elsewhere.folder,
        env=environment(elsewhere.home),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(QUESTIONS, json.loads(done.stdout), strict=True))


def comparable(text: str) -> list[str]:
    """The lines of an answer without times of imports and Kernloom's two plugins."""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if line == "Profiling information"), len(lines))
    return [line for line in lines[:start] if line.strip() not in ("YamlSource", "FolderPlugin")]


@pytest.mark.parametrize("words", QUESTIONS, ids=" ".join)
def test_an_answer_is_hydra_s_own(
    elsewhere: Project, plain_answers: dict[tuple[str, ...], str], words: tuple[str, ...]
) -> None:
    done = elsewhere.run("run", *words)
    assert done.code == 0, done.stderr
    expected = comparable(plain_answers[words])
    own = comparable(done.stdout)
    if "SearchPathPlugin:" in done.stdout:
        # A kind of plugin with no other member has a heading of its own.
        heading = next(n for n, line in enumerate(own) if "SearchPathPlugin:" in line)
        own = own[:heading] + [line for line in own[heading + 2 :] if line in expected]
    assert own == expected
    assert len(expected) > 0
    assert done.stderr == ""


def test_every_flag_in_hydra_s_help_is_served_or_has_a_substitute(
    plain_answers: dict[tuple[str, ...], str],
) -> None:
    listed = re.findall(
        r"^--([\w-]+)(?:,-(\w+))? :", plain_answers[("--hydra-help",)], re.MULTILINE
    )
    for name, letter in listed:
        if name in ("help", "multirun"):
            continue
        assert (name in HYDRA_FLAGS) != (name in NOT_SERVED), name
        assert not letter or SHORT[letter] == name, letter
    assert {name for name, _ in listed} >= {*HYDRA_FLAGS, "run", "version"}


def test_nothing_is_run_or_written(shared_project: Project) -> None:
    before = {*shared_project.folder.iterdir()}
    for command in ("run", "plan", "build", "check", "explain"):
        done = shared_project.run(command, "workload=good", "--cfg", "job", "-p", "workload.sizes")
        assert (done.code, done.stdout) == (0, "# @package workload.sizes\n'n': 1000\n")
    assert {*shared_project.folder.iterdir()} == before


def test_a_project_s_files_are_found_and_shadow(project: Project) -> None:
    project.add("axpy")
    shown = project.run("plan", "--cfg", "job", "workload=axpy", "select.fixed.unroll.k=2")
    assert shown.code == 0, shown.stderr
    config = yaml.safe_load(shown.stdout)
    assert config["workload"]["golden"] == {"y": "2 * x"}
    assert config["select"]["fixed"] == {"unroll": {"k": 2}}
    found = project.run("plan", "--info", "searchpath").stdout
    places = re.findall(r"\| (\w+) +\| file://(\S+)", found)
    assert places == [("main", str(project.folder / "configs")), ("kernloom", str(CONFIGS))]


def test_values_that_hydra_s_grammar_refuses_are_quoted(shared_project: Project) -> None:
    shown = shared_project.run("plan", "--cfg", "job", "-p", "store.path", "store.path=a (1), b.db")
    assert (shown.code, shown.stdout) == (0, "a (1), b.db\n")


def test_output_json_is_one_document(shared_project: Project) -> None:
    shown = shared_project.json("plan", "--cfg", "job", "workload=axpy")
    assert shown.document["workload"]["name"] == "axpy"
    assert shared_project.json("plan", "--hydra-help").document["text"].startswith("Hydra ")


def test_hydra_s_help_needs_no_command(shared_project: Project) -> None:
    assert "== Configuration groups ==" in shared_project.run("--hydra-help").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--cfg", "jobs"],
            ["--cfg has no 'jobs'", "Did you mean 'job'? Allowed: all, hydra, job."],
        ),
        (["--cfg"], ["--cfg needs a value: --cfg job|hydra|all"]),
        (["--info", "default"], ["--info has no 'default'", "Did you mean 'defaults'?"]),
        (
            ["--cfg", "job", "--package", "mesure.samples"],
            ["--package mesure.samples: the job config has no key 'mesure'", "mean 'measure'?"],
        ),
        (
            ["--cfg", "job", "--package", "measure.sample"],
            ["'measure' has no key 'sample'", "Did you mean 'samples'?"],
        ),
        (["--cfg", "job", "--package", "seed.x"], ["'seed' has no key 'x'", "It has no keys."]),
        (["--cfg", "job", "--package", ""], ["the job config has no key ''"]),
        (["--cfg", "job", "-p", "trace"], ["--package trace: it is null"]),
        (["--resolve"], ["--resolve belongs to --cfg"]),
        (["--info", "config", "--package", "measure"], ["--package belongs to --cfg"]),
        (["--cfg", "job", "--info"], ["--cfg and --info are two questions"]),
        (["-m", "--cfg", "job", "seed=1,2"], ["--cfg is about one experiment, and -m is a sweep"]),
        (["--cfg", "job", "seed=1,2"], ["'seed=1,2' names several values"]),
        (["--cfg", "job", "sed=1"], ["unknown key 'sed'", "Did you mean 'seed'?"]),
        (["--cfg", "job", "workload=axpi"], ["unknown workload 'axpi'", "Did you mean 'axpy'?"]),
        (["--cfg", "job", "hydra.verbos=1"], ["Could not override 'hydra.verbos'"]),
        (["--cfg", "hydra", "hydra/launcher=nosuch"], ["nosuch"]),
        (["--config-dir", "nosuch"], ["--config-dir: 'nosuch' does not exist", "Folders there: "]),
        (["-cd=nosuch", "--cfg", "job"], ["--config-dir: 'nosuch' does not exist"]),
        (["-cp=x"], ["'plan' has no flag '-cp=x'", "--config-dir FOLDER adds one"]),
        (["--version"], ["'plan' has no flag '--version'", "`kernloom --version`"]),
        (["-sc", "install=bash"], ["'plan' has no flag '-sc'", "`kernloom completion bash`"]),
        (["--experimental-rerun=x"], ["`kernloom recipe run FILE`"]),
        (["+workload=axpy"], ["'workload' is chosen already", "Write workload=axpy without +"]),
        (["+experiment=compilers"], ["`override /experiment: compilers` in a defaults list"]),
        (["--config-name", "x"], ["'plan' has no flag '--config-name'", "say experiment=NAME"]),
        (["-cn=x"], ["'plan' has no flag '-cn=x'", "The root config is always kernloom.yaml"]),
        (["--config-path", "x"], ["no flag '--config-path'", "--config-dir FOLDER adds one"]),
        (["-cp", "x"], ["no flag '-cp'", "--config-dir FOLDER adds one"]),
        (["--shell-completion", "install=bash"], ["Say `kernloom completion bash`"]),
        (["--experimental-rerun", "x.pickle"], ["`kernloom recipe run FILE`"]),
        (
            ["workload.about='${hydra:job.name}'"],
            ["workload.about: '${hydra:job.name}' has no value", "${workload.name}"],
        ),
        (
            ["--run"],
            ["'plan' has no flag '--run'", "one experiment unless it has -m"],
        ),
        (
            ["--cfg", "job", "--resolve", "workload.about=${oc.env:NO_SUCH_VARIABLE}"],
            ["workload.about: ", "Environment variable 'NO_SUCH_VARIABLE' not found"],
        ),
    ],
    ids=" ".join,
)
def test_a_wrong_word_is_explained(
    shared_project: Project, words: list[str], said: list[str]
) -> None:
    done = shared_project.run("plan", *words)
    assert done.code == 2, done.stderr
    for text in said:
        assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_no_private_module_of_hydra_is_used() -> None:
    engine = Path(sys.modules["kernloom"].__file__ or "").parent
    users = [path for path in engine.rglob("*.py") if "hydra._internal" in path.read_text()]
    assert users == []
