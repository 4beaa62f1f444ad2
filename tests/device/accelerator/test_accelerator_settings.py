"""An arch as the lines that platform and programs read."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from building import ACCELERATOR, NATIVE

from kernloom.base.errors import ConfigError
from kernloom.config.schema import Machine, Target
from kernloom.device.accelerator import AcceleratorDevice
from kernloom.device.accelerator.options import Options
from kernloom.device.accelerator.settings import lines, settings_of
from kernloom.recipe.fields import DEVICE_OPTIONS

ROOT = NATIVE.parent


@dataclass(frozen=True)
class Hbm:
    bytes: str = "1GiB"
    bandwidth: float = 128.0
    latency_ns: float = 0.5


@dataclass(frozen=True)
class SomeArch:
    name: str = "a5"
    hbm: Hbm = field(default_factory=Hbm)
    sram: dict[str, Any] = field(default_factory=lambda: {"bytes": 524288, "banks": 16})
    compute: dict[str, Any] = field(
        default_factory=lambda: {"matrix": {"vector": {"float32": 32}}, "startup_cycles": {}}
    )
    control: None = None


EXPECTED = {
    "hbm.bytes": "1073741824",
    "hbm.bandwidth": "128",
    "hbm.latency_ns": "0.5",
    "sram.bytes": "524288",
    "sram.banks": "16",
    "compute.matrix.vector.float32": "32",
}


def test_dataclasses_and_mappings_become_dotted_keys_with_sizes_in_bytes() -> None:
    arch: Any = SomeArch()
    assert settings_of(arch) == EXPECTED
    plain = {"name": "a5", "hbm": vars(arch.hbm), "sram": arch.sram, "compute": arch.compute}
    assert settings_of(plain) == EXPECTED
    assert lines({"a.b": "1", "c": "x"}) == "a.b=1\nc=x\n"


def a5(platform: str = "sim", **options: Any) -> Target:
    machines = {"release": Machine(platform=platform)}
    return Target("a5", "accelerator", "accelerator", ("core",), machines=machines, options=options)


def test_options_of_the_target_are_settings_too() -> None:
    arch = {"sram": {"banks": 16}}
    found = settings_of(arch, a5(threads=2, dead="0.0.1,0.1.0", slow="noc:4", late="2:50", lose=3))
    assert found == {
        "sram.banks": "16",
        "threads": "2",
        "faults.dead": "0.0.1,0.1.0",
        "faults.slow": "noc:4",
        "faults.late": "2:50",
        "faults.lose": "3",
    }
    assert settings_of({}, a5("theirs", forward="x.so", on=True)) == {"forward": "x.so", "on": "1"}


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
        ({"dead": "0.0"}, "dead: '0.0' is no fault"),
        ({"dead": 0.5}, "dead: '0.5' is no fault"),
        ({"slow": "noc"}, "slow: 'noc' is no fault"),
        ({"late": "2:5,3:5"}, "late: '2:5,3:5' is no fault"),
        ({"lose": -1}, "lose: -1 is too small"),
        ({"dead": "0.0.1\nhbm.bytes=5"}, "is no fault"),
    ],
)
def test_an_option_that_no_simulation_has_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        AcceleratorDevice.check(a5(**options))


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
