"""The pytest plugin collects and runs scenes, and is not noticed where there are none."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import PATIENCE_S, Done, Project, environment
from kernloom.base.scene_flags import SWITCHES, VALUES
from kernloom.pytest_plugin import _Scenes

TEST = """\
from kernloom.scene import Case, Scene, main


class Base(Scene):
    targets = ("host",)


class TestDoubles(Base):
    workload = "late"
    cases = [
        Case("short", sizes={"n": 8}),
        Case("long", sizes={"n": 200}),
        Case("far", sizes={"n": 8}, targets=["nowhere"]),
        Case("huge", sizes={"n": 300}, manual=True),
    ]

    def golden(self, tensors, case):
        tensors["y"][:] = 2 * tensors["x"]


def test_plain():
    pass


if __name__ == "__main__":
    raise SystemExit(main())
"""
NOWHERE = """\
# @package _global_
defaults: [host, {override /toolchain: absent}, _self_]
target: {name: nowhere}
"""
ABSENT = """\
defaults: [gcc, _self_]
name: absent
tools: {cc: no-such-compiler, cxx: no-such-compiler}
"""


@pytest.fixture(scope="module")
def tested(scenery: Project):
    """A project with a test file and a target whose compiler is not on this machine."""
    scenery.write("tests/test_doubles.py", TEST)
    scenery.write("configs/target/nowhere.yaml", NOWHERE)
    scenery.write("configs/toolchain/absent.yaml", ABSENT)
    return scenery


def python(project: Project, *words: str, cwd: Path | None = None) -> Done:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd or project.folder,
        env=environment(project.home),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def run_pytest(project: Project, *words: str, cwd: Path | None = None) -> Done:
    plugin = ("-m", "pytest", "-p", "kernloom.pytest_plugin", "-p", "no:cacheprovider")
    return python(project, *plugin, *words, cwd=cwd)


def test_cases_pass_fail_and_skip_with_the_reason(tested: Project) -> None:
    done = run_pytest(tested, "tests", "-rs", "-v")
    assert done.code == 1, done.stderr
    shown = dict(re.findall(r"::(\S+) (PASSED|FAILED|SKIPPED)", done.stdout))
    assert shown == {
        "TestDoubles::short[host]": "PASSED",
        "TestDoubles::long[host]": "FAILED",
        "TestDoubles::far[nowhere]": "SKIPPED",
        "test_plain": "PASSED",
    }
    assert "TestDoubles::long on host: wrong in stage" in done.stdout
    assert re.search(r"y\[100\] is \S+, golden .*100 of 200 elements", done.stdout)
    assert "nowhere is not available here" in done.stdout
    assert "no-such-compiler" in done.stdout
    assert "1 deselected" in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        (["--kernloom-case", "short"], ["short[host]"]),
        (["--kernloom-case", "TestDoubles::long,short"], ["short[host]", "long[host]"]),
        (["--kernloom-target", "nowhere"], ["far[nowhere]"]),
        (["--kernloom-manual", "only"], ["huge[host]"]),
        (
            ["--kernloom-manual", "include", "--kernloom-case", "huge,long"],
            ["long[host]", "huge[host]"],
        ),
        (["--kernloom-runtime", "ringmap", "--kernloom-case", "short"], ["short[host]"]),
    ],
)
def test_flags_choose_cases(tested: Project, words: list[str], chosen: list[str]) -> None:
    done = run_pytest(tested, "tests", "--collect-only", "-q", *words)
    assert re.findall(r"::TestDoubles::(\S+)", done.stdout) == chosen, done.stdout


def test_pytest_has_the_flags_of_a_scene_file(tested: Project) -> None:
    shown = run_pytest(tested, "--help").stdout
    for flag in (*VALUES, *SWITCHES):
        assert f"--kernloom-{flag}" in shown
    assert "--kernloom-accept" not in shown
    assert inspect.isabstract(_Scenes)


def test_rounds_and_a_skipped_golden(tested: Project) -> None:
    words = ("--kernloom-case", "long", "--kernloom-skip-golden", "--kernloom-rounds", "2")
    done = run_pytest(tested, "tests", *words, "-rP")
    assert done.code == 0, done.stdout
    assert "the golden was skipped" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kernloom-target", "hots"], "Did you mean 'host'?"),
        (["--kernloom-rounds", "many"], "'many' is no number of rounds"),
        (["--kernloom-case", "TestDoubles::shrt"], "Did you mean 'TestDoubles::short'?"),
    ],
)
def test_wrong_flags_are_named_without_a_traceback(
    tested: Project, words: list[str], said: str
) -> None:
    done = run_pytest(tested, "tests", *words)
    assert done.code != 0
    assert said in done.stdout + done.stderr
    assert "pytest_plugin.py" not in done.stdout + done.stderr


def test_yaml_scenes_of_a_project_are_collected_and_their_mistakes_named(
    tested: Project, scene: Path
) -> None:
    done = run_pytest(tested, "scenes", "-v", "--kernloom-target", "host")
    assert "scenes/mine.yaml::short[host] PASSED" in done.stdout
    scene.write_text("workload: good\ncases: {a: {sizs: {n: 1}}}\n", encoding="utf-8")
    done = run_pytest(tested, "scenes")
    assert done.code == 2
    assert "Did you mean 'sizes'?" in done.stdout
    other = tested.write("elsewhere/scenes/mine.yaml", "no: scene\n")
    assert run_pytest(tested, str(other.parent)).code == 5, "not beside a kernloom.yaml"


def test_the_project_is_that_of_the_file_wherever_pytest_starts(
    tested: Project, tmp_path: Path
) -> None:
    file = tested.folder / "tests/test_doubles.py"
    done = run_pytest(tested, str(file), "--kernloom-case", "short", cwd=tmp_path)
    assert done.code == 0, done.stdout
    assert list(tmp_path.iterdir()) == []


def test_scenes_run_in_several_processes(tested: Project) -> None:
    pytest.importorskip("xdist")
    done = run_pytest(tested, "tests", "-n2", "--kernloom-case", "short")
    assert done.code == 0, done.stdout
    assert "2 passed" in done.stdout


def test_without_scenes_nothing_of_the_engine_is_imported(tested: Project, tmp_path: Path) -> None:
    (tmp_path / "test_other.py").write_text(
        "import sys\n\n\nclass TestOther:\n    def test_it(self):\n"
        "        ours = [name for name in sys.modules if name.startswith('kernloom')]\n"
        "        flags = ['kernloom.base', 'kernloom.base.scene_flags']\n"
        "        assert sorted(ours) == ['kernloom', *flags, 'kernloom.pytest_plugin']\n"
    )
    done = run_pytest(tested, "-q", cwd=tmp_path)
    assert done.code == 0, done.stdout


def test_a_scene_file_is_an_ordinary_test_file_without_the_plugin(tested: Project) -> None:
    done = python(tested, "-m", "pytest", "-p", "no:kernloom.pytest_plugin", "tests")
    assert done.code == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--target", "host", "--case", "short"], 0, "TestDoubles::short on host: verified"),
        (["--case=TestDoubles::long", "--rounds", "2"], 1, "long on host: wrong in stage"),
        (["--case", "long", "--skip-golden"], 0, "the golden was skipped"),
        (["--case", "huge", "--manual", "include"], 1, "0 verified, 1 failed"),
        (["--target", "nowhere"], 3, "far on nowhere: unavailable"),
        (["--target", "a5"], 2, "no case is chosen"),
        (["--case", "shrt"], 2, "Did you mean"),
        (["--tarket", "host"], 2, "Did you mean '--target'?"),
        (["--rounds"], 2, "--rounds needs a value"),
        (["--target="], 2, "--target needs a value"),
        (["--help"], 0, "--skip-golden"),
    ],
)
def test_a_scene_file_runs_by_itself(
    tested: Project, words: list[str], code: int, said: str
) -> None:
    done = python(tested, "tests/test_doubles.py", *words)
    assert done.code == code, done.stdout + done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
