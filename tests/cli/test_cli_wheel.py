"""An installed wheel works anywhere, and leaves the folder it is started in alone."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from kernloom.base.places import share_folder
from parts import needs_module

pytestmark = pytest.mark.slow
PATIENCE_S = 300


def run(argv: list[str | Path], **how: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [str(part) for part in argv],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        **how,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    needs_module("hatchling")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    done = run([*pip, "--no-index", "-w", folder, share_folder()], cwd=folder)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, which sees the dependencies of this one."""
    folder = tmp_path_factory.mktemp("environment")
    assert run([sys.executable, "-m", "venv", "--without-pip", folder]).returncode == 0
    (packages,) = folder.glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python"]
    done = run([*pip, "install", "--no-deps", "--no-index", wheel])
    assert done.returncode == 0, done.stderr
    ours = [path for path in site.getsitepackages() if Path(path).is_dir()]
    (packages / "dependencies.pth").write_text("\n".join(ours) + "\n", encoding="utf-8")
    return folder


def test_the_wheel_carries_configs_templates_sources_and_the_build_graph(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for name in (
        "SConstruct",
        "configs/kernloom.yaml",
        "templates/kernels/matmul/host.c.j2",
        "native/runner/main.c",
        "scenes/matmul.yaml",
        "scenes/expected/matmul.txt",
    ):
        assert f"kernloom/share/{name}" in names
    assert not [name for name in names if name.endswith((".pyc", ".so", ".db"))]


@pytest.mark.parametrize("named", [[], ["-p", "kernloom.pytest_plugin"]])
def test_pytest_finds_the_plugin_of_an_installed_wheel(
    installed: Path, tmp_path: Path, named: list[str]
) -> None:
    scene = "workload: axpy\ncases: {small: {sizes: {N: 8}, targets: [host]}}\n"
    (tmp_path / "scenes").mkdir()
    (tmp_path / "scenes/mine.yaml").write_text(scene)
    (tmp_path / "kernloom.yaml").touch()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST"))}
    words = [installed / "bin/python", "-m", "pytest", "scenes", "--collect-only", "-q", *named]
    done = run([*words, "--kernloom-target", "host"], cwd=tmp_path, env=kept)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "scenes/mine.yaml::small[host]" in done.stdout
    off = [*words[:6], "-p", "no:kernloom.pytest_plugin"]
    assert run(off, cwd=tmp_path, env=kept).returncode == 5


def test_an_installed_wheel_runs_in_an_empty_folder_and_leaves_it_empty(
    installed: Path, tmp_path: Path
) -> None:
    empty, home, cache = (tmp_path / name for name in ("empty", "home", "cache"))
    for folder in (empty, home, cache):
        folder.mkdir()
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "XDG_"))}
    environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(cache)}
    where = run(
        [installed / "bin" / "python", "-c", "import kernloom; print(kernloom.__file__)"],
        cwd=empty,
        env=environment,
    )
    assert where.stdout.startswith(str(installed))
    program = installed / "bin" / "kernloom"
    done = run([program, "run", "workload=axpy", "output=json"], cwd=empty, env=environment)
    assert done.returncode == 0, done.stderr
    (trial,) = json.loads(done.stdout)["trials"]
    assert trial["verified"] is True
    shown = run([program, "plan", "--cfg=job", "-p=workload.name"], cwd=empty, env=environment)
    assert shown.stdout == "matmul\n", shown.stderr
    planned = run([program, "plan", "-m", "experiment=isa_levels"], cwd=empty, env=environment)
    assert planned.returncode == 0, planned.stderr
    assert list(empty.iterdir()) == []
    assert list(home.iterdir()) == []
    assert [path.name for path in cache.iterdir()] == ["kernloom"]


def test_an_installed_wheel_completes_words(installed: Path, tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "XDG_"))}
    environment |= {"HOME": str(tmp_path)}
    program = installed / "bin" / "kernloom"
    done = run([program, "completion", "bash"], cwd=tmp_path, env=environment)
    assert "complete -o nosort -F _kernloom kernloom" in done.stdout
    words = ["--words", "2", "--", "kernloom", "run", "workload=stenc"]
    done = run([program, "completion", "bash", *words], cwd=tmp_path, env=environment)
    assert done.stdout == "word workload=stencil5\n"
    assert list(tmp_path.iterdir()) == []
