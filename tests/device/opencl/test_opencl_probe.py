"""What was found is remembered until something that drivers go by changes, and no longer."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernloom.base.errors import UnavailableError
from kernloom.base.sealed import read_sealed, write_sealed
from kernloom.device.opencl import probe
from parts import needs_opencl

VENDORS = Path("/etc/OpenCL/vendors")


@pytest.fixture
def vendors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's drivers, listed in a folder that can be changed."""
    needs_opencl()
    if not list(VENDORS.glob("*.icd")):
        pytest.skip(f"no driver is listed in {VENDORS}")
    folder = tmp_path / "vendors"
    shutil.copytree(VENDORS, folder)
    monkeypatch.setenv("OCL_ICD_VENDORS", str(folder))
    return folder


@pytest.fixture
def look(tmp_path: Path) -> Callable[[], list[str]]:
    """The names of the devices, as a new process would find them."""

    def look() -> list[str]:
        probe._devices.cache_clear()
        return [item.device for item in probe.devices(cache=tmp_path)]

    return look


def pretend(folder: Path, **changed: Any) -> None:
    """Have the record say what no driver would, which shows who is asked."""
    path = folder / "opencl.json"
    records = read_sealed(path)
    for record in records.values():
        record["devices"][0]["device"] = "remembered"
        record.update(changed)
    write_sealed(path, records)


def test_drivers_are_asked_once(
    vendors: Path, look: Callable[[], list[str]], tmp_path: Path
) -> None:
    found = look()
    pretend(tmp_path)
    assert look() == ["remembered", *found[1:]]


def test_a_driver_that_is_listed_anew_or_differently_is_asked(
    vendors: Path, look: Callable[[], list[str]], tmp_path: Path
) -> None:
    found = look()
    pretend(tmp_path)
    (vendors / "another.icd").write_text("libnot_there.so\n", encoding="utf-8")
    assert look() == found
    pretend(tmp_path)
    listed = next(path for path in vendors.glob("*.icd") if path.name != "another.icd")
    listed.write_text(listed.read_text(encoding="utf-8"), encoding="utf-8")
    assert look() == found


def test_a_driver_that_is_gone_is_not_remembered(
    vendors: Path, look: Callable[[], list[str]], tmp_path: Path
) -> None:
    look()
    shutil.rmtree(vendors)
    vendors.mkdir()
    assert look() == []


def test_a_machine_without_any_driver_is_asked_once_and_again_when_one_is_listed(
    vendors: Path,
    look: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    listed = {path.name: path.read_text(encoding="utf-8") for path in vendors.glob("*.icd")}
    for name in listed:
        (vendors / name).unlink()
    monkeypatch.setattr(probe, "_VENDORS", str(tmp_path / "none"))
    assert look() == []
    with monkeypatch.context() as asked:
        asked.setattr(probe, "WORKER", ("-c", "import os; os.abort()"))
        assert look() == []
    for name, text in listed.items():
        (vendors / name).write_text(text, encoding="utf-8")
    assert look() != []


def test_a_driver_that_does_not_work_is_asked_again(
    vendors: Path, look: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in vendors.glob("*.icd"):
        path.write_text("libnot_there.so\n", encoding="utf-8")
    assert look() == []
    monkeypatch.setattr(probe, "WORKER", ("-c", "import os; os.abort()"))
    with pytest.raises(UnavailableError, match="drivers do not work"):
        look()


def test_no_process_is_started_to_find_that_a_package_is_missing(
    monkeypatch: pytest.MonkeyPatch, look: Callable[[], list[str]]
) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    monkeypatch.setattr(probe, "WORKER", ("-c", "import os; os.abort()"))
    with pytest.raises(UnavailableError, match="the Python package pyopencl is missing") as caught:
        look()
    assert "doctor --install" in caught.value.hint


@pytest.mark.parametrize(
    "stamps", [{"/etc/hostname": [0, 0, 0, 0]}, {"/no/such/library.so": [1, 2, 3, 4]}, None]
)
def test_a_library_that_has_changed_is_asked(
    vendors: Path, look: Callable[[], list[str]], tmp_path: Path, stamps: Any
) -> None:
    found = look()
    pretend(tmp_path, stamps=stamps)
    assert look() == found


def test_the_libraries_of_the_drivers_are_known(
    vendors: Path, look: Callable[[], list[str]], tmp_path: Path
) -> None:
    look()
    (record,) = read_sealed(tmp_path / "opencl.json").values()
    named = [path.read_text(encoding="utf-8").strip() for path in vendors.glob("*.icd")]
    stamped = {Path(path).name for path in record["stamps"]}
    assert {Path(library).name.partition(".so")[0] for library in named} <= {
        name.partition(".so")[0] for name in stamped
    }


@pytest.mark.parametrize("variable", ["POCL_DEVICES", "CUDA_VISIBLE_DEVICES", "OCL_ICD_DEBUG"])
def test_variables_that_choose_devices_are_heeded(
    vendors: Path,
    look: Callable[[], list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
) -> None:
    look()
    pretend(tmp_path)
    monkeypatch.setenv(variable, {"POCL_DEVICES": "basic basic"}.get(variable, "0"))
    assert "remembered" not in look()
    monkeypatch.delenv(variable)
    assert look()[0] == "remembered"


def test_a_damaged_record_is_made_again(
    vendors: Path, look: Callable[[], list[str]], tmp_path: Path
) -> None:
    found = look()
    for text in ("{", "[]", '{"a": 1}'):
        (tmp_path / "opencl.json").write_text(text, encoding="utf-8")
        assert look() == found


def test_drivers_that_crash_are_said_and_asked_again(
    vendors: Path,
    look: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probe, "WORKER", ("-c", "import os; os.abort()"))
    with pytest.raises(UnavailableError, match="drivers do not work"):
        look()
    monkeypatch.undo()
    monkeypatch.setenv("OCL_ICD_VENDORS", str(vendors))
    assert look()
