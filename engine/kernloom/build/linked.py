"""What every command reads unasked: start files, libraries, a sanitizer's runtime.

The compiler is asked by building a program that does nothing with the same flags: what it opens
then depends on them and not on the kernel.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernloom.build.flags import Reach
from kernloom.build.listing import Listing, hashes, rule_words
from kernloom.build.toolchains import (
    DRIVER,
    Detected,
    find_program,
    shared_libraries,
    tool_output,
    writable,
)
from kernloom.code_stamp import code_stamp
from kernloom.errors import UnavailableError
from kernloom.files import sha256_json
from kernloom.machine import cpu_flags, machine_class

_PROGRAM = "int main(void) { return 0; }\n"
_LIBRARY = "extern int nothing;\n"
_LINKED, _INCLUDED = "linked.d", "included.d"


def linked_files(
    argv: Sequence[str], sources: Sequence[str], reach: Reach, detected: Detected
) -> dict[str, str]:
    """Name -> hash of all that a command reads besides its sources and their headers."""
    asked = [part for part in argv if part not in sources]
    code = code_stamp("build/linked", "build/listing", "build/toolchains")
    name = sha256_json([asked, detected.digest, str(detected.tools[DRIVER]), code])
    lasting = not (reach.searches or reach.programs)
    record = detected.cache / "linked" / f"{name}.json" if lasting else None
    found = hashes(record, lambda: _listing(asked, reach, detected))
    if reach.cpu:
        found["cpu"] = sha256_json([machine_class(), sorted(cpu_flags())])
    return found


def _listing(asked: Sequence[str], reach: Reach, detected: Detected) -> Listing:
    driver = str(detected.tools[DRIVER])
    files = {str(path): path.name for path in reach.files}
    for program in reach.programs:
        path = find_program([driver, *asked[1:]], program)
        if path is None:
            raise UnavailableError(f"{driver} finds no program '{program}'")
        files[str(path)] = program
        files |= {str(path): name for name, path in shared_libraries(path).items()}
    try:
        rules, said = _built(driver, _linking(asked[1:]), reach, detected)
    except OSError:
        rules = None
    if rules is None:
        # Building the kernel fails just so, or the linker is old and the flags are plain.
        return Listing(files, lasting=False)
    # Files with a colon have a rule of their own, which is for those who delete them.
    listed = [word for word in rule_words(rules) if word[:1] == "/" and word[-1:] != ":"]
    files |= {path: Path(path).name for path in listed if Path(path).is_file()}
    searched = {word.strip('"')[2:] for word in said.split() if word.strip('"').startswith("-L/")}
    return Listing(files, sorted(searched))


def _built(
    driver: str, words: Sequence[str], reach: Reach, detected: Detected
) -> tuple[str | None, str]:
    """The rules that list what building nothing read, None if that fails, and its commands."""
    with tempfile.TemporaryDirectory(dir=writable(detected.cache)) as name:
        folder = Path(name)
        text = _LIBRARY if "-shared" in words else _PROGRAM
        (folder / "nothing.c").write_text(text, encoding="utf-8")
        command = [driver, "nothing.c", *words, "-o", "nothing"]
        listing = [f"-Wl,--dependency-file={_LINKED}", "-MD", "-MF", _INCLUDED, "-v"]
        code, _, said = tool_output([*command, *listing], cwd=folder)
        if code == 0:
            files = (folder / _INCLUDED, folder / _LINKED)
            rules = [file.read_text(encoding="utf-8", errors="replace") for file in files]
            return "\n".join(rules), said
        if reach.searches and tool_output(command, cwd=folder)[0] == 0:
            raise UnavailableError(
                f"the linker of {driver} cannot say what it reads",
                hint="It takes GNU ld 2.35, LLD 12 or newer; or leave out flags that name "
                "libraries.",
            )
        return None, said


def _linking(words: Sequence[str]) -> list[str]:
    """The words of a command without its output and files that are included unasked."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in ("-include", "-imacros", "-o"):
            next(rest, None)
        elif not word.startswith(("-include", "-imacros")):
            kept.append(word)
    return kept
