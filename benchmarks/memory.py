"""Peak memory of commands on sweeps of two lengths, and how much each further point adds.

    .venv/bin/python benchmarks/memory.py [POINTS [MORE_POINTS]]

The sweep is run in a project of its own below the system's folder for temporary files.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
SWEEP = "workload.sizes.N=range(1024,{})"
COMMANDS = {
    "plan -m": ["plan", "-m", "workload=axpy", SWEEP],
    "run -m": ["run", "-m", "workload=axpy", SWEEP],
    "run -m (stored)": ["run", "-m", "workload=axpy", SWEEP],
    "run -m (stored) output=json": ["run", "-m", "workload=axpy", SWEEP, "output=json"],
    "results": ["results"],
    "results output=csv": ["results", "output=csv"],
    "results output=json": ["results", "output=json"],
    "results output=jsonl": ["results", "output=jsonl"],
    "results output=parquet": ["results", "output=parquet", "--to", "trials.parquet"],
    "results --group toolchain": ["results", "--group", "toolchain"],
}


def peak_mb(words: list[str], folder: Path) -> float:
    """The most memory that a command had, in megabytes."""
    with (folder / "output").open("wb") as out:
        process = subprocess.Popen(
            [str(TREE / "kernloom"), *words], cwd=folder, stdout=out, stderr=out
        )
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        said = (folder / "output").read_text(errors="replace")[-2000:]
        raise SystemExit(f"kernloom {' '.join(words)} ended with {status}:\n{said}")
    return usage.ru_maxrss / 1024


def peaks(points: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kernloom.yaml").touch()
        return {
            title: peak_mb([word.format(1024 + points) for word in words], folder)
            for title, words in COMMANDS.items()
        }


def main() -> None:
    numbers = [int(word) for word in sys.argv[1:3]] or [2_000]
    few, many = numbers[0], numbers[1] if len(numbers) > 1 else 3 * numbers[0]
    first, second = peaks(few), peaks(many)
    print(f"{'peak memory in MB':32}{few:>10,}{many:>10,}{'bytes/point':>14}")
    for title in COMMANDS:
        growth = (second[title] - first[title]) * 2**20 / (many - few)
        print(f"{title:32}{first[title]:10.0f}{second[title]:10.0f}{growth:14,.0f}")


if __name__ == "__main__":
    main()
