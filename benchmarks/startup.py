"""CPU seconds of starting commands, as a ratio to `python -c "import hydra"`, interleaved.

.venv/bin/python benchmarks/startup.py [ROUNDS]
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
SUBJECTS = {
    "import hydra": [str(TREE / ".venv/bin/python"), "-c", "import hydra"],
    "./kernloom targets": [str(TREE / "kernloom"), "targets"],
    "./kernloom run (stored)": [str(TREE / "kernloom"), "run"],
    "./kernloom run (artifacts cached, measured again)": [
        str(TREE / "kernloom"),
        "run",
        "rerun=all",
    ],
    "./kernloom plan": [str(TREE / "kernloom"), "plan"],
}


def cpu_seconds(argv: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    os.chdir(TREE)
    for argv in SUBJECTS.values():
        cpu_seconds(argv)
    times: dict[str, list[float]] = {name: [] for name in SUBJECTS}
    for _ in range(rounds):
        for name, argv in SUBJECTS.items():
            times[name].append(cpu_seconds(argv))
    base = statistics.median(times["import hydra"])
    print(f"{'command':52}{'CPU s':>8}{'ratio':>8}")
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{name:52}{median:8.3f}{median / base:8.2f}")


if __name__ == "__main__":
    main()
