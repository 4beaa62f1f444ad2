"""The code behind a registered name: which files count, and which do not."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kernloom.base import plugin_code
from kernloom.measure.references import conv2d

METADATA = "Metadata-Version: 2.1\nName: Its-Name\nVersion: {version}\n"
PACKAGE = {
    "plugged/__init__.py": "from plugged.inner import golden\n",
    "plugged/inner.py": "import beside\n\ndef golden(*_):\n    import beside_late\n    return 0\n",
    "plugged/unused.py": "x = 1\n",
    "plugged/table.npy": "1 2 3",
    "beside.py": "import json, numpy\n",
    "beside_late.py": "y = 1\n",
    "elsewhere.py": "z = 1\n",
    "site-packages/third_party.py": "__version__ = '1.0'\n",
    "site-packages/Its_Name-1.0.dist-info/METADATA": METADATA.format(version="1.0"),
    "site-packages/Its_Name-1.0.dist-info/RECORD": "third_party.py,,\n",
    "site-packages/without_metadata.py": "x = 1\n",
}
Digest = Callable[[], str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in PACKAGE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith(("plugged", "beside", "third"))]:
        del sys.modules[name]


@pytest.fixture
def digest(folder: Path) -> Digest:
    """The digest that the next process would find."""

    def find(version: str = "plugged 1.0") -> str:
        importlib.invalidate_caches()
        plugin_code._closure.cache_clear()
        plugin_code._distributions.cache_clear()
        return plugin_code.code_digest(importlib.import_module("plugged").golden, version)

    return find


@pytest.mark.parametrize(
    "file", ["plugged/__init__.py", "plugged/inner.py", "plugged/unused.py", "beside.py"]
)
def test_a_changed_file_of_the_package_or_of_what_it_imports_is_noticed(
    file: str, folder: Path, digest: Digest
) -> None:
    before = digest()
    assert digest() == before
    with (folder / file).open("a") as opened:
        opened.write("# changed\n")
    assert digest() != before


def test_what_a_function_imports_when_it_is_called_is_noticed(folder: Path, digest: Digest) -> None:
    before = digest()
    (folder / "beside_late.py").write_text("y = 2\n")
    assert digest() != before


def test_files_that_nothing_of_it_imports_do_not_count(folder: Path, digest: Digest) -> None:
    before = digest()
    (folder / "elsewhere.py").write_text("z = 2\n")
    (folder / "plugged/inner.py").touch()
    assert digest() == before


def test_what_editors_leave_beside_the_code_does_not_count(folder: Path, digest: Digest) -> None:
    before = digest()
    (folder / "plugged/.#inner.py").symlink_to("somebody@somewhere.1234:5678")
    (folder / "plugged/gone.py").symlink_to("nowhere.py")
    (folder / "plugged/.inner.py").write_text("half")
    (folder / "plugged/.checkpoints").mkdir()
    (folder / "plugged/.checkpoints/inner.py").write_text("old")
    (folder / "plugged/folder.py").mkdir()
    os.mkfifo(folder / "plugged/pipe.py")
    assert digest() == before


def test_another_version_of_the_distribution_is_noticed(digest: Digest) -> None:
    assert digest() != digest("plugged 1.1")  # type: ignore[call-arg]


def test_a_third_party_counts_by_its_version(folder: Path, digest: Digest) -> None:
    (folder / "beside.py").write_text("import third_party\n")
    before = digest()
    with (folder / "site-packages/third_party.py").open("a") as opened:
        opened.write("# changed\n")
    assert digest() == before
    info = folder / "site-packages/Its_Name-1.0.dist-info"
    (info / "METADATA").write_text(METADATA.format(version="1.1"))
    assert digest() != before


def test_a_third_party_that_does_not_say_its_version_counts_by_its_files(
    folder: Path, digest: Digest
) -> None:
    (folder / "beside.py").write_text("import without_metadata\n")
    before = digest()
    left = folder / "site-packages/left_over-1.0.dist-info"
    left.mkdir()
    (left / "RECORD").write_text("without_metadata.py,,\n")
    assert digest() == before
    (folder / "site-packages/without_metadata.py").write_text("x = 2\n")
    assert digest() != before


@pytest.mark.parametrize("name", ["third_party", "without_metadata", "not_installed"])
def test_the_digest_does_not_depend_on_what_was_imported_before(
    folder: Path, digest: Digest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (folder / "plugged/inner.py").write_text(f"def golden(*_):\n    import {name}\n")
    before = digest()
    module = ModuleType(name)
    module.__spec__ = importlib.util.find_spec(name)
    monkeypatch.setattr(module, "__version__", "9.9", raising=False)
    monkeypatch.setitem(sys.modules, name, module)
    assert digest() == before


def test_references_that_ship_are_ours() -> None:
    assert plugin_code.is_ours(conv2d)
    assert not plugin_code.is_ours(Path)
