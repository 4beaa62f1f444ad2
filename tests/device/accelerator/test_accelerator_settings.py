"""An arch as the lines that platform and programs read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from building import ACCELERATOR

from kernloom.config.schema import Target
from kernloom.device.accelerator import AcceleratorDevice
from kernloom.device.accelerator.settings import lines, settings_of


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


def test_options_of_the_target_are_settings_too() -> None:
    options = {"threads": 2, "faults.dead": "0.0.1", "trace": True, "sram.banks": 8}
    target = Target("a5", "accelerator", "accelerator", ("core",), options=options)
    found = settings_of({"sram": {"banks": 16}}, target)
    assert found == {"sram.banks": "8", "threads": "2", "faults.dead": "0.0.1", "trace": "1"}


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
