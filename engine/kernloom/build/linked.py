"""What the linker copies from or goes by: start files, libraries, a sanitizer's runtime.

The linker is asked by linking a program that does nothing with the same flags: what it opens
depends on them and not on the kernel.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kernloom.build.artifact import Identity
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

_NOTHING = "int main(void) { return 0; }\n"
_RULES = "inputs.d"


def identity_for(
    argv: Sequence[str], sources: Sequence[str], reach: Reach, detected: Detected
) -> Identity:
    """The compiler as this command uses it: with all the files that it links."""
    asked = [part for part in argv if part not in sources]
    code = code_stamp("build/linked", "build/listing", "build/toolchains")
    name = sha256_json([asked, detected.digest, str(detected.tools[DRIVER]), code])
    lasting = not (reach.searches or reach.programs)
    record = detected.cache / "linked" / f"{name}.json" if lasting else None
    found = hashes(record, lambda: _listing(asked, reach, detected))
    if reach.cpu:
        found["cpu"] = sha256_json([machine_class(), sorted(cpu_flags())])
    digest = sha256_json({"compiler": detected.digest, "linked": found})
    return replace(detected.identity, parts={**detected.parts, **found}, digest=digest)


def _listing(asked: Sequence[str], reach: Reach, detected: Detected) -> Listing:
    driver = str(detected.tools[DRIVER])
    files = {str(path): path.name for path in reach.files}
    for program in reach.programs:
        path = find_program([driver, *_choosing(asked)], program)
        if path is None:
            raise UnavailableError(f"{driver} finds no program '{program}'")
        files[str(path)] = program
        files |= {str(path): name for name, path in shared_libraries(path).items()}
    with tempfile.TemporaryDirectory(dir=writable(detected.cache)) as name:
        folder = Path(name)
        (folder / "nothing.c").write_text(_NOTHING, encoding="utf-8")
        command = [driver, "nothing.c", *_linking(asked[1:])]
        code, _, said = tool_output([*command, f"-Wl,--dependency-file={_RULES}", "-v"], cwd=folder)
        if code != 0:
            if reach.searches and tool_output(command, cwd=folder)[0] == 0:
                raise UnavailableError(
                    f"the linker of {driver} cannot say what it reads",
                    hint="It takes GNU ld 2.35, LLD 12 or newer; or leave out flags that name "
                    "libraries.",
                )
            return Listing(files)  # Linking the kernel fails just so, or is as plain as can be.
        words = rule_words((folder / _RULES).read_text(encoding="utf-8", errors="replace"))
    # A rule of its own for each file, for those who delete them, comes after the one that counts.
    listed = [word for word in words[1:] if word.startswith("/") and not word.endswith(":")]
    files |= {path: Path(path).name for path in listed if Path(path).is_file()}
    searched = {word.strip('"')[2:] for word in said.split() if word.strip('"').startswith("-L/")}
    return Listing(files, sorted(searched))


def _linking(words: Sequence[str]) -> list[str]:
    """The words of a command without files that are included unasked."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in ("-include", "-imacros"):
            next(rest, None)
        elif not word.startswith(("-include", "-imacros")):
            kept.append(word)
    return kept


def _choosing(asked: Sequence[str]) -> list[str]:
    """The words that may decide which programs are used."""
    return [word for word in asked[1:] if word.startswith(("-m", "--target", "-target"))]
