"""Every command that the documentation shows is run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from parts import needs

TREE = Path(__file__).resolve().parents[2]
PAGES = [TREE / "README.md", *sorted((TREE / "docs").glob("*.md"))]
COMMAND = re.compile(r"^\$ \./kernloom (?P<words>.*?)(?:\s+#\s*(?P<note>.*))?$", re.MULTILINE)
FENCE = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def commands() -> list[tuple[str, str, int]]:
    """(page, words, expected exit code) of each shown command, each once."""
    found = {}
    for page in PAGES:
        for language, text in FENCE.findall(page.read_text(encoding="utf-8")):
            if language != "console":
                continue
            for match in COMMAND.finditer(text):
                code = re.search(r"exit code (\d+)", match["note"] or "")
                found[match["words"]] = (page.name, match["words"], int(code[1]) if code else 0)
    return list(found.values())


def kernloom(
    words: list[str], folder: Path, packages: Path | None = None, **changed: str
) -> subprocess.CompletedProcess[str]:
    places = [str(TREE / "engine"), *([str(packages)] if packages else [])]
    return subprocess.run(
        [sys.executable, "-m", "kernloom", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places), **changed},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="session")
def something_stored() -> None:
    """The sweep that the pages about results ask the store for, whatever is run first."""
    words = "run -m workload=softmax workload.sizes.N=64,128,256 toolchain=gcc,clang"
    kernloom(words.split(), TREE)


@pytest.mark.slow
@pytest.mark.usefixtures("something_stored")
@pytest.mark.parametrize(("page", "words", "code"), commands())
def test_a_shown_command_does_what_the_page_says(page: str, words: str, code: int) -> None:
    done = kernloom(shlex.split(words), TREE)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def project_of(page: str, folder: Path) -> None:
    """The files that a page shows, as a project."""
    (folder / "kernloom.yaml").touch()
    for _, text in FENCE.findall(page):
        place = re.match(r"(?:# @package \S+\n)?(?:/\*|#) ((?:templates|configs)/\S+)", text)
        if place:
            path = folder / place[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def test_the_plain_c_example_works_as_written(tmp_path: Path) -> None:
    page = (TREE / "docs/workloads-and-kernels.md").read_text(encoding="utf-8")
    project_of(page, tmp_path)
    shown = re.search(r"`kernloom (run -m workload=scale [^`]*)`", page)
    assert shown
    done = kernloom(shlex.split(shown[1]), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 verified" in done.stdout


@pytest.mark.slow
def test_the_target_added_on_the_page_runs_from_its_files_alone(tmp_path: Path) -> None:
    needs("arm-none-eabi-gcc", "qemu-system-arm")
    page = (TREE / "docs/targets.md").read_text(encoding="utf-8")
    project_of(page, tmp_path)
    shown = re.search(r"`kernloom (run target=cortex_m3 [^`]*)`", page)
    assert shown
    done = kernloom([*shlex.split(shown[1]), "output=json"], tmp_path)
    assert done.returncode == 0, done.stderr
    (trial,) = json.loads(done.stdout)["trials"]
    assert trial["verified"] and trial["target"] == "cortex_m3"
    assert trial["metrics"]["deterministic"] == ["instructions"]
    # In software, an addition of floating-point numbers takes more than one instruction.
    assert trial["metrics"]["instructions"] > 10 * 1000
    done = kernloom(["targets", "output=json"], tmp_path)
    assert {"name": "cortex_m3", "available": True}.items() <= named(
        done.stdout, "cortex_m3"
    ).items()


def named(document: str, name: str) -> dict[str, object]:
    (found,) = (entry for entry in json.loads(document) if entry["name"] == name)
    return dict(found)


def test_hardware_that_a_package_adds_is_refused_with_a_hint_until_its_tools_are_there(
    tmp_path: Path,
) -> None:
    """The package on the page, with this machine for an accelerator."""
    project, packages, tools = (tmp_path / name for name in ("project", "packages", "tools"))
    for folder in (project, packages / "npu_devices-1.dist-info", tools):
        folder.mkdir(parents=True)
    page = (TREE / "docs/targets.md").read_text(encoding="utf-8")
    project_of(page, project)
    entry = re.search(r'`(npu = )"(npu_devices:Npu)"`', page)
    assert entry
    (packages / "npu_devices-1.dist-info/METADATA").write_text("Name: npu-devices\nVersion: 1\n")
    points = f"[kernloom.devices]\n{entry[1]}{entry[2]}\n"
    (packages / "npu_devices-1.dist-info/entry_points.txt").write_text(points)
    (packages / "npu_devices.py").write_text(
        "from kernloom.device.host import HostDevice\nclass Npu(HostDevice):\n    name = 'npu'\n"
    )
    words = ["run", "target=npu", "workload=axpy", "case=small"]
    listed = named(kernloom(["targets", "output=json"], project, packages).stdout, "npu")
    assert not listed["available"]
    assert "no program 'npucc'" in str(listed["reason"])
    assert "the vendor's toolkit" in str(listed["hint"])
    done = kernloom(words, project, packages)
    assert done.returncode == 3
    assert "the vendor's toolkit" in done.stderr
    assert not (project / ".kernloom/build/kernels").exists()
    (tools / "npucc").symlink_to(shutil.which("gcc") or "gcc")
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    done = kernloom(words, project, packages, PATH=path)
    assert done.returncode == 0, done.stderr
    assert "1 verified" in done.stdout
