"""The scenes that ship with Kernloom: committed for every accelerator, and as committed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import kernloom
from command_line import Project
from kernloom.config.compose import NO_RUNTIME
from kernloom.run.assembly import Assembly
from kernloom.scene.choosing import picks_of
from kernloom.scene.committed import MAX_BYTES, file_of, key_of, read_committed
from kernloom.scene.overrides import check_scene
from kernloom.scene.reading import read_scenes

ACCELERATORS = "a2a3,a5,mppa"
SHIPPED = "batched_gemm,matmul,mlp,paged_attention,reduction_tree,softmax,softmax_pipeline"


def test_every_case_on_an_accelerator_has_committed_results(assembly: Assembly) -> None:
    shipped = [
        s for s in read_scenes(assembly.places) if s.file.is_relative_to(assembly.places.share)
    ]
    assert ",".join(sorted(scene.name for scene in shipped)) == SHIPPED
    for scene in shipped:
        check_scene(scene, assembly)
        path = file_of(scene, assembly.places)
        assert path.stat().st_size <= MAX_BYTES
        wanted = {
            key_of(pick)
            for pick in picks_of(scene, assembly.composer)
            if pick.runtime != NO_RUNTIME
        }
        found = read_committed(path)
        assert found.keys() == wanted
        for one in found.values():
            assert one.virtual_ns
            assert one.timeline.tasks
            assert one.left_out == 0


def test_shipped_scenes_on_a5_are_as_committed(scenery: Project) -> None:
    done = scenery.json("check", "target=a5", "--scene", SHIPPED)
    assert {t["message"] for t in done.trials} == {""}
    assert done.code == 0
    assert len(done.trials) >= 27


def test_undersized_rings_hold_tasks_up_and_drain(assembly: Assembly) -> None:
    (scene,) = [s for s in read_scenes(assembly.places) if s.name == "paged_attention"]
    found = read_committed(file_of(scene, assembly.places))
    for target in ACCELERATORS.split(","):
        small = found["undersized_rings", target, "ringmap"]
        assert float(small.virtual_ns) > float(found["plain", target, "ringmap"].virtual_ns)
        assert len(small.timeline.tasks) == 16


@pytest.mark.slow
def test_shipped_scenes_on_all_accelerators_are_as_committed(scenery: Project) -> None:
    words = (f"target={ACCELERATORS}", "--scene", SHIPPED, "--manual", "include")
    done = scenery.json("check", "-m", *words)
    assert {t["message"] for t in done.trials} == {""}
    assert {t["target"] for t in done.trials} == set(ACCELERATORS.split(","))


def test_the_plugin_imports_nothing_of_the_engine_at_the_top() -> None:
    path = Path(kernloom.__file__).parent / "pytest_plugin.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {str(module).split(".")[1] for module in modules if str(module).startswith("kernloom")}
    assert ours == {"base", "run", "scene"}
    top = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert not [module for module in top if str(module).startswith("kernloom")]
