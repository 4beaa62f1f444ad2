"""A recipe is verified in another folder: the same config, the same bytes, the same results."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_line import DOUBLE, Project
from kernloom.base.places import share_folder
from kernloom.config.reader import load_yaml
from kernloom.recipe.flow import block
from kernloom.recipe.lock import DIGEST, digest_of

AXPY = """\
# By hand.
recipe: 2
about: axpy is verified
run: workload=axpy case=small measure=quick
claims:
- median_ns < 1e9
"""


def levels(project: Project, recipe: Path, *flags: str) -> dict[str, tuple[str, str]]:
    """Level -> status and reason."""
    done = project.json("recipe", "verify", str(recipe), *flags)
    assert "Traceback" not in done.stderr
    found = done.document["levels"]
    return {one["name"]: (one["status"], one["reason"]) for one in found}


def statuses(project: Project, recipe: Path, *flags: str) -> list[str]:
    return [status for status, _ in levels(project, recipe, *flags).values()]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe that was locked in another project."""
    project = Project(tmp_path_factory.mktemp("locked"))
    project.share_artifacts()
    path = project.write("axpy.yaml", AXPY)
    done = project.run("recipe", "lock", str(path))
    assert done.code == 0, done.stderr
    assert path.read_text(encoding="utf-8").startswith(AXPY)
    return path


def test_a_recipe_of_another_folder_has_every_level(sharing_project: Project, locked: Path) -> None:
    done = sharing_project.run("recipe", "verify", str(locked), "--require", "L3", "--rounds", "2")
    assert done.code == 0, done.stderr
    assert "L2 reached: same sources and toolchain, same bytes" in done.stdout
    assert "rebuilt 2 times in another folder" in done.stdout
    assert "holds: median_ns < 1e9" in done.stdout
    assert "level reached: L3" in done.stdout


def test_a_changed_template_is_named(sharing_project: Project, locked: Path) -> None:
    path = "templates/kernels/axpy/host.c.j2"
    text = (share_folder() / path).read_text(encoding="utf-8")
    sharing_project.write(path, text + " ")
    found = levels(sharing_project, locked)
    assert found["L1"][0] == "reached"
    assert found["L2"] == ("failed", f"{path} was changed (source of axpy.add)")
    assert found["L3"][0] == "reached"
    assert sharing_project.run("recipe", "verify", str(locked)).code == 1
    assert sharing_project.run("recipe", "verify", str(locked), "--require", "L1").code == 0


def test_a_changed_config_is_named(sharing_project: Project, locked: Path) -> None:
    text = "defaults: [/measure/standard@_here_, _self_]\nname: quick\nsamples: 9\n"
    quick = (share_folder() / "configs/measure/quick.yaml").read_text(encoding="utf-8")
    sharing_project.write("configs/measure/quick.yaml", quick.replace("samples: 7", "samples: 9"))
    status, reason = levels(sharing_project, locked)["L1"]
    assert (status, text and reason) == ("failed", "measure.samples: 7 -> 9")


def resealed(locked: Path, folder: Path, change: Callable[[Any], None]) -> Path:
    """The recipe with a changed lock under a right digest."""
    document = load_yaml(locked.read_text(encoding="utf-8"), where=str(locked))
    lock = document["lock"]
    change(lock)
    lock[DIGEST] = digest_of(lock)
    head = locked.read_text(encoding="utf-8").partition("# Below")[0]
    path = folder / "changed.yaml"
    path.write_text("\n".join([head, "lock:", *block(lock, depth=2, indent=2)]), encoding="utf-8")
    return path


def another_compiler(lock: Any) -> None:
    for number, toolchain in enumerate(lock["toolchains"]):
        toolchain |= {"version": "99.1", "digest": f"{number:032x}"}
    for number, artifact in enumerate(lock["artifacts"]):
        artifact["key"] = f"{number:032x}"


def test_with_another_compiler_bytes_are_not_claimed(
    sharing_project: Project, locked: Path, tmp_path: Path
) -> None:
    path = resealed(locked, tmp_path, another_compiler)
    found = levels(sharing_project, path)
    status, reason = found["L2"]
    assert status == "not claimable"
    assert reason.startswith("another toolchain: gcc 99.1 then, gcc ")
    assert found["L3"][0] == "reached"
    assert sharing_project.run("recipe", "verify", str(path)).code == 0
    assert sharing_project.run("recipe", "verify", str(path), "--require", "L2").code == 1


def test_other_bytes_from_the_same_inputs_are_found(
    sharing_project: Project, locked: Path, tmp_path: Path
) -> None:
    def other_bytes(lock: Any) -> None:
        lock["artifacts"][0]["output"] = "0" * 32

    path = resealed(locked, tmp_path, other_bytes)
    status, reason = levels(sharing_project, path)["L2"]
    assert (status, "other bytes from the same inputs" in reason) == ("failed", True)


def test_an_edited_lock_is_refused_and_an_edited_request_is_named(
    sharing_project: Project, locked: Path, tmp_path: Path
) -> None:
    text = locked.read_text(encoding="utf-8")
    edited = tmp_path / "edited.yaml"
    edited.write_text(text.replace("status: ok", "status: okay"), encoding="utf-8")
    for action in ("run", "verify", "show"):
        done = sharing_project.run("recipe", action, str(edited))
        assert done.code == 2
        assert "the lock was edited since it was written" in done.stderr
    edited.write_text(text.replace("< 1e9", "< 2e9"), encoding="utf-8")
    status, reason = levels(sharing_project, edited)["L1"]
    assert (status, reason) == ("failed", "the request was changed since it was locked: claims")
    assert sharing_project.run("recipe", "lock", str(edited)).code == 0
    assert statuses(sharing_project, edited) == ["reached"] * 3


def test_claims_are_said_in_a_line_each(sharing_project: Project) -> None:
    claims = "- median_ns < 1e-3\n- instructions == 5\n- vs numpy >= 1e-6\n"
    text = AXPY.replace("claims:\n", "peers: numpy\nclaims:\n") + claims
    path = sharing_project.write("claims.yaml", text)
    done = sharing_project.run("recipe", "verify", str(path))
    assert done.code == 1
    said = [line.partition("   (")[0] for line in done.stdout.splitlines()]
    assert "holds: median_ns < 1e9" in said
    assert "FAILS: median_ns < 1e-3" in said
    assert "cannot be decided here: instructions == 5" in said
    assert "holds: vs numpy >= 1e-6" in said


def test_a_lock_can_be_beside_its_request(sharing_project: Project) -> None:
    path = sharing_project.write("two.yaml", AXPY)
    assert sharing_project.run("recipe", "lock", str(path), "--beside").code == 0
    assert path.read_text(encoding="utf-8") == AXPY
    assert (sharing_project.folder / "two.lock.yaml").is_file()
    assert statuses(sharing_project, path) == ["reached"] * 3


def test_a_first_look_claims_no_level(sharing_project: Project) -> None:
    text = AXPY.replace("case=small", "case=default").replace(
        "claims:", "proxy: case=small\nclaims:"
    )
    path = sharing_project.write("look.yaml", text + "- median_ns < 1e9 on case=default\n")
    done = sharing_project.run("recipe", "verify", str(path), "--proxy")
    assert done.code == 0, done.stderr
    assert "the whole recipe: about" in done.stderr
    assert "first look: 1 of 1 verified; no level is claimed" in done.stdout
    assert "(the first look has no such trial)" in done.stdout


def test_a_run_a_sweep_and_stored_trials_are_saved(sharing_project: Project) -> None:
    words = ("workload=axpy", "case=small", "measure=quick")
    one, several = (sharing_project.folder / f"{name}.yaml" for name in ("one", "several"))
    (trial,) = sharing_project.json("run", *words, f"recipe={one}").trials
    sharing_project.json(
        "run", "-m", *words, "seed=1,2", "sweep.where=seed > 0", f"recipe={several}"
    )
    stored, both = (sharing_project.folder / f"{name}.yaml" for name in ("stored", "both"))
    assert sharing_project.run("recipe", "save", trial["id"], str(stored)).code == 0
    assert sharing_project.run("recipe", "save", "workload=axpy", str(both)).code == 0
    for path, points in ((one, 1), (several, 2), (stored, 1), (both, 3)):
        assert statuses(sharing_project, path) == ["reached"] * 3, path
        assert len(load_yaml(path.read_text(), where="")["lock"]["points"]) == points
    assert "run: workload=axpy case=small measure=quick seed=1,2" in several.read_text()


def test_claims_that_a_person_wrote_are_not_overwritten(sharing_project: Project) -> None:
    path = sharing_project.write("mine.yaml", AXPY)
    words = ("run", "case=small", "measure=quick", f"recipe={path}")
    other = sharing_project.run(*words, "workload=sum")
    assert other.code == 2
    assert "is a recipe of another experiment, with about, claims" in other.stderr
    assert path.read_text(encoding="utf-8") == AXPY
    same = sharing_project.run("run", "workload=axpy", *words[1:])
    assert same.code == 0, same.stderr
    assert "median_ns < 1e9" in path.read_text(encoding="utf-8")
    assert statuses(sharing_project, path) == ["reached"] * 3


MORE = {
    "fused steps and another compiler": ("workload=mlp", "toolchain=clang"),
    "named points": ("workload=axpy", "sweep.points={a: {seed: 1}, b: {workload.sizes.N: 9}}"),
    "a placement": ("workload=axpy", "target=opencl", "workload.tensors.x.place=host"),
    "a preset": ("experiment=compilers", "workload=axpy"),
    "peers": ("workload=matmul", "measure.peers=[numpy,plain_c]"),
    "both task runtimes": ("workload=mlp", "target=a5", "runtime=hostgraph,ringmap"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", MORE)
def test_what_a_run_can_do_is_verified_from_its_recipe(sharing_project: Project, what: str) -> None:
    path = sharing_project.folder / "more.yaml"
    words = (*MORE[what], "case=small", "measure=quick", f"recipe={path}")
    done = sharing_project.json("run", "-m", *words)
    if done.code == 3:
        pytest.skip(done.stderr)
    assert done.code == 0, done.stderr
    assert statuses(sharing_project, path) == ["reached"] * 3


@pytest.mark.slow
def test_a_kernel_of_ones_own_is_packed_and_verified_elsewhere(
    sharing_project: Project, tmp_path: Path
) -> None:
    sharing_project.add("twice", body=DOUBLE)
    recipe, archive = sharing_project.folder / "own.yaml", sharing_project.folder / "own.tar.gz"
    words = ("workload=twice", "measure=quick", f"recipe={recipe}")
    assert sharing_project.run("run", *words).code == 0
    assert statuses(sharing_project, recipe) == ["reached"] * 3
    assert sharing_project.run("recipe", "pack", str(recipe), str(archive)).code == 0
    other = Project(tmp_path / "other")
    shown = other.run("recipe", "unpack", str(archive), "new/project")
    assert shown.code == 2
    assert "twice.c" in shown.stdout and "--trust" in shown.stderr
    assert other.run("recipe", "unpack", str(archive), "new/project", "--trust").code == 0
    there = Project(other.folder / "new")
    assert statuses(there, there.folder / "recipe.yaml") == ["reached"] * 3


def test_page_appendix_and_differences(sharing_project: Project, locked: Path) -> None:
    shown = sharing_project.run("recipe", "show", str(locked)).stdout
    for word in ("axpy is verified", "median_ns < 1e9", "built by gcc", "governor", "axpy on host"):
        assert word in shown
    appendix = sharing_project.run("recipe", "appendix", str(locked)).stdout
    for word in ("# Artifact appendix: axpy", "**Hardware:**", "**Time and disk:**", "±10%"):
        assert word in appendix
    other = sharing_project.write("other.yaml", AXPY.replace("case=small", "case=small seed=7"))
    shutil.copy(locked, sharing_project.folder / "same.yaml")
    assert "no difference" in sharing_project.run("recipe", "diff", str(locked), "same.yaml").stdout
    assert sharing_project.run("recipe", "lock", str(other)).code == 0
    done = sharing_project.run("recipe", "diff", str(locked), str(other)).stdout
    assert "config:\n  seed: 0 -> 7" in done
    assert "request:\n  run: " in done


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["verify"], "say: kernloom recipe verify FILE"),
        (["verify", "none.yaml"], "No such file"),
        (["verify", "x.yaml", "--require", "L4"], "no such level"),
        (["verify", "x.yaml", "--rounds", "0"], "--rounds 0 is not allowed"),
        (["show", "x.yaml", "--proxy"], "--proxy is a flag of `recipe verify`"),
        (["verfy", "x.yaml"], "Did you mean 'verify'"),
        (["pack", "x.yaml", "x.zip"], "does not end in .tar.gz"),
        (["pack", "x.yaml", "x.tar.gz"], "has no lock"),
        (["unpack", "x.yaml"], "is no archive of a recipe"),
        (["save", "ffffffff", "y.yaml"], "no stored trial with an id that begins"),
        (["lock", "x.yaml", "output=csv"], "has no output=csv"),
    ],
)
def test_mistakes_are_explained(sharing_project: Project, words: list[str], says: str) -> None:
    sharing_project.write("x.yaml", AXPY)
    done = sharing_project.run("recipe", *words)
    assert done.code == 2
    assert says in done.stderr
