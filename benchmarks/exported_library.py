"""Compares an exported matmul, built with a plain gcc, with the OpenBLAS that numpy bundles.

Tunes 512^3 on one thread, exports the winner as C, builds the library by its own build.sh, and
times both in turns on one thread (thread CPU time). The other shapes were not tuned: the library
chooses its nearest variant for them. OpenBLAS chooses its kernels by the CPU; as it may not know a
new one, its AVX-512 kernels are measured, too.

  .venv/bin/python benchmarks/exported_library.py [TRIALS] [ROUNDS]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "engine"))

import numpy as np

from kernloom.base.places import find_places
from kernloom.measure.openblas import find_openblas

TREE = Path(__file__).resolve().parent.parent
SHAPES = ((512, 512, 512), (256, 256, 256), (1024, 1024, 1024), (500, 300, 700), (64, 64, 4096))
TUNED = SHAPES[0]
CORES = ("", "SkylakeX")
"""Kernels of OpenBLAS; the first: its own choice."""
RESAMPLES = 2_000


def main() -> None:
    words = sys.argv[1:]
    trials = int(words[0]) if words else 40
    rounds = int(words[1]) if len(words) > 1 else 101
    blas = find_openblas(find_places(TREE).build / "cache")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "matmul_library"
        export(library, trials)
        program = build(library)
        print(f"exported matmul and OpenBLAS {blas.version}, one thread, {rounds} rounds each")
        print(f"{'M x N x K':>18} {'exported':>10} {'OpenBLAS':>10}  OpenBLAS / exported")
        for core in CORES:
            for shape in SHAPES:
                print(line(program, blas.path, core, shape, rounds), flush=True)


def export(folder: Path, trials: int) -> None:
    """Tune, and write the library."""
    sizes = [f"workload.sizes.{name}={size}" for name, size in zip("MNK", TUNED, strict=True)]
    words = ["select.fixed.parallelize.threads=1", f"trials={trials}", f"export={folder}"]
    command = [str(TREE / "kernloom"), "tune", "workload=matmul", *sizes, *words]
    subprocess.run(command, check=True, stdout=sys.stderr)


def build(folder: Path) -> Path:
    """The library by a plain compiler, its own test, and the program that measures it."""
    subprocess.run(["sh", "build.sh"], cwd=folder, check=True)
    subprocess.run(["./test"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    source = str(Path(__file__).resolve().with_suffix(".c"))
    words = ["gcc", "-O2", "-I.", source, "libmatmul_kernels.a", "-ldl", "-lm", "-pthread"]
    subprocess.run([*words, "-o", "compare"], cwd=folder, check=True)
    return folder / "compare"


def line(program: Path, blas: Path, core: str, shape: tuple[int, ...], rounds: int) -> str:
    chosen = {"OPENBLAS_CORETYPE": core} if core else {}
    done = subprocess.run(
        [program, blas, *map(str, shape), str(rounds)],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **chosen},
        check=True,
        capture_output=True,
        text=True,
    )
    apart, name = done.stderr.split()
    if float(apart) > 1e-2:
        raise SystemExit(f"the results differ by {apart}")
    times = np.array([[float(word) for word in row.split()] for row in done.stdout.splitlines()])
    ratios = np.log(times[:, 1] / times[:, 0])
    drawn = np.random.default_rng(0).choice(ratios, (RESAMPLES, len(ratios)))
    low, high = np.exp(np.quantile(np.median(drawn, axis=1), [0.025, 0.975]))
    ours, theirs = np.median(times, axis=0) / 1e3
    ratio = f"{np.exp(np.median(ratios)):.3f} ({low:.3f}..{high:.3f})"
    where = "tuned" if shape == TUNED else "nearest variant"
    sizes = " x ".join(map(str, shape))
    return f"{sizes:>18} {ours:7.1f} us {theirs:7.1f} us  {ratio}  {where}, kernels {name}"


if __name__ == "__main__":
    main()
