"""`check` plans workload by workload, but asks compilers and emulators once."""

from __future__ import annotations

import pytest

from command_line import Project
from kernloom.base.places import find_places
from kernloom.cli.commands import check
from kernloom.run.assembly import Assembly


@pytest.mark.parametrize("first", ["axpy", "broken"])
def test_compilers_are_asked_once_for_all_workloads(
    project: Project, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    project.add("good")
    project.write("configs/workload/broken.yaml", "name: broken\nsteps: 7\n")
    asked: list[str] = []
    refresh = Assembly.refresh

    def counted(assembly: Assembly) -> None:
        asked.append("refresh")
        refresh(assembly)

    monkeypatch.setattr(Assembly, "refresh", counted)
    assembly = Assembly(find_places(project.folder))
    words = [f"workload={first},good,transpose", "case=default"]
    plans, errors = check.plan_workloads(assembly, assembly.composer.parse(words, multirun=True))
    assert len(plans) + len(errors) == 3
    assert len(asked) == 1
