"""Tables in the documentation say what the code says."""

from __future__ import annotations

import ast
import importlib
import re
from dataclasses import fields
from itertools import takewhile
from pathlib import Path

import pytest
import yaml

from doc_pages import IMAGES, PAGES, drawing
from kernloom.base.arithmetic import FUNCTIONS
from kernloom.base.errors import ConfigError
from kernloom.base.scene_flags import PREFIX, SWITCHES, VALUES
from kernloom.build import flags
from kernloom.build.program import Program
from kernloom.build.programs import Programs
from kernloom.cli.completion.candidates import shown_to
from kernloom.cli.completion.completer import Line, complete
from kernloom.cli.hydra_flags import CONFIG_FLAGS, HYDRA_FLAGS
from kernloom.cli.main import COMMANDS
from kernloom.config.accelerator import SECTIONS, summary
from kernloom.config.convert import convert
from kernloom.config.groups import Groups
from kernloom.config.schema import ROOT_KEYS, STATUSES, Arch, MicroKernel
from kernloom.config.settings import SearchSettings
from kernloom.config.validate import CORE_NAMES
from kernloom.device.accelerator.infinite import RESOURCES
from kernloom.device.accelerator.options import Options
from kernloom.report.formats import FORMATS
from kernloom.run.assembly import STAGES
from kernloom.run.fleets import FLEETS
from kernloom.scene.scene import FIELDS
from kernloom.tune.strategy import STRATEGIES

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


def test_stages_lists_every_stage_type() -> None:
    expected = [
        [name, cls.phase, ", ".join(cls.inputs), ", ".join(cls.outputs)]
        for name, cls in sorted(STAGES.items())
    ]
    assert rows("reference/stages.md", "stages") == expected


def test_targets_lists_every_target() -> None:
    groups = Groups([TREE / "configs"])
    expected = []
    for name in groups.options("target"):
        target = groups.read("target", name)["target"]
        expected.append([name, target["about"], ", ".join(target["variants"])])
    assert rows("reference/targets.md", "targets") == expected


def test_toolchains_lists_every_flag_that_is_refused() -> None:
    page = (TREE / "docs/reference/toolchains.md").read_text(encoding="utf-8")
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
    assert rows("guide/measuring.md", "policies") == expected


def test_measuring_lists_every_key_of_a_policy() -> None:
    policy = Groups([TREE / "configs"]).read("measure", "standard")
    keys = [row[0] for row in rows("reference/measuring.md", "measure keys")]
    listed = re.findall(r"\w+", " ".join(keys))
    assert sorted(listed) == sorted(policy.keys() - {"name", "about"})


def test_statuses_lists_every_status() -> None:
    listed = [status for status, _ in rows("reference/statuses.md", "statuses")]
    assert sorted(listed) == sorted(STATUSES)


def test_workloads_lists_every_function_of_the_expressions() -> None:
    page = (TREE / "docs/reference/workloads.md").read_text(encoding="utf-8")
    inside = re.search(r"<!-- functions -->\n(.*?)<!-- end of functions -->", page, re.DOTALL)
    assert inside
    assert re.findall(r"`(\w+)`", inside[1]) == sorted(FUNCTIONS)


def anchors(page: Path) -> set[str]:
    """The names under which a page's headings can be linked, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    text = PAGES[page].read_text(encoding="utf-8")
    for link, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", text):
        target = PAGES[page].parent / link if link else PAGES[page]
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), f"{link}#{anchor}"


def test_the_index_lists_every_page_once_and_the_readme_leads_to_it() -> None:
    index = PAGES["docs/README.md"].read_text(encoding="utf-8")
    listed = re.findall(r"^- \[[^]]+\]\(([^)#]+)\): ", index, re.MULTILINE)
    assert sorted(f"docs/{page}" for page in listed) == sorted(
        page for page in PAGES if page not in ("README.md", "docs/README.md")
    )
    assert "](docs/README.md)" in PAGES["README.md"].read_text(encoding="utf-8")


def test_command_line_lists_every_command_with_its_options() -> None:
    expected = {}
    for name in COMMANDS:
        command = importlib.import_module(f"kernloom.cli.commands.{name}")
        sweeps = ["-m"] if getattr(command, "SWEEPS", False) else []
        more = CONFIG_FLAGS if getattr(command, "READS_CONFIGS", False) else {}
        flags = [*getattr(command, "FLAGS", {}), *more]
        expected[name] = [*sweeps, *(f"--{flag}" for flag in flags)]
    listed = rows("reference/command-line.md", "commands")
    assert {name: re.findall(r"-[\w-]+", options) for name, _, options in listed} == expected


def test_command_line_shows_what_is_completed() -> None:
    for before, typed, shown in rows("reference/command-line.md", "completion"):
        words = before.split()
        found = shown_to("bash", complete(Line(words, typed), describe=False), typed)
        files = {"files": "(files)", "yaml": "(YAML files)"}
        texts = [files.get(candidate.kind, candidate.text) for candidate in found]
        assert {text.strip("`") for text in shown.split(", ")} <= set(texts), (before, typed)


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
    for package, _, allowed in rows("reference/architecture.md", "packages"):
        if allowed == "everything":
            continue
        may = {"base", package, *(word.strip() for word in allowed.split(","))}
        for path in sorted((ENGINE / package).rglob("*.py")):
            assert imported_packages(path) <= may, f"{path.relative_to(ENGINE)}"


def test_strategies_import_only_spaces() -> None:
    for path in sorted((ENGINE / "tune" / "strategies").rglob("*.py")):
        assert imported_packages(path) <= {"base", "space", "tune"}, path.name


def test_tuning_lists_every_strategy() -> None:
    shipped = {name: STRATEGIES.get(name, key="") for name in STRATEGIES.names()}
    expected = [[name, cls.about] for name, cls in shipped.items()]
    assert sorted(rows("guide/tuning.md", "strategies")) == sorted(expected)


def test_tuning_lists_every_search_setting() -> None:
    keys = " ".join(key for key, _ in rows("guide/tuning.md", "search settings"))
    settings = {field.name for field in fields(SearchSettings)} - {"name", "about"}
    assert set(re.findall(r"\w+", keys)) == settings


def test_every_package_stands_in_the_architecture() -> None:
    listed = {row[0] for row in rows("reference/architecture.md", "packages")}
    found = {path.parent.name for path in ENGINE.glob("*/__init__.py")}
    assert found <= listed


def test_registries_lists_every_registry_and_what_it_names() -> None:
    made = (
        (keyword.value.value, call.args[0].value)
        for path in ENGINE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if keyword.arg == "group" and isinstance(keyword.value, ast.Constant)
        if isinstance(keyword.value.value, str)
        if isinstance(call.args[0], ast.Constant)
    )
    listed = [(group, what) for group, what, _, _ in rows("reference/registries.md", "registries")]
    assert listed == sorted(made)


def test_presets_lists_every_preset_with_the_words_of_its_file() -> None:
    expected = []
    for path in sorted((TREE / "configs/experiment").glob("*.yaml")):
        _, *lines = path.read_text(encoding="utf-8").splitlines()
        about = takewhile(lambda line: line.startswith("# "), lines)
        expected.append([path.stem, " ".join(line[2:] for line in about)])
    assert rows("guide/presets.md", "experiments") == expected


def test_scenes_lists_every_field_and_every_flag() -> None:
    assert [name for name, _ in rows("guide/scenes.md", "scene fields")] == list(FIELDS)
    flags = [name for name, _ in rows("guide/scenes.md", "scene flags")]
    assert flags == [f"--{PREFIX}{name}" for name in (*VALUES, *SWITCHES)]


def test_command_line_lists_every_key_of_a_run() -> None:
    keys = " ".join(f"`{key}`" for key, *_ in rows("reference/command-line.md", "keys of a run"))
    missing = set(ROOT_KEYS) - set(re.findall(r"`(\w+)", keys))
    assert missing == set(ROOT_KEYS) & {path.name for path in (TREE / "configs").iterdir()} - {
        "fleet",
        "search",
        "store",
        "sweep",
    }


def test_hydra_lists_every_flag_of_hydra() -> None:
    listed = [flag for flag, _ in rows("guide/hydra.md", "hydra flags")]
    assert listed == [f"--{name}" for name in HYDRA_FLAGS]


def test_formats_lists_every_format_with_the_commands_that_it_serves() -> None:
    found = ((name, FORMATS.get(name, key="output")) for name in FORMATS.names())
    expected = [[name, ", ".join(form.commands), form.about] for name, form in found]
    assert rows("reference/formats.md", "formats") == expected


@pytest.mark.parametrize("kind", ["local", "slurm"])
def test_fleet_keys_lists_every_key_of_a_kind_with_its_default(kind: str) -> None:
    section = Groups([TREE / "configs"]).read("fleet", kind)
    settings = {field.name for field in fields(FLEETS.get(kind, key="fleet.kind").Settings)}
    assert set(section) == settings, "every key stands in the config, so it can be overridden"
    keys = rows("reference/fleet-keys.md", f"{kind} keys")
    listed = {name: yaml.safe_load(default) for name, _, default in keys}
    assert listed == {key: section[key] for key in section if key not in ("name", "kind")}


def test_programs_lists_every_key_of_a_declaration_and_every_program() -> None:
    listed = [name for name, _, _ in rows("reference/programs.md", "program keys")]
    assert listed == [field.name for field in fields(Program)]
    declared = sorted(Programs([TREE]).declared.items())
    shown = [[name, program.about] for name, program in declared]
    assert rows("reference/programs.md", "programs") == shown


def test_accelerator_lists_every_section_of_an_arch() -> None:
    listed = [name for name, _ in rows("accelerator.md", "sections")]
    assert listed == list(SECTIONS)


def test_accelerator_lists_every_option_of_its_targets() -> None:
    listed = [name for name, _ in rows("accelerator.md", "options")]
    assert listed == list(vars(Options()))


def test_why_slow_lists_every_cause_and_every_resource() -> None:
    source = (TREE / "native/accelerator/platform/sim/cause.hpp").read_text(encoding="utf-8")
    causes = re.findall(r'^    "([\w.]+)",$', source, re.MULTILINE)
    named = {
        table: [name for cells in rows("guide/why-slow.md", table) for name in names_in(cells[0])]
        for table in ("causes", "resources")
    }
    assert sorted(named["causes"]) == sorted(causes)
    assert sorted(named["resources"]) == sorted(RESOURCES)


def names_in(cell: str) -> list[str]:
    return [name.strip("` ") for name in cell.split(",")]


def test_accelerator_shows_the_topology_as_it_is_drawn_from_the_config() -> None:
    found = drawing("draw_topology").picture("a5")
    assert found == (IMAGES / "topology.svg").read_text(encoding="utf-8")
    assert "(images/topology.svg)" in PAGES["docs/accelerator.md"].read_text(encoding="utf-8")
    arch = convert(Arch, Groups([TREE / "configs"]).read("arch", "a5"), "arch")
    assert summary(arch) in found


def test_core_kernels_lists_every_name_of_a_model_and_every_function_of_the_api() -> None:
    page = "guide/core-kernels.md"
    assert [name for name, _ in rows(page, "core names")] == list(CORE_NAMES)
    header = (TREE / "native/include/kernloom/core.h").read_text(encoding="utf-8")
    functions = re.findall(r"^static inline \w+ \*?(kl_\w+)\(", header, re.MULTILINE)
    assert [name for name, _ in rows(page, "core api")] == functions


def test_micro_kernels_lists_every_key() -> None:
    listed = [name for name, _ in rows("guide/micro-kernels.md", "micro-kernel keys")]
    assert listed == [field.name for field in fields(MicroKernel)]
