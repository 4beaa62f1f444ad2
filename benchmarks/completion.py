"""CPU seconds of one completion, as a ratio to `python -c "import hydra"`, interleaved.

Cold: without the bytecode of Kernloom's modules, as the first TAB after an update.

.venv/bin/python benchmarks/completion.py [ROUNDS]
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from startup import TREE, cpu_seconds

LINES = (
    [""],
    ["run", ""],
    ["run", "workload="],
    ["run", "workload.sizes."],
    ["run", "workload=mlp", "select.fixed.tile.mr="],
    ["run", "measure.clock="],
    ["run", "output="],
    ["check", "case="],
    ["compare", "--baseline", ""],
    ["results", ""],
    ["results", "--sort", ""],
)
"""Command lines with the cursor at the end."""
SHELL = "zsh"
"""A shell that shows descriptions, which bash does not."""
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"


def cpu_of(tree: Path, line: list[str]) -> float:
    words = [str(len(line)), "--", "kernloom", *line]
    return cpu_seconds([str(tree / "kernloom"), "completion", SHELL, "--words", *words])


def copied(folder: Path) -> Path:
    """A copy of the source tree without bytecode."""
    folder.mkdir()
    for name in ("engine", "configs"):
        shutil.copytree(TREE / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("SConstruct", "kernloom", "pyproject.toml"):
        shutil.copy(TREE / name, folder)
    (folder / ".venv").symlink_to(TREE / ".venv")
    return folder


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    hydra = [str(TREE / ".venv/bin/python"), "-c", "import hydra"]
    base: list[float] = []
    times: dict[str, list[tuple[float, float]]] = {" ".join(line): [] for line in LINES}
    with tempfile.TemporaryDirectory() as folder:
        warm, cold = copied(Path(folder) / "warm"), copied(Path(folder) / "cold")
        os.environ.pop(NO_BYTECODE, None)
        for line in LINES:
            cpu_of(warm, line)
        for _ in range(rounds):
            base.append(cpu_seconds(hydra))
            for line in LINES:
                with_bytecode = cpu_of(warm, line)
                os.environ[NO_BYTECODE] = "1"
                times[" ".join(line)].append((with_bytecode, cpu_of(cold, line)))
                del os.environ[NO_BYTECODE]
    one = statistics.median(base)
    print(f"{'kernloom ... TAB':46}{'CPU s':>8}{'ratio':>8}{'cold':>8}")
    for name, values in times.items():
        median, late = (statistics.median(each) for each in zip(*values, strict=True))
        print(f"{name or '(nothing)':46}{median:8.3f}{median / one:8.2f}{late:8.3f}")


if __name__ == "__main__":
    main()
