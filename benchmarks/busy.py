"""A noisy neighbour: busy loops on the cores that kernels are not pinned to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LOOP = "import os,sys\nos.sched_setaffinity(0,{int(sys.argv[1])})\nwhile True: sum(range(10000))"


@contextmanager
def busy_neighbours(*, on: bool = True) -> Iterator[str]:
    """Load every core but the last, where kernels run; says what it loads."""
    cores = sorted(os.sched_getaffinity(0))[:-1] if on else []
    loops = [subprocess.Popen([sys.executable, "-c", LOOP, str(core)]) for core in cores]
    try:
        yield f"busy loop on core {', '.join(map(str, cores))}" if cores else "quiet"
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
