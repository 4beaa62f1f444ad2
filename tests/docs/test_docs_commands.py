"""Every command that the documentation shows is run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[2]
PAGES = [TREE / "README.md", *sorted((TREE / "docs").glob("*.md"))]
COMMAND = re.compile(r"^\$ \./kernloom (?P<words>.*?)(?:\s+#\s*(?P<note>.*))?$", re.MULTILINE)
FENCE = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def commands() -> list[tuple[str, str, int]]:
    """(page, words, expected exit code) of each shown command, each once."""
    found = {}
    for page in PAGES:
        for language, text in FENCE.findall(page.read_text(encoding="utf-8")):
            if language != "console":
                continue
            for match in COMMAND.finditer(text):
                code = re.search(r"exit code (\d+)", match["note"] or "")
                found[match["words"]] = (page.name, match["words"], int(code[1]) if code else 0)
    return list(found.values())


def kernloom(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kernloom", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TREE / "engine")},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("page", "words", "code"), commands())
def test_a_shown_command_does_what_the_page_says(page: str, words: str, code: int) -> None:
    done = kernloom(shlex.split(words), TREE)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_the_plain_c_example_works_as_written(tmp_path: Path) -> None:
    (tmp_path / "kernloom.yaml").touch()
    page = (TREE / "docs/workloads-and-kernels.md").read_text(encoding="utf-8")
    for _, text in FENCE.findall(page):
        place = re.match(r"(?:/\*|#) ((?:templates|configs)/\S+)", text)
        if place:
            path = tmp_path / place[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    shown = re.search(r"`kernloom (run -m workload=scale [^`]*)`", page)
    assert shown
    done = kernloom(shlex.split(shown[1]), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 verified" in done.stdout
