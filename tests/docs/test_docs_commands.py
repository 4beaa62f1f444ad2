"""Every command that the documentation shows is run, wherever it stands: in a block, a table or a
sentence.

They are typed in a copy of the source tree, or in a project with the files that their page shows.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import postgres
from command_line import PATIENCE_S, Done, Project, share_artifacts
from doc_pages import PAGES, TREE, Shown, commands, files
from example_package import install
from parts import needs_module, without
from source_tree import SourceTree, copy_tree

SHOWN = commands()
SLURM = re.compile(r"\bslurm|submitit_slurm")
"""Needs a cluster: tests/fleet/test_fleet_docs.py runs these."""
SERVER = "db.example.org"
NOT_RUN = {
    r"tests/run.*": "runs the tests; the paths that it names are checked below",
    r"apt-get install .*": "changes the system; the packages are compared with those of tests/run",
    r"\.venv/bin/python -m pip install .*": "changes .venv; the packages are looked up below",
    r"createdb .*": "the tests' server makes its databases itself",
    r"kernloom recipe run": "a part of a command: the file is missing",
    r"kernloom run \.\.\. .*": "a part of a command",
    r"(\./)?kernloom tune space=(FILE|recorded\.json\.gz .*)": "needs a recorded space: tests/tune",
    r"python tests/attack/cheat_trials\.py": "needs minutes: tests/attack runs a part",
    r"kernloom check --fuzz( N)?": "a part of a command: the number of draws is missing",
    r"source <\(kernloom .*|kernloom .* \| source": "test_what_is_typed_is_completed",
    r"\.venv/bin/python -m SCons": "test_a_flag_of_one_variant_concerns_that_variant",
    r"(\./)?kernloom build --all": "test_build_all_tells_runners_apart",
    r"(\./)?kernloom tune workload=.*": (
        "test_winners_are_taken_home_as_parameters_results_and_c_sources"
    ),
    r"(\./)?kernloom run .*select\.providers=\[tuned\].*": (
        "test_a_pipeline_tunes_on_demand_and_planning_does_not"
    ),
    r"kernloom completion SHELL": "a part of a command: the name of the shell is missing",
}
"""Pattern of a command -> why it is not run here, or the test that runs it."""
SWEEP = "./kernloom run -m workload=softmax workload.sizes.N=64,128,256 toolchain=gcc,clang"
SAVED = "./kernloom run workload=axpy recipe=build/axpy.yaml"
HAND_WRITTEN = "recipes/mlp-on-two-task-runtimes.yaml"
BEFORE = {
    r"results .*workload=softmax.*": [SWEEP],
    r"results .*mr=8.*": ["./kernloom run -m select.fixed.tile.mr=4,6,8 toolchain=gcc,clang"],
    r"results workload=matmul.*": ["./kernloom run"],
    r"results placement\.x=copied": [
        "./kernloom run target=opencl workload=axpy workload.tensors.x.place=host "
        "target.options.host_memory=copy"
    ],
    r"(results baseline (save|list)|compare --baseline) ?.*": [
        "./kernloom run -m workload=axpy,softmax",
        "./kernloom results baseline save main",
    ],
    r"recipe verify mlp\.yaml": ["./kernloom run workload=mlp recipe=mlp.yaml"],
    r"recipe save .*": [SAVED],
    r"recipe \w+ build/axpy\.yaml.*": [SAVED],
    r"recipe unpack .*": [SAVED, "./kernloom recipe pack build/axpy.yaml build/axpy.tar.gz"],
    r"recipe verify .* --require L3": [f"./kernloom recipe lock {HAND_WRITTEN}"],
    r"explain.*": ["./kernloom run", "./kernloom run workload=mlp"],
    r"results sweep\.point=odd": ["kernloom run -m sweep=mine"],
    r"results repair|results --history": ["kernloom run workload=axpy"],
}
"""Pattern of a command -> the commands that a reader of the page has typed before it."""
MAY_REFUSE = "doctor --install"
"""Where something is missing it must not be installed without being asked for."""


def words_of(text: str) -> str:
    """A command without the name of its program."""
    return re.sub(r"^(\./)?kernloom ", "", text)


def not_run(text: str) -> str:
    return next((why for pattern, why in NOT_RUN.items() if re.fullmatch(pattern, text)), "")


def in_tree(shown: Shown) -> bool:
    """Whether it is typed in the source tree, and not in a project with the page's files."""
    return shown.text.startswith("./") or not files(shown.page)


RUN_HERE = {
    ("tree" if in_tree(shown) else shown.page, words_of(shown.text)): shown
    for shown in SHOWN
    if not not_run(shown.text) and not SLURM.search(shown.text) and SERVER not in shown.text
}
"""One of each, for the same command in the same place need not be typed twice."""
TYPED = {shown.page: shown for shown in reversed(RUN_HERE.values())}
"""Page -> its first command: a shell and the script of the tree read it as a person's; those of all
others that need no shell are forked."""


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> SourceTree:
    """A clone in which the first command was typed; it shares what it builds with other tests."""
    tree = copy_tree(tmp_path_factory.mktemp("clone"))
    share_artifacts(tree.folder / "build")
    return tree


@pytest.fixture(scope="session")
def projects(
    tmp_path_factory: pytest.TempPathFactory, shared_project: Project
) -> dict[str, Project]:
    """Page -> the project with the files that it shows."""
    found = {}
    for page in PAGES:
        shown = files(page)
        if shown:
            project = found[page] = Project(tmp_path_factory.mktemp(Path(page).stem))
            project.share_artifacts()
            project.take_facts_from(shared_project)
            for name, text in shown.items():
                project.write(name, text)
            if "package/pyproject.toml" in shown:
                install(project.folder / "package")
    return found


@pytest.fixture(scope="session")
def before() -> set[tuple[str, str]]:
    """Where the commands of BEFORE were typed: once is enough."""
    return set()


def run(shown: Shown, tree: SourceTree, projects: dict[str, Project]) -> Done:
    run = tree.type if shown in TYPED.values() else tree.fork
    if in_tree(shown):
        return run(shown.text, patience=PATIENCE_S)
    project = projects[shown.page].folder
    package = project / "package"
    packages = {"PYTHONPATH": str(package)} if package.exists() else {}
    return run(shown.text, cwd=project, patience=PATIENCE_S, **packages)


@pytest.mark.slow
@pytest.mark.parametrize("shown", [pytest.param(s, id=s.id) for s in RUN_HERE.values()])
def test_a_shown_command_does_what_the_page_says(
    shown: Shown,
    tree: SourceTree,
    projects: dict[str, Project],
    before: set[tuple[str, str]],
) -> None:
    if "hydra/sweeper=optuna" in shown.text:
        needs_module("hydra_plugins.hydra_optuna_sweeper")
    for pattern, earlier in BEFORE.items():
        if re.fullmatch(pattern, words_of(shown.text)):
            for one in (Shown(shown.page, text, 0) for text in earlier):
                place = "tree" if in_tree(one) else one.page, one.text
                if place not in before:
                    done = run(one, tree, projects)
                    assert done.code in (0, 3), f"{one.text}\n{done.stdout}{done.stderr}"
                    before.add(place)
    if shown.text.startswith("ln "):
        (tree.home / ".local/bin/kernloom").unlink()
    done = run(shown, tree, projects)
    if done.code == 3 and shown.code == 0:
        without(done.stderr.strip())
    allowed = {shown.code, 2} if words_of(shown.text) == MAY_REFUSE else {shown.code}
    assert done.code in allowed, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_commands_for_a_server_work_with_one(
    tree: SourceTree, projects: dict[str, Project], server: postgres.Server
) -> None:
    for shown in (s for s in SHOWN if SERVER in s.text and not not_run(s.text)):
        text = re.sub(r"postgresql\S+", server.url(), shown.text)
        done = run(Shown(shown.page, text, 0), tree, projects)
        assert done.code == 0, done.stdout + done.stderr


def test_every_reason_for_not_running_a_command_is_needed_and_true() -> None:
    texts = [shown.text for shown in SHOWN]
    for pattern, why in NOT_RUN.items():
        assert any(re.fullmatch(pattern, text) for text in texts), pattern
        if why.startswith("test_"):
            found = [path for path in TREE.glob("tests/*/test_*.py") if why in path.read_text()]
            assert len(found) > 1, f"there is no {why}"
    for pattern in BEFORE:
        assert any(re.fullmatch(pattern, words_of(text)) for text in texts), pattern


def test_pages_name_tests_and_packages_that_exist() -> None:
    setup = (TREE / "tests/run").read_text(encoding="utf-8")
    known = {word for line in setup.splitlines() for word in line.split()}
    project = tomllib.loads((TREE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [one for extra in project["optional-dependencies"].values() for one in extra]
    for text in (shown.text for shown in SHOWN):
        if text.startswith("tests/run "):
            assert all((TREE / path).exists() for path in text.split()[1:]), text
        if text.startswith("apt-get install "):
            assert set(text.split()[2:]) <= known, text
        package = re.fullmatch(r"\.venv/bin/python -m pip install '?([\w.-]+).*", text)
        if package and package[1] not in (".", "./package"):
            assert any(one.startswith(package[1]) for one in extras), text


def test_commands_are_found_in_blocks_tables_and_sentences() -> None:
    shown = {(s.page, s.text) for s in SHOWN}
    assert ("docs/guide/first-steps.md", "./kernloom run workload=softmax") in shown
    assert ("README.md", "./kernloom check") in shown
    assert ("README.md", "kernloom recipe verify mlp.yaml") in shown
    assert ("docs/guide/own-target.md", "kernloom check target=cortex_m3 case=small") in shown
    assert ("docs/guide/damaged-store.md", "kernloom results repair") in shown
    assert {s.text: s.code for s in SHOWN}["./kernloom run workload=sofmax"] == 2


def test_a_clone_takes_nothing_from_the_tree_it_was_copied_from(tmp_path: Path) -> None:
    clone = copy_tree(tmp_path)
    assert not (clone.folder / "build").exists()
    assert not (clone.folder / ".kernloom").exists()
    done = clone.type("./kernloom doctor output=json")
    assert done.code == 0, done.stderr
    assert done.document["places"] == {
        "project": "",
        "build": str(clone.folder / "build"),
        "store": str(clone.folder / ".kernloom/store.db"),
        "graph": str(clone.folder / "SConstruct"),
    }
    done = clone.type("kernloom results output=json")
    assert done.trials == []
