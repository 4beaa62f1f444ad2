"""Pipelines: checked before anything runs, ordered by their refs."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from kernloom.base.errors import ConfigError, KernloomError, PipelineError
from kernloom.base.places import share_folder
from kernloom.base.registry import Registry
from kernloom.config.compose import Composer
from kernloom.config.schema import Experiment
from kernloom.config.validate import experiment as validated
from kernloom.pipeline.graph import StageGraph, read_graph
from kernloom.pipeline.stage import Context, Stage
from kernloom.run.assembly import STAGES
from parsed import points_of

Stages = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Times:
    factor: int = 2


class Number(Stage):
    outputs: ClassVar[Mapping[str, str]] = {"value": "number", "words": "text"}

    def run(self, context: Context, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"value": 3, "words": "three"}


class Multiply(Stage):
    inputs: ClassVar[Mapping[str, str]] = {"value": "number"}
    outputs: ClassVar[Mapping[str, str]] = {"value": "number"}
    Options = Times

    def run(self, context: Context, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"value": inputs["value"] * self.options.factor}


class Late(Multiply):
    phase = "run"


class Fails(Number):
    def run(self, context: Context, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        raise ConfigError("no luck")


TYPES: Registry[type[Stage]] = Registry(
    "stage", {"number": Number, "multiply": Multiply, "late": Late, "fails": Fails}
)


def chain() -> Stages:
    return {
        "first": {"use": "number"},
        "second": {"use": "multiply", "in": {"value": {"ref": "first.value"}}, "factor": 5},
        "third": {"use": "multiply", "in": {"value": {"ref": "second.value"}}},
    }


@pytest.fixture(scope="session")
def composer(tmp_path_factory: pytest.TempPathFactory) -> Composer:
    def as_it_is(data: Mapping[str, Any]) -> dict[str, Any]:
        arch: dict[str, Any] = data["arch"]
        return arch

    return Composer([share_folder() / "configs"], tmp_path_factory.mktemp("cache"), as_it_is)


def shipped(composer: Composer, *words: str) -> Experiment:
    (point,) = points_of(composer, ["arch=x86_64_v2", *words], multirun=False)
    return validated(point.data)


def outcome(stages: Stages, experiment: Experiment | None = None) -> dict[str, Any]:
    values: dict[str, Any] = {}
    read_graph(stages, TYPES).run("plan", Context(experiment, {}), values)  # type: ignore[arg-type]
    return values


def test_stages_hand_on_their_outputs() -> None:
    assert outcome(chain())["third"] == {"value": 30}


def test_order_follows_the_refs_whatever_the_order_in_yaml() -> None:
    names = list(chain())
    for seed in range(6):
        random.Random(seed).shuffle(names)
        graph = read_graph({name: chain()[name] for name in names}, TYPES)
        assert list(graph.nodes) == ["first", "second", "third"]


def test_after_orders_stages_that_share_nothing() -> None:
    stages = {"b": {"use": "number", "after": ["a"]}, "a": {"use": "number"}}
    assert list(read_graph(stages, TYPES).nodes) == ["a", "b"]


def test_an_input_may_be_written_down() -> None:
    stages = {"only": {"use": "multiply", "in": {"value": 4}}}
    assert outcome(stages)["only"] == {"value": 8}


def test_a_ref_may_name_the_experiments_own_data(composer: Composer) -> None:
    def doubled(ref: str) -> Any:
        stages = {"only": {"use": "multiply", "in": {"value": {"ref": ref}}}}
        return outcome(stages, shipped(composer, "seed=21"))["only"]["value"]

    assert doubled("arch.registers") == 32
    assert doubled("seed") == 42


def test_only_the_stages_of_a_phase_are_carried_out() -> None:
    stages = {**chain(), "late": {"use": "late", "in": {"value": {"ref": "third.value"}}}}
    assert "late" not in outcome(stages)


def changed(**changes: Any) -> Stages:
    """The chain with keys of stages replaced: `second__in={...}`; None removes the stage."""
    stages = copy.deepcopy(chain())
    for path, value in changes.items():
        stage, _, key = path.partition("__")
        if key:
            stages[stage][{"in_": "in"}.get(key, key)] = value
        elif value is None:
            del stages[stage]
        else:
            stages[stage] = value
    return stages


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ({}, ["pipeline.stages: has no stages"]),
        (changed(second__use="multply"), ["second.use", "unknown stage 'multply'", "'multiply'?"]),
        (changed(second={"in": {}}), ["pipeline.stages.second: a stage needs `use: TYPE`"]),
        (changed(second=5), ["pipeline.stages.second: a stage needs `use: TYPE`"]),
        (changed(second__use=5), ["a stage needs `use: TYPE`"]),
        (changed(second__in_=5), ["second.in: expected inputs as keys and values"]),
        (changed(second__in_={}), ["second.in: input 'value' is missing", "type number"]),
        (
            changed(second__in_={"value": 1, "valeu": 2}),
            ["has no input 'valeu'", "Did you mean 'value'?"],
        ),
        (
            changed(second__in_={"value": {"ref": "fist.value"}}),
            ["second.in.value", "unknown stage 'fist'", "Did you mean 'first'?"],
        ),
        (
            changed(second__in_={"value": {"ref": "first.valeu"}}),
            ["stage 'first' has no output 'valeu'", "Did you mean 'value'?"],
        ),
        (changed(second__in_={"value": {"ref": "first"}}), ["'first' has no output ''"]),
        (changed(second__in_={"value": {"ref": ""}}), ["a ref is written {ref: stage.output}"]),
        (changed(second__in_={"value": {"ref": 5}}), ["a ref is written {ref: stage.output}"]),
        (
            changed(second__in_={"value": {"ref": "first.value", "x": 1}}),
            ["a ref is written {ref: stage.output}"],
        ),
        (
            changed(second__in_={"value": {"ref": "first.words"}}),
            ["'first.words' is of type text; expected number"],
        ),
        (
            changed(second__in_={"value": {"ref": "first.value.deeper"}}),
            ["there is nothing inside a number"],
        ),
        (changed(second__in_={"value": {"ref": "case"}}), ["is of type text; expected number"]),
        (
            changed(second__in_={"value": "three"}),
            ["second.in.value: 'three' is not of type number"],
        ),
        (changed(second__after=["frist"]), ["second.after", "unknown stage 'frist'", "'first'?"]),
        (changed(second__after="first"), ["second.after: expected a list of stages"]),
        (changed(second__factor="two"), ["second.factor: expected a whole number, not 'two'"]),
        (changed(second__facto=2), ["unknown key 'facto'", "Did you mean 'factor'?"]),
        (changed(seed={"use": "number"}), ["'seed' is taken"]),
        (
            changed(second__in_={"value": {"ref": "third.value"}}),
            ["stages wait for each other", "second -> third -> second"],
        ),
        (changed(first__after=["third"]), ["first -> third -> second -> first"]),
        (changed(first__after=["first"]), ["first -> first"]),
        (
            changed(
                late={"use": "late", "in": {"value": 1}},
                second__in_={"value": {"ref": "late.value"}},
            ),
            ["known only in the run phase", "'second' belongs to the plan phase"],
        ),
        (
            changed(late={"use": "late", "in": {"value": 1}}, first__after=["late"]),
            ["first.after", "'late' belongs to the run phase"],
        ),
    ],
)
def test_a_graph_that_does_not_fit_is_refused_before_anything_runs(
    stages: Stages, said: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_graph(stages, TYPES)
    for part in said:
        assert part in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_ref_that_turns_out_to_lead_nowhere_is_named(composer: Composer) -> None:
    stages = {"only": {"use": "multiply", "in": {"value": {"ref": "arch.registres"}}}}
    with pytest.raises(PipelineError, match=r"'arch\.registres' refers to nothing"):
        outcome(stages, shipped(composer))


@pytest.mark.parametrize("ref", ["arch.__class__", "arch._x", "workload.sizes.__len__"])
def test_a_ref_reaches_data_only(composer: Composer, ref: str) -> None:
    stages = {"only": {"use": "multiply", "in": {"value": {"ref": ref}}}}
    with pytest.raises(PipelineError, match="refers to nothing"):
        outcome(stages, shipped(composer))


def test_an_error_says_which_stage_it_came_from() -> None:
    with pytest.raises(ConfigError) as caught:
        outcome({"unlucky": {"use": "fails"}})
    assert caught.value.stage == "unlucky"  # type: ignore[attr-defined]


def test_a_service_that_nobody_handed_in_is_named() -> None:
    with pytest.raises(KernloomError, match="no Experiment was handed"):
        Context(None, {}).need(Experiment)  # type: ignore[arg-type]


# The pipelines that ship.


def read_shipped(composer: Composer, *words: str) -> StageGraph:
    types: Registry[type[Stage]] = Registry("stage", STAGES)
    return read_graph(shipped(composer, *words).pipeline.stages, types)


def test_the_default_pipeline_passes(composer: Composer) -> None:
    names = list(read_shipped(composer).nodes)
    assert names.index("shapes") < names.index("choice") < names.index("blocking")
    assert names.index("source") < names.index("library") < names.index("correct")
    assert names[-1] == "timing"


AGAIN = (
    "pipeline.stages.again={use: unroll, in: {schedule: {ref: packing.schedule}, "
    "params: {ref: choice.params.unroll}}}"
)


def test_a_stage_is_added_by_override(composer: Composer) -> None:
    names = list(
        read_shipped(
            composer, AGAIN, "pipeline.stages.unrolling.in.schedule.ref=again.schedule"
        ).nodes
    )
    assert names.index("packing") < names.index("again") < names.index("unrolling")


def test_a_stage_is_removed_by_override(composer: Composer) -> None:
    words = [
        "~pipeline.stages.packing",
        "pipeline.stages.unrolling.in.schedule.ref=blocking.schedule",
    ]
    assert "packing" not in read_shipped(composer, *words).nodes
    with pytest.raises(PipelineError, match=r"'packing\.schedule' names an unknown stage"):
        read_shipped(composer, words[0])


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("pipeline.stages.blocking.in.params.ref=choice.params", "expected params"),
        ("pipeline.stages.blocking.in.params.ref=choice.provider", "is of type provider"),
        ("pipeline.stages.blocking.in.params.ref=workload.name", "expected params"),
        ("pipeline.stages.blocking.in.schedule.ref=choice.params.tile", "expected schedule"),
        ("pipeline.stages.blocking.in.schedule.ref=shapes.schedule.0", "nothing inside a schedule"),
        ("pipeline.stages.blocking.in.schedule.ref=workload", "is of type workload"),
        ("pipeline.stages.blocking.in.params=5", "5 is not of type params"),
        ("pipeline.stages.source.in.schedule.ref=timing.metrics", "known only in the run phase"),
    ],
)
def test_a_wrong_ref_in_it_is_named(composer: Composer, word: str, said: str) -> None:
    with pytest.raises(PipelineError) as caught:
        read_shipped(composer, word)
    assert said in str(caught.value)
