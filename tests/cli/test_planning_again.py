"""One process plans again and again: what changed in between counts, and nothing piles up."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from command_line import Project
from kernloom.base import digest
from kernloom.base.places import find_places
from kernloom.config.groups import Groups
from kernloom.plan.planned import Planned
from kernloom.run import planning
from kernloom.run.assembly import Assembly
from parsed import plans_of


def plan(assembly: Assembly, *words: str) -> Planned:
    (planned,) = plans_of(assembly, list(words), multirun=False)
    return planned


def key(planned: Planned) -> str:
    return planned.steps[0].artifact.key


def test_a_changed_config_file_counts(project: Project) -> None:
    project.add("mine")
    assembly = Assembly(find_places(project.folder))
    first = plan(assembly, "workload=mine")
    path = project.folder / "configs/workload/mine.yaml"
    text = path.read_text()
    path.write_text(text.replace("n: 1000", "n: 500"))
    second = plan(assembly, "workload=mine")
    assert first.experiment.workload.sizes["n"] == 1000
    assert second.experiment.workload.sizes["n"] == 500
    assert second.id != first.id and key(second) == key(first)
    path.write_text(text)
    assert plan(assembly, "workload=mine").id == first.id


def test_a_changed_kernel_and_a_changed_source_count(project: Project) -> None:
    project.add("mine")
    assembly = Assembly(find_places(project.folder))
    first = plan(assembly, "workload=mine")
    source = next((project.folder / "templates").rglob("mine*.c"))
    source.write_text(source.read_text() + "/* changed */\n")
    second = plan(assembly, "workload=mine")
    assert key(second) != key(first) and second.id != first.id
    assert second.sources != first.sources


def test_a_template_whose_text_renders_the_same_is_another_source(project: Project) -> None:
    source = find_places(project.folder).share / "templates/kernels/axpy/host.c.j2"
    mine = project.folder / "templates/kernels/axpy/host.c.j2"
    mine.parent.mkdir(parents=True)
    mine.write_text(source.read_text())
    assembly = Assembly(find_places(project.folder))
    first = plan(assembly, "workload=axpy")
    mine.write_text("{# a note -#}\n" + source.read_text())
    second = plan(assembly, "workload=axpy")
    assert key(second) == key(first)
    assert second.sources != first.sources


def test_an_option_that_inherits_follows_the_file_it_inherits_from(project: Project) -> None:
    project.write("configs/arch/mine.yaml", "defaults: [x86_64_v2, _self_]\ncores: 8\n")
    groups = Groups(find_places(project.folder).folders("configs"))
    assert groups.read("arch", "mine")["cores"] == 8
    project.write("configs/arch/mine.yaml", "defaults: [x86_64_v2, _self_]\ncores: 4\n")
    assert groups.read("arch", "mine")["cores"] == 4


def test_another_toolchain_or_arch_is_never_taken_for_the_first(project: Project) -> None:
    assembly = Assembly(find_places(project.folder))
    first = plan(assembly, "workload=axpy")
    for words in (
        ("toolchain.extra_flags=[-O1]",),
        ("arch=x86_64_v2",),
        ("target.variant=asan",),
        ("toolchain=clang",),
    ):
        other = plan(assembly, "workload=axpy", *words)
        assert other.id != first.id and key(other) != key(first)
        assert plan(assembly, "workload=axpy").id == first.id


def test_two_configs_of_the_same_digest_are_the_same_wherever_they_come_from(
    project: Project,
) -> None:
    assembly = Assembly(find_places(project.folder))
    first = plan(assembly, "workload=axpy", "workload.sizes.N=1024")
    again = plan(Assembly(find_places(project.folder)), "workload=axpy", "workload.sizes.N=1024")
    assert first.experiment.workload.digest == again.experiment.workload.digest
    assert first.point.data == again.point.data and first.id == again.id


def test_planning_more_and_more_points_keeps_as_little_as_before(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest, "LIMIT", 60)
    monkeypatch.setattr(planning, "MAX_PLANS_IN_MEMORY", 20)
    assembly = Assembly(find_places(project.folder))

    def objects_after(start: int) -> int:
        for more in range(3):
            low = start + 100 * more
            words = ["workload=axpy", f"workload.sizes.N=range({low},{low + 100})"]
            plans_of(assembly, words, multirun=True)
        gc.collect()
        return len(gc.get_objects())

    objects_after(1_000)
    before = objects_after(2_000)
    assert objects_after(3_000) < before + 500
    assert len(assembly.results) <= 120 and len(assembly.here) <= 120


def test_a_file_of_another_project_is_never_taken(tmp_path: Path, project: Project) -> None:
    project.add("mine")
    other = Project(tmp_path / "other")
    other.add("mine", "for (long i = 0; i < n; i++) y[i] = 3 * x[i];")
    first = plan(Assembly(find_places(project.folder)), "workload=mine")
    second = plan(Assembly(find_places(other.folder)), "workload=mine")
    assert key(first) != key(second)
