"""Tunes the product of the project `tiled` with Kernel Tuner; prints how it went as JSON.

Runs under an interpreter that has Kernel Tuner, which need not be the one that has Kernloom:

    python tune.py SPACE.json        # size, samples, flags, values, constraints, cache (or null)
"""

import json
import sys
import time
from pathlib import Path

started = time.perf_counter()

import kernel_tuner  # noqa: E402
import numpy as np  # noqa: E402

HERE = Path(__file__).resolve().parent


def main() -> None:
    space = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    size = space["size"]
    random = np.random.default_rng(0)
    left, right = (random.uniform(-1, 1, (size, size)).astype(np.float32) for _ in "AB")
    before = time.perf_counter()
    results, _ = kernel_tuner.tune_kernel(
        "tiled_timed",
        str(HERE / "tiled_timed.cc"),
        (size, size),
        [np.zeros_like(left), left, right],
        space["values"],
        restrictions=space["constraints"],
        answer=[left @ right, None, None],
        atol=1e-3,
        lang="C",
        compiler="g++",
        compiler_options=[*space["flags"], f"-DN={size}", f"-I{HERE.parent / 'tiled/templates'}"],
        iterations=space["samples"],
        cache=space["cache"],
        quiet=True,
    )
    end = time.perf_counter()
    found = {
        "points": sum(isinstance(result.get("time"), float) for result in results),
        "seconds": end - before,
        "with_imports": end - started,
        "compile_ms": np.mean([result.get("compile_time", 0) for result in results]),
        "best_ms": min(r["time"] for r in results if isinstance(r.get("time"), float)),
    }
    print(json.dumps(found), file=sys.__stdout__)


if __name__ == "__main__":
    main()
