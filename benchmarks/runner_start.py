"""How long a fresh runner takes: start, one launch, close; with its sandbox and without, beside
starting the smallest program.

    python benchmarks/runner_start.py [RUNNER]

Without a path it takes the release runner under build/lib/, which `python -m SCons` builds.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "engine"))

from kernloom.device.contract import Call, LaunchSettings, Scalar  # noqa: E402
from kernloom.device.host import HostDevice  # noqa: E402

ROUNDS = 200
KERNEL = """
void kl_entry(void *const *args) {
    long n = *(const long *)args[0];
    const float *x = args[1];
    float *y = args[2];
    for (long i = 0; i < n; i++)
        y[i] += x[i];
}
"""


def compile_kernel(folder: Path) -> Path:
    source, library = folder / "kernel.c", folder / "kernel.so"
    source.write_text(KERNEL)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return library


def session_and_launch(device: HostDevice, library: Path) -> None:
    with device.open() as session:
        x, y = session.allocate(4096, "x"), session.allocate(4096, "y")
        session.write(x, bytes(4096))
        session.fill(y, 0)
        kernel = session.load(library, 3)
        session.launch([Call(kernel, (Scalar(1024), x, y))], LaunchSettings(samples=5))
        session.read(y)


def launch_alone(device: HostDevice, library: Path) -> None:
    with device.open() as session:
        session.launch([Call(session.load(library, 3), (Scalar(0), Scalar(0), Scalar(0)))])


def spawn_true() -> None:
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def popen_true() -> None:
    subprocess.run(["/bin/true"], check=True)


def main() -> int:
    here = TOP.glob(f"build/lib/{os.uname().machine}*/release/none/runner")
    found = sorted(here, key=lambda path: path.stat().st_mtime, reverse=True)
    if len(sys.argv) < 2 and not found:
        print("no runner under build/lib/: build it with `python -m SCons`", file=sys.stderr)
        return 3
    runner = Path(sys.argv[1]) if len(sys.argv) > 1 else found[0]
    device, open_device = HostDevice(runner, sandbox=()), HostDevice(runner)
    with tempfile.TemporaryDirectory() as folder:
        library = compile_kernel(Path(folder))
        subjects: dict[str, Callable[[], None]] = {
            "start + one launch + close": lambda: launch_alone(device, library),
            "the same without a sandbox": lambda: launch_alone(open_device, library),
            "with two buffers written and read": lambda: session_and_launch(device, library),
            "posix_spawn /bin/true": spawn_true,
            "subprocess.run /bin/true": popen_true,
        }
        times: dict[str, list[float]] = {name: [] for name in subjects}
        for _ in range(ROUNDS):
            for name, subject in subjects.items():
                start = time.perf_counter()
                subject()
                times[name].append(1e3 * (time.perf_counter() - start))
    peer = statistics.median(times["subprocess.run /bin/true"])
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{name:<44} {median:6.2f} ms  {median / peer:5.2f} x subprocess.run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
