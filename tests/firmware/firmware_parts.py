"""Bare-metal parts to test, each with an image of the test kernels."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from kernloom.build.artifact import Artifact
from kernloom.build.compile import counter_artifact
from kernloom.build.firmware import firmware_artifact, firmware_files
from kernloom.build.toolchains import detect
from kernloom.config.convert import convert
from kernloom.config.groups import Groups
from kernloom.config.schema import Arch, Target, Toolchain
from kernloom.device.contract import DeviceSetup
from kernloom.device.embedded import EmbeddedDevice
from kernloom.places import share_folder
from kernloom.plan.source import Source
from parts import needs

PARTS = ("cortex_m4", "cortex_m7", "riscv_bare")
PROGRAMS = {
    "cortex_m4": ("arm-none-eabi-gcc", "qemu-system-arm", "gcc"),
    "cortex_m7": ("arm-none-eabi-gcc", "qemu-system-arm", "gcc"),
    "riscv_bare": ("riscv64-unknown-elf-gcc", "qemu-system-riscv64", "gcc"),
}
KERNELS = Path(__file__).with_name("kernels.c")
WRONG = ("-O1", "-Werror", "-Wno-infinite-recursion", "-Wl,--no-gc-sections")
"""The kernels are wrong on purpose; the compiler must neither complain nor repair."""


@dataclass(frozen=True)
class Part:
    """A part under test."""

    name: str
    device: EmbeddedDevice
    image: Path
    other: Path
    """Another image of the same kernels."""


def build(name: str, folder: Path) -> Part:
    needs(*PROGRAMS[name])
    groups = Groups([share_folder() / "configs"])
    data = groups.read("target", name)
    chosen = groups.defaults(data)
    target = convert(Target, data["target"], "target")
    arch = convert(Arch, groups.read("arch", chosen["arch"]), "arch")
    toolchain = convert(Toolchain, groups.read("toolchain", chosen["toolchain"]), "toolchain")
    source = Source(name, {"kernel.c": KERNELS.read_text(encoding="utf-8")}, {}, {})
    image = firmware_artifact(
        source,
        replace(toolchain, extra_flags=WRONG),
        arch,
        "release",
        detect(toolchain, folder / "cache"),
        firmware_files(share_folder(), arch.isa),
    )
    host = convert(Toolchain, groups.read("toolchain", "gcc"), "toolchain")
    counter = counter_artifact(host, detect(host, folder / "cache"), "", share_folder())
    setup = DeviceSetup({"counter": made(counter, folder / "counter")}, target, arch)
    path = made(image, folder / "image")
    other = folder / "other.elf"
    other.write_bytes(path.read_bytes())
    return Part(name, EmbeddedDevice.made(setup), path, other)


def made(artifact: Artifact, folder: Path) -> Path:
    """The artifact, by its own command, without the rest of a build."""
    for path, text in artifact.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    tool, *arguments = artifact.argv
    subprocess.run([artifact.tools[tool], *arguments], cwd=folder, check=True)
    return folder / artifact.output
