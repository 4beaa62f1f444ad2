"""An arch as the lines that platform and programs read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from building import ACCELERATOR, NATIVE

from kernloom.base.errors import ConfigError
from kernloom.base.places import share_folder
from kernloom.config.accelerator import settings_of
from kernloom.config.convert import convert
from kernloom.config.groups import Groups
from kernloom.config.schema import Arch, Machine, Ring, Runtime, Target
from kernloom.device.accelerator import AcceleratorDevice
from kernloom.device.accelerator.options import Options, faults_text, settings_of_options
from kernloom.device.contract import DeviceSetup
from kernloom.recipe.fields import DEVICE_OPTIONS

ROOT = NATIVE.parent


def a5(platform: str = "sim", **options: Any) -> Target:
    machines = {"release": Machine(platform=platform)}
    return Target("a5", "accelerator", "accelerator", ("core",), machines=machines, options=options)


def test_settings_are_those_of_runtime_arch_and_target() -> None:
    arch = convert(Arch, Groups([share_folder() / "configs"]).read("arch", "a5"), "arch")
    paths = {role: Path(f"/{role}") for role in AcceleratorDevice.programs}
    runtime = Runtime("ringmap", ring=Ring(heap="1MiB"))
    setup = DeviceSetup(paths, a5(threads=2, dead="0.0.1"), arch, runtime=runtime)
    found = AcceleratorDevice.from_setup(setup).settings
    of_target = {"threads": "2", "timeout_ns": "1000000000000", "faults.dead": "0.0.1"}
    of_target |= {"hazards": "1", "times": "1"}
    assert settings_of(arch) | of_target == {k: v for k, v in found.items() if "ring." not in k}
    assert found["ring.heap"] == "1048576"


def test_options_of_the_target_are_settings_too() -> None:
    given = {"threads": 2, "timeout_ns": 5000}
    options = given | {"dead": "0.0.1,0.1.0", "slow": "noc:4", "late": "2:50", "lose": 3}
    assert settings_of_options(a5(**options)) == {
        "threads": "2",
        "timeout_ns": "5000",
        "hazards": "1",
        "faults.dead": "0.0.1,0.1.0",
        "faults.slow": "noc:4",
        "faults.late": "2:50",
        "faults.lose": "3",
    }
    vendors = a5("theirs", forward="x.so", on=True)
    assert settings_of_options(vendors) == {"forward": "x.so", "on": "1"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, ""),
        ({"threads": 2, "slow": "noc:1,hbm:1.0", "late": "0:50", "lose": 0}, ""),
        ({"slow": "noc:1,hbm:2", "lose": 3}, "slow=noc:1,hbm:2 lose=3"),
        ({"dead": "0.0.1", "late": "2:50", "corrupt": 9}, "dead=0.0.1 late=2:50 corrupt=9"),
    ],
)
def test_faults_are_the_options_that_change_the_hardware(
    options: dict[str, Any], text: str
) -> None:
    assert AcceleratorDevice.injected_faults(a5(**options)) == faults_text(a5(**options)) == text
    assert faults_text(a5(platform="theirs", **options)) == ""


def test_options_are_the_same_in_schema_recipes_and_targets() -> None:
    names = set(vars(Options()))
    assert DEVICE_OPTIONS["accelerator"] == names
    for target in ("a2a3", "a5", "mppa"):
        text = (ROOT / f"configs/target/{target}.yaml").read_text()
        declared = yaml.safe_load(text)["target"]["options"]
        assert declared == vars(Options())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nonsense": 2}, "unknown key 'nonsense'"),
        ({"threads": 0}, "threads: 0 is too small"),
        ({"threads": 65}, "threads: 65 is too large"),
        ({"timeout_ns": 0}, "timeout_ns: 0 is too small"),
        ({"dead": "0.0"}, "dead: '0.0' is no fault"),
        ({"dead": 0.5}, "dead: '0.5' is no fault"),
        ({"slow": "noc"}, "slow: 'noc' is no fault"),
        ({"late": "2:5,3:5"}, "late: '2:5,3:5' is no fault"),
        ({"lose": -1}, "lose: -1 is too small"),
        ({"slow": "hbm:2,nox:4"}, "slow: there is no link 'nox'"),
        ({"slow": "noc:0.5"}, "slow: noc cannot be slower by 0.5"),
        ({"slow": "noc:1.2.3"}, "slow: noc cannot be slower by 1.2.3"),
        ({"dead": "0.0.1\nhbm.bytes=5"}, "is no fault"),
    ],
)
def test_an_option_that_no_simulation_has_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        AcceleratorDevice.check(a5(**options))


@pytest.mark.parametrize("pe", ["9.9.9", "1.0.0", "0.36.0", "0.0.1,0.0.3"])
def test_a_dead_pe_that_the_topology_lacks_is_refused(pe: str) -> None:
    arch = convert(Arch, Groups([share_folder() / "configs"]).read("arch", "a5"), "arch")
    AcceleratorDevice.check_options(a5(dead="0.35.2,0.0.1"), arch)
    with pytest.raises(ConfigError, match=r"there is no PE .*36 cubes") as error:
        AcceleratorDevice.check_options(a5(dead=pe), arch)
    assert "0.0.0 to 0.35.2" in error.value.hint and error.value.key == "target.options.dead"
    AcceleratorDevice.check_options(a5("theirs", dead=pe), arch)


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
