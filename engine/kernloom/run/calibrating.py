"""`doctor --calibrate`: builds the probes for every arch of this CPU, measures and stores the
peaks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernloom import __version__
from kernloom.base.errors import BuildError, UnavailableError
from kernloom.base.files import MAX_SOURCE_BYTES, read_text
from kernloom.base.machine import available_memory, machine_class
from kernloom.base.places import Places
from kernloom.build.arches import (
    NATIVE,
    host_caches,
    host_isa,
    missing_features,
    resolve_native,
    with_vector_bytes,
)
from kernloom.build.builder import Builder
from kernloom.build.built_for import BuiltFor
from kernloom.build.compile import kernel_artifact
from kernloom.build.programs import Programs
from kernloom.build.runtimes import HOST_TOOLCHAINS
from kernloom.build.toolchains import Detected, accepts, detect
from kernloom.config.convert import convert
from kernloom.config.groups import Groups, groups_of
from kernloom.config.schema import Arch, Policy, Toolchain
from kernloom.device.contract import LaunchSettings
from kernloom.device.host import HostDevice
from kernloom.measure.calibration import (
    DTYPES,
    STREAMED,
    Library,
    chains_for,
    measure,
    probes_of,
    windows_for,
)
from kernloom.measure.roof import (
    Calibration,
    calibration_file,
    save_calibration,
    vectors_of,
)
from kernloom.plan.artifact import Artifact
from kernloom.plan.schedule import CTYPE, ELEMENT
from kernloom.plan.source import Source
from kernloom.run.progress import Progress

TEMPLATE = "calibration/limits.c.j2"
POLICY = "standard"
"""Policy whose samples the probes imitate, so that roofs compare with kernels."""
SAMPLES = 7
VARIANT = "release"


def calibrate(places: Places, progress: Progress) -> Calibration:
    """Measure this machine's peaks and bandwidths, and store them for its class."""
    groups = groups_of(places)
    toolchain, found = _compiler(groups, places)
    arches = _arches(groups, toolchain, found, places)
    artifacts = {
        (name, dtype): kernel_artifact(source, toolchain, arch, VARIANT, found)
        for name, arch in arches.items()
        for dtype, source in _sources(arch, places).items()
    }
    built_for = BuiltFor(toolchain, next(iter(arches.values())), VARIANT, found)
    runner = Programs(places.roots).artifact("runner", built_for)
    paths = _built([runner, *artifacts.values()], places, progress)
    same = _same(arches, artifacts)
    libraries = [
        Library(
            name,
            dtype,
            paths[artifact.key],
            _lanes(arches[name], dtype),
            chains_for(arches[name].registers),
        )
        for (name, dtype), artifact in artifacts.items()
        if same[name] == name
    ]
    levels = {name.upper(): size for name, size in host_caches().items() if size}
    flushes = "cold_cache" in HostDevice.capabilities
    windows = windows_for(levels, available_memory(), flushes=flushes)
    allowed = os.sched_getaffinity(0)
    device = HostDevice(paths[runner.key], pin=max(allowed))
    peaks, bandwidths = measure(
        device,
        probes_of(libraries, windows, len(allowed)),
        _settings(groups),
        lambda done, total: progress.update("calibrating", done, total),
    )
    progress.clear()
    calibration = Calibration(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        kernloom=__version__,
        toolchain=f"{toolchain.name} {found.version}",
        machine=machine_class(),
        levels=levels,
        arches={name: vectors_of(arch) for name, arch in arches.items()},
        peaks=tuple(replace(p, arch=n) for n in arches for p in peaks if p.arch == same[n]),
        bandwidths=tuple(
            replace(b, arch=n) for n in arches for b in bandwidths if b.arch == same[n]
        ),
        windows=windows,
    )
    save_calibration(calibration, places.calibrations)
    return calibration


def _compiler(groups: Groups, places: Places) -> tuple[Toolchain, Detected]:
    """This machine's own compiler: the first of the usual ones that is installed."""
    problem: UnavailableError | None = None
    for name in HOST_TOOLCHAINS:
        toolchain = convert(Toolchain, groups.read("toolchain", name), f"toolchain/{name}")
        try:
            return toolchain, detect(toolchain, places.cache)
        except UnavailableError as error:
            problem = problem or error
    raise problem or UnavailableError("this machine has no compiler of its own")


def _arches(
    groups: Groups, toolchain: Toolchain, found: Detected, places: Places
) -> dict[str, Arch]:
    """The arches that this CPU runs and the compiler supports, by name; the CPU's own first."""
    own = resolve_native(groups.read("arch", NATIVE), {toolchain.family: found}, places.cache)
    first = convert(Arch, own, "arch")
    arches = {first.name: first}
    for name in groups.options("arch"):
        data = groups.read("arch", name)
        if name == NATIVE or data.get("isa") != host_isa():
            continue
        arch = convert(Arch, with_vector_bytes(data), f"arch/{name}")
        flags = arch.flags.get(toolchain.family)
        if flags and not missing_features(arch) and accepts(found, flags):
            arches.setdefault(arch.name, arch)
    return arches


def _same(
    arches: Mapping[str, Arch], artifacts: Mapping[tuple[str, str], Artifact]
) -> dict[str, str]:
    """Arch -> the first arch with identical code."""
    first: dict[tuple[str, ...], str] = {}
    return {
        name: first.setdefault(tuple(artifacts[name, dtype].key for dtype in DTYPES), name)
        for name in arches
    }


def _sources(arch: Arch, places: Places) -> dict[str, Source]:
    """The probes for each element type."""
    from kernloom.plan.templates import Templates

    folders = places.folders("templates")

    def read(name: str) -> tuple[Path, str] | None:
        path = next((f / name for f in folders if (f / name).is_file()), None)
        return (path, read_text(path, limit=MAX_SOURCE_BYTES)) if path else None

    templates = Templates(folders, read)
    sources = {}
    for dtype in DTYPES:
        variables = {
            # Integers may overflow, which C defines for unsigned ones only.
            "ctype": "unsigned int" if dtype == "int32" else CTYPE[dtype],
            "element": ELEMENT[dtype],
            "vectorize": {"lanes": _lanes(arch, dtype)},
            "chains": chains_for(arch.registers),
            "streams": dtype == STREAMED,
        }
        text, reached = templates.render(TEMPLATE, variables, key="templates")
        origins = {name: found[1] for name in sorted(reached) if (found := read(name))}
        sources[dtype] = Source(
            f"calibration.{dtype}", {"kernel.c": text}, origins, {"dtype": dtype}
        )
    return sources


def _lanes(arch: Arch, dtype: str) -> int:
    return arch.vector_bytes // ELEMENT[dtype]


def _built(artifacts: Sequence[Artifact], places: Places, progress: Progress) -> Mapping[str, Path]:
    outcomes = Builder(places).build(
        artifacts, lambda done, total: progress.update("building", done, total)
    )
    progress.clear()
    for outcome in outcomes.values():
        if not outcome.ok:
            raise BuildError(f"{outcome.source} does not compile:\n{outcome.message.strip()}")
    return {key: outcome.path for key, outcome in outcomes.items()}


def _settings(groups: Groups) -> LaunchSettings:
    policy = convert(Policy, groups.read("measure", POLICY), f"measure/{POLICY}")
    return LaunchSettings(
        warmup=1, inner=0, samples=SAMPLES, min_sample_ns=int(policy.min_sample_us * 1000)
    )


def describe(calibration: Calibration | None, places: Places) -> dict[str, Any] | None:
    """The calibration and its file, for JSON."""
    if calibration is None:
        return None
    return {**asdict(calibration), "file": str(calibration_file(places.calibrations))}
