"""How quickly strategies find good points of recorded spaces, and what a suggestion costs.

    .venv/bin/python benchmarks/tuning.py SPACE.json.gz ... [--repeats 20] [--budget 100]
        [--strategies auto,genetic] [--kernel-tuner PYTHON] [--their-strategies pso,...]

Prints the score of each strategy on each space (0 random search, 1 the best point at once; see
kernloom/tune/score.py) and the mean, for the budget of each space, or with --budget for a fixed
number of evaluations. `auto (warm)` starts from the 8 best points of a search of 3% of a space of
the same kernel on another device: the part of the file name before the first `_` is the kernel.
PYTHON is an interpreter with kernel-tuner 1.5 (`pip install kernel-tuner` in an environment of
its own); its strategies then search the same spaces with the same budgets and seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "engine"))

from kernloom.tune.recorded import Recording, read_recording  # noqa: E402
from kernloom.tune.replay import replay  # noqa: E402
from kernloom.tune.score import best_so_far, community_budget, random_curve, score  # noqa: E402
from kernloom.tune.strategy import STRATEGIES, Point  # noqa: E402

WARM = "auto (warm)"
WARM_SHARE = 0.03
WARM_POINTS = 8
THEIRS = "pso,simulated_annealing,genetic_algorithm,greedy_ils,diff_evo"


@dataclass
class Row:
    """The scores of a strategy."""

    scores: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    ms: list[float] = field(default_factory=list)


def sibling_of(path: Path, recordings: dict[Path, Recording]) -> Recording | None:
    """A space of the same kernel and parameters on another device."""
    axes = recordings[path].space.axes
    for other, recording in recordings.items():
        kernel = other.name.split("_")[0]
        if other != path and kernel == path.name.split("_")[0] and recording.space.axes == axes:
            return recording
    return None


def warm_start(sibling: Recording, seed: int) -> tuple[Point, ...]:
    """The best points of a short search."""
    found = replay(sibling, "auto", int(sibling.points * WARM_SHARE), 1, seed).repeats[0]
    good = [(v, n) for n, v in enumerate(found.values) if v is not None]
    return tuple(found.points[n] for _, n in sorted(good)[:WARM_POINTS])


def ours(
    name: str,
    recording: Recording,
    budget: int,
    sibling: Recording | None,
    options: argparse.Namespace,
) -> tuple[float, float, float] | None:
    """The score, its standard error, and milliseconds per suggestion."""
    if name != WARM:
        one = replay(recording, name, budget, options.repeats, options.seed)
        return one.score, one.error, one.ms_per_point
    if sibling is None:
        return None
    random = random_curve(recording, budget)
    curves, spent = [], []
    for seed in range(options.seed, options.seed + options.repeats):
        first = warm_start(sibling, seed)
        one = replay(recording, "auto", budget, 1, seed, first=first)
        curves.append(best_so_far(recording, one.repeats[0].values, budget))
        spent.append(one.ms_per_point)
    single = [score(recording, [curve], random) for curve in curves]
    error = statistics.pstdev(single) / math.sqrt(len(single))
    return score(recording, curves, random), error, statistics.mean(spent)


def theirs(
    recordings: dict[Path, Recording], budgets: dict[Path, int], options: argparse.Namespace
) -> dict[str, Row]:
    """The scores of Kernel Tuner's strategies."""
    asked = {
        "spaces": {str(path): budgets[path] for path in recordings},
        "strategies": options.their_strategies.split(","),
        "seeds": list(range(options.seed, options.seed + options.repeats)),
    }
    script = HERE / "kernel_tuner" / "replay.py"
    done = subprocess.run(
        [options.kernel_tuner, str(script)],
        input=json.dumps(asked),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    searches: dict[tuple[str, str], list[tuple[float, list[float | None]]]] = {}
    for line in done.stdout.splitlines():
        path, name, _, seconds, values = json.loads(line)
        searches.setdefault((path, name), []).append((seconds, values))
    rows: dict[str, Row] = {}
    for (place, name), found in searches.items():
        path = Path(place)
        recording, budget = recordings[path], budgets[path]
        random = random_curve(recording, budget)
        curves = [best_so_far(recording, values, budget) for _, values in found]
        single = [score(recording, [curve], random) for curve in curves]
        row = rows.setdefault(f"Kernel Tuner {name}", Row())
        row.scores[recording.name] = score(recording, curves, random)
        row.errors[recording.name] = statistics.pstdev(single) / math.sqrt(len(single))
        evaluations = sum(len(values) for _, values in found)
        row.ms.append(1e3 * sum(seconds for seconds, _ in found) / max(1, evaluations))
    return rows


def show(name: str, row: Row, names: Sequence[str]) -> None:
    cells = [
        f"{row.scores[n]:+.2f}±{row.errors[n]:.2f}".rjust(12) if n in row.scores else " " * 12
        for n in names
    ]
    mean = statistics.mean(row.scores.values())
    print(f"{name:32}{mean:+8.3f} {statistics.mean(row.ms):7.2f} ms {' '.join(cells)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("spaces", nargs="+", type=Path)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=int, help="evaluations, instead of each space's own")
    parser.add_argument("--strategies", default=",".join([*STRATEGIES.names(), WARM]))
    parser.add_argument("--kernel-tuner", metavar="PYTHON")
    parser.add_argument("--their-strategies", default=THEIRS)
    options = parser.parse_args()
    recordings = {path: read_recording(path) for path in options.spaces}
    budgets = {path: options.budget or community_budget(r) for path, r in recordings.items()}
    names = [recording.name for recording in recordings.values()]
    for path, recording in recordings.items():
        print(f"{recording.name}: {recording.points} points, {budgets[path]} evaluations")
    print(f"{'':32}{'mean':>8} {'':>10} {' '.join(name[-12:].rjust(12) for name in names)}")
    for name in options.strategies.split(","):
        row = Row()
        for path, recording in recordings.items():
            sibling = sibling_of(path, recordings)
            found = ours(name, recording, budgets[path], sibling, options)
            if found is not None:
                row.scores[recording.name], row.errors[recording.name] = found[:2]
                row.ms.append(found[2])
        if row.scores:
            show(name, row, names)
    if options.kernel_tuner:
        for name, row in theirs(recordings, budgets, options).items():
            show(name, row, names)


if __name__ == "__main__":
    main()
