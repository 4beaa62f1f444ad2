"""A fleet and an output format that an installed package adds: those that the page shows."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

from command_line import ENGINE, Done, Project
from doc_pages import files
from example_package import install

PAGE = "docs/guide/extending.md"
HEAD = "| workload | target | status | median_ns |\n| --- | --- | --- | --- |\n"
SWEEP = ("-m", "workload=axpy", "workload.sizes.N=1000,2000,3000")

Kernloom = Callable[..., Done]


@pytest.fixture
def lab(project: Project) -> Kernloom:
    """Runs commands in a project where the package of the page is installed."""
    for name, text in files(PAGE).items():
        project.write(name, text)
    packages = install(project.folder / "package")
    env = {"PYTHONPATH": os.pathsep.join([str(ENGINE), str(packages)])}
    return lambda *words: project.run(*words, env=env)


def markdown(done: Done) -> list[list[str]]:
    """The cells of a table of Markdown without its head."""
    assert done.code == 0, done.stderr
    return [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]


def test_a_sweep_is_carried_out_on_a_fleet_from_outside(lab: Kernloom) -> None:
    planned = lab("plan", *SWEEP, "fleet=blocks")
    assert planned.code == 0, planned.stderr
    done = lab("run", *SWEEP, "fleet=blocks", "fleet.size=2", "output=json")
    assert done.code == 0, done.stderr
    assert [trial["verified"] for trial in done.trials] == [True] * 3
    assert "3 points in 2 blocks" in done.stderr
    again = lab("run", *SWEEP, "fleet=blocks", "output=json")
    assert [trial["reused"] for trial in again.trials] == [True] * 3


def test_a_fleet_from_outside_on_this_machine_screens(lab: Kernloom) -> None:
    done = lab("run", *SWEEP, "fleet=blocks", "fleet.size=2", "screen.keep=1", "output=json")
    assert done.code == 0, done.stderr
    assert len(done.document["screened"]) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fleet.size=0"], ["fleet.size: 0 is too small", "1 or more"]),
        (["fleet.sise=1"], ["unknown key 'sise'", "Did you mean 'size'?"]),
        (["+fleet.overlap=true"], ["fleet: unknown key 'overlap'", "size"]),
        (["fleet.kind=block"], ["unknown fleet 'block'", "Did you mean 'blocks'?"]),
    ],
)
def test_settings_of_a_fleet_from_outside_are_checked_before_anything_is_built(
    lab: Kernloom, project: Project, words: list[str], said: list[str]
) -> None:
    done = lab("run", *SWEEP, "fleet=blocks", *words)
    assert done.code == 2
    for part in said:
        assert part in done.stderr
    assert not (project.build / "kernels").exists()


def test_a_format_from_outside_serves_run_results_compare_and_check(
    lab: Kernloom, project: Project
) -> None:
    done = lab("run", *SWEEP, "output=markdown")
    assert done.stdout.startswith(HEAD)
    ran = markdown(done)
    assert [row[:3] for row in ran] == [["axpy", "host", "ok"]] * 3
    assert sorted(markdown(lab("results", "output=markdown"))) == sorted(ran)
    done = lab("results", "output=markdown", "--to", "trials.md")
    assert (done.code, done.stdout) == (0, "")
    assert "3 trials written: trials.md" in done.stderr
    assert (project.folder / "trials.md").read_text().startswith(HEAD)
    groups = lab("results", "--group", "workload", "output=markdown")
    assert groups.stdout.startswith("| workload | trials | verified |")
    checked = markdown(lab("check", "workload=axpy", "case=small", "output=markdown"))
    assert [row[:3] for row in checked] == [["axpy", "host", "ok"]]
    same = ("compare", "--with", "workload=axpy case=small measure=quick", "", "seed=1")
    compared = lab(*same, "output=markdown")
    assert compared.stdout.startswith("| first | second | speedup | verdict |\n")
    assert len(markdown(compared)) == 1


def test_a_format_that_does_not_serve_a_command_is_refused_with_those_that_do(
    lab: Kernloom,
) -> None:
    for command in ("run", "compare", "check"):
        done = lab(command, "output=parquet")
        assert done.code == 2
        assert f"'{command}' has no output=parquet" in done.stderr
        assert "Allowed: csv, json, jsonl, junit, markdown, table" in done.stderr
    done = lab("results", "output=junit")
    assert "Allowed: csv, json, jsonl, markdown, parquet, t4, table" in done.stderr
    done = lab("results", "output=t4", "--group", "workload")
    assert "Allowed: output=csv, json, jsonl, markdown, table." in done.stderr


def test_without_its_package_neither_is_known(project: Project) -> None:
    project.write("configs/fleet/blocks.yaml", files(PAGE)["configs/fleet/blocks.yaml"])
    assert "unknown fleet 'blocks'" in project.run("run", "fleet=blocks").stderr
    done = project.json("run", "output=markdown")
    assert "'run' has no output=markdown" in done.stderr
    assert json.loads(done.stdout)["error"]["message"] == "'run' has no output=markdown"
