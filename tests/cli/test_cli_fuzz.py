"""`check --fuzz`: honest kernels pass, broken ones are found, shrunk, saved and run again."""

from __future__ import annotations

import re
import shlex
import xml.etree.ElementTree as ElementTree

import pytest

from command_line import WORKLOAD, Project

TWICE = "for (long i = 0; i < n; i++) y[i] = 2 * x[i];\n"
BROKEN = {
    "tail": (TWICE + "if (n % 8 == 3) y[n - 1] = 0;\n", "wrong", "n=3"),
    "constant": (TWICE + "if (n > 1 && x[0] == x[1]) y[0] = 7;\n", "wrong", "x: "),
    "outside": (TWICE + "if (n == 1) y[n] = 1;\n", "out_of_bounds", "n=1"),
    "aligned": (TWICE + "if ((unsigned long)x % 16) y[0] = 7;\n", "wrong", "x at byte"),
}
"""Name -> body, status, what the smallest draw has."""


def add(project: Project, name: str, body: str, more: str = "") -> None:
    project.add(name, body, workload=WORKLOAD.format(name=name, n=1000) + more)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_kernel_is_found_at_its_smallest_and_fails_again(
    project: Project, name: str
) -> None:
    body, status, smallest = BROKEN[name]
    add(project, name, body, "fuzz: {alignment: element}\n")
    done = project.json("check", "--fuzz", "60", "--seed", "1", f"workload={name}")
    trial = done.trial
    assert (done.code, trial["status"]) == (1, status)
    assert trial["metrics"]["failed_draws"] >= 1
    found = re.search(r"smallest: (.*)", trial["message"])
    assert found and smallest in found[1], trial["message"]
    command = re.search(r"run it again: kernloom (.*)", trial["message"])
    assert command
    again = project.json(*shlex.split(command[1]))
    assert (again.code, again.trial["status"]) == (1, status)


def test_an_honest_kernel_passes_and_the_same_seed_draws_the_same(project: Project) -> None:
    add(project, "twice", TWICE, "fuzz: {values: {x: [fill, nan, inf, denormal]}}\n")
    words = ("check", "--fuzz", "30", "--seed", "5", "workload=twice")
    done = project.json(*words, "--junit", "fuzz.xml")
    assert done.code == 0, done.stderr
    assert done.trial["metrics"] == {"draws": 30, "failed_draws": 0}
    assert "--seed 5" in done.stderr
    suite = ElementTree.parse(project.folder / "fuzz.xml").getroot()
    assert suite.get("tests") == "1"


def test_sizes_that_cannot_vary_are_said(project: Project) -> None:
    add(project, "still", TWICE, "fuzz: {sizes: {n: {low: 64, high: 64}}}\n")
    done = project.run("check", "--fuzz", "3", "workload=still")
    assert done.code == 0
    assert "its sizes cannot vary" in done.stdout + done.stderr


TIMES = """\
name: {name}
arguments:
  n: {{kind: size}}
  times: {{kind: size}}
  x: {{kind: tensor, shape: [n]}}
  y: {{kind: tensor, access: write, shape: [n]}}
sources:
  host: {{file: {name}.c, function: {name}}}
"""
REPEATED = """\
void {name}(long n, long times, const float *x, float *y) {{
    for (long i = 0; i < n; i++) y[i] = 0;
    {loop}
}}
"""
ADDING = "for (long i = 0; i < n; i++) y[i] += x[i];"


def test_a_size_may_be_zero_where_it_is_declared(project: Project) -> None:
    loops = {
        "repeats": f"for (long t = 0; t < times; t++) {ADDING}",
        "repeats_once": f"long t = 0; do {ADDING} while (++t < times);",
    }
    for name, loop in loops.items():
        workload = WORKLOAD.format(name=name, n=100).replace("n: 100", "n: 100, times: 3")
        workload = workload.replace("2 * x", "times * x")
        fuzz = "fuzz: {sizes: {times: {low: 0, high: 9}}}\n"
        project.add(name, n=100, kernel=TIMES.format(name=name), workload=workload + fuzz)
        project.write(f"templates/{name}.c", REPEATED.format(name=name, loop=loop))
    words = ("check", "--fuzz", "40", "--seed", "2", "-m")
    trials = project.json(*words, "workload=repeats,repeats_once").trials
    assert [trial["status"] for trial in trials] == ["ok", "wrong"]
    assert re.search(r"smallest: .*times=0", trials[1]["message"])
    # A run may have it, too; a tensor may not.
    assert project.json("run", "workload=repeats", "workload.sizes.times=0").trial["status"] == "ok"
    done = project.run("run", "workload=repeats", "workload.sizes.n=0")
    assert done.code == 2 and "0 is not a possible size" in done.stderr


def test_values_that_whole_numbers_cannot_have_are_refused(project: Project) -> None:
    workload = WORKLOAD.format(name="whole", n=10).replace("x: {", "x: {dtype: int32, ")
    project.add("whole", workload=workload + "fuzz: {values: {x: [fill, nan]}}\n")
    done = project.run("check", "--fuzz", "3", "workload=whole")
    assert done.code in (1, 2)
    said = done.stdout + done.stderr
    assert "'x' has elements of int32, and none of them is nan" in said
    assert "Whole numbers can be: fill, uniform, constant, sorted, extremes, zeros." in said


def test_draws_are_planned_some_at_a_time(project: Project) -> None:
    add(project, "many", TWICE, "fuzz: {sizes: {n: {high: 20}}}\n")
    done = project.json("check", "--fuzz", "120", "--seed", "3", "workload=many")
    assert done.trial["metrics"] == {"draws": 120, "failed_draws": 0}
    add(project, "many", TWICE + "if (n == 17) y[0] = 7;", "fuzz: {sizes: {n: {high: 20}}}\n")
    done = project.json("check", "--fuzz", "120", "--seed", "3", "workload=many")
    assert done.trial["metrics"] == {"draws": 120, "failed_draws": 3}
    assert "n=17" in done.trial["message"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--fuzz", "0"), "--fuzz=0 is not a whole number"),
        (("--fuzz", "many"), "--fuzz=many is not a whole number"),
        (("--seed", "1"), "--fuzz, which is missing"),
        (("--fuzz", "3", "--scene", "all"), "scenes are not fuzzed"),
        (("--fuzz-case", "none.yaml"), "there is no file"),
        (("--fuzz-case", "kernloom.yaml"), "is no case"),
        (("--fuzz-case", "kernloom.yaml", "target=host"), "stands alone"),
    ],
)
def test_bad_words_are_refused(project: Project, words: tuple[str, ...], problem: str) -> None:
    done = project.run("check", *words)
    assert done.code == 2
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("offsets: {z: 4}", "'z' is no tensor of the workload"),
        ("offsets: {x: 3}", "3 is no multiple of the 4 bytes of an element"),
        ("offsets: {x: 4}", "cannot place a tensor there"),
    ],
)
def test_offsets_that_a_draw_cannot_have_are_refused(
    project: Project, more: str, problem: str
) -> None:
    case = f"draws: [{{overrides: [workload=axpy, target=opencl], {more}}}]"
    project.write("case.yaml", case)
    done = project.run("check", "--fuzz-case", "case.yaml")
    assert done.code == 2
    assert problem in done.stderr
