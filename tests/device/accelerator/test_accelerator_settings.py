"""An arch as the lines that platform and programs read."""

from __future__ import annotations

from pathlib import Path

from building import ACCELERATOR

from kernloom.base.places import share_folder
from kernloom.config.accelerator import settings_of
from kernloom.config.convert import convert
from kernloom.config.groups import Groups
from kernloom.config.schema import Arch, Ring, Runtime, Target
from kernloom.device.accelerator import AcceleratorDevice
from kernloom.device.contract import DeviceSetup


def test_settings_are_those_of_runtime_arch_and_target_the_target_last() -> None:
    arch = convert(Arch, Groups([share_folder() / "configs"]).read("arch", "a5"), "arch")
    options = {"threads": 2, "faults.dead": "0.0.1", "trace": True, "sram.banks": 8}
    target = Target("a5", "accelerator", "accelerator", ("core",), options=options)
    paths = {role: Path(f"/{role}") for role in AcceleratorDevice.programs}
    runtime = Runtime("ringmap", ring=Ring(heap="1MiB"))
    setup = DeviceSetup(paths, target, arch, runtime=runtime)
    found = AcceleratorDevice.from_setup(setup).settings
    of_target = {"sram.banks": "8", "threads": "2", "faults.dead": "0.0.1", "trace": "1"}
    assert settings_of(arch) | of_target == {k: v for k, v in found.items() if "ring." not in k}
    assert found["ring.heap"] == "1048576"


def test_the_command_of_an_emulated_variant_starts_with_supervisor_and_emulator() -> None:
    roles = AcceleratorDevice.programs
    paths = {role: Path(f"/{role}") for role in roles}
    device = AcceleratorDevice(paths, ACCELERATOR, arch="a5", emulator=["/qemu", "-L", "/root"])
    command = device._command(7)
    assert command[:6] == ["/supervisor", "--scratch=7", "/qemu", "-L", "/root", "/runner"]
    assert "--emulated" in command
    native = AcceleratorDevice(paths, ACCELERATOR, arch="a5", memory_limit=1 << 20)._command(7)
    assert native[:2] == ["/runner", "--scratch=7"]
    assert native[2].startswith("--data-limit=")
    for option in ("platform", "host", "control", "core"):
        assert any(word.startswith(f"--accelerator-{option}=/") for word in native)
