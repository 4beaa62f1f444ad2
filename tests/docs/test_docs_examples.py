"""The examples of the documentation work as written, and say what the pages say they say."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from command_line import ENGINE, Project
from doc_pages import PAGES, files
from example_package import install
from parts import needs, needs_opencl

OWN_KERNEL = "docs/guide/own-kernel.md"
FUSING = "docs/guide/fusing.md"
GOLDENS = "docs/guide/python-goldens.md"
OWN_TARGET = "docs/guide/own-target.md"


def with_files(project: Project, page: str) -> Project:
    """A project with the files that a page shows."""
    for name, text in files(page).items():
        project.write(name, text)
    return project


def shown(page: str, pattern: str) -> list[str]:
    found = re.search(pattern, PAGES[page].read_text(encoding="utf-8"))
    assert found, pattern
    return shlex.split(found[1])


def test_the_plain_c_example_works_as_written(project: Project) -> None:
    page = OWN_KERNEL
    words = shown(page, r"`kernloom (run -m workload=scale [^`]*)`")
    done = with_files(project, page).run(*words)
    assert done.code == 0, done.stdout + done.stderr
    assert "3 verified" in done.stdout


def test_the_fused_example_works_as_written(project: Project) -> None:
    page = FUSING
    words = shown(page, r"`kernloom (run -m workload=twice_add [^`]*)`")
    with_files(project, page)
    done = project.json(*words)
    assert done.code == 0, done.stdout + done.stderr
    fused, apart = ([item["name"] for item in trial["artifacts"]] for trial in done.trials)
    assert fused == ["twice_add.twice", "runner"]
    assert apart == ["twice_add.twice", "twice_add.add", "runner"]
    chosen = project.json("plan", "workload=twice_add", "show=source.text")
    assert chosen.code == 0, chosen.stderr
    assert "y[i] = 2 * x[i] + b[i];" in chosen.stdout


def test_the_plain_opencl_example_works_as_written(project: Project) -> None:
    needs_opencl()
    page = OWN_KERNEL
    words = shown(page, r"`kernloom (run -m target=opencl workload=scale [^`]*)`")
    done = with_files(project, page).run(*words)
    assert done.code == 0, done.stdout + done.stderr
    assert "3 verified" in done.stdout


def test_the_order_that_the_page_calls_wrong_is_refused(project: Project) -> None:
    page = OWN_KERNEL
    with_files(project, page)
    swapped = files(page)["templates/scale.c"].replace(
        "const float *x, float *y", "float *y, const float *x"
    )
    project.write("templates/scale.c", swapped)
    done = project.run("plan", "workload=scale")
    assert done.code == 2
    assert "'y' would get the argument 'x'" in done.stderr


@pytest.fixture
def numbers(project: Project) -> tuple[Project, dict[str, str]]:
    """The page's project with its package installed, and the environment that has it."""
    with_files(project, GOLDENS)
    packages = install(project.folder / "package")
    return project, {"PYTHONPATH": os.pathsep.join([str(ENGINE), str(packages)])}


def test_a_reference_and_a_generator_are_called_as_the_page_says(
    numbers: tuple[Project, dict[str, str]],
) -> None:
    project, env = numbers
    done = project.json("run", "workload=running_max", env=env)
    assert done.code == 0, done.stderr
    assert done.trial["verified"]
    # The golden is what the reference says: a kernel that does something else is wrong.
    code = project.folder / "templates/running_max.c"
    code.write_text(code.read_text().replace("x[i] > most", "x[i] < most"))
    assert project.json("run", "workload=running_max", env=env).trial["status"] == "wrong"


@pytest.mark.parametrize(
    ("text", "changed", "said"),
    [
        ("(inputs, scalars, sizes)", "(x)", "called as running_max(inputs, scalars, sizes)"),
        ("(spec, random)", "(shape)", "called as spikes(spec, random)"),
    ],
)
def test_a_function_with_other_parameters_is_told_how_it_is_called(
    numbers: tuple[Project, dict[str, str]], text: str, changed: str, said: str
) -> None:
    project, env = numbers
    code = project.folder / "package/my_numbers.py"
    code.write_text(code.read_text().replace(text, changed))
    done = project.json("run", "workload=running_max", env=env)
    assert done.code in (1, 2)
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_without_its_package_a_reference_is_unknown(project: Project) -> None:
    with_files(project, GOLDENS)
    done = project.run("run", "workload=running_max")
    assert done.code == 2
    assert "unknown reference 'running_max'" in done.stderr


def test_a_toolchain_that_inherits_is_listed(project: Project) -> None:
    with_files(project, OWN_TARGET)
    tools = {tool["name"]: tool for tool in project.json("doctor").document["toolchains"]}
    assert tools["gcc_o3"] == {**tools["gcc"], "name": "gcc_o3"}


@pytest.mark.slow
def test_the_target_added_on_the_page_runs_from_its_files_alone(project: Project) -> None:
    needs("arm-none-eabi-gcc", "qemu-system-arm")
    with_files(project, OWN_TARGET)
    words = shown(OWN_TARGET, r"`kernloom (run target=cortex_m3 [^`]*)`")
    done = project.json(*words)
    assert done.code == 0, done.stderr
    trial = done.trial
    assert trial["verified"] and trial["target"] == "cortex_m3"
    assert trial["metrics"]["deterministic"] == ["instructions"]
    # In software, an addition of floating-point numbers takes more than one instruction.
    assert trial["metrics"]["instructions"] > 10 * 1000
    assert named(project, "cortex_m3")["available"]


def named(project: Project, name: str, **env: str) -> dict[str, object]:
    """A target as `targets` lists it."""
    listed = project.json("targets", env=env).document
    (found,) = (entry for entry in listed if entry["name"] == name)
    return dict(found)


def test_hardware_that_a_package_adds_is_refused_with_a_hint_until_its_tools_are_there(
    project: Project, tmp_path: Path
) -> None:
    """The package on the page, with this machine for an accelerator."""
    packages, tools = (tmp_path / name for name in ("packages", "tools"))
    for folder in (packages / "npu_devices-1.dist-info", tools):
        folder.mkdir(parents=True)
    with_files(project, OWN_TARGET)
    page = PAGES[OWN_TARGET].read_text(encoding="utf-8")
    entry = re.search(r'`(npu = )"(npu_devices:Npu)"`', page)
    assert entry
    (packages / "npu_devices-1.dist-info/METADATA").write_text("Name: npu-devices\nVersion: 1\n")
    points = f"[kernloom.devices]\n{entry[1]}{entry[2]}\n"
    (packages / "npu_devices-1.dist-info/entry_points.txt").write_text(points)
    (packages / "npu_devices.py").write_text(
        "from kernloom.device.host import HostDevice\nclass Npu(HostDevice):\n    name = 'npu'\n"
    )
    env = {"PYTHONPATH": os.pathsep.join([str(ENGINE), str(packages)])}
    words = ["run", "target=npu", "workload=axpy", "case=small"]
    listed = named(project, "npu", **env)
    assert not listed["available"]
    assert "no program 'npucc'" in str(listed["reason"])
    assert "the vendor's toolkit" in str(listed["hint"])
    done = project.run(*words, env=env)
    assert done.code == 3
    assert "the vendor's toolkit" in done.stderr
    assert not (project.build / "kernels").exists()
    (tools / "npucc").symlink_to(shutil.which("gcc") or "gcc")
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    done = project.run(*words, env={**env, "PATH": path})
    assert done.code == 0, done.stderr
    assert "1 verified" in done.stdout
