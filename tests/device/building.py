"""How the devices under test and the libraries of their kernels are built."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kernloom.base.places import Places, share_folder
from kernloom.build.firmware import firmware_artifact
from kernloom.build.programs import BuiltFor, Programs
from kernloom.build.runtimes import host_programs
from kernloom.build.toolchains import detect
from kernloom.config.convert import convert
from kernloom.config.groups import Groups
from kernloom.config.schema import Arch, Target, Toolchain
from kernloom.device.contract import BUFFER, Device, DeviceSetup
from kernloom.device.embedded import EmbeddedDevice
from kernloom.device.emulated import EmulatedDevice
from kernloom.device.host import HostDevice
from kernloom.device.opencl.choice import Options
from kernloom.device.opencl.device import OpenClDevice
from kernloom.plan.artifact import Artifact
from kernloom.plan.source import Source
from parts import BARE_METAL, needs, needs_opencl

TOP = Path(__file__).resolve().parents[2]
NATIVE = TOP / "native"
KERNELS = Path(__file__).with_name("kernels.c")
SIGNATURES = {
    "kl_entry": ("buffer",),
    "axpy": ("int64", "float32", "buffer:float32", "buffer:float32"),
    "count": ("buffer:int64",),
    "twice": ("buffer:int64",),
    "scalars": ("int64", "float32", "float64", "buffer:float64"),
    "spin": ("int64",),
    "library": ("int64", "buffer", "buffer"),
    "parallel": ("int64", "int64", "buffer"),
    **dict.fromkeys(
        ("write_at", "read_at", "read_float_at", "write_at_from_worker"), ("int64", "buffer:uint8")
    ),
    **dict.fromkeys(
        ("write_to", "read_from", "jump_to", "divide", "raise_signal", "leave", "chatter"),
        ("int64",),
    ),
    **dict.fromkeys(("illegal", "hang", "overflow_stack", "write_program"), ()),
}
"""What the kernels take: scalars by their type, and buffers, of what where a device asks."""

# The kernels are wrong on purpose; the compiler must neither complain nor repair.
WRONG = ("-Wno-infinite-recursion", "-Wno-div-by-zero")
LIBRARY = ("-shared", "-fPIC", "-fno-sanitize=undefined", "-O0", *WRONG)
SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def types(kernel: str) -> list[str]:
    """A kernel's arguments as a session takes them."""
    return [argument.partition(":")[0] for argument in SIGNATURES[kernel]]


def compiled(output: Path, sources: list[Path], *flags: str, compiler: str = "gcc") -> Path:
    include = [f"-I{NATIVE / folder}" for folder in ("include", "accelerator/include")]
    command = [compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror", *include]
    libraries = ("-ldl", "-lpthread", "-lm")
    subprocess.run(
        [*command, *flags, "-o", str(output), *map(str, sources), *libraries], check=True
    )
    return output


def build_host(flags: Sequence[str], folder: Path) -> tuple[Device, Path]:
    sources = sorted((NATIVE / "runner").glob("*.c"))
    runner = compiled(folder / "runner", sources, "-rdynamic", *flags)
    library = compiled(folder / "kernels.so", [KERNELS], *flags, *LIBRARY)
    return HostDevice(runner), library


def build_emulated(
    arch: str, compiler: str, emulator: Sequence[str], folder: Path
) -> tuple[Device, Path]:
    program, *options = emulator
    needs(compiler, program)
    sources = sorted((NATIVE / "runner").glob("*.c"))
    runner = compiled(folder / "runner", sources, "-rdynamic", "-O2", compiler=compiler)
    library = compiled(folder / "kernels.so", [KERNELS], *LIBRARY, compiler=compiler)
    counter = compiled(
        folder / "counter.so", [NATIVE / "qemu" / "counter.c"], "-O2", "-shared", "-fPIC"
    )
    supervisor = compiled(folder / "supervisor", [NATIVE / "supervisor" / "main.c"], "-O2")
    command = [str(shutil.which(program)), *options]
    return EmulatedDevice(command, runner, counter, supervisor, arch=arch), library


def build_opencl(folder: Path) -> tuple[Device, Path]:
    needs_opencl()
    source = KERNELS.with_suffix(".cl").read_text(encoding="utf-8")
    library = folder / "kernels.cl"
    library.write_text(source, encoding="utf-8")
    entries = {
        name: {
            "function": name,
            "arguments": [
                {
                    "name": f"argument{place}",
                    "kind": "tensor" if kind == BUFFER else "scalar",
                    "dtype": dtype or kind,
                }
                for place, (kind, _, dtype) in enumerate(
                    argument.partition(":") for argument in arguments
                )
            ],
            "items": [1],
            "group": [1],
        }
        for name, arguments in SIGNATURES.items()
        if f"__kernel void {name}(" in source
    }
    (folder / "launch.json").write_text(json.dumps({"entries": entries}), encoding="utf-8")
    return OpenClDevice(Options(), cache=folder / "cache"), library


def build_bare_metal(name: str, folder: Path) -> tuple[Device, Path]:
    needs(*BARE_METAL[name])
    groups = Groups([share_folder() / "configs"])
    data = groups.read("target", name)
    chosen = groups.defaults(data)
    target = convert(Target, data["target"], "target")
    arch = convert(Arch, groups.read("arch", chosen["arch"]), "arch")
    toolchain = convert(Toolchain, groups.read("toolchain", chosen["toolchain"]), "toolchain")
    flags = ("-O1", "-Werror", *WRONG, "-Wl,--no-gc-sections")
    declared = Programs([share_folder()])
    source = Source(name, {"kernel.c": KERNELS.read_text(encoding="utf-8")}, {}, {})
    found = detect(toolchain, folder / "cache")
    flagged = replace(toolchain, extra_flags=flags)
    image = firmware_artifact(source, BuiltFor(flagged, arch, "release", found), declared)
    places = Places(share_folder(), None, folder / "build", folder / "store.db")
    beside = host_programs(declared, places, lambda host: detect(host, folder / "cache"))
    programs = {role: _made(artifact, folder / role) for role, artifact in beside.items()}
    setup = DeviceSetup(programs, target, arch)
    return EmbeddedDevice.from_setup(setup), _made(image, folder / "image")


def _made(artifact: Artifact, folder: Path) -> Path:
    """The artifact, by its own command, without the rest of a build."""
    for path, text in artifact.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    for path, step in artifact.steps.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        _made(step, folder / "steps" / step.key).rename(folder / path)
    tool, *arguments = artifact.argv
    subprocess.run([artifact.tools[tool], *arguments], cwd=folder, check=True)
    return folder / artifact.output
