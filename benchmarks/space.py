"""What a search space costs: enumerating, counting, sampling, neighbours.

    .venv/bin/python benchmarks/space.py [PYTHON_WITH_KERNEL_TUNER]

Enumerating is compared with itertools and, where an interpreter that has Kernel Tuner is given,
with its search space. All run in turns; each row is the best of some repetitions, so that other
processes on the machine count for little. CPU time is of this process, wall time is what passed.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "engine"))

from kernloom.space import Space

REPEATS = 7
VALUES = {
    "block_x": [1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
    "block_y": [1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
    "tile_m": list(range(1, 11)),
    "tile_n": list(range(1, 11)),
    "unroll": list(range(1, 11)),
    "stages": list(range(1, 11)),
}
"""10^6 combinations."""
WHERE = ["32 <= block_x * block_y <= 1024", "tile_m * tile_n <= 40", "unroll + stages <= 12"]
TIED = ["block_x * block_y * tile_m * tile_n * unroll * stages <= 4096", *WHERE[1:]]
"""With a constraint on all keys at once."""
HUGE_WHERE = ["a == b", "c * d == 12", "e + f + g == 25", "h < i", "j % k == 0 or l > 3"]
KERNEL_TUNER = """
import json, sys, time
from kernel_tuner.searchspace import Searchspace
values, where = json.load(sys.stdin)
seconds = []
for _ in range(3):
    start, cpu = time.perf_counter(), time.process_time()
    space = Searchspace(values, where, max_threads=2**20)
    seconds.append((time.process_time() - cpu, time.perf_counter() - start))
print(json.dumps([space.size, *min(seconds)]))
"""


class Spent(NamedTuple):
    """Seconds of this process's CPU and by the clock, and what was found."""

    cpu: float
    wall: float
    found: Any


def best(work: Callable[[], Any], repeats: int = REPEATS) -> Spent:
    spent = []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        found = work()
        spent.append(Spent(time.process_time() - cpu, time.perf_counter() - wall, found))
    return min(spent, key=lambda one: one.cpu)


def by_itertools() -> list[tuple[int, ...]]:
    """What a loop in Python costs with the constraints written out by hand."""
    return [
        (bx, by, tm, tn, u, s)
        for bx, by, tm, tn, u, s in itertools.product(*VALUES.values())
        if 32 <= bx * by <= 1024 and tm * tn <= 40 and u + s <= 12
    ]


def by_kernel_tuner(python: str) -> Spent:
    asked = json.dumps([VALUES, WHERE])
    done = subprocess.run(
        [python, "-c", KERNEL_TUNER], input=asked, capture_output=True, text=True, check=True
    )
    size, cpu, wall = json.loads(done.stdout.splitlines()[-1])
    return Spent(cpu, wall, range(size))


def huge() -> Space:
    """10^12 combinations, of which one in 34,000 is valid."""
    return Space.of({key: range(1, 11) for key in "abcdefghijkl"}, HUGE_WHERE)


def row(name: str, spent: Spent, note: str) -> None:
    print(f"{name:48}{spent.cpu * 1e3:11.2f}{spent.wall * 1e3:11.2f}  {note}")


def main() -> None:
    import numpy  # noqa: F401 (its import is not what is measured)

    print(f"{'':48}{'CPU ms':>11}{'wall ms':>11}")
    ours = best(lambda: Space.of(VALUES, WHERE).ranks())
    loop = best(by_itertools, 2)
    again = best(lambda: Space.of(VALUES, WHERE).ranks())
    ours = min(ours, again, key=lambda one: one.cpu)
    assert len(ours.found) == len(loop.found)
    valid = f"{len(ours.found):,} valid"
    row("enumerate 10^6, 3 constraints: ranks", ours, valid)
    row("  the same by itertools", loop, f"{loop.cpu / ours.cpu:.0f} times as long")
    if len(sys.argv) > 1:
        theirs = by_kernel_tuner(sys.argv[1])
        assert len(theirs.found) == len(ours.found)
        row("  the same by Kernel Tuner", theirs, f"{theirs.cpu / ours.cpu:.0f} times as long")
    rows = best(lambda: list(Space.of(VALUES, WHERE)), 2)
    row("  as dictionaries", rows, f"{len(rows.found):,} points")
    tied = best(lambda: Space.of(VALUES, TIED).ranks())
    row("enumerate 10^6, 1 of 3 constraints on all keys", tied, f"{len(tied.found):,} valid")
    counted = best(lambda: Space.of(VALUES, WHERE).count())
    row("count 10^6, 3 constraints", counted, f"{counted.found:,}")
    counted = best(lambda: huge().count())
    row("count 10^12, 5 constraints", counted, f"{counted.found:,}")
    sample = best(lambda: huge().sample(1000, seed=1))
    assert sample.found.size == 1000 and sample.found.uniform
    row("sample 1000 of 10^12, tables included", sample, "uniform, none twice")
    space = huge()
    points = list(space.sample(200))
    for adjacent in (False, True):
        near = best(
            lambda: sum(len(space.neighbours(p, adjacent=adjacent)) for p in points),  # noqa: B023
            3,
        )
        kind = "adjacent values" if adjacent else "any other value"
        rate = f"{near.found / near.cpu:,.0f} neighbours/s, {len(points) / near.cpu:,.0f} points/s"
        row(f"neighbours of 200 points, {kind}", near, rate)


if __name__ == "__main__":
    main()
