"""What completion offers for the words of a command line."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from command_line import Project, environment, listing
from kernloom.base.places import share_folder
from kernloom.cli.completion.candidates import Candidate, shown_to
from kernloom.cli.completion.completer import Line, complete, reports_of, syntax_of
from kernloom.cli.completion.composition import Composition
from kernloom.cli.completion.constants import constants
from kernloom.cli.completion.protocol import unquoted
from kernloom.cli.hydra_flags import CONFIG_FLAGS, HYDRA_FLAGS
from kernloom.cli.invocation import PLAIN_OUTPUTS
from kernloom.cli.main import COMMANDS
from kernloom.config.hydra_compose import HydraComposer
from kernloom.config.schema import DTYPES, STATUSES
from kernloom.measure.comparison import VERDICTS
from kernloom.measure.trial import Trial
from kernloom.report.formats import FORMATS
from kernloom.run import peers
from kernloom.run.fleets import FLEETS
from kernloom.store.keys import COLUMNS
from kernloom.store.store import open_store

SHIPPED = share_folder() / "configs"
WITH_OVERRIDES = ("run", "plan", "build", "explain", "check")


def candidates(*words: str, after: Iterable[str] = ()) -> list[Candidate]:
    """For `kernloom WORDS`, with the cursor behind the last word."""
    *before, typed = words
    found = complete(Line(before, typed, list(after)), describe=True)
    return shown_to("bash", found, typed)


def offered(*words: str, after: Iterable[str] = ()) -> list[str]:
    """The texts of all but file names."""
    found = candidates(*words, after=after)
    return [one.text for one in found if one.kind in ("word", "more")]


@pytest.fixture
def here(fresh_project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The project of a user, as the current folder."""
    monkeypatch.chdir(fresh_project.folder)
    fresh_project.add("mine")
    return fresh_project


def options(group: str) -> set[str]:
    return {path.stem for path in (SHIPPED / group).glob("*.yaml")}


# Commands and flags


def test_every_command_is_offered() -> None:
    assert offered("") == [*COMMANDS, "--help", "--version"]
    assert offered("re") == ["results", "recipe"]


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_command_declares_is_known_without_importing_it(name: str) -> None:
    module: Any = importlib.import_module(f"kernloom.cli.commands.{name}")
    syntax = syntax_of(name)
    assert syntax.sweeps == getattr(module, "SWEEPS", False)
    reads = getattr(module, "READS_CONFIGS", False)
    hydra = HYDRA_FLAGS if syntax.sweeps else CONFIG_FLAGS if reads else {}
    assert syntax.flags == getattr(module, "FLAGS", {}) | hydra
    assert syntax.report == getattr(module, "REPORT", "")
    assert syntax.actions == getattr(module, "ACTIONS", {})


def test_the_words_of_hydras_flags_are_offered() -> None:
    assert offered("run", "--cfg", "") == ["job", "hydra", "all"]
    assert offered("plan", "--info=def") == ["--info=defaults", "--info=defaults-tree"]


def test_the_short_names_of_hydras_flags_take_values_too() -> None:
    assert offered("run", "-c", "") == ["job", "hydra", "all"]
    assert "defaults-tree" in offered("run", "-i", "d")
    assert offered("run", "-i", "search") == ["searchpath"]
    assert [one.kind for one in candidates("run", "-cd", "")] == ["files"]
    assert offered("recipe", "-cd", "lab", "") == offered("recipe", "")


def test_parts_of_the_config_are_offered_for_package() -> None:
    for flag in ("--package", "-p"):
        assert offered("run", "--cfg", "job", flag, "mea") == ["measure"]
        sizes = offered("run", "workload=mlp", "-c", "job", flag, "workload.sizes.")
        assert "workload.sizes.batch" in sizes
    assert offered("run", "workload=mlp", "-p", "workload.sizes.b") == ["workload.sizes.batch"]
    assert offered("run", "--cfg", "job", "--package=see") == ["--package=seed"]
    assert offered("run", "-p", "no.such.") == []


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--config-dir", "my lab"),
        ("run", "--config-dir=my lab"),
        ("plan", "-cd", "my lab"),
        ("compare", "--config-dir", "my lab"),
        ("run", "hydra.searchpath=[nosuch,'my lab']"),
        ("run", "hydra.searchpath=['file://my lab']"),
        ("run", "+hydra.searchpath=[file://my lab]"),
    ],
)
def test_folders_of_the_search_path_are_searched(here: Project, words: tuple[str, ...]) -> None:
    here.write("my lab/toolchain/lab_gcc.yaml", "about: of the lab\n")
    if "[file:" in words[-1]:
        words = ("run", f"hydra.searchpath=['file://{here.folder}/my lab']")
    (found,) = candidates(*words, "toolchain=lab")
    assert (found.text, found.about) == ("toolchain=lab_gcc", "of the lab")
    command, *further = words
    assert offered(command, "toolchain=lab", after=further) == ["toolchain=lab_gcc"]
    assert offered(command, "toolchain=lab") == []


def test_the_search_path_of_the_root_config_is_searched(here: Project) -> None:
    here.write("lab/toolchain/lab_gcc.yaml", "")
    shipped = (SHIPPED / "kernloom.yaml").read_text()
    here.write("configs/kernloom.yaml", f"{shipped}\nhydra: {{searchpath: [lab, nosuch]}}\n")
    assert offered("run", "toolchain=lab") == ["toolchain=lab_gcc"]


def test_a_search_path_is_a_list_of_folders() -> None:
    assert offered("run", "hydra.se") == ["hydra.searchpath="]
    assert offered("run", "hydra.searchpath=") == ["hydra.searchpath=["]
    (first,) = candidates("run", "hydra.searchpath=[l")
    (second,) = candidates("run", "hydra.searchpath=[a,l")
    assert (first.kind, first.text) == ("files", "hydra.searchpath=[")
    assert second.text == "hydra.searchpath=[a,"


def test_the_values_of_an_axis_are_a_list() -> None:
    assert offered("run", "sweep.axes.toolchain=[gcc_r") == [
        f"sweep.axes.toolchain=[{name}" for name in ("gcc_riscv64", "gcc_riscv64_elf")
    ]
    assert offered("run", "sweep.axes.case=[small,r") == ["sweep.axes.case=[small,ragged"]


def test_a_folded_description_is_shown() -> None:
    (found,) = candidates("run", "+kernel@x=conv")
    assert found.about.startswith("y[f][i][j] = ")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_of_a_command_is_offered(name: str) -> None:
    syntax = syntax_of(name)
    multirun = ["-m", "--multirun"] if syntax.sweeps else []
    assert offered(name, "-") == [*(f"--{flag}" for flag in syntax.flags), *multirun, "--help"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_completes_something_and_none_fails(name: str) -> None:
    assert candidates(name, "")
    for typed in (
        "=",
        "..",
        "+",
        "~",
        "a.b.c=",
        "[",
        "workload=,",
        "select.fixed.x.y.z=",
        "-=",
        "é",
    ):
        offered(name, typed)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "completion"])
def test_output_formats_are_those_that_the_command_has(name: str) -> None:
    report = syntax_of(name).report
    found = [value.removeprefix("output=") for value in offered(name, "output=")]
    if not report:
        assert found == list(PLAIN_OUTPUTS)
        return
    forms = {form: FORMATS.get(form, key="output") for form in FORMATS.names()}
    assert sorted(found) == [form for form in forms if report in forms[form].commands]
    assert reports_of("table") >= {"run", "results", "compare", "check"}


def test_words_of_commands_that_have_their_own() -> None:
    assert {"lock", "run", "verify"} <= set(offered("recipe", ""))
    assert offered("results", "ba") == ["baseline"]
    assert offered("results", "baseline", "") == ["save", "list", "show", "remove"]
    assert offered("completion", "") == ["bash", "zsh", "fish"]
    assert offered("completion", "bash", "") == []
    assert offered("nonsense", "") == []


def test_files_are_left_to_the_shell() -> None:
    assert candidates("recipe", "run", "") == [Candidate("", "yaml")]
    assert candidates("results", "--to", "") == [Candidate("", "files")]
    assert candidates("results", "--to=tri") == [Candidate("--to=", "files")]
    assert candidates("check", "--junit", "re") == [Candidate("", "files")]
    assert {"all", "matmul", "softmax"} <= set(offered("check", "--scene", ""))
    assert offered("check", "--manual", "") == ["exclude", "include", "only"]
    assert candidates("run", "recipe=") == [Candidate("recipe=", "yaml")]
    assert candidates("run", "store.path=st") == [Candidate("store.path=", "files")]
    assert candidates("run", "build.cache=") == [Candidate("build.cache=", "files")]
    assert candidates("run", "workload.tensors.A.fill.path=") == [
        Candidate("workload.tensors.A.fill.path=", "files")
    ]


def test_values_of_flags() -> None:
    assert offered("compare", "--fail-if", "") == list(VERDICTS)
    assert offered("compare", "--fail-if", "slower,i") == ["slower,inconclusive"]
    assert offered("results", "--sort", "median") == ["median_ns"]
    assert offered("results", "--sort", "-median") == ["-median_ns"]
    assert offered("results", "--columns", "id,status,median") == ["id,status,median_ns"]
    assert offered("results", "--group", "tool") == ["toolchain"]
    assert offered("results", "--pivot", "workload", "tool") == ["toolchain", "toolchain="]
    assert offered("results", "--limit", "") == []
    assert offered("compare", "--with", "workload=stenc") == ["workload=stencil5"]


# Groups, keys and values


@pytest.mark.parametrize("name", WITH_OVERRIDES)
def test_groups_and_their_options_are_offered(name: str) -> None:
    found = offered(name, "")
    for group in ("workload", "target", "toolchain", "arch", "measure", "store", "fleet", "sweep"):
        assert f"{group}=" in found
        assert set(offered(name, f"{group}=")) == {f"{group}={one}" for one in options(group)}
    assert "kernel=" not in found, "a kernel is chosen by its workload"
    assert offered(name, "workload=soft") == ["workload=softmax", "workload=softmax_pipeline"]


def test_options_and_keys_come_with_what_they_mean() -> None:
    about = {one.text: one.about for one in candidates("run", "workload=")}
    assert about["workload=matmul"] == "the product of two matrices"
    about = {one.text: one.about for one in candidates("run", "measure.")}
    assert about["measure.samples="] == "now 7"
    assert about["measure.pin="] == "now true"
    about = {one.text: one.about for one in candidates("run", "select.fixed.tile.")}
    assert about["select.fixed.tile.mr="] == "rows of a tile of C held in registers"
    for one in candidates("run", "target="):
        assert one.about, one.text


def test_a_group_is_followed_by_an_option_or_a_key() -> None:
    assert offered("run", "workl") == ["workload="]
    assert offered("run", "workload") == ["workload=", "workload."]
    assert offered("run", "buil") == ["build."]


def test_keys_are_those_of_the_config_that_the_other_words_compose() -> None:
    assert offered("run", "workload.sizes.") == [f"workload.sizes.{n}=" for n in "MNK"]
    names = ("batch", "d0", "d1", "d2", "d3")
    sizes = [f"workload.sizes.{name}=" for name in names]
    assert offered("run", "workload=mlp", "workload.sizes.") == sizes
    assert offered("run", "workload.sizes.", after=["workload=mlp"]) == sizes
    assert "fleet.chunk=" in offered("run", "fleet=slurm", "fleet.")
    assert "fleet.chunk=" not in offered("run", "fleet.")
    assert "measure.clock=" in offered("run", "measure.")
    assert "workload.dtype=" in offered("run", "workload."), "known from the schema only"
    assert "build.jobs=" in offered("run", "build.")


def test_tunables_are_those_of_the_workload_on_the_target() -> None:
    assert "select.fixed.tile." in offered("run", "select.fixed.")
    assert offered("run", "select.fixed.tile.m") == [
        "select.fixed.tile.mr=",
        "select.fixed.tile.multiply.",
    ]
    values = [f"select.fixed.tile.mr={value}" for value in (6, 8, 12, 14, 4)]
    assert offered("run", "select.fixed.tile.mr=") == values
    assert offered("run", "select.fixed.tile.multiply.mr=6") == ["select.fixed.tile.multiply.mr=6"]
    assert offered("run", "select.fixed.pack.b=") == [
        "select.fixed.pack.b=false",
        "select.fixed.pack.b=true",
    ]
    assert offered("run", "select.fixed.tile.kc=")
    assert not offered("run", "target=opencl", "select.fixed.tile.kc=")
    assert offered("run", "target=opencl", "select.fixed.parallelize.g") == [
        "select.fixed.parallelize.group="
    ]


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("rerun", ("none", "failed", "all")),
        ("measure.clock", ("auto", "cpu", "wall")),
        ("measure.pin", ("true", "false")),
        ("workload.dtype", DTYPES),
        (
            "workload.tensors.A.fill.pattern",
            ("ramp", "steps", "alternating", "checkerboard", "identity"),
        ),
        ("target.variant", ("release", "asan")),
        ("sweep.sample.method", ("random", "latin_hypercube")),
        ("fleet.exclusive", ("node", "measuring", "none")),
        ("fleet.overlap", ("true", "false", "auto")),
        ("build.keep", ("true", "false")),
        ("case", ("default", "small", "ragged", "large")),
        ("seed", ()),
        ("workload.sizes.M", ()),
        ("no.such.key", ()),
    ],
)
def test_values_are_offered_where_there_is_a_list(key: str, values: tuple[str, ...]) -> None:
    assert offered("run", f"{key}=") == [f"{key}={value}" for value in values]


def test_several_values_are_separated_by_commas() -> None:
    assert offered("run", "-m", "toolchain=gcc,cl") == [
        "toolchain=gcc,clang",
        "toolchain=gcc,clang_riscv64",
    ]
    assert "toolchain=gcc,gcc" not in offered("run", "-m", "toolchain=gcc,")
    assert offered("run", "-m", "case=small,l") == ["case=small,large"]


def test_lists_are_written_in_brackets() -> None:
    names = [f"measure.peers=[{name}" for name in peers.NAMES]
    assert offered("run", "measure.peers=") == names
    assert offered("run", "measure.peers=[numpy,op") == ["measure.peers=[numpy,openblas"]


def test_hydras_signs() -> None:
    assert offered("run", "++workl") == ["++workload="]
    assert offered("run", "++measure.clock=c") == ["++measure.clock=cpu"]
    assert "+kernel=" in offered("run", "+")
    assert "+workload=" not in offered("run", "+"), "it would be refused: the config has one"
    assert "~measure" in offered("run", "~")
    assert offered("run", "~workload.cases.sm") == ["~workload.cases.small."]
    assert offered("run", "~workload.sizes.M") == ["~workload.sizes.M"]
    assert offered("run", "sweep.axes.toolch") == ["sweep.axes.toolchain="]
    assert offered("run", "hydra/l") == ["hydra/launcher="]
    assert "hydra/sweeper=optuna" in offered("run", "hydra/sweeper=")


def test_check_has_the_cases_of_all_workloads(here: Project) -> None:
    here.add("odd", workload="cases: {strange: {sizes: {n: 3}}}\n")
    assert "case=strange" in offered("check", "case=")
    assert offered("check", "workload=matmul", "case=str") == []


def test_stages_can_be_shown() -> None:
    assert "show=choice" in offered("plan", "show=")


def test_compare_takes_several_overrides_in_one_word() -> None:
    assert offered("compare", "workload=softmax tool") == ["workload=softmax toolchain="]
    assert offered("compare", "workload=mlp workload.sizes.b") == [
        "workload=mlp workload.sizes.batch="
    ]
    common = ("compare", "--with", "workload=mlp case=small")
    assert offered(*common, "workload.sizes.b") == ["workload.sizes.batch="]
    assert offered("compare", "workload=mlp", "workload.sizes.b") == []
    assert Candidate("", "yaml") in candidates("compare", "toolchain=gcc", "mlp")


# Stored trials


def test_filters_are_columns_and_keys() -> None:
    found = offered("results", "")
    assert {f"{column}=" for column in COLUMNS} <= set(found)
    assert offered("results", "status=") == [f"status={status}" for status in STATUSES]
    assert offered("results", "status=ok,w") == ["status=ok,wrong"]
    assert offered("results", "verified=") == ["verified=true", "verified=false"]
    assert "case=ragged" in offered("results", "case=")
    assert offered("results", "variant=a") == ["variant=asan"]
    assert "measure.clock=" in offered("results", "measure.")
    assert offered("compare", "--baseline", "main", "stat") == ["status="]


def test_saved_baselines_are_offered_and_the_store_is_left_alone(
    here: Project, make_trial: Callable[..., Trial]
) -> None:
    place = here.folder / ".kernloom" / "store.db"
    assert offered("compare", "--baseline", "") == []
    place.parent.mkdir()
    with open_store(place) as store:
        store.add(make_trial())
        store.save_baseline("main", [make_trial().id])
        store.save_baseline("release-1", [make_trial().id])
    before = listing(here.folder)
    assert offered("compare", "--baseline", "") == ["main", "release-1"]
    assert offered("compare", "--baseline=m") == ["--baseline=main"]
    assert offered("results", "baseline", "show", "r") == ["release-1"]
    assert offered("results", "baseline", "list", "m") == []
    assert offered("compare", "store=postgres", "--baseline", "") == []
    assert offered("compare", "store.path=nowhere.db", "--baseline", "") == []
    place.write_bytes(b"no database")
    assert offered("compare", "--baseline", "") == []
    place.unlink()
    assert listing(here.folder).keys() == before.keys() - {str(place)}


# Projects


def test_a_projects_own_options_are_offered(here: Project) -> None:
    here.write("configs/toolchain/tuned.yaml", "defaults: [gcc]\nabout: ours\nown: 1\n")
    assert "workload=mine" in offered("run", "workload=")
    assert "workload=matmul" in offered("run", "workload=")
    assert offered("run", "workload=mine", "workload.sizes.") == ["workload.sizes.n="]
    assert [one.about for one in candidates("run", "toolchain=tu")] == ["ours"]
    assert "toolchain.own=" in offered("run", "toolchain=tuned", "toolchain.")
    here.write("configs/team/ours.yaml", "a: 1\n")
    assert offered("run", "+te") == ["+team="]


def test_an_invalid_config_hides_nothing_else(here: Project) -> None:
    here.write("configs/workload/broken.yaml", "sizes: {M: [\n\tabout")
    here.write("configs/workload/endless.yaml", "defaults: [endless, endless]\n")
    here.write("configs/workload/list.yaml", "- 1\n")
    here.write("configs/measure/odd.yaml", "defaults: {a: 1}\nclock: [1\n")
    here.write("kernloom.yaml", "settings: none allowed here\n")
    assert {"workload=broken", "workload=mine"} <= set(offered("run", "workload="))
    for broken in ("broken", "endless", "list", "unknown"):
        assert "workload.dtype=" in offered("run", f"workload={broken}", "workload.")
        assert offered("run", f"workload={broken}", "toolchain=cla")
    assert offered("run", "measure=odd", "measure.clock=") != []


def test_names_that_need_quotes_are_left_out(here: Project) -> None:
    for name in ("two words", "a$(id)", "semi;colon", "new\nline", "quote'"):
        here.write(f"configs/workload/{name}.yaml", "")
    assert set(offered("run", "workload=")) == {
        f"workload={name}" for name in (*options("workload"), "mine")
    }


def test_a_folder_that_is_gone_still_has_the_shipped_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "workload=matmul" in offered("run", "workload=")


def data_of(config: Any) -> Any:
    """A config without names, which Kernloom adds after composing."""
    if not isinstance(config, dict):
        return config
    return {key: data_of(value) for key, value in config.items() if key != "name"}


def test_keys_and_values_are_those_that_hydra_composes(here: Project) -> None:
    here.write("configs/toolchain/tuned.yaml", "defaults: [gcc]\nextra_flags: [-O3]\n")
    here.write("configs/workload/larger.yaml", "defaults: [matmul, _self_]\nsizes: {Q: 4}\n")
    here.write("configs/workload/sub/one.yaml", "a: 1\n")
    here.write(
        "configs/workload/deep.yaml",
        "defaults: [/kernel: axpy, sub: one, /kernel@extra: axpy]\ntensors: {}\n",
    )
    here.write(
        "configs/target/other.yaml",
        "# @package _global_\ndefaults: [host, override /toolchain: opencl, _self_]\n"
        "target: {variant: asan}\n",
    )
    folders = [here.folder / "configs", SHIPPED]
    hydra = HydraComposer(folders)
    chosen: list[dict[str, str]] = [{"workload": one} for one in sorted(options("workload"))]
    chosen += [{"target": one} for one in sorted(options("target"))]
    chosen += [{"measure": "rigorous", "fleet": "slurm", "sweep": "tiles", "store": "postgres"}]
    chosen += [{"workload": "larger"}, {"workload": "deep"}, {"toolchain": "tuned"}]
    chosen += [{"target": "other"}, {"target": "other", "toolchain": "tuned"}]
    for choice in chosen:
        words = [f"{group}={option}" for group, option in choice.items()]
        ours = Composition(folders, choice).data
        assert data_of(ours) == data_of(hydra.compose(words)), words


def test_lists_of_names_are_read_from_the_sources_as_they_are() -> None:
    assert constants("run/peers")["NAMES"] == peers.NAMES
    assert constants("measure/comparison")["VERDICTS"] == VERDICTS
    assert constants("no/such/module") == {}
    for kind in ("local", "slurm"):
        fields = FLEETS.get(kind, key="fleet.kind").Settings.__dataclass_fields__
        literal = [name for name, one in fields.items() if "Literal" in str(one.type)]
        for name in literal:
            assert offered("run", f"fleet={kind}", f"fleet.{name}="), name


# The process


@pytest.mark.parametrize(
    ("typed", "word"),
    [
        ("plain", "plain"),
        ("'in quotes'", "in quotes"),
        ("'not closed ye", "not closed ye"),
        ('"not closed', "not closed"),
        ("key='a b'", "key=a b"),
        (r"a\ b", "a b"),
        ("'\"", '"'),
    ],
)
def test_quotes_of_bash_are_removed(typed: str, word: str) -> None:
    assert unquoted(typed) == word


def ask(project: Project, shell: str, *words: str) -> list[str]:
    given = ("kernloom", *words)
    done = project.run("completion", shell, "--words", str(len(words)), "--", *given)
    assert (done.code, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_a_line_is_a_kind_a_text_and_what_it_means(fresh_project: Project) -> None:
    assert ask(fresh_project, "bash", "run", "workl") == ["more workload=\tnow matmul"]
    assert ask(fresh_project, "bash", "run", "--help", "measure=st") == ["word measure=standard"]
    (line,) = (x for x in ask(fresh_project, "zsh", "run", "measure=") if "standard" in x)
    kind, _, rest = line.partition(" ")
    assert (kind, rest.split("\t")[0]) == ("word", "measure=standard")
    assert rest.split("\t")[1].startswith("Rounds of fresh processes")
    assert ask(fresh_project, "bash", "recipe", "run", "x") == ["yaml "]


@pytest.mark.parametrize(
    "arguments",
    [
        ["bash", "--words"],
        ["bash", "--words", "x", "--", "kernloom"],
        ["bash", "--words", "9", "--", "kernloom", "run"],
        ["bash", "--words", "-3", "--"],
        ["tcsh", "--words", "1", "--", "kernloom", "r"],
        ["bash", "--words", "2", "--", "kernloom", "run", "\udcff\x1b"],
    ],
)
def test_whatever_it_is_asked_it_prints_no_error(
    fresh_project: Project, arguments: list[str]
) -> None:
    done = fresh_project.run("completion", *arguments)
    assert (done.code, done.stderr) == (0, "")


def test_nothing_is_written(here: Project) -> None:
    before = listing(here.folder, here.home)
    for words in (["run", ""], ["results", ""], ["compare", "--baseline", ""], ["check", "case="]):
        assert ask(here, "fish", *words) is not None
    assert listing(here.folder, here.home) == before


HEAVY = ("numpy", "hydra", "omegaconf", "jinja2", "rich", "SCons", "kernloom.run", "kernloom.plan")


@pytest.mark.parametrize(
    "words",
    [
        ["run", "workload="],
        ["run", "workload=mlp", "select.fixed.tile.mr="],
        ["run", "output="],
        ["check", "case="],
        ["results", "status="],
        ["compare", "--fail-if", ""],
        ["run", "measure.peers="],
    ],
    ids=" ".join,
)
def test_nothing_that_takes_long_is_imported(fresh_project: Project, words: list[str]) -> None:
    """An import of these takes longer than a completion may: a quarter of a second of CPU time."""
    given = ["completion", "fish", "--words", str(len(words)), "--", "kernloom", *words]
    script = (
        "import json, sys\nfrom kernloom.cli.main import main\n"
        f"code = main({given!r})\nprint(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=fresh_project.folder,
        env=environment(fresh_project.home),
        capture_output=True,
        text=True,
        check=True,
    )
    *lines, modules = done.stdout.splitlines()
    assert lines
    assert not [name for name in json.loads(modules) if name.startswith(HEAVY)]


def test_a_completion_that_takes_long_ends_without_a_word(fresh_project: Project) -> None:
    script = (
        "import time\nfrom kernloom.cli.completion import protocol\n"
        "protocol.PATIENCE_S = 0.01\n"
        "protocol.complete = lambda line, describe: time.sleep(600)\n"
        "protocol.answer(['bash', '--words', '1', '--', 'kernloom', 'r'])\n"
        "print('not reached')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(fresh_project.home),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_file_that_never_ends_does_not_hold_up_the_shell(here: Project) -> None:
    os.mkfifo(here.folder / "configs/workload/pipe.yaml")
    assert "word workload=pipe" in ask(here, "fish", "run", "workload=")
    assert ask(here, "fish", "run", "workload=pipe", "workload.")


# The command


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(fresh_project: Project, shell: str) -> None:
    done = fresh_project.run("completion", shell)
    assert done.code == 0
    assert f"completion {shell} --words" in done.stdout
    document = fresh_project.json("completion", shell).document
    assert document == {"shell": shell, "script": done.stdout}


def test_an_unknown_shell_is_refused_with_the_nearest(fresh_project: Project) -> None:
    done = fresh_project.run("completion", "zhs")
    assert done.code == 2
    assert "Did you mean 'zsh'? Allowed: bash, fish, zsh." in done.stderr
    done = fresh_project.run("completion", "bash", "more")
    assert done.code == 2
    assert "takes no 'more'" in done.stderr


def test_without_a_shell_the_help_is_shown_but_not_to_a_shell_that_sources_it(
    fresh_project: Project,
) -> None:
    done = fresh_project.run("completion")
    assert (done.code, done.stdout) == (2, "")
    assert "usage: kernloom completion bash|zsh|fish" in done.stderr
    assert "source <(kernloom completion bash)" in done.stderr
    assert "source <(kernloom completion bash)" in fresh_project.run("completion", "--help").stdout


def test_a_first_start_is_not_made_by_a_completion(tmp_path: Path) -> None:
    """The script of the source tree installs what is missing, but not at a TAB."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("kernloom", "pyproject.toml"):
        (tree / name).write_bytes((share_folder() / name).read_bytes())
    (tree / "kernloom").chmod(0o755)
    words = ["completion", "bash", "--words", "1", "--", "kernloom", "r"]
    done = subprocess.run([tree / "kernloom", *words], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert sorted(path.name for path in tree.iterdir()) == ["kernloom", "pyproject.toml"]
