"""The firmware stage: kernels linked into images for bare-metal parts."""

from __future__ import annotations

from kernloom.base.errors import ConfigError
from kernloom.base.expressions import parse_size
from kernloom.build.built_for import BuiltFor, compiler_of, redetected
from kernloom.build.compile import DETERMINISTIC, kernel_flags, libraries_last, read_outside
from kernloom.build.headers import may_assemble
from kernloom.build.programs import Programs
from kernloom.build.stage import ArtifactCache, ArtifactStage, Compilers
from kernloom.build.toolchains import DRIVER, Detected
from kernloom.config.schema import Arch, Toolchain
from kernloom.pipeline.stage import Context
from kernloom.plan.artifact import Artifact
from kernloom.plan.render import StepSource
from kernloom.plan.source import ENTRY, Source, Texts

IMAGE = "kernel.elf"
FIRMWARE = "firmware"
"""The program whose objects are linked with each kernel."""
MAP = "native/firmware/part.ld"
_SYMBOLS = {
    "flash_base": "kl_flash_base",
    "flash": "kl_flash_size",
    "ram_base": "kl_ram_base",
    "ram": "kl_ram_size",
    "firmware": "kl_firmware_size",
    "stack": "kl_stack_size",
}
"""Key of arch.memory -> symbol in the linker script."""


class Images:
    """Cache of declared firmware images."""

    def __init__(self, compilers: Compilers, programs: Programs) -> None:
        self._compilers = compilers
        self._programs = programs
        self.image = ArtifactCache(self._image)

    def _image(self, source: Source, toolchain: Toolchain, arch: Arch, variant: str) -> Artifact:
        found = self._compilers.detect(toolchain)
        _check_compiler(found, arch)
        built_for = BuiltFor(toolchain, arch, variant, found)
        return firmware_artifact(source, built_for, self._programs)


class Firmware(ArtifactStage):
    """Sources -> images; each is one kernel with the part's start-up code."""

    def artifact(self, context: Context, item: StepSource) -> Artifact:
        experiment = context.experiment
        return context.need(Images).image(
            item.source, experiment.toolchain, experiment.arch, experiment.target.variant
        )


def _check_compiler(found: Detected, arch: Arch) -> None:
    """Refuse a compiler for another machine, or for programs of an operating system."""
    isa, _, system = found.triple.partition("-")
    wanted = compiler_of(arch.isa, isa)
    if isa != wanted or "linux" in system:
        raise ConfigError(
            f"toolchain '{found.toolchain}' compiles for {found.triple}, but arch '{arch.name}' "
            f"needs a compiler for {wanted} without an operating system",
            key="toolchain",
            hint="Leave `toolchain` out: every target has one that fits.",
        )


def firmware_artifact(source: Source, built_for: BuiltFor, programs: Programs) -> Artifact:
    """One kernel, compiled and linked with the objects of the firmware in one step."""
    toolchain, arch, variant = built_for.toolchain, built_for.arch, built_for.variant
    detected = built_for.detected
    groups = kernel_flags(toolchain, arch, variant)
    flags, libraries = libraries_last(groups)
    placing = [
        f"-Wl,--undefined={ENTRY}",
        *(f"-Wl,--defsym={symbol}={_size(arch, name):#x}" for name, symbol in _SYMBOLS.items()),
        "-T",
        MAP,
    ]
    objects = programs.objects(FIRMWARE, built_for)
    argv = (
        DRIVER,
        *flags,
        *programs.include_flags(FIRMWARE, built_for),
        "-nostartfiles",
        *DETERMINISTIC,
        "-Wl,--gc-sections",
        *placing,
        "-o",
        IMAGE,
        source.main,
        *objects,
        *libraries,
        "-lm",
    )
    headers_of = programs.headers(FIRMWARE, built_for)
    staged = {**source.files, **programs.data(FIRMWARE), **headers_of}
    # Placement flags refer to staged files and make the linker open no others.
    asked = tuple(word for word in argv if word not in placing and word not in objects)
    headers, linked, stamps = read_outside(
        groups, asked, [source.main], staged, detected, specs=True
    )
    return Artifact(
        name=source.name,
        kind="kernel",
        output=IMAGE,
        main=source.main,
        files=Texts(staged),
        argv=argv,
        tools={role: str(path) for role, path in detected.tools.items()},
        identity=detected.identity,
        steps=objects,
        headers=headers.hashes,
        linked=linked.hashes,
        arch=arch.name,
        variant=variant,
        params=source.params,
        origins=source.origins,
        stamps=stamps,
        assembles=any(map(may_assemble, source.files.values())),
        lists_assembly=detected.lists_assembly,
        redeclare=lambda: firmware_artifact(source, redetected(built_for), programs.read_again()),
    )


def _size(arch: Arch, name: str) -> int:
    key = f"arch.memory.{name}"
    if name not in arch.memory:
        raise ConfigError(f"arch '{arch.name}' does not say it", key=key)
    return parse_size(arch.memory[name], key=key)
