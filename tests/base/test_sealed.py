"""Sealed files: whatever happens to one, it is read as it was written or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernloom.base.sealed import (
    DamagedFileError,
    key_of,
    read_cache,
    read_sealed,
    seal,
    unseal,
    write_cache,
    write_sealed,
)

VALUE = {"text": "größer", "numbers": [1, 2.5], "nested": {"b": None, "a": True}}


def test_a_sealed_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    write_sealed(path, VALUE)
    found = read_sealed(path)
    assert found == VALUE and list(found) == list(VALUE)


@pytest.mark.parametrize("value", [VALUE, {}])
@pytest.mark.parametrize("indent", [None, 1])
def test_other_programs_read_a_sealed_file_as_json(value: dict[str, object], indent: int) -> None:
    assert json.loads(seal(value, "key", indent)).keys() == {"sha256", *value}
    assert unseal(seal(value, "key", indent).encode(), "key") == value


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    write_sealed(path, VALUE)
    data = path.read_bytes()
    for place in range(len(data) - 1):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(DamagedFileError):
            read_sealed(path)


def test_a_file_that_was_cut_short_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    write_sealed(path, VALUE)
    data = path.read_bytes()
    for length in range(len(data) - 1):
        path.write_bytes(data[:length])
        assert read_cache(path) == {}


def test_a_file_in_the_place_of_another_is_noticed(tmp_path: Path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    write_sealed(one, VALUE)
    one.rename(other)
    with pytest.raises(DamagedFileError, match="does not match its hash"):
        read_sealed(other)


def test_a_copy_of_the_folder_is_as_good(tmp_path: Path) -> None:
    one, other = tmp_path / "here" / "cache" / "a.json", tmp_path / "there" / "cache" / "a.json"
    write_sealed(one, VALUE)
    other.parent.mkdir(parents=True)
    other.write_bytes(one.read_bytes())
    assert read_sealed(other) == VALUE
    assert key_of(one) == "cache/a.json"


def test_a_damaged_cache_of_many_entries_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "many.json"
    write_cache(path, "one", {"x": 1})
    write_cache(path, "two", {"x": 2})
    assert read_cache(path) == {"one": {"x": 1}, "two": {"x": 2}}
    path.write_text(path.read_text().replace('"x": 1', '"x": 7'))
    assert read_cache(path) == {}
    write_cache(path, "two", {"x": 2})
    assert read_cache(path) == {"two": {"x": 2}}
