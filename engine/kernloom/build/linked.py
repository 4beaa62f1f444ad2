"""Implicit inputs of every command: start files, libraries, a sanitizer's runtime.

The compiler is probed by building an empty program with the same flags: the files opened depend on
the flags and not on the kernel. The system's loader lists the libraries of that program, since
libraries depend on other libraries.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernloom.base.code_stamp import code_stamp
from kernloom.base.errors import UnavailableError
from kernloom.base.files import sha256_file, sha256_json
from kernloom.base.machine import cpu_flags, machine_class
from kernloom.build.flags import Reach
from kernloom.build.listing import Listing, OutsideFiles, outside_files
from kernloom.build.probe import ProbeError, scratch, tool_output
from kernloom.build.reads import COMPILING, LINKING, read_log
from kernloom.build.toolchains import (
    DRIVER,
    Detected,
    find_program,
    loaded,
    shared_libraries,
)
from kernloom.build.wrappers import behaviour
from kernloom.plan.artifact import WRAPPER

SEARCH = "LD_LIBRARY_PATH"
"""The loader's first search path; also passed to a runner on this machine."""
_LOADER_CACHE = "/etc/ld.so.cache"
_SAMPLE = """\
float kl_sample(const float *x, long n)
{
    float sum = 0;
    for (long i = 0; i < n; i++)
        sum += x[i] * 1.5f;
    return sum;
}
"""
_PROGRAM = "int main(void) { return 0; }\n"
_LIBRARY = "extern int nothing;\n"
_OUTPUT = "nothing"
_INSTALLATION = re.compile(r"^(?:Found candidate|Selected) GCC installation: (/.+)$", re.MULTILINE)
_OF_PROCESS = ("libc.so", "libm.so", "libdl.so", "libpthread.so", "libmvec.so", "ld-linux")
"""Name prefixes of libraries that the runner has loaded before any kernel, and that are in the
runner's key."""


def linked_files(
    argv: Sequence[str], sources: Sequence[str], reach: Reach, detected: Detected
) -> OutsideFiles:
    """All files that a command reads besides its sources and their headers."""
    asked = [part for part in argv if part not in sources]
    code = code_stamp("build/linked", "build/listing", "build/toolchains", "build/reads")
    # Programs other than the default ones are looked for on the PATH.
    path = os.get_exec_path() if reach.programs else []
    name = sha256_json([asked, detected.digest, str(detected.tools[DRIVER]), _search(), path, code])
    lasting = not (reach.searches or detected.opaque) and all(map(os.path.isabs, path))
    record = detected.cache / "linked" / f"{name}.json" if lasting else None
    found = outside_files(record, lambda: _listing(asked, reach, detected))
    if reach.cpu:
        cpu = sha256_json([machine_class(), sorted(cpu_flags())])
        found = replace(found, hashes={**found.hashes, "cpu": cpu})
    return found


@dataclass(frozen=True)
class _Built:
    """Result of building an empty program."""

    read: Sequence[str] = ()
    """Absolute paths of the files read."""
    loaded: Mapping[str, Path] | None = None
    """Libraries that the loader would load; None if the build failed."""
    said: str = ""
    behaviour: str = ""


def _listing(asked: Sequence[str], reach: Reach, detected: Detected) -> Listing:
    driver = str(detected.tools[DRIVER])
    files = {str(path): path.name for path in reach.files}
    with scratch(detected.cache) as folder:
        for program in reach.programs:
            path = find_program([driver, *asked[1:]], program, folder)
            if path is None:
                raise UnavailableError(f"{driver} finds no program '{program}'")
            files[str(path)] = program
            files |= {str(path): name for name, path in shared_libraries(path, folder).items()}
        built = _built(driver, _linking(asked[1:]), detected, folder)
    if built.loaded is None:
        # The kernel's build fails as well; if it does not, its reads are found to be unknown.
        return Listing(files, lasting=False)
    files |= {path: Path(path).name for path in built.read}
    brought = [path for name, path in built.loaded.items() if not _known(name, path, asked, files)]
    files |= {str(path): path.name for path in brought}
    extra = {WRAPPER: built.behaviour} if detected.opaque else {}
    folders = _searched(built.said)
    if reach.programs:
        folders = sorted({*folders, *_program_folders(Path(driver), built.said)})
    return Listing(files, folders, extra, lasting=not detected.opaque)


def _known(name: str, path: Path, asked: Sequence[str], files: Iterable[str]) -> bool:
    """Whether a loaded library is in the key already."""
    if "-shared" in asked and name.startswith(_OF_PROCESS):
        return True
    return any(path.samefile(file) for file in files if Path(file).exists())


def _searched(said: str) -> list[str]:
    """Places where a new library could shadow another."""
    linker = {word.strip('"')[2:] for word in said.split() if word.strip('"').startswith("-L/")}
    return sorted({*linker, *_search(), _LOADER_CACHE})


def _program_folders(driver: Path, said: str) -> Iterator[str]:
    """Places where a new program, or a new installation for another target, could shadow one."""
    yield from os.get_exec_path()
    yield from (str(driver.parent), str(driver.resolve().parent))
    for found in _INSTALLATION.findall(said):
        # .../gcc-cross/TRIPLE/VERSION: a new version, triple or kind.
        yield from map(str, [*Path(os.path.normpath(found)).parents][:3])


def _search() -> list[str]:
    """The loader's search path in a runner."""
    return [folder for folder in os.environ.get(SEARCH, "").split(":") if folder[:1] == "/"]


def _built(driver: str, words: Sequence[str], detected: Detected, folder: Path) -> _Built:
    shared = "-shared" in words
    text = _LIBRARY if shared else _PROGRAM
    (folder / "nothing.c").write_text(_SAMPLE + text if detected.opaque else text, encoding="utf-8")
    # Unused libraries must be linked as well, to see their dependencies.
    needed = [word for word in words if word != "-Wl,--as-needed"]
    command = [driver, "nothing.c", "-Wl,--no-as-needed", *needed, "-o", _OUTPUT]
    with read_log(folder) as log:
        listing = [*command, *LINKING, *COMPILING, "-v"]
        answer = tool_output(listing, folder, inherited=log.inherited)
        inside = f"{folder}/"
        read = [path for path in log.files() if not path.startswith(inside)]
    if answer.code != 0:
        if tool_output(command, folder).code == 0:
            raise UnavailableError(
                f"the linker of {driver} cannot say what it reads",
                hint="It takes GNU ld 2.35, LLD 12 or newer.",
            )
        return _Built()
    output = folder / _OUTPUT
    if not output.is_file():
        raise ProbeError(f"{driver} made no {_OUTPUT}, but said nothing")
    done = ""
    if detected.opaque:
        done = behaviour(answer.stderr, sha256_file(output), folder, Path(driver))
    return _Built(read, _loaded(output, detected, folder), answer.stderr, done)


def _loaded(output: Path, detected: Detected, folder: Path) -> Mapping[str, Path]:
    """Libraries that the loader would load for a program of this machine; none for another
    machine's program, where only the linker's own list is known."""
    lister = shutil.which("ldd")
    if not lister or not detected.triple.startswith(f"{os.uname().machine}-"):
        return {}
    environment = {SEARCH: ":".join(_search())}
    answer = tool_output([lister, output], folder, environment=environment)
    # ldd fails for a static program, which has no libraries.
    return loaded(answer.stdout) if answer.code == 0 else {}


def _linking(words: Sequence[str]) -> list[str]:
    """The words of a command without its output and force-included files."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in ("-include", "-imacros", "-o"):
            next(rest, None)
        elif not word.startswith(("-include", "-imacros")):
            kept.append(word)
    return kept
