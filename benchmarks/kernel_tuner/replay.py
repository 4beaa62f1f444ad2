"""Replays recorded spaces with the strategies of Kernel Tuner; prints the times they found as JSON.

Runs under an interpreter that has Kernel Tuner. stdin has
{"spaces": {FILE: EVALUATIONS}, "strategies": [NAME, ...], "seeds": [N, ...]}. Each line of stdout
is one search: [FILE, STRATEGY, SEED, SECONDS, [TIME or null, ...]], distinct points in order.
"""

import contextlib
import gzip
import io
import json
import random
import sys
import time
from pathlib import Path

import numpy as np
from constraint import FunctionConstraint
from kernel_tuner import util
from kernel_tuner.interface import Options, strategy_map
from kernel_tuner.runners.simulation import SimulationRunner
from kernel_tuner.searchspace import Searchspace

ERRORS = {
    name: getattr(util, name)()
    for name in (
        "InvalidConfig",
        "CompilationFailedConfig",
        "RuntimeFailedConfig",
        "ErrorConfig",
    )
    if hasattr(util, name)
}


class Recorded:
    """A recorded space as Kernel Tuner sees it."""

    def __init__(self, path: str) -> None:
        data = Path(path).read_bytes()
        document = json.loads(gzip.decompress(data) if path.endswith(".gz") else data)
        rows = list(document["cache"].values())
        self.keys = document["tune_params_keys"]
        found = [tuple(row[key] for key in self.keys) for row in rows]
        valid = set(found)
        self.values = {key: sorted({row[key] for row in rows}) for key in self.keys}
        self.space = Searchspace(
            self.values, [FunctionConstraint(lambda *values: values in valid)], 10**9
        )
        assert self.space.size == len(valid), (path, self.space.size, len(valid))
        self.cache = {}
        self.times = {}
        for point, row in zip(found, rows, strict=True):
            entry = {key: value for key, value in row.items() if key != "times"}
            errors = (ERRORS.get(value) for value in row.values() if isinstance(value, str))
            error = next((error for error in errors if error is not None), None)
            if error is not None:
                entry["__error__"] = error
            self.cache[",".join(str(value) for value in point)] = entry
            known = row.get("time")
            self.times[point] = known if isinstance(known, (int, float)) else None

    def search(self, strategy: str, seed: int, evaluations: int) -> list:
        random.seed(seed)
        np.random.seed(seed)
        options = Options(
            {
                "tune_params": self.values,
                "restrictions": None,
                "strategy_options": Options({"max_fevals": evaluations}),
                "strategy": strategy,
                "max_fevals": evaluations,
                "objective": ["time"],
                "objective_higher_is_better": [False],
                "verbose": False,
                "cache": self.cache,
                "cachefile": None,
                "metrics": None,
                "simulated_time": 0,
                "simulation_mode": True,
                "budget": util.TuningBudget(None, evaluations),
                "seed": seed,
                "answer": None,
                "verify": None,
                "iterations": 7,
                "snap": True,
            }
        )
        kernel = Options({"kernel_name": "k", "block_size_names": []})
        device = Options(
            {
                "quiet": True,
                "device": 0,
                "platform": 0,
                "compiler": None,
                "compiler_options": None,
            }
        )
        runner = SimulationRunner(None, kernel, device, 7, [])
        with contextlib.redirect_stdout(io.StringIO()):
            results = strategy_map[strategy].tune(self.space, runner, options)
        points = dict.fromkeys(tuple(row[key] for key in self.keys) for row in results)
        return [self.times[point] for point in points][:evaluations]


def main() -> None:
    asked = json.load(sys.stdin)
    for path, evaluations in asked["spaces"].items():
        recorded = Recorded(path)
        for strategy in asked["strategies"]:
            for seed in asked["seeds"]:
                started = time.perf_counter()
                try:
                    found = recorded.search(strategy, seed, evaluations)
                except Exception as error:
                    print(f"{strategy} on {path}, seed {seed}: {error!r}", file=sys.stderr)
                    continue
                seconds = time.perf_counter() - started
                print(json.dumps([path, strategy, seed, seconds, found]), flush=True)


if __name__ == "__main__":
    main()
