"""Arch of this machine's processor, as data of `schema.Arch`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from kernloom.base.code_stamp import code_stamp
from kernloom.base.errors import UnavailableError
from kernloom.base.expressions import parse_size
from kernloom.base.files import sha256_json
from kernloom.base.machine import cpu_flags, machine_class
from kernloom.base.sealed import read_cache, write_cache
from kernloom.build.toolchains import Detected, accepts
from kernloom.config.schema import Arch, Emulator, Target

NATIVE = "native"
SYSFS_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

_ISAS = {"amd64": "x86_64", "arm64": "aarch64"}
_VECTORS = {"avx512f": (64, 32), "avx2": (32, 16)}
"""Feature -> bytes per vector and number of vector registers, best first."""
_PLAIN_VECTORS = {"x86_64": (16, 16), "aarch64": (16, 32)}
"""Isa -> the vectors that every processor of it has."""
_NO_VECTORS = (4, 32)
"""One element at a time, of any type."""
_LEVELS = {
    "x86_64": ("-march=x86-64-v4", "-march=x86-64-v3", "-march=x86-64-v2", "-march=x86-64"),
    "aarch64": ("-march=armv8-a",),
    "riscv64": ("-march=rv64gc",),
}
_LEVEL_FEATURES = {
    "-march=x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "-march=x86-64-v3": {"avx2", "bmi1", "bmi2", "fma", "f16c", "movbe", "abm"},
    "-march=x86-64-v2": {"cx16", "lahf_lm", "popcnt", "sse4_2", "ssse3"},
}
_WIDE = {"clang": ("-mprefer-vector-width=512",)}
"""Flags for families that use half of an AVX-512 register by default."""


def host_isa() -> str:
    machine = os.uname().machine.lower()
    return _ISAS.get(machine, machine)


def missing_features(arch: Arch, emulator: Emulator | None = None) -> list[str]:
    """CPU features that `arch` needs and this machine, or an emulator, lacks."""
    if emulator:
        if emulator.isa and arch.isa != emulator.isa:
            return [arch.isa]
        return [
            feature
            for feature in arch.features
            if any(fnmatchcase(feature, pattern) for pattern in emulator.lacks)
        ]
    if arch.isa != host_isa():
        return [arch.isa]
    return [feature for feature in arch.features if feature not in cpu_flags()]


def check_runs(target: Target, arch: Arch) -> None:
    """Refuse an arch that neither this machine nor the target's emulator can run."""
    missing = missing_features(arch, target.emulator)
    if missing and target.emulator:
        raise UnavailableError(
            f"arch '{arch.name}' needs {', '.join(missing)}, "
            f"which {target.emulator.program} of target '{target.name}' does not emulate",
            hint="Leave `arch` out: every target has one that fits.",
        )
    if missing:
        raise UnavailableError(
            f"arch '{arch.name}' needs {', '.join(missing)}, which this CPU does not have",
            hint="Choose another: arch=native always fits.",
        )


def is_native(arch: Mapping[str, Any]) -> bool:
    """Whether an arch section depends on this machine: `native`, or a file that inherits from
    it."""
    return arch.get("name") == NATIVE or arch.get("isa", "") is None


def with_vector_bytes(arch: Mapping[str, Any]) -> dict[str, Any]:
    """The arch as plain data, with its vector size computed from `vector_bits` if that is set."""
    bits = arch.get("vector_bits")
    if arch.get("vector_bytes") is None and isinstance(bits, int):
        return {**arch, "vector_bytes": bits // 8}
    return dict(arch)


def resolve_native(
    given: Mapping[str, Any], compilers: Mapping[str, Detected], cache: Path
) -> dict[str, Any]:
    """Arch `native` as plain data with a concrete name and concrete flags for each compiler family.

    Values in `given` are kept: a user may override any part. A file that inherits from `native`
    keeps its own name, too.
    """
    facts = _facts(compilers, cache)
    plain = _PLAIN_VECTORS.get(facts["isa"], _NO_VECTORS)
    wide = next((_VECTORS[name] for name in _VECTORS if name in facts["features"]), plain)
    resolved = {
        **facts,
        "vector_bytes": wide[0],
        "registers": wide[1],
        "caches": host_caches(),
        "cores": len(os.sched_getaffinity(0)),
    }
    for key, value in given.items():
        if key in ("flags", "caches") and isinstance(value or {}, Mapping):
            resolved[key] = {**resolved[key], **{k: v for k, v in (value or {}).items() if v}}
        elif (key, value) != ("name", NATIVE) and value not in (None, (), []):
            resolved[key] = value
    return resolved


def host_caches(folder: Path = SYSFS_CACHES) -> dict[str, int]:
    """Bytes of each data cache level; typical sizes if the system does not report them."""
    sizes = {"l1": 32 * 1024, "l2": 512 * 1024, "l3": 0}
    for index in sorted(folder.glob("index*")):
        try:
            level, kind, size = (
                (index / name).read_text(encoding="ascii").strip()
                for name in ("level", "type", "size")
            )
        except OSError:
            continue
        if kind != "Instruction" and f"l{level}" in sizes:
            sizes[f"l{level}"] = parse_size(f"{size}iB" if size[-1:].isalpha() else size)
    return sizes


def _facts(compilers: Mapping[str, Detected], cache: Path) -> dict[str, Any]:
    """Name, isa, features and flags, cached since archspec and the compilers take a while."""
    versions = {family: found.digest for family, found in compilers.items()}
    code = code_stamp("build/arches", "base/machine", packages=("archspec",))
    entry = sha256_json([machine_class(), sorted(cpu_flags()), versions, code])
    file = cache / "arch.json"
    facts = read_cache(file).get(entry)
    if not isinstance(facts, dict):
        facts = _examine(compilers)
        write_cache(file, entry, facts)
    return facts


def _examine(compilers: Mapping[str, Detected]) -> dict[str, Any]:
    import archspec.cpu

    host = archspec.cpu.host()
    isa = host_isa()
    features = cpu_flags()
    flags = {}
    for family, found in compilers.items():
        candidates = [_tuned(host, family, found.version), *_levels(isa, features)]
        wide = _WIDE.get(family, ()) if "avx512f" in features else ()
        chosen = next((c for c in candidates if c and accepts(found, c)), ())
        flags[family] = [*chosen, *wide]
    return {
        "name": str(host.name),
        "isa": isa,
        "flags": flags,
        "features": sorted(str(name) for name in host.features if name in features),
    }


def _tuned(host: Any, family: str, version: str) -> tuple[str, ...]:
    """archspec's flags for this processor; none if the compiler is too old for it."""
    import archspec.cpu

    try:
        flags = tuple(host.optimization_flags(family, version).split())
    except archspec.cpu.UnsupportedMicroarchitecture:
        return ()
    if any(flag.endswith("=native") for flag in flags):
        return ()
    # It is the default; without it, artifacts are shared with the arch of that level.
    return tuple(flag for flag in flags if flag != "-mtune=generic")


def _levels(isa: str, features: frozenset[str]) -> list[tuple[str, ...]]:
    """Flags of the general levels that the processor supports, best first."""
    return [
        (level,) for level in _LEVELS.get(isa, ()) if _LEVEL_FEATURES.get(level, set()) <= features
    ]
