"""The commands and files that the pages of the documentation show."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from kernloom.cli.main import COMMANDS

TREE = Path(__file__).resolve().parents[1]
PAGES = {
    path.relative_to(TREE).as_posix(): path
    for path in [TREE / "README.md", *sorted((TREE / "docs").rglob("*.md"))]
}
"""Path of a page in the source tree -> where it is."""
IMAGES = TREE / "docs/images"
PROGRAMS = (
    "kernloom",
    "./kernloom",
    ".venv/bin/python",
    "python",
    "tests/run",
    "apt-get",
    "createdb",
    "ln",
)
"""What a command in the middle of a sentence begins with, beside the names of our commands."""
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"`([^`]+)`")
_PROMPT = re.compile(r"[$#] (.*)")
_FOLDERS = "templates|configs|package|scenes|tests"
_PATH = re.compile(rf"(?:# @package \S+\n)?(?:/\*|#) ((?:{_FOLDERS})/\S+|golden\.py)")


def drawing(name: str) -> ModuleType:
    """A script that draws pictures of the documentation."""
    if str(IMAGES) not in sys.path:
        sys.path.append(str(IMAGES))  # scripts import what is beside them
    return importlib.import_module(name)


@dataclass(frozen=True)
class Shown:
    """A command that a page shows."""

    page: str
    text: str
    """As a shell would read it."""
    code: int
    """The exit code that the page promises."""

    @property
    def id(self) -> str:
        return f"{self.page}: {self.text}"


def commands() -> list[Shown]:
    """Every command of every page, once for each page, in the order of the page."""
    found = {}
    for page, path in PAGES.items():
        for text, note in _commands(path.read_text(encoding="utf-8")):
            code = re.search(r"exit code (\d+)", note)
            found.setdefault((page, text), Shown(page, text, int(code[1]) if code else 0))
    return list(found.values())


def _commands(page: str) -> Iterator[tuple[str, str]]:
    """(command, comment after it)."""
    end = 0
    for fence in FENCE.finditer(page):
        yield from _in_prose(page[end : fence.start()])
        yield from _in_fence(fence[1], fence[2])
        end = fence.end()
    yield from _in_prose(page[end:])


def _in_fence(language: str, text: str) -> Iterator[tuple[str, str]]:
    for line in text.splitlines():
        prompt = _PROMPT.fullmatch(line)
        if language in ("console", "text") and prompt:
            yield _split(prompt[1])
        elif language == "sh" and line.strip() and not line.startswith("#"):
            yield _split(line)


def _in_prose(text: str) -> Iterator[tuple[str, str]]:
    for span in _SPAN.findall(text):
        words = span.split()
        if len(words) > 1 and words[0] in COMMANDS:
            yield f"kernloom {' '.join(words)}", ""
        elif (len(words) > 1 and words[0] in PROGRAMS) or (span in PROGRAMS and "/" in span):
            yield " ".join(words), ""


def _split(line: str) -> tuple[str, str]:
    command, _, note = re.sub(r"\s+#\s", "\0", line, count=1).partition("\0")
    return command.strip(), note


def files(page: str) -> dict[str, str]:
    """Path -> text of the files that a page shows, as a project would have them."""
    text = PAGES[page].read_text(encoding="utf-8")
    blocks = [block for _, block in FENCE.findall(text)]
    return {place[1]: block for block in blocks if (place := _PATH.match(block))}
