"""Whether two sweeps of the same 54 points rank them alike on a loaded machine.

Spearman's rank correlation and how many of the ten fastest are the same, for each policy, on a
machine loaded by a busy loop on the other cores.

  .venv/bin/python benchmarks/rank_stability.py [POLICY ...]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from busy import busy_neighbours

HERE = Path(__file__).resolve().parent
PROJECT = HERE / "tiled"
TOP = 10
SWEEP = [
    "workload=tiled",
    "select.fixed.tile.ti=8,16",
    "select.fixed.tile.tj=32,64,128",
    "select.fixed.tile.tk=8,16,32",
    "select.fixed.unroll.u=1,2,4",
]


def swept(policy: str) -> list[float]:
    """Median times of all points, measured anew."""
    words = ["run", "-m", *SWEEP, f"measure={policy}", "rerun=all", "output=json"]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "engine")}
    command = [sys.executable, "-m", "kernloom", *words]
    done = subprocess.run(
        command, cwd=PROJECT, env=environment, check=False, capture_output=True, text=True
    )
    trials = json.loads(done.stdout)["trials"]
    failed = [trial for trial in trials if not trial["verified"]]
    if failed:
        sys.exit(f"{len(failed)} points failed: {failed[0]['message']}")
    return [trial["metrics"]["median_ns"] for trial in trials]


def ranks(times: list[float]) -> list[int]:
    order = sorted(range(len(times)), key=times.__getitem__)
    placed = [0] * len(times)
    for rank, index in enumerate(order):
        placed[index] = rank
    return placed


def spearman(first: list[float], second: list[float]) -> float:
    count = len(first)
    pairs = zip(ranks(first), ranks(second), strict=True)
    return 1 - 6 * sum((a - b) ** 2 for a, b in pairs) / (count * (count**2 - 1))


def overlap(first: list[float], second: list[float]) -> int:
    best = [{i for i, rank in enumerate(ranks(times)) if rank < TOP} for times in (first, second)]
    return len(best[0] & best[1])


def main() -> None:
    policies = sys.argv[1:] or ["quick", "standard", "rigorous"]
    with busy_neighbours() as load:
        print(f"a plain C matmul, 256x256x256, {load}")
        print(f"{'policy':10} {'points':>6} {'Spearman':>9} {'top ten':>8} {'s each':>7}")
        for policy in policies:
            start = time.monotonic()
            first, second = swept(policy), swept(policy)
            seconds = (time.monotonic() - start) / 2
            print(
                f"{policy:10} {len(first):6} {spearman(first, second):9.3f} "
                f"{overlap(first, second):6}/{TOP} {seconds:7.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
