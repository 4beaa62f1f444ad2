"""Tunes a kernel on this machine with a strategy of Kernel Tuner; prints the points as JSON.

Runs under an interpreter that has Kernel Tuner. Its argument is a JSON file:

    {"sources": JSON file {VALUES joined by commas: C source}, "values": {NAME: [VALUE, ...]},
     "wrapper": C++ around SOURCE, "flags": [FLAG, ...], "size": N, "samples": N,
     "strategy": NAME, "evaluations": N, "seed": N, "close": [VALUES, ...]}

A point without a source is invalid. The search ends when it has tried one of `close`. The last line
of stdout is [START, [[VALUES, END], ...]]: the time by the clock before tuning starts, and when the
evaluation of each distinct point ended.
"""

import contextlib
import json
import random
import sys
import time
from pathlib import Path

import kernel_tuner
import numpy as np
from constraint import FunctionConstraint
from kernel_tuner.observers import BenchmarkObserver


class Done(Exception):
    """A point is good enough."""


class Watch(BenchmarkObserver):
    """Notes every point, and ends the search."""

    def __init__(self, names: list[str], close: list[str]) -> None:
        self._names = names
        self._close = set(close)
        self._key = ""
        self.points: dict[str, float] = {}

    def register_configuration(self, params: dict[str, object]) -> None:
        self._key = key_of(params[name] for name in self._names)

    def get_results(self) -> dict[str, object]:
        self.points.setdefault(self._key, time.time())
        if self._key in self._close:
            raise Done
        return {}


def main() -> None:
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sources = json.loads(Path(task["sources"]).read_text(encoding="utf-8"))
    names = list(task["values"])
    watch = Watch(names, task["close"])

    def source(point: dict[str, object]) -> str:
        text = sources[key_of(point[name] for name in names)]
        return str(task["wrapper"].replace("SOURCE", text))

    random.seed(task["seed"])
    np.random.seed(task["seed"])
    left, right, product = tensors(task["size"])
    start = time.time()
    with contextlib.suppress(Done):
        kernel_tuner.tune_kernel(
            "timed",
            source,
            task["size"],
            [product, left, right],
            task["values"],
            restrictions=[FunctionConstraint(lambda *values: key_of(values) in sources)],
            answer=[left @ right, None, None],
            atol=1e-3,
            lang="C",
            compiler="g++",
            compiler_options=task["flags"],
            iterations=task["samples"],
            observers=[watch],
            strategy=task["strategy"],
            strategy_options={"max_fevals": task["evaluations"]},
            quiet=True,
        )
    print(json.dumps([start, list(watch.points.items())]), file=sys.__stdout__)


def key_of(values: object) -> str:
    return ",".join(str(int(value)) for value in values)


def tensors(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B and C, aligned to cache lines as Kernloom aligns them."""
    generator = np.random.default_rng(0)
    found = []
    for _ in range(3):
        memory = np.empty(size * size * 4 + 64, dtype=np.uint8)
        first = -memory.ctypes.data % 64
        tensor = memory[first : first + size * size * 4].view(np.float32).reshape(size, size)
        tensor[:] = generator.uniform(-1, 1, (size, size))
        found.append(tensor)
    return found[0], found[1], found[2]


if __name__ == "__main__":
    main()
