"""Tunes a kernel on this machine with strategies of Kernel Tuner; prints the points as JSON.

Runs under an interpreter that has Kernel Tuner. Its argument is a JSON file:

    {"sources": JSON file {VALUES joined by commas: C source}, "values": {NAME: [VALUE, ...]},
     "wrapper": C++ around SOURCE, "flags": [FLAG, ...], "size": N, "samples": N,
     "strategy": NAME, "evaluations": N, "seed": N}

A point without a source is invalid.
The last line of stdout is [START, [[VALUES, MILLISECONDS or null, END], ...]]: the time by the
clock before tuning starts, and for each distinct point the time when its evaluation ended.
"""

import json
import random
import sys
import time
from datetime import datetime
from pathlib import Path

import kernel_tuner
import numpy as np


def main() -> None:
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sources = json.loads(Path(task["sources"]).read_text(encoding="utf-8"))
    names = list(task["values"])
    wrapper = task["wrapper"]

    def source(point: dict[str, object]) -> str:
        return wrapper.replace("SOURCE", sources[key_of(point[name] for name in names)])

    random.seed(task["seed"])
    np.random.seed(task["seed"])
    left, right, product = tensors(task["size"])
    start = time.time()
    results, _ = kernel_tuner.tune_kernel(
        "timed",
        source,
        task["size"],
        [product, left, right],
        task["values"],
        restrictions=lambda point: key_of(point[name] for name in names) in sources,
        answer=[left @ right, None, None],
        atol=1e-3,
        lang="C",
        compiler="g++",
        compiler_options=task["flags"],
        iterations=task["samples"],
        strategy=task["strategy"],
        strategy_options={"max_fevals": task["evaluations"]},
        quiet=True,
    )
    found = {}
    for result in results:
        known = result.get("time")
        ended = datetime.fromisoformat(result["timestamp"]).timestamp()
        value = known if isinstance(known, (int, float)) else None
        found.setdefault(key_of(result[name] for name in names), (value, ended))
    points = [[key, value, ended] for key, (value, ended) in found.items()]
    print(json.dumps([start, sorted(points, key=lambda point: point[2])]), file=sys.__stdout__)


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
