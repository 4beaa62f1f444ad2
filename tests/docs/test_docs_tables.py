"""Tables in the documentation say what the code says."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from kernloom.base.arithmetic import FUNCTIONS
from kernloom.base.errors import ConfigError
from kernloom.build import flags
from kernloom.config.groups import Groups
from kernloom.report.formats import FORMATS
from kernloom.run.assembly import STAGES
from kernloom.run.fleets import FLEETS

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


def test_extending_lists_every_registry_and_what_it_names() -> None:
    made = (
        (keyword.value.value, call.args[0].value)
        for path in ENGINE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if keyword.arg == "group" and isinstance(keyword.value, ast.Constant)
        if isinstance(call.args[0], ast.Constant)
    )
    listed = [(group, what) for group, what, _, _ in rows("extending.md", "registries")]
    assert listed == sorted(made)


def test_results_lists_every_format_with_the_commands_that_it_serves() -> None:
    found = ((name, FORMATS.get(name, key="output")) for name in FORMATS.names())
    expected = [[name, ", ".join(form.commands), form.about] for name, form in found]
    assert rows("results.md", "formats") == expected


@pytest.mark.parametrize("kind", ["local", "slurm"])
def test_fleets_lists_every_key_of_a_kind_with_its_default(kind: str) -> None:
    section = Groups([TREE / "configs"]).read("fleet", kind)
    settings = {field.name for field in fields(FLEETS.get(kind, key="fleet.kind").Settings)}
    assert set(section) == settings, "every key stands in the config, so it can be overridden"
    listed = {
        name: yaml.safe_load(default) for name, _, default in rows("fleets.md", f"{kind} keys")
    }
    assert listed == {key: section[key] for key in section if key not in ("name", "kind")}
