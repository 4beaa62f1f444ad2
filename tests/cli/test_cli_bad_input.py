"""What is typed or written wrongly is named in one message; nothing is started or left behind."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from command_line import FUNCTION, KERNEL, WORKLOAD, Done, Project, listing, working_in

USAGE = [
    # words, and what the message must name: the key or value, and what is allowed or meant
    (["runn"], ["'runn'", "Did you mean 'run'?", "Allowed: build,"]),
    (["run", "trace=t.json"], ["trace", "no virtual time to trace"]),
    (["run", "--jnit", "x"], ["'--jnit'", "Allowed: --cfg, --config-dir, --help,", "--objective"]),
    (["check", "--jnit", "x"], ["'--jnit'", "Did you mean '--junit'?"]),
    (["run", "workload=mathmul"], ["workload 'mathmul'", "Did you mean 'matmul'?", "axpy"]),
    (["run", "target=hots"], ["target 'hots'", "Did you mean 'host'?"]),
    (["run", "wrkload=axpy"], ["'wrkload'", "Did you mean 'workload'?"]),
    (["run", "workload.size.M=3"], ["workload", "'size'", "Did you mean 'sizes'?"]),
    (
        ["run", "pipeline.stages.blocking.use=tyle"],
        ["pipeline.stages.blocking.use", "'tyle'", "Did you mean 'tile'?", "Allowed: catch,"],
    ),
    (["run", "output=jsn"], ["output=jsn", "Did you mean 'json'?", "table"]),
    (["run", "output=xml"], ["has no output=xml", "json"]),
    (["run", "fleet=slum"], ["unknown fleet 'slum'", "Did you mean 'slurm'?"]),
    (["run", "fleet.kind=slum"], ["fleet.kind", "unknown fleet 'slum'", "Did you mean 'slurm'?"]),
    (["run", "fleet.kind=[slurm]"], ["fleet.kind: expected text", "['slurm']"]),
    (["run", "fleet.chunk=3"], ["fleet: unknown key 'chunk'", "overlap", "(of fleet local)"]),
    (["build", "+fleet.chunk=3"], ["fleet: unknown key 'chunk'", "overlap"]),
    (["plan", "fleet=slurm", "fleet.chnk=3"], ["unknown key 'chnk'", "Did you mean 'chunk'?"]),
    (["plan", "fleet=slurm", "fleet.chunk=0"], ["fleet.chunk: 0 is too small", "1 or more"]),
    (["plan", "fleet=slurm", "fleet.build=frist"], ["fleet.build", "Did you mean 'first'?"]),
    (["plan", "output=csv"], ["output=csv", "Allowed: json, jsonl, table"]),
    (["run", "select.providers=[modell]"], ["provider", "'modell'", "Did you mean 'model'?"]),
    (["run", "workload.dtype=float23"], ["workload.dtype", "'float23'", "Did you mean 'float"]),
    (["run", "case=smal"], ["case", "'smal'", "Did you mean 'small'?", "default"]),
    (["run", "toolchain=gc"], ["toolchain 'gc'", "Did you mean 'gcc'?", "clang"]),
    (["run", "arch=x86_64_v9"], ["arch 'x86_64_v9'", "Did you mean 'x86_64_v", "native"]),
    (["run", "target.variant=foo"], ["target.variant", "'foo'", "Allowed: asan, release"]),
    (["run", "workload.sizes.M=-1"], ["workload.sizes.M", "-1", "Allowed: 1 to"]),
    (["run", "workload.sizes.M=0"], ["workload.sizes.M", "0 is not", "Allowed: 1 to"]),
    (["run", "workload.sizes.M=1.5"], ["workload.sizes.M", "1.5", "whole number"]),
    (["run", "workload.sizes.M=99999999999999999999"], ["workload.sizes.M", "Allowed: 1 to"]),
    (
        ["run", "workload.sizes.M=1000000000"],
        ["workload.sizes", "TiB", "of memory are free", "The largest is"],
    ),
    (["run", "recipe=no/such/folder/r.yaml"], ["recipe", "no/such/folder"]),
    (["check", "--junit", "no/such/folder/x.xml"], ["--junit", "no/such/folder"]),
    (["results", "statsu=ok"], ["'statsu'", "Did you mean 'status'?"]),
    (["recipe", "run", "missing.yaml"], ["missing.yaml", "No such file"]),
]
MORE_USAGE = [
    (
        ["plan", "workload=axpy", "+workload.kernels.axpy.arguments.alpha.dtype=foo"],
        ["workload.kernels.axpy.arguments.alpha.dtype", "unknown dtype 'foo'", "float32"],
    ),
    (["check", "--junit"], ["--junit needs a value"]),
    (["run", "-m", "workload=good,goood"], ["workload 'goood'", "Did you mean 'good'?"]),
    (["run", "+extra.key=1"], ["'extra'", "Allowed: arch,"]),
    (["run", "measure.sample=3"], ["measure", "'sample'", "Did you mean 'samples'?"]),
    (["targets", "output=xml"], ["output=xml", "Allowed: json"]),
    (["run", "workload=matmul,axpy"], ["several values", "-m"]),
    (["run", "workload"], ["'workload'", "key=value"]),
    (["run", "rerun=some"], ["rerun", "'some'", "Allowed: all, failed, none"]),
    (["run", "timeout=0"], ["timeout", "too small", "0.001"]),
    (["run", "timeout=soon"], ["timeout", "a number", "'soon'"]),
    (["run", "measure.samples=0"], ["measure.samples", "Allowed: 1 or more"]),
    (["run", "select.fixed.tile.mrr=6"], ["select.fixed.tile", "'mrr'", "Did you mean 'mr'?"]),
    (["run", "select.fixed.tile.mr=7"], ["tile.mr=7", "Allowed: 6,"]),
    (["run", "select.fixed.tyle.mr=6"], ["'tyle'", "Did you mean 'tile'?"]),
    (["results", "--limit", "many"], ["--limit many"]),
    (["recipe", "runn", "x"], ["'runn'", "Did you mean 'run'?"]),
    (["plan", "show=choise"], ["'choise'", "Did you mean 'choice'?"]),
    (["targets", "extra"], ["'extra'"]),
]
CONFIG = [
    ("shape", ["workload.golden.y", "'x @ x'", "shape []", "'y'"]),
    ("unknown", ["workload.golden.y", "'2 * z'", "'z'", "x"]),
    ("undefined", ["undefined.c.j2:2", "'nothing' is undefined"]),
    ("syntax", ["syntax.c.j2:3", "Expected an expression"]),
    ("leaves", ["sources.host.template", "'../../x.c.j2' leaves"]),
    ("leaves_c", ["sources.host.file", "'../../x.c' leaves"]),
    ("absent", ["'absent.c.j2' does not exist", "Looked in"]),
    ("arity", ["arity()", "takes 2 arguments", "declares 3 (n, x, y)"]),
    ("yaml", ["yaml.yaml:2"]),
]


@pytest.fixture(scope="module")
def flawed(tmp_path_factory: pytest.TempPathFactory, shared_project: Project) -> Project:
    """A project with a workload for each way to write one wrongly."""
    project = Project(tmp_path_factory.mktemp("flawed"))
    project.take_runner_from(shared_project)
    project.add("good")
    project.run("run", "workload=good")
    for name, golden in (("shape", "x @ x"), ("unknown", "2 * z")):
        workload = WORKLOAD.format(name=name, n=10).replace("2 * x", golden)
        project.add(name, workload=workload)
    templates = {"undefined": "\n{{ nothing }}\n", "syntax": "\n\n{% if %}\n", "absent": None}
    for name, text in templates.items():
        project.add(name, kernel=_with_source(name, f"template: {name}.c.j2"))
        if text is not None:
            project.write(f"templates/{name}.c.j2", text)
    project.add("leaves", kernel=_with_source("leaves", "template: ../../x.c.j2"))
    project.add("leaves_c", kernel=_with_source("leaves_c", "file: ../../x.c, function: f"))
    project.add("arity")
    text = FUNCTION.format(name="arity", body="y[0] = x[0];", head="").replace("long n, ", "")
    project.write("templates/arity.c", text)
    project.write("configs/workload/yaml.yaml", "name: yaml\n  sizes: [\n")
    return project


def _with_source(name: str, source: str) -> str:
    return KERNEL.format(name=name).replace(f"file: {name}.c, function: {name}", source)


def assert_refused(done: Done, says: Sequence[str], code: int = 2) -> None:
    assert done.code == code, done
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("kernloom: error: ")
    assert done.stderr.count("kernloom: error") == 1
    assert len(done.stderr.splitlines()) <= 4
    for words in says:
        assert words in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [*USAGE, *(pytest.param(*more, marks=pytest.mark.slow) for more in MORE_USAGE)],
    ids=lambda value: " ".join(value)[:40],
)
def test_what_is_typed_wrongly_is_named(flawed: Project, words: list[str], says: list[str]) -> None:
    files = sorted(flawed.folder.iterdir())
    done = flawed.run(*words)
    assert_refused(done, says)
    assert done.stdout == ""
    assert sorted(flawed.folder.iterdir()) == files
    assert list(flawed.home.iterdir()) == []


@pytest.mark.parametrize(("name", "says"), CONFIG, ids=[name for name, _ in CONFIG])
def test_what_is_written_wrongly_is_named(flawed: Project, name: str, says: list[str]) -> None:
    assert_refused(flawed.run("run", f"workload={name}"), says)


def test_a_missing_compiler_is_named_with_the_command_that_installs_it(flawed: Project) -> None:
    done = flawed.run("run", "toolchain.tools.cc=nonexistent-cc")
    assert_refused(done, ["toolchain.tools.cc=nonexistent-cc", "nstall"], code=3)


def test_a_missing_compiler_is_needed_even_where_nothing_is_built(flawed: Project) -> None:
    words = ("run", "target=a5", "toolchain.tools.cc=nonexistent-cc", "build.mode=never")
    named = ["nonexistent-cc", "build.mode=never", "key that includes the compiler's identity"]
    assert_refused(flawed.run(*words), [*named, "It must be the one that built"], code=3)


def test_a_compiler_given_by_a_wrong_path_is_named_with_its_key(flawed: Project) -> None:
    done = flawed.run("run", "toolchain.tools.cc=/no/such")
    assert_refused(done, ["'/no/such'", "Have toolchain.tools.cc name a program"], code=3)
    assert "nstall" not in done.stderr


def test_a_compiler_that_is_none_is_named(flawed: Project) -> None:
    cc = flawed.write("not-a-compiler", "#!/bin/sh\nexit 9\n")
    cc.chmod(0o755)
    try:
        done = flawed.run("run", f"toolchain.tools.cc={cc}")
    finally:
        cc.unlink()
    assert_refused(done, ["toolchain 'gcc'", "does not work"], code=3)


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (["runn"], "UsageError", 2),
        (["run", "workload=mathmul"], "ConfigError", 2),
        (["run", "workload.sizes.M=-1"], "ConfigError", 2),
        (["run", "workload=syntax"], "TemplateError", 2),
        (["run", "recipe=no/such/folder/r.yaml"], "UsageError", 2),
        (["run", "toolchain.tools.cc=nonexistent-cc"], "UnavailableError", 3),
        (["results", "statsu=ok"], "UsageError", 2),
    ],
)
def test_an_error_is_a_document_when_json_was_asked_for(
    flawed: Project, words: list[str], kind: str, code: int
) -> None:
    done = flawed.json(*words)
    assert_refused(done, [], code)
    error = done.document["error"]
    assert (error["kind"], error["exit_code"]) == (kind, code)
    assert error["message"] in done.stderr


def test_a_point_that_cannot_be_is_refused_and_the_others_go_on(flawed: Project) -> None:
    done = flawed.json("run", "-m", "workload=good", "workload.sizes.n=0,10,-3")
    assert done.code == 1
    assert [trial["status"] for trial in done.trials] == ["refused", "ok", "refused"]
    assert "workload.sizes.n: 0" in done.trials[0]["message"]


def test_a_sweep_in_which_every_point_is_wrong_alike_is_one_error(flawed: Project) -> None:
    done = flawed.run("run", "-m", "workload=shape", "seed=1,2")
    assert_refused(done, ["workload.golden.y"])


def test_bad_input_builds_and_stores_nothing(fresh_project: Project) -> None:
    before = listing(fresh_project.home)
    fresh_project.run("run", "workload.sizes.M=-1")
    fresh_project.run("run", "target.variant=foo")
    assert not (fresh_project.folder / ".kernloom" / "store.db").exists()
    assert not (fresh_project.build / "kernels").exists()
    assert listing(fresh_project.home) == before
    assert working_in(fresh_project.folder) == []


def test_an_empty_store_has_no_results(fresh_project: Project) -> None:
    done = fresh_project.json("results")
    assert (done.code, done.document) == (0, {"trials": []})
