"""`plan`, `build` and `explain`: what is missing and why, before and after it is built."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from command_line import DOUBLE, Project
from kernloom.base.places import share_folder

TEMPLATE = "templates/kernels/axpy/host.c.j2"
AXPY = ("workload=axpy", "case=small")
UNUSED = "(void)n; (void)x; (void)y;"
ENDINGS = {
    "ok": DOUBLE,
    "wrong": "y[0] = x[n - 1];",
    "crashed": f"{UNUSED} *(volatile int *)8 = 1;",
    "killed": f"{UNUSED} kill(0, SIGKILL);",
    "timeout": f"{UNUSED} for (volatile int go = 1; go;) ;",
    "out_of_bounds": "for (long i = 0; i <= n; i++) y[i] = x[i < n ? i : 0];",
    "out_of_memory": "volatile char *room = malloc(1000000000000000); room[n] = x[0] > y[0];",
    "build_failed": "#error never",
}
"""Status -> a kernel that ends so."""


@pytest.fixture
def shadowing(project: Project) -> Project:
    """A project with our axpy template under its own roof, built."""
    project.write(TEMPLATE, (share_folder() / TEMPLATE).read_text(encoding="utf-8"))
    assert project.run("run", *AXPY).code == 0
    return project


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, shared_project: Project) -> Project:
    """A project with a built axpy, for those who only look."""
    project = Project(tmp_path_factory.mktemp("built"))
    project.take_runner_from(shared_project)
    assert project.run("run", *AXPY).code == 0
    return project


def change_a_line(project: Project) -> int:
    """Change one line that ends up in the rendered source; its number."""
    path = project.folder / TEMPLATE
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    number = next(i for i, line in enumerate(lines) if "long i = begin;" in line)
    lines[number] = lines[number].replace("long i = begin;", "long i = begin + 0;")
    path.write_text("".join(lines), encoding="utf-8")
    return number + 1


def states(project: Project, *words: str) -> dict[str, dict[str, Any]]:
    document = project.json("plan", *words).document
    return {artifact["name"]: artifact for artifact in document["artifacts"]}


def test_a_plan_lists_artifacts_with_their_state_and_trials(fresh_project: Project) -> None:
    done = fresh_project.json("plan", *AXPY)
    assert done.code == 0
    artifacts = {artifact["name"]: artifact for artifact in done.document["artifacts"]}
    assert artifacts.keys() == {"axpy.add", "runner"}
    for artifact in artifacts.values():
        assert artifact["state"] == "missing"
        assert artifact["key"]
        assert artifact["reason"]
    (trial,) = done.document["trials"]
    assert (trial["workload"], trial["case"], trial["stored"]) == ("axpy", "small", False)


def test_planning_does_nothing(fresh_project: Project) -> None:
    assert fresh_project.run("plan", *AXPY).code == 0
    assert not (fresh_project.build / "kernels").exists()
    assert not (fresh_project.folder / ".kernloom" / "store.db").exists()


def test_a_plan_names_the_keys_that_are_then_built(project: Project) -> None:
    planned = {name: item["key"] for name, item in states(project, *AXPY).items()}
    trial = project.json("run", *AXPY).trial
    assert planned == {item["name"]: item["key"] for item in trial["artifacts"]}
    after = project.json("plan", *AXPY).document
    assert [artifact["state"] for artifact in after["artifacts"]] == ["cached", "cached"]
    assert [item["stored"] for item in after["trials"]] == [True]


def test_a_plan_calls_stored_just_what_a_run_does_not_carry_out(project: Project) -> None:
    for name, body in ENDINGS.items():
        project.add(name, body, head="#include <signal.h>\n#include <stdlib.h>")
    sweep = ("-m", f"workload={','.join(ENDINGS)}", "timeout=1")
    project.run("run", *sweep)
    for rerun, spared in (("none", 5), ("failed", 1), ("all", 0)):
        planned = project.json("plan", *sweep, f"rerun={rerun}").document
        done = project.json("run", *sweep, f"rerun={rerun}")
        assert [t["stored"] for t in planned["trials"]] == [t["reused"] for t in done.trials]
        summary = planned["summary"]
        assert (summary["stored"], summary["to_run"]) == (spared, len(ENDINGS) - spared)


def test_a_trial_of_this_machine_is_not_planned_as_one_of_a_cluster(built: Project) -> None:
    assert built.json("plan", *AXPY).document["summary"]["to_run"] == 0
    assert built.json("plan", *AXPY, "fleet=slurm").document["summary"]["to_run"] == 1


@pytest.mark.parametrize("command", ["plan", "explain"])
def test_what_did_not_compile_last_time_is_said_to_have_not(project: Project, command: str) -> None:
    project.add("half", head="#include <stdio.h>")
    project.run("build", "workload=half")
    project.add("half", "y[0] = nothing; (void)x; (void)n;", head="#include <stdio.h>")
    project.run("build", "workload=half")
    artifacts = project.json(command, "workload=half").document["artifacts"]
    (kernel,) = [item for item in artifacts if item["name"] == "half.call"]
    assert (kernel["state"], kernel["kind"]) == ("missing", "failed")
    assert kernel["reason"] == "it did not compile last time"


def test_a_changed_template_line_is_named_with_file_and_line(shadowing: Project) -> None:
    line = change_a_line(shadowing)
    planned = states(shadowing, *AXPY)
    assert planned["runner"]["state"] == "cached"
    assert planned["axpy.add"]["state"] == "missing"
    assert f"kernels/axpy/host.c.j2:{line}" in planned["axpy.add"]["reason"]
    assert "long i = begin + 0;" in planned["axpy.add"]["reason"]


def test_a_changed_template_line_rebuilds_just_what_it_changes(shadowing: Project) -> None:
    line = change_a_line(shadowing)
    done = shadowing.json("run", *AXPY)
    assert done.code == 0
    assert (done.document["build"]["built"], done.document["build"]["cached"]) == (1, 1)
    explained = shadowing.json("explain", *AXPY).document["artifacts"]
    (kernel,) = [item for item in explained if item["name"] == "axpy.add"]
    assert kernel["state"] == "cached"
    assert f"kernels/axpy/host.c.j2:{line}" in kernel["reason"]
    assert f"host.c.j2:{line}" in shadowing.run("explain", *AXPY).stdout


def test_explain_prints_one_line_for_each_reason(project: Project) -> None:
    body = "long i = 0; for (;;) {{ if (i == n) break; y[i] = {} * x[i]; i++; }}"
    for factor in ("2", "(1 + 1)"):
        project.add("loop", body.format(factor), head='#include "my.h"')
        project.write("templates/my.h", f"#define FACTOR {factor}\n")
        lines = project.run("explain", "workload=loop").stdout.splitlines()
        assert project.run("build", "workload=loop").code == 0
    assert lines[0].startswith("loop.call") and lines[3].startswith("runner")
    old, new = body.format("2"), body.format("(1 + 1)")
    assert lines[1] == f"    loop.c:4: '{old}' -> '{new}'"
    assert lines[2] == "    my.h:1: '#define FACTOR 2' -> '#define FACTOR (1 + 1)'"
    after = project.run("explain", "workload=loop").stdout.splitlines()
    assert after[1] == "    nothing that goes into it has changed"
    assert after[2].startswith("    built 20") and after[2].endswith(" because:")
    assert [line.strip() for line in after[3:5]] == [line.strip() for line in lines[1:3]]


def test_touching_files_rebuilds_nothing(shadowing: Project) -> None:
    for path in (shadowing.folder / TEMPLATE, shadowing.folder / "kernloom.yaml"):
        os.utime(path, ns=(10**18, 10**18))
    done = shadowing.json("run", *AXPY)
    assert done.document["build"]["built"] == 0
    assert all(artifact["cached"] for artifact in done.trial["artifacts"])
    assert len(shadowing.json("results", "--history").trials) == 1


@pytest.mark.slow
def test_a_change_that_renders_to_the_same_source_rebuilds_nothing(shadowing: Project) -> None:
    path = shadowing.folder / TEMPLATE
    path.write_text("{# only a comment #}\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    assert {item["state"] for item in states(shadowing, *AXPY).values()} == {"cached"}


def test_a_copied_project_has_the_same_keys_and_builds_nothing(
    shadowing: Project, tmp_path: Path
) -> None:
    here = states(shadowing, *AXPY)
    elsewhere = Project(tmp_path / "elsewhere at another path")
    shutil.rmtree(elsewhere.folder)
    shutil.copytree(shadowing.folder, elsewhere.folder, symlinks=True)
    there = states(elsewhere, *AXPY)
    assert {name: item["key"] for name, item in there.items()} == {
        name: item["key"] for name, item in here.items()
    }
    assert {item["state"] for item in there.values()} == {"cached"}
    assert elsewhere.json("run", *AXPY).document["build"]["built"] == 0


@pytest.mark.parametrize(
    ("words", "kind", "says"),
    [
        (("toolchain.extra_flags=[-O1]",), "flag", "-O1"),
        (("select.fixed.unroll.vectors=2",), "parameter", "vectors"),
        (("workload.dtype=float64",), "parameter", "dtype: float32 -> float64"),
        (("target.variant=asan",), "flag", "-fsanitize=address"),
        (("toolchain=clang",), "compiler", "gcc"),
    ],
)
def test_a_reason_says_what_kind_of_thing_changed(
    built: Project, words: tuple[str, ...], kind: str, says: str
) -> None:
    kernel = states(built, *AXPY, *words)["axpy.add"]
    assert (kernel["state"], kernel["kind"]) == ("missing", kind)
    assert says in kernel["reason"]


@pytest.mark.slow
def test_a_damaged_artifact_is_noticed_named_and_built_again(shadowing: Project) -> None:
    key = states(shadowing, *AXPY)["axpy.add"]["key"]
    library = shadowing.build / "kernels" / key / "kernel.so"
    library.chmod(0o755)
    library.write_bytes(library.read_bytes()[:-8])
    kernel = states(shadowing, *AXPY)["axpy.add"]
    assert kernel["state"] == "missing"
    assert "damaged" in kernel["reason"]
    done = shadowing.json("run", *AXPY, "rerun=all")
    assert (done.trial["status"], done.document["build"]["built"]) == ("ok", 1)


def test_build_builds_without_running(project: Project) -> None:
    project.add("good")
    done = project.json("build", "workload=good")
    assert done.code == 0
    built = {item["name"]: item for item in done.document["artifacts"]}
    assert built["good.call"]["state"] == "built"
    assert Path(built["good.call"]["path"]).is_file()
    assert not (project.folder / ".kernloom" / "store.db").exists()


@pytest.mark.slow
def test_build_all_tells_runners_apart(project: Project) -> None:
    # Accelerators are built by tests of the build matrix.
    for name in ("a2a3", "a5", "mppa"):
        text = (share_folder() / "configs/target/host.yaml").read_text()
        project.write(f"configs/target/{name}.yaml", text.replace("name: host", f"name: {name}"))
    header, *rows, _ = project.run("build", "--all").stdout.splitlines()
    assert header.split()[:5] == ["artifact", "toolchain", "arch", "variant", "runtime"]
    named = [tuple(row.split()[:5]) for row in rows]
    assert len(set(named)) == len(named) >= 2


@pytest.mark.slow
def test_build_of_what_does_not_compile_fails_with_the_compilers_words(project: Project) -> None:
    project.add("broken", "y[0] = nothing; (void)x; (void)n;")
    done = project.json("build", "workload=broken")
    assert done.code == 1
    (kernel,) = [i for i in done.document["artifacts"] if i["name"] == "broken.call"]
    assert kernel["state"] == "failed"
    assert "nothing" in kernel["message"]
    assert Path(kernel["source"]).is_file()


def test_show_prints_the_rendered_source_and_the_parameters(shared_project: Project) -> None:
    source = shared_project.run("plan", "workload=axpy", "show=source")
    assert source.code == 0
    assert "kl_entry" in source.stdout
    params = shared_project.json("plan", "workload=axpy", "show=choice.params").document
    assert "lanes" in params["vectorize"]["add"]


def test_one_build_serves_every_size(project: Project) -> None:
    done = project.json("run", "-m", "workload=axpy", "workload.sizes.N=100,1000,5000")
    assert done.code == 0, done
    assert done.document["build"]["built"] == 1


def test_a_plan_says_that_it_leaves_screening_out(shared_project: Project) -> None:
    done = shared_project.run("plan", "-m", "workload=axpy", "seed=1,2", "screen.keep=1")
    assert done.code == 0, done
    assert "without screening" in done.stderr
