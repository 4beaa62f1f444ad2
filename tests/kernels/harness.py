"""Renders, compiles and calls one kernel, so that templates are tested without the whole engine."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import mmap
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import yaml
from jinja2 import FileSystemLoader, StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kernloom.base.expressions import parse
from kernloom.config.convert import convert
from kernloom.config.schema import Kernel, Scalar

ROOT = Path(__file__).resolve().parents[2]
TRANSFORMS = ("tile", "pack", "unroll", "vectorize", "parallelize", "fuse", "catch")
CTYPES = {"float32": "float", "float64": "double"}
FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror")
FLAGS += ("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
Params = Mapping[str, Mapping[str, Scalar]]

PARALLEL = """
void kl_parallel(long tasks, long threads, void (*body)(void *context, long task), void *context)
{
    (void)threads;
    for (long task = tasks - 1; task >= 0; task--)
        body(context, task);
}
"""
"""In this process one task after another is enough: what is tested is how work is split."""


@dataclass(frozen=True)
class Machine:
    """What a template and a model see of an arch, and what the compiler is told."""

    name: str
    vector_bytes: int
    registers: int
    flags: tuple[str, ...]
    l1: int = 32 << 10
    l2: int = 1 << 20
    l3: int = 32 << 20
    cores: int = 16

    def names(self, dtype: str) -> dict[str, int]:
        element = np.dtype(dtype).itemsize
        return {
            "registers": self.registers,
            "vector_bytes": self.vector_bytes,
            "element": element,
            "lanes_max": self.vector_bytes // element,
            "l1": self.l1,
            "l2": self.l2,
            "l3": self.l3,
            "cores": self.cores,
            "fusable": 0,
        }


V2 = Machine("x86_64_v2", 16, 16, ("-march=x86-64-v2",))
V3 = Machine("x86_64_v3", 32, 16, ("-march=x86-64-v3",))
V4 = Machine("x86_64_v4", 64, 32, ("-march=x86-64-v4", "-mprefer-vector-width=512"))
MACHINES = {machine.name: machine for machine in (V2, V3, V4)}


@cache
def best_machine() -> Machine:
    """The widest machine this host can run."""
    info = Path("/proc/cpuinfo").read_text()
    if all(flag in info for flag in ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")):
        return V4
    return V3 if "avx2" in info and "fma" in info else V2


@cache
def load_kernel(name: str) -> Kernel:
    data = yaml.safe_load((ROOT / "configs/kernel" / f"{name}.yaml").read_text())
    return convert(Kernel, data, f"kernel.{name}")


def kernel_names() -> list[str]:
    files = sorted((ROOT / "configs/kernel").glob("*.yaml"))
    # Others are for PEs of accelerators alone.
    return [path.stem for path in files if "host" in yaml.safe_load(path.read_text())["sources"]]


def flat(kernel: Kernel) -> dict[str, tuple[str, tuple[Scalar, ...]]]:
    """Tunable -> (transform, values)."""
    return {
        name: (transform, tunable.values)
        for transform, group in kernel.tunables.items()
        for name, tunable in group.items()
    }


def off_params(kernel: Kernel) -> dict[str, dict[str, Scalar]]:
    return {
        transform: {name: tunable.off for name, tunable in group.items()}
        for transform, group in kernel.tunables.items()
    }


def with_values(kernel: Kernel, params: Params, **changes: Scalar) -> dict[str, dict[str, Scalar]]:
    result = {transform: dict(group) for transform, group in params.items()}
    for name, value in changes.items():
        result[flat(kernel)[name][0]][name] = value
    return result


def space(kernel: Kernel, fixed: Mapping[str, Scalar]) -> dict[str, np.ndarray]:
    """Every combination of values, one flat array for each tunable."""
    tunables = flat(kernel)
    axes = ((fixed[n],) if n in fixed else values for n, (_, values) in tunables.items())
    points = list(itertools.product(*axes))
    columns = zip(*points, strict=True)
    return {name: np.array(column) for name, column in zip(tunables, columns, strict=True)}


def modelled(
    kernel: Kernel, sizes: Mapping[str, int], machine: Machine, dtype: str, **fixed: Scalar
) -> dict[str, dict[str, Scalar]] | None:
    """The point the kernel's own model prefers among those with the `fixed` values."""
    points = space(kernel, fixed)
    names = {**machine.names(dtype), **sizes, **points}
    count = len(next(iter(points.values())))
    valid = np.ones(count, dtype=bool)
    for constraint in kernel.constraints:
        valid &= np.broadcast_to(np.asarray(parse(constraint)(names), dtype=bool), (count,))
    cost = np.broadcast_to(np.asarray(parse(kernel.model)(names), dtype=float), (count,))
    if not valid.any():
        return None
    best = int(np.argmin(np.where(valid, cost, np.inf)))
    chosen = {name: values[best].item() for name, values in points.items()}
    return with_values(kernel, off_params(kernel), **chosen)


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    return ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(ROOT / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@dataclass(frozen=True)
class Epilogue:
    """A kernel fused into the end of another."""

    kernel: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Variant:
    """One kernel with all decisions made."""

    kernel: Kernel
    dtype: str
    params: Params
    machine: Machine
    epilogue: Epilogue | None = None
    compiler: str = "gcc"
    extra_flags: tuple[str, ...] = field(default=())

    def arguments(self) -> list[dict[str, str]]:
        spelled = [
            {
                "name": name,
                "kind": argument.kind,
                "access": argument.access,
                "dtype": "int64" if argument.kind == "size" else self.dtype,
                "ctype": "long" if argument.kind == "size" else CTYPES[self.dtype],
            }
            for name, argument in self.kernel.arguments.items()
        ]
        if self.epilogue:
            spelled.append({**spelled[-1], "name": self.epilogue.arguments[0], "access": "read"})
        return spelled

    def source(self) -> str:
        assert self.kernel.sources["host"].template
        template = _environment().get_template(self.kernel.sources["host"].template)
        arguments = self.arguments()
        machine = self.machine
        body = template.render(
            function=f"{self.kernel.name}_kernel",
            arguments=arguments,
            dtype=self.dtype,
            ctype=CTYPES[self.dtype],
            element=np.dtype(self.dtype).itemsize,
            arch={
                "name": machine.name,
                "isa": "x86_64",
                "vector_bytes": machine.vector_bytes,
                "registers": machine.registers,
                "caches": {"l1": machine.l1, "l2": machine.l2, "l3": machine.l3},
                "cores": machine.cores,
            },
            epilogue=self.epilogue,
            **{transform: self.params.get(transform, {}) for transform in TRANSFORMS},
        )
        passed = ", ".join(
            f"args[{i}]" if a["kind"] == "tensor" else f"*(const {a['ctype']} *)args[{i}]"
            for i, a in enumerate(arguments)
        )
        entry = f"{{\n    {self.kernel.name}_kernel({passed});\n}}\n"
        return (
            f"{body}\nvoid kl_entry(void *const *args);\nvoid kl_entry(void *const *args)\n{entry}"
        )

    def command(self, source: Path, output: Path) -> list[str]:
        flags = (*FLAGS, *self.machine.flags, *self.extra_flags)
        return [self.compiler, *flags, "-o", str(output), str(source)]

    def build(self, folder: Path) -> Path:
        source = self.source()
        parallel = PARALLEL if "kl_parallel" in source else ""
        text = source + parallel
        identity = repr((text, self.compiler, self.machine.flags, self.extra_flags))
        key = hashlib.sha256(identity.encode()).hexdigest()[:16]
        output = folder / f"{self.kernel.name}_{key}.so"
        if not output.exists():
            path = output.with_suffix(".c")
            path.write_text(text)
            made = subprocess.run(self.command(path, output), capture_output=True, text=True)
            assert made.returncode == 0, f"{path}\n{made.stderr}\n{self.params}"
            assert not made.stderr, made.stderr
        return output


def call(library: Path, values: list[np.ndarray | np.generic]) -> None:
    """Calls kl_entry the way a runner does: an address for each argument."""
    entry = ctypes.CDLL(str(library)).kl_entry
    entry.restype = None
    held = [value if value.ndim else np.array([value]) for value in values]
    addresses = (ctypes.c_void_p * len(held))(*(item.ctypes.data for item in held))
    entry(addresses)


class Fenced:
    """Memory whose first byte follows and whose last byte precedes a page nobody may touch."""

    def __init__(self, array: np.ndarray, *, at_end: bool) -> None:
        page = mmap.PAGESIZE
        inside = -(-max(array.nbytes, 1) // page) * page
        self.memory = mmap.mmap(-1, inside + 2 * page)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        protect = ctypes.CDLL(None).mprotect
        for fence in (base, base + page + inside):
            assert protect(ctypes.c_void_p(fence), ctypes.c_size_t(page), 0) == 0
        start = page + (inside - array.nbytes if at_end else 0)
        view = np.frombuffer(self.memory, dtype=array.dtype, count=array.size, offset=start)
        view[:] = array.ravel()
        self.array = view.reshape(array.shape)


def survives(action: Callable[[], None]) -> bool:
    """Whether `action` ends well, in a process of its own."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            action()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return status == 0
