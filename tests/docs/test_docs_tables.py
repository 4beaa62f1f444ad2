"""Tables in the documentation say what the code says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from kernloom.base.arithmetic import FUNCTIONS
from kernloom.base.errors import ConfigError
from kernloom.build import flags
from kernloom.config.groups import Groups
from kernloom.run.assembly import STAGES

TREE = Path(__file__).resolve().parents[2]
ENGINE = TREE / "engine" / "kernloom"


def rows(page: str, name: str) -> list[list[str]]:
    text = (TREE / "docs" / page).read_text(encoding="utf-8")
    inside = re.search(rf"<!-- {name}:.*?-->\n(.*?)<!-- end of {name} -->", text, re.DOTALL)
    assert inside, f"{page} has no table of {name}"
    return [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in inside[1].strip().splitlines()
    ]


def test_pipelines_lists_every_stage_type() -> None:
    expected = [
        [name, cls.phase, ", ".join(cls.inputs), ", ".join(cls.outputs)]
        for name, cls in sorted(STAGES.items())
    ]
    assert rows("pipelines.md", "stages") == expected


def test_targets_lists_every_target() -> None:
    groups = Groups([TREE / "configs"])
    expected = []
    for name in groups.options("target"):
        target = groups.read("target", name)["target"]
        expected.append([name, target["about"], ", ".join(target["variants"])])
    assert rows("targets.md", "targets") == expected


def test_targets_lists_every_flag_that_is_refused() -> None:
    page = (TREE / "docs/targets.md").read_text(encoding="utf-8")
    inside = re.search(r"<!-- refused flags:.*?-->\n(.*?)<!-- end of", page, re.DOTALL)
    assert inside
    listed = re.findall(r"`([^`]+)`", inside[1])
    assert listed == list(flags._PROGRAMS)
    for flag in listed:
        with pytest.raises(ConfigError, match="is refused"):
            flags.reach({"toolchain.extra_flags": [flag]})


def test_measuring_lists_every_policy() -> None:
    groups = Groups([TREE / "configs"])
    expected = [[n, groups.read("measure", n)["about"]] for n in groups.options("measure")]
    assert rows("measuring.md", "policies") == expected


def test_workloads_lists_every_function_of_the_expressions() -> None:
    page = (TREE / "docs/workloads-and-kernels.md").read_text(encoding="utf-8")
    inside = re.search(r"<!-- functions -->\n(.*?)<!-- end of functions -->", page, re.DOTALL)
    assert inside
    assert re.findall(r"`(\w+)`", inside[1]) == sorted(FUNCTIONS)


def test_links_between_pages_lead_somewhere() -> None:
    for page in [TREE / "README.md", *(TREE / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def imported_packages(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] + [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "kernloom" and len(parts) > 1:
                found.add(parts[1])
    return found - {"__version__"}


def test_packages_import_only_what_the_architecture_allows() -> None:
    for package, _, allowed in rows("architecture.md", "packages"):
        if allowed == "everything":
            continue
        may = {"base", package, *(word.strip() for word in allowed.split(","))}
        for path in sorted((ENGINE / package).rglob("*.py")):
            assert imported_packages(path) <= may, f"{path.relative_to(ENGINE)}"


def test_every_package_stands_in_the_architecture() -> None:
    listed = {row[0] for row in rows("architecture.md", "packages")}
    found = {path.parent.name for path in ENGINE.glob("*/__init__.py")}
    assert found <= listed
