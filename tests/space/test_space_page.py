"""The example of a search space in the documentation prints what the page says it prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from doc_pages import FENCE, PAGES, TREE


def test_the_example_of_a_search_space_works_as_written(tmp_path: Path) -> None:
    fences = FENCE.findall(PAGES["docs/reference/search-spaces.md"].read_text(encoding="utf-8"))
    at = next(n for n, (_, text) in enumerate(fences) if text.startswith("# example: search-"))
    (language, example), (_, printed) = fences[at : at + 2]
    assert language == "python"
    script = tmp_path / "example.py"
    script.write_text(example, encoding="utf-8")
    environment = {"PYTHONPATH": str(TREE / "engine")}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed
