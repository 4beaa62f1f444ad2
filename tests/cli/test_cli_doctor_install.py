"""`doctor --install` with stand-ins for Debian's tools: the real ones would change this machine."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import PATIENCE_S, Project, command, environment
from parts import needs_opencl

APT = '#!/bin/sh\necho "$@" >>"{log}"\nexit {code}\n'
ABSENT = "#!/bin/sh\nexit 1\n"
PRESENT = "#!/bin/sh\nprintf 'install ok installed'\n"


class Debian:
    """A PATH on which Debian's tools say what the test wants."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "apt.log"
        folder.mkdir()
        self.set(code=0, query=ABSENT)

    def set(self, *, code: int, query: str) -> None:
        for name, text in (("apt-get", APT.format(log=self.log, code=code)), ("dpkg-query", query)):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)

    @property
    def env(self) -> dict[str, str]:
        """No OpenCL driver is found, so that its packages are wanted."""
        return {"PATH": f"{self.folder}:{os.environ['PATH']}", "OCL_ICD_VENDORS": "/none"}


@pytest.fixture
def debian(tmp_path: Path) -> Debian:
    needs_opencl()
    return Debian(tmp_path / "debian")


def test_what_is_missing_is_shown_and_then_installed(
    informed_project: Project, debian: Debian
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may install")
    done = informed_project.run("doctor", "--install", "--yes", env=debian.env)
    assert done.code == 0, done.stderr
    assert "pocl-opencl-icd" in done.stdout
    update, install = debian.log.read_text().splitlines()
    assert update.startswith("update")
    assert install.startswith("install -y") and "pocl-opencl-icd" in install


def test_a_failed_installation_is_said(informed_project: Project, debian: Debian) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may install")
    debian.set(code=100, query=ABSENT)
    done = informed_project.json("doctor", "--install", "--yes", env=debian.env)
    assert done.code == 3
    assert "exit code 100" in done.stderr


def test_what_is_there_is_not_installed_again(informed_project: Project, debian: Debian) -> None:
    debian.set(code=0, query=PRESENT)
    done = informed_project.run("doctor", "--install", env=debian.env)
    assert done.code == 0
    assert "Nothing to install" in done.stdout
    assert "opencl" in done.stdout
    assert not debian.log.exists()


def test_without_a_terminal_nothing_is_installed_unless_told_to(
    informed_project: Project, debian: Debian
) -> None:
    done = informed_project.run("doctor", "--install", env=debian.env)
    assert done.code == 2
    assert "pocl-opencl-icd" in done.stdout, "what would be installed is shown all the same"
    assert "nothing was installed" in done.stderr
    assert "kernloom doctor --install --yes" in done.stderr
    document = informed_project.json("doctor", "--install", env=debian.env).document
    assert not document["installed"] and "no terminal" in document["problem"]
    assert not debian.log.exists()


@pytest.mark.parametrize(("answer", "installed"), [("y", True), ("n", False), ("", False)])
def test_on_a_terminal_the_answer_decides(
    informed_project: Project, debian: Debian, answer: str, installed: bool
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may install")
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    done = subprocess.run(
        command("doctor", "--install"),
        cwd=informed_project.folder,
        env=environment(informed_project.home, **debian.env),
        stdin=theirs,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    os.close(ours)
    os.close(theirs)
    assert done.returncode == 0, done.stderr
    assert "Install them? [y/N]" in done.stderr
    assert debian.log.exists() == installed


def test_a_hint_in_words_is_no_command(informed_project: Project, debian: Debian) -> None:
    debian.set(code=0, query=PRESENT)
    informed_project.write(
        "configs/toolchain/npucc.yaml",
        "defaults: [gcc, _self_]\nname: npucc\ntools: {cc: npucc}\n"
        'install: {debian: "the vendor\'s toolkit"}\n',
    )
    informed_project.write(
        "configs/target/npu.yaml",
        "# @package _global_\ndefaults: [host, {override /toolchain: npucc}, _self_]\n"
        "target: {name: npu}\n",
    )
    done = informed_project.run("doctor", "--install", env=debian.env)
    assert done.code == 0, done.stderr
    assert "Not available for other reasons: npu" in done.stdout


def test_yes_without_install_is_bad_usage(informed_project: Project) -> None:
    assert informed_project.run("doctor", "--yes").code == 2


def test_the_extra_stands_for_its_packages() -> None:
    from kernloom.base.places import find_places
    from kernloom.cli.installing import Missing, _extra

    (wanted,) = _extra("opencl", find_places())
    assert wanted.startswith("pyopencl")
    (command,) = Missing((), (), (wanted,)).commands()
    assert command[:4] == [sys.executable, "-m", "pip", "install"]
