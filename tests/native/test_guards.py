"""In architecture guards `__aarch64__` comes first, then `__x86_64__`, then the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[2] / "native"
SUFFIXES = {".c", ".h", ".cc", ".cpp", ".hpp", ".S"}
ORDER = ("__aarch64__", "__x86_64__")
REST = ("__riscv", "__arm__", "__i386__", "__powerpc64__", "__s390x__", "__loongarch__")
ARCHITECTURE = re.compile("|".join(rf"\b{name}\b" for name in (*ORDER, *REST)))
DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|elifdef|else|endif)\b(.*)$", re.M)


def rank(name: str) -> int:
    return ORDER.index(name) if name in ORDER else len(ORDER)


def complaints(text: str) -> list[str]:
    """What is wrong with the guards of a C source."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", text.replace("\\\n", " "), flags=re.DOTALL)
    found = []
    chains: list[list[str]] = []
    for word, condition in DIRECTIVE.findall(text):
        if word.startswith("if"):
            chains.append([])
        if word == "endif":
            names = chains.pop()
            ranks = [rank(name) for name in names]
            if names and (ranks != sorted(ranks) or ranks[0] != 0):
                found.append(" then ".join(names))
        elif word != "else":
            chains[-1] += ARCHITECTURE.findall(condition)
    return found


def test_the_guards_of_the_native_sources_are_in_order() -> None:
    sources = [path for path in NATIVE.rglob("*") if path.suffix in SUFFIXES]
    assert sources
    wrong = {str(path.relative_to(NATIVE)): complaints(path.read_text()) for path in sources}
    assert {path: found for path, found in wrong.items() if found} == {}


@pytest.mark.parametrize(
    "text",
    [
        "#ifdef __aarch64__\n#elif defined(__x86_64__)\n#elif defined(__riscv)\n#else\n#endif",
        "#ifdef __aarch64__\n#endif\n#ifdef __linux__\n#endif",
        "#ifdef __linux__\n#if defined(__aarch64__)\n#else\n#endif\n#endif",
        "/* #ifdef __x86_64__ */",
    ],
)
def test_guards_in_order_pass(text: str) -> None:
    assert complaints(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "#if defined(__x86_64__)\n#elif defined(__aarch64__)\n#endif",
        "#ifdef __x86_64__\n#endif",
        "#ifdef __aarch64__\n#elif defined(__riscv)\n#elif defined(__x86_64__)\n#endif",
        "#ifdef __linux__\n# if defined(__riscv) || \\\n   defined(__aarch64__)\n# endif\n#endif",
    ],
)
def test_guards_out_of_order_are_found(text: str) -> None:
    assert len(complaints(text)) == 1
