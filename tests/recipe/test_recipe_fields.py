"""Every field of the schema says what a recipe may do with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from kernloom.config.schema import NOT_IDENTITY, Experiment
from kernloom.device.opencl.choice import Options
from kernloom.recipe.fields import DEVICE_OPTIONS, FIELDS, LOCAL_KEYS, STAGE_OPTIONS, Rule
from kernloom.run.assembly import STAGES


def dataclasses_in(wanted: Any) -> Iterator[type]:
    if isinstance(wanted, type) and is_dataclass(wanted):
        yield wanted
    for inner in get_args(wanted):
        yield from dataclasses_in(inner)


def reached(cls: type, seen: set[type]) -> set[type]:
    """The dataclasses that a recipe holds, from `cls` downwards."""
    if cls not in seen:
        seen.add(cls)
        for name, wanted in get_type_hints(cls).items():
            if FIELDS.get(cls, {}).get(name) is not Rule.LOCAL:
                for inner in dataclasses_in(wanted):
                    reached(inner, seen)
    return seen


def test_every_field_of_the_schema_has_a_rule_for_recipes() -> None:
    for cls in reached(Experiment, set()):
        assert {field.name for field in fields(cls)} == set(FIELDS.get(cls, {})), cls.__name__


def test_every_option_of_a_stage_and_of_a_device_has_a_rule() -> None:
    for name, stage in STAGES.items():
        assert {field.name for field in fields(stage.Options)} == set(STAGE_OPTIONS[name]), name
    assert {field.name for field in fields(Options)} == set(DEVICE_OPTIONS["opencl"])


def test_a_recipe_has_just_what_makes_a_trial() -> None:
    assert set(LOCAL_KEYS) == set(NOT_IDENTITY)
