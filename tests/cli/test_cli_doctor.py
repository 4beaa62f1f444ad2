"""`doctor` and `targets` say what this machine has, and how to get what it lacks."""

from __future__ import annotations

from typing import Any

from command_line import Project
from parts import needs

UNKNOWN = """\
# @package _global_
defaults:
  - /toolchain: gcc
  - /arch: x86_64_v2
  - /runtime: none
  - /pipeline: native
  - _self_
target:
  name: {name}
  family: host
  device: emulated
  sources: [host]
  systems: [linux]
  emulator:
    program: {program}
    minimum_version: "{version}"
    install: {{debian: apt-get install qemu-of-nobody}}
"""


def emulators(project: Project) -> dict[str, dict[str, Any]]:
    done = project.json("doctor")
    assert done.code == 0, done.stderr
    return {entry["name"]: entry for entry in done.document["emulators"]}


def test_every_emulator_is_listed_once_with_its_targets(informed_project: Project) -> None:
    needs("qemu-aarch64")
    found = emulators(informed_project)["qemu-aarch64"]
    assert found["available"] and found["version"] and found["path"].endswith("/qemu-aarch64")
    assert found["targets"] == ["aarch64", "aarch64_sve"]
    shown = informed_project.run("doctor").stdout
    assert f"{found['version']} ({found['path']})" in shown


def test_a_missing_emulator_is_shown_with_how_to_get_it(informed_project: Project) -> None:
    text = UNKNOWN.format(name="odd", program="qemu-of-nobody", version="7.2")
    informed_project.write("configs/target/odd.yaml", text)
    found = emulators(informed_project)["qemu-of-nobody"]
    assert not found["available"]
    assert "no emulator 'qemu-of-nobody'" in found["reason"]
    assert "apt-get install qemu-of-nobody" in found["hint"]
    assert "apt-get install qemu-of-nobody" in informed_project.run("doctor").stdout


def test_targets_say_why_an_emulator_will_not_do(informed_project: Project) -> None:
    for name, said, version in (
        ("old", "version 6.2.0", "7.2"),
        ("blind", "version 10.0.2", "7.2"),
    ):
        program = informed_project.write(name, f"#!/bin/sh\necho {said}\n")
        program.chmod(0o755)
        text = UNKNOWN.format(name=name, program=program, version=version)
        informed_project.write(f"configs/target/{name}.yaml", text)
    listed = {entry["name"]: entry for entry in informed_project.json("targets").document}
    assert "is version 6.2.0, but 7.2 or newer is needed" in listed["old"]["reason"]
    assert "takes no plugins" in listed["blind"]["reason"]
    assert not listed["old"]["available"] and not listed["blind"]["available"]


def test_a_target_whose_file_is_wrong_hides_no_emulator(informed_project: Project) -> None:
    informed_project.write("configs/target/broken.yaml", "target: {name: broken, family: none}\n")
    assert "qemu-aarch64" in emulators(informed_project)
