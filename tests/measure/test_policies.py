"""The policies that ship fit the schema and get stricter from quick to rigorous."""

from __future__ import annotations

from itertools import pairwise

import pytest
import yaml

from kernloom.base.places import share_folder
from kernloom.config.convert import convert
from kernloom.config.schema import Policy
from kernloom.measure.drift import BLOCKS
from kernloom.measure.rounds import pace


def policy(name: str) -> Policy:
    text = (share_folder() / "configs" / "measure" / f"{name}.yaml").read_text()
    return convert(Policy, yaml.safe_load(text), "measure")


def test_policies_are_named_like_their_files_and_get_stricter():
    policies = [policy(name) for name in ("quick", "standard", "rigorous")]
    assert [p.name for p in policies] == ["quick", "standard", "rigorous"]
    for looser, stricter in pairwise(policies):
        assert looser.samples < stricter.samples
        assert looser.min_rounds < stricter.min_rounds
        assert looser.max_rounds < stricter.max_rounds
        assert looser.budget_s < stricter.budget_s
    assert policies[2].bound < policies[1].bound
    assert policies[0].span_s < policies[1].span_s < policies[2].span_s


def test_quick_is_one_process():
    quick = policy("quick")
    assert (quick.min_rounds, quick.max_rounds, quick.bound) == (1, 1, 0)


def longest_s(chosen: Policy) -> float:
    """The time in which all rounds of a fast kernel begin."""
    return sum(pace(chosen, rounds) for rounds in range(1, chosen.max_rounds))


def test_rounds_are_spread_over_the_span_and_standard_ends_within_ten_seconds():
    for name in ("standard", "rigorous"):
        chosen = policy(name)
        least = sum(pace(chosen, rounds) for rounds in range(1, chosen.min_rounds))
        assert least == pytest.approx(chosen.span_s)
        assert chosen.span_s >= 4
        assert chosen.min_rounds >= 2 * BLOCKS
    assert longest_s(policy("standard")) < 8
    assert longest_s(policy("quick")) == 0
