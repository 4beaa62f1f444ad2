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
