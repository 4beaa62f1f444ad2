"""Whoever wants to know something of a command line asks its overrides."""

from __future__ import annotations

import pytest

from kernloom.base.errors import UsageError
from kernloom.base.places import share_folder
from kernloom.config.groups import Groups
from kernloom.config.override_parser import parse_overrides
from kernloom.config.overrides import Override, Overrides

GROUPS = Groups([share_folder() / "configs"])
WORDS = ["workload=axpy,mlp", "workload.sizes.N=64", "~store.path", "++screen.keep=3"]


def parsed(*words: str) -> Overrides:
    return parse_overrides(words, GROUPS, multirun=True)


def test_values_and_swept_keys_are_known() -> None:
    overrides = parsed(*WORDS)
    assert overrides.values("workload") == ["axpy", "mlp"]
    assert overrides.values("case") == []
    assert overrides.swept_keys == {"workload"}
    assert overrides.text == tuple(WORDS)


def test_overrides_are_told_apart_by_their_root_key() -> None:
    overrides = parsed(*WORDS)
    assert overrides.mentions("screen") and not overrides.mentions("keep")
    assert overrides.about("store", "screen").text == ("~store.path", "++screen.keep=3")
    assert overrides.without("store", "screen").text == tuple(WORDS[:2])
    assert overrides.without("store").multirun


def test_of_two_sets_the_later_follows() -> None:
    both = parsed("seed=1").then(parsed("seed=2"))
    assert both.values("seed") == [1, 2]


@pytest.mark.parametrize("value", ["it's", "a,b", 3, 2.5, None, True, [1, "x"], "null"])
def test_an_override_of_a_program_is_what_its_text_is_parsed_as(value: object) -> None:
    for key in ("workload.about", "select.fixed.tile.mr"):
        override = Override.of(key, value, group=False)
        (again,) = parse_overrides([override.text], GROUPS, multirun=False)
        assert again == override


def test_an_axis_of_a_program_is_what_its_text_is_parsed_as() -> None:
    axis = Override.axis("case", ("small", "my case"), group=False)
    assert parsed(axis.text).items == (axis,)


def test_at_a_point_an_override_has_one_value() -> None:
    (swept, fixed, *_) = parsed(*WORDS)
    assert swept.at("mlp") == parsed("workload=mlp")[0]
    assert fixed.at(64) is fixed


def test_what_chooses_something_of_hydras_own_is_left_to_it() -> None:
    words = ["hydra/launcher=joblib", "seed=interval(0,1)", "x=(", "select.fixed.a.b=1"]
    overrides = parse_overrides(words, GROUPS, multirun=True, to_hydra=True)
    assert overrides.for_hydra and overrides.text == tuple(words)
    assert overrides.values("hydra/launcher") == ["joblib"]
    assert overrides.swept_keys == {"seed"}
    with pytest.raises(UsageError, match="continuous interval"):
        parse_overrides(words[1:], GROUPS, multirun=True, to_hydra=True)
