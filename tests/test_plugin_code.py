"""The code behind a registered name: which files count, and which do not."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernloom import plugin_code
from kernloom.measure.references import conv2d

PACKAGE = {
    "plugged/__init__.py": "from plugged.inner import golden\n",
    "plugged/inner.py": "import beside\n\ndef golden(*_):\n    import beside_late\n    return 0\n",
    "plugged/unused.py": "x = 1\n",
    "plugged/table.npy": "1 2 3",
    "beside.py": "import json, numpy\n",
    "beside_late.py": "y = 1\n",
    "elsewhere.py": "z = 1\n",
    "site-packages/third_party.py": "__version__ = '1.0'\n",
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


def test_references_that_ship_are_ours() -> None:
    assert plugin_code.is_ours(conv2d)
    assert not plugin_code.is_ours(Path)
