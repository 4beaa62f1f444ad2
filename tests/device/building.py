"""How the devices under test and the libraries of their kernels are built."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from command_line import COMPILED, share_artifacts
from kernloom.base.places import Places, share_folder
from kernloom.build.builder import Builder
from kernloom.build.built_for import BuiltFor
from kernloom.build.firmware import firmware_artifact
from kernloom.build.machines import machine_arch, variants_of
from kernloom.build.programs import Programs
from kernloom.build.runtimes import host_programs
from kernloom.build.toolchains import detect
from kernloom.config.accelerator import settings_of
from kernloom.config.convert import convert
from kernloom.config.groups import Groups, groups_of
from kernloom.config.schema import Arch, Target, Toolchain
from kernloom.device.accelerator import AcceleratorDevice
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
CORE_KERNELS = Path(__file__).with_name("core_kernels.c")
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
    "take_sram": ("int64",),
    "move_nothing": ("int64", "buffer"),
    "thread_at": ("int64", "buffer"),
    "allocate_or_crash": ("int64",),
    "overrun_sram": ("int64",),
    "wait_for": ("int64",),
    "compute": ("int64", "int64", "int64"),
    "compute_cycles": ("int64", "int64"),
    "gather": ("int64", "int64", "int64", "buffer", "buffer"),
    "impatient": ("buffer", "buffer"),
    **dict.fromkeys(("load_elsewhere", "where"), ("buffer",)),
    **dict.fromkeys(("give_up", "race", "illegal", "hang", "overflow_stack", "write_program"), ()),
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


ACCELERATOR = {
    "topology.sips": "1",
    "topology.cubes": "2",
    "topology.pes.matrix": "1",
    "topology.pes.vector": "2",
    "clock.core_mhz": "2000",
    "hbm.bytes": "134217728",
    "hbm.bandwidth": "128",
    "hbm.channels": "4",
    "hbm.interleave": "4096",
    "hbm.latency_ns": "110",
    "sram.bytes": "524288",
    "sram.banks": "16",
    "sram.bank_bandwidth": "32",
    "sram.latency_ns": "8",
    "mmu.page": "2097152",
    "mmu.tlb_entries": "64",
    "mmu.walkers": "2",
    "mmu.walk_ns": "240",
    "mmu.hit_ns": "2",
    "dma.engines": "2",
    "dma.bandwidth": "96",
    "dma.issue_ns": "20",
    **{
        f"links.{link}.{key}": value
        for link, latency, bandwidth in (
            ("pcie", "500", "32"),
            ("io_cpu", "200", "32"),
            ("management", "100", "64"),
            ("noc", "40", "128"),
            ("sip", "400", "50"),
        )
        for key, value in (("latency_ns", latency), ("bandwidth", bandwidth))
    },
    "compute.matrix.matrix.float32": "2048",
    "compute.matrix.vector.float32": "32",
    "compute.vector.vector.float32": "128",
    **{
        f"compute.{core}.scalar.{dtype}": "1"
        for core in ("matrix", "vector")
        for dtype in ("float32", "float64", "int32", "int64", "uint8")
    },
    "compute.startup_cycles.matrix": "32",
    "compute.startup_cycles.vector": "16",
    "compute.startup_cycles.scalar": "1",
    "control.submit_ns": "750",
    "control.dispatch_ns": "140",
    "control.complete_ns": "600",
    "control.switch_ns": "800",
    "control.register_store_ns": "5",
    "control.register_load_ns": "100",
}
"""A small accelerator: two cubes of one matrix and two vector PEs."""
RUNTIMES = ("hostgraph", "ringmap")
_PROGRAMS = (
    "runner",
    "accelerator_host",
    "accelerator_control",
    "accelerator_core",
    "accelerator_platform_sim",
)
_accelerators: dict[tuple[str, tuple[str, ...]], dict[str, Path]] = {}
"""Compiler and flags -> programs, built once: they are the same for every arch."""


def accelerator_programs(folder: Path, *flags: str, compiler: str = "gcc") -> dict[str, Path]:
    """Role -> program; each runtime has a control program of its own, `control-RUNTIME`."""
    found = _accelerators.get((compiler, flags))
    if found is None:
        folder = folder / "accelerator"
        folder.mkdir()
        found = _build_accelerator(folder, flags, compiler)
        _accelerators[compiler, flags] = found
    return found


def _build_accelerator(folder: Path, flags: Sequence[str], compiler: str) -> dict[str, Path]:
    """As the engine builds a variant; whichever test needs it first builds it for all."""
    wanted = _variant(flags, compiler)
    places = Places(share_folder(), None, folder / "build", folder / "store.db")
    share_artifacts(places.build)
    variants = variants_of(groups_of(places), "a5")
    variant = next(one for one in variants if one.target.variant == wanted)
    found, programs = variant.find(places), Programs(places.roots)
    arch = machine_arch(variant.target, variant.arch)
    artifacts = {
        (name, runtime): programs.artifact(
            name, BuiltFor(found.toolchain, arch, wanted, found.detected, runtime)
        )
        for name in _PROGRAMS
        for runtime in RUNTIMES
    }
    beside = host_programs(programs, places, lambda toolchain: detect(toolchain, places.cache))
    # Else two processes of the tests may build the same at the same time.
    with (Path(os.environ[COMPILED]) / f"accelerator-{wanted}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcomes = Builder(places).build([*artifacts.values(), beside["supervisor"]])
    assert all(outcome.ok for outcome in outcomes.values()), outcomes
    paths = {key: one.path(places.build) for key, one in artifacts.items()}
    return {
        **{name: paths[name, RUNTIMES[0]] for name in _PROGRAMS},
        **{f"control-{runtime}": paths["accelerator_control", runtime] for runtime in RUNTIMES},
        "platform": paths["accelerator_platform_sim", RUNTIMES[0]],
        "supervisor": beside["supervisor"].path(places.build),
    }


def _variant(flags: Sequence[str], compiler: str) -> str:
    if compiler != "gcc":
        return "qemu"
    if "-fsanitize=thread" in flags:
        return "sim-tsan"
    return "sim-asan" if set(SANITIZED) & set(flags) - {"-g"} else "sim"


def build_accelerator(
    flags: Sequence[str],
    settings: Mapping[str, str],
    runtime: str,
    folder: Path,
    *,
    compiler: str = "gcc",
    emulator: Sequence[str] = (),
    arch: str = "small",
) -> tuple[Device, Path]:
    cxx = compiler.removesuffix("gcc") + "g++"
    needs(compiler, cxx, *emulator[:1])
    programs = accelerator_programs(folder, *flags, compiler=compiler)
    settings = (ACCELERATOR if arch == "small" else shipped_settings(arch)) | settings
    # Where there are no vector PEs, the kernels are for matrix PEs.
    core_type = f"-DCORE_TYPE={int(settings['topology.pes.vector'] != '0')}"
    library = compiled(
        *(folder / "kernels.so", [CORE_KERNELS], core_type, *flags, *LIBRARY), compiler=compiler
    )
    device = AcceleratorDevice(
        programs | {"accelerator_control": programs[f"control-{runtime}"]},
        settings,
        arch=arch,
        emulator=[str(shutil.which(emulator[0])), *emulator[1:]] if emulator else (),
        sanitized=any(flag.startswith("-fsanitize") for flag in flags),
    )
    return device, library


def shipped_settings(arch: str) -> dict[str, str]:
    """The settings of an accelerator of configs/arch."""
    data = Groups([share_folder() / "configs"]).read("arch", arch)
    return settings_of(convert(Arch, data, "arch"))


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
