"""YAML without surprises."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kernloom.base.errors import ConfigError
from kernloom.config.reader import dump_yaml, load_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("off", "off"),
        ("on", "on"),
        ("yes", "yes"),
        ("no", "no"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("1e-6", 1e-6),
        ("1E5", 1e5),
        ("-2.5e+3", -2500.0),
        (".5", 0.5),
        ("3", 3),
        ("-7", -7),
        (".inf", math.inf),
        ("2024-01-01", "2024-01-01"),
        ("e5", "e5"),
        ("1.2.3", "1.2.3"),
        ('"1"', "1"),
        ("${seed}", "${seed}"),
    ],
)
def test_reads_plain_words(text: str, value: Any) -> None:
    result = load_yaml(f"key: {text}", where="f")["key"]
    assert result == value
    assert type(result) is type(value)


def test_off_is_a_key_like_any_other() -> None:
    assert load_yaml("{values: [1, 2], off: 0}", where="f") == {"values": [1, 2], "off": 0}


def test_anchors_and_merges_work() -> None:
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n"
    assert load_yaml(text, where="f")["b"] == {"x": 1, "y": 3}


def test_a_small_file_cannot_stand_for_a_huge_one() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(ConfigError, match="f: holds too many values"):
        load_yaml("\n".join(lines), where="f")


@pytest.mark.parametrize("text", ["&a [*a]", "&a {b: *a}", "[" * 5000 + "]" * 5000])
def test_a_file_without_a_bottom_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="f: is nested too deeply"):
        load_yaml(text, where="f")


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=10,
)


@given(_JSON)
@example("0E0")
@example("12e5")
def test_reads_back_what_was_written(value: Any) -> None:
    assert load_yaml(dump_yaml(value), where="f") == value


@given(st.text(alphabet="ab:-[]{}&*!|>'\"%@`#?,\n \t0", max_size=30))
def test_any_text_is_read_or_refused_with_its_file(text: str) -> None:
    try:
        load_yaml(text, where="some/file.yaml")
    except ConfigError as error:
        assert "some/file.yaml" in str(error)


def test_a_bomb_of_merges_is_refused_before_anything_is_expanded() -> None:
    lines = ["m0: &m0 {a: 1, b: 2, c: 3, d: 4}"]
    lines += [f"m{i}: &m{i} {{<<: [{', '.join([f'*m{i - 1}'] * 9)}]}}" for i in range(1, 12)]
    with pytest.raises(ConfigError, match="f: holds too many values"):
        load_yaml("\n".join(lines), where="f")


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_nesting_of_any_depth_is_refused(opening: str) -> None:
    """PyYAML's composer recurses in C, where 30,000 levels end the process."""
    with pytest.raises(ConfigError, match="f: is nested too deeply"):
        load_yaml(opening * 200_000, where="f")


def test_depth_behind_aliases_counts() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 60)]
    with pytest.raises(ConfigError, match="f: is nested too deeply"):
        load_yaml("\n".join(lines), where="f")


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (
            "a: &a {x: 1}\nb: {<<: *a, x: 2}\nc: {<<: [{x: 3}, *a], y: 4}",
            [{"x": 2}, {"x": 3, "y": 4}],
        ),
        (
            "a: &a {x: 1}\nb: &b {<<: *a, y: 2}\nc: {<<: *b, x: 9}",
            [{"x": 1, "y": 2}, {"x": 9, "y": 2}],
        ),
        ('a: 1\nb: {"<<": 1}\nc: "<<"', [{"<<": 1}, "<<"]),
        ("a: &a [1]\nb: [*a, *a]\nc: !!str 12", [[[1], [1]], "12"]),
        ("b: =\nc: 0x1F", ["=", 31]),
    ],
)
def test_merges_aliases_and_tags_mean_what_yaml_says(text: str, data: list[Any]) -> None:
    read = load_yaml(text, where="f")
    assert [read["b"], read["c"]] == data


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: !!python/object/apply:os.system [id]", "f:1:4: the tag .* is not allowed"),
        ("a: !!set {b}", "f:1:4: the tag .* is not allowed"),
        ("a: !!binary aGk=", "f:1:4: the tag .* is not allowed"),
        ("a: !!int ''", "f:1:4: '' is not a number"),
        ("a: 1" + "0" * 5000, "f:1:4: a value of 5001 characters is too long for int"),
        ("a: 0x" + "f" * 5000, "f:1:4: a value of 5002 characters is too long for int"),
        ("a: *b", "f:1:4: found undefined alias 'b'"),
        ("{a: &b 1, c: &b 2}", "f:1:14: found duplicate anchor 'b'"),
        ("a: 1\n---\nb: 2", "f:2:1: expected a single document, but found another"),
        ("{{a: 1}: 2}", "f:1:.*: a key must be plain text"),
        ("{<<: 1}", "f:1:6: expected a mapping or a list of mappings to merge"),
        ("a: \0", "f: not YAML: .*control characters are not allowed"),
    ],
)
def test_what_config_files_cannot_hold_is_named_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_yaml(text, where="f")
