"""Registries: names to classes, shipped and from other packages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernloom.base.errors import ConfigError
from kernloom.base.registry import Registry
from kernloom.device.devices import DEVICES
from kernloom.measure.data import REFERENCE_FUNCTIONS
from kernloom.measure.fills import GENERATORS

Distribute = Callable[[str, str], None]


@pytest.fixture
def distribute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Distribute:
    """Puts a distribution with entry points on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(entries: str, code: str = "THING = 'from outside'\n") -> None:
        (tmp_path / "outside_things.py").write_text(code)
        info = tmp_path / "outside-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[kernloom.things]\n{entries}\n")
        monkeypatch.delitem(sys.modules, "outside_things", raising=False)

    return make


def things() -> Registry[str]:
    return Registry("thing", {"ours": "shipped"}, group="kernloom.things")


def test_knows_what_ships() -> None:
    assert things().get("ours", key="k") == "shipped"


def test_an_unknown_name_is_an_error_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError) as caught:
        things().get("ourz", key="pipeline.stages.a.use")
    assert "pipeline.stages.a.use: unknown thing 'ourz'" in str(caught.value)
    assert "Did you mean 'ours'?" in str(caught.value)


def test_an_unknown_name_tells_how_packages_add_one() -> None:
    registries: list[Registry[Any]] = [things(), DEVICES, GENERATORS, REFERENCE_FUNCTIONS]
    for registry in registries:
        with pytest.raises(ConfigError) as caught:
            registry.get("nobody_has_this", key="k")
        message = f"k: unknown {registry.what} 'nobody_has_this'"
        assert caught.value.message == message
        assert f"by entry point: the group is kernloom.{registry.what}s." in caught.value.hint


def test_other_packages_add_names_by_entry_point(distribute: Distribute) -> None:
    distribute("theirs = outside_things:THING")
    assert things().get("theirs", key="k") == "from outside"
    assert things().names() == ["ours", "theirs"]


def test_other_packages_cannot_replace_what_ships(distribute: Distribute) -> None:
    distribute("ours = outside_things:THING")
    registry = things()
    assert registry.names() == ["ours"]
    assert registry.get("ours", key="k") == "shipped"


def test_a_broken_package_is_named_only_where_it_is_used(distribute: Distribute) -> None:
    distribute("bad = outside_things:THING", code="raise RuntimeError('half installed')\n")
    registry = things()
    assert registry.names() == ["ours"]
    with pytest.raises(ConfigError, match=r"'bad' cannot be loaded.*half installed"):
        registry.get("bad", key="k")


def test_a_name_is_never_taken_for_an_import_path() -> None:
    for name in ("os.system", "os:system", "builtins.eval", ""):
        with pytest.raises(ConfigError):
            things().get(name, key="k")
