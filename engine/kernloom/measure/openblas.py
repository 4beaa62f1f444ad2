"""Finds and identifies the OpenBLAS library that numpy's wheels bundle."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from kernloom.base.code_stamp import code_stamp
from kernloom.base.errors import UnavailableError
from kernloom.base.files import file_stamp, sha256_file
from kernloom.base.sealed import read_cache, write_cache

_CALLED = (b"\0scipy_cblas_sgemm64_\0", b"\0cblas_sgemm64_\0")
"""Symbols that templates/kernels/lib/openblas.j2 calls, as named in wheels of numpy 2 and numpy
1."""
_VERSION = re.compile(rb"OpenBLAS (\d+(?:\.\d+)+)")
_INSTALL = "Install numpy from a wheel, which brings it along: python -m pip install numpy."


@dataclass(frozen=True)
class OpenBlas:
    """A library that a runner can load for kernels which call OpenBLAS."""

    path: Path
    version: str
    """Empty if the library does not contain it."""
    identity: str
    """The hash of the file."""


def find_openblas(cache: Path) -> OpenBlas:
    """numpy's bundled OpenBLAS, found without importing numpy; `cache` keeps the facts read from
    the file until the file changes."""
    path = _located()
    file = cache / "openblas.json"
    try:
        known_by = [file_stamp(path), code_stamp("measure/openblas")]
        record = read_cache(file).get(str(path))
        if not isinstance(record, dict) or record.get("stamp") != known_by:
            version, callable_ = _read(path)
            identity = sha256_file(path)
            record = {"version": version, "callable": callable_, "identity": identity}
            write_cache(file, str(path), {**record, "stamp": known_by})
    except (OSError, ValueError) as error:
        raise UnavailableError(f"OpenBLAS cannot be read: {error}", hint=_INSTALL) from None
    if not record.get("callable"):
        raise UnavailableError(
            f"{path} is not an OpenBLAS with 64-bit sizes: it has no cblas_sgemm64_", hint=_INSTALL
        )
    return OpenBlas(path, str(record.get("version", "")), str(record.get("identity", "")))


def _located() -> Path:
    found = importlib.util.find_spec("numpy")
    if found is None or not found.origin:
        raise UnavailableError("OpenBLAS comes with numpy, which is not installed", hint=_INSTALL)
    folder = Path(found.origin).parent.with_name("numpy.libs")
    libraries = sorted(folder.glob("*openblas*.so*"))
    if not libraries:
        raise UnavailableError(
            f"this numpy has no OpenBLAS of its own: looked for {folder / '*openblas*.so*'}",
            hint=f"It may use the system's libblas instead. {_INSTALL}",
        )
    return libraries[0]


def _read(path: Path) -> tuple[str, bool]:
    """The version string in the library, and whether it has the symbols."""
    # Read, not mapped: an update that rewrites the file would kill this process.
    data = path.read_bytes()
    version = _VERSION.search(data)
    named = version[1].decode() if version else ""
    return named, any(name in data for name in _CALLED)
