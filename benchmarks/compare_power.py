"""How often `compare` calls a difference where there is none, and finds one of 2% where there is.

The same kernel against itself, and against itself with 2% more elements, each so many times, on a
machine loaded by a busy loop on the other cores.

  .venv/bin/python benchmarks/compare_power.py [COMPARISONS] [--quiet-machine]
"""

from __future__ import annotations

import io
import sys
import time
from collections import Counter

sys.path.insert(0, str(__import__("pathlib").Path(__file__).resolve().parent.parent / "engine"))

from busy import busy_neighbours

from kernloom.cli.progress import Progress
from kernloom.config.overrides import Overrides
from kernloom.measure.comparison import VERDICTS
from kernloom.run.assembly import Assembly
from kernloom.run.comparing import compare
from kernloom.run.contenders import Contenders
from kernloom.store.store import open_store

ELEMENTS = 65_536
CASES = {"A/A": ELEMENTS, "+2%": round(ELEMENTS * 1.02)}


def main() -> None:
    numbers = [word for word in sys.argv[1:] if word.isdigit()]
    times = int(numbers[0]) if numbers else 100
    assembly = Assembly()
    choose = assembly.composer.choose
    progress = Progress(io.StringIO(), quiet=True)
    with busy_neighbours(on="--quiet-machine" not in sys.argv) as load:
        print(f"{times} comparisons of each, axpy of {ELEMENTS} elements, {load}")
        print(
            f"{'case':6}" + "".join(f"{verdict:>14}" for verdict in VERDICTS) + "   rounds  s each"
        )
        for name, elements in CASES.items():
            with open_store(assembly.places.store) as store:
                make = Contenders(assembly, store, Overrides())
                contenders = [
                    make.composed(label, choose({"workload": "axpy", "workload.sizes.N": number}))
                    for label, number in (("a", ELEMENTS), ("b", elements))
                ]
            group = [contender.name for contender in contenders]
            said: Counter[str] = Counter()
            rounds = 0
            start = time.monotonic()
            for _ in range(times):
                [found] = compare(assembly, contenders, [group], progress).comparisons
                said[found.verdict] += 1
                rounds += found.rounds
            each = (time.monotonic() - start) / times
            print(
                f"{name:6}"
                + "".join(f"{said[verdict] / times:14.0%}" for verdict in VERDICTS)
                + f"{rounds / times:9.1f}{each:8.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
