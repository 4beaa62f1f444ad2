"""Plain data becomes dataclasses, or an error that names the key."""

from __future__ import annotations

import pytest

from kernloom.config.convert import convert
from kernloom.config.schema import Caches, Fill, Measure, Tolerance
from kernloom.errors import ConfigError

HUGE = 10**400
"""Larger than any floating-point number."""
POLICY = {"name": "p", "samples": 1, "warmup": 0, "min_rounds": 1, "max_rounds": 1}


@pytest.mark.parametrize(
    ("cls", "data", "key"),
    [
        (Measure, {**POLICY, "min_sample_us": HUGE}, "min_sample_us"),
        (Measure, {**POLICY, "min_sample_us": 1, "samples": HUGE}, "samples"),
        (Fill, {"low": -HUGE}, "low"),
        (Tolerance, {"rtol": HUGE}, "rtol"),
    ],
)
def test_a_number_beyond_all_floats_is_named(cls: type, data: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError, match=r"too (large|small)") as caught:
        convert(cls, data, "here")
    assert caught.value.key == f"here.{key}"


def test_a_whole_number_without_a_limit_may_have_any_size() -> None:
    assert convert(Caches, {"l1": HUGE, "l2": 1}, "caches").l1 == HUGE
