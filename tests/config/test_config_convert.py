"""Plain data becomes dataclasses, or an error that names the key."""

from __future__ import annotations

import pytest

from kernloom.base.errors import ConfigError
from kernloom.config.convert import convert
from kernloom.config.schema import Caches, Fill, Policy, Target, Tolerance

HUGE = 10**400
"""Larger than any floating-point number."""
POLICY = {"name": "p", "samples": 1, "warmup": 0, "min_rounds": 1, "max_rounds": 1}


@pytest.mark.parametrize(
    ("cls", "data", "key"),
    [
        (Policy, {**POLICY, "min_sample_us": HUGE}, "min_sample_us"),
        (Policy, {**POLICY, "min_sample_us": 1, "samples": HUGE}, "samples"),
        (Fill, {"low": -HUGE}, "low"),
        (Tolerance, {"rtol": HUGE}, "rtol"),
    ],
)
def test_a_number_beyond_all_floats_is_named(cls: type, data: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError, match=r"too (large|small)") as caught:
        convert(cls, data, "here")
    assert caught.value.key == f"here.{key}"


def test_an_earlier_name_of_a_key_leads_to_the_current_one() -> None:
    with pytest.raises(ConfigError, match="unknown key 'baselines'") as caught:
        convert(Policy, {**POLICY, "min_sample_us": 1, "baselines": ["numpy"]}, "measure")
    assert "Did you mean 'peers'?" in caught.value.hint


def test_where_an_expression_may_stand_a_whole_number_has_as_many_bits_as_one() -> None:
    assert convert(Caches, {"l1": 2**255, "l2": 1}, "caches").l1 == 2**255
    with pytest.raises(ConfigError, match="too large"):
        convert(Caches, {"l1": HUGE, "l2": 1}, "caches")


def test_a_list_in_the_place_of_one_value_says_how_several_are_written() -> None:
    data = {"name": "t", "family": "host", "device": "host", "sources": ["host"]}
    with pytest.raises(ConfigError, match=r"one value, not the list \[9, 9, 9\]") as caught:
        convert(Target, {**data, "options": {"dead": [9, 9, 9]}}, "target")
    assert caught.value.key == "target.options.dead"
    assert "'target.options.dead=\"9,9,9\"'" in caught.value.hint
