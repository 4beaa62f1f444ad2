"""What our kernels are compared with gives the same results: plain C, OpenBLAS and numpy."""

from __future__ import annotations

import ctypes
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import CASES, inputs
from harness import ROOT, Epilogue, Variant, best_machine, call, load_kernel, off_params, survives
from test_workloads import NAMES, load_workload

from kernloom.base.errors import ConfigError, DeviceError, UnavailableError
from kernloom.config.schema import Fill, Policy, Tensor, Tolerance, Workload
from kernloom.measure import numpy_peer, openblas
from kernloom.measure.data import DataSets
from kernloom.measure.numpy_peer import NumpyPeer, cores_from, numpy_identity
from kernloom.measure.numpy_program import program
from kernloom.measure.openblas import find_openblas
from kernloom.measure.references import REFERENCES
from parts import without

BEST = best_machine()
DTYPES = ("float32", "float64")
BY_OPENBLAS = ("axpy", "matmul", "transpose")
FUSED = Epilogue("bias_relu", ("bias",))
POLICY = Policy("test", samples=3, warmup=1, min_rounds=1, max_rounds=1, min_sample_us=50)


def variant(family: str, name: str, dtype: str, *, threads: int = 1, **others: Any) -> Variant:
    """A kernel from another family of sources, in the way the schedule gives it when nothing is
    decided but the threads."""
    kernel = load_kernel(name)
    params = {**off_params(kernel), "parallelize": {"threads": threads}}
    sources = {"host": kernel.sources[family]}
    return Variant(replace(kernel, sources=sources), dtype, params, BEST, **others)


def checked(made: Variant, library: Path) -> None:
    """Every size of the kernel's case, with outputs that are NaN before."""
    case = CASES[made.kernel.name]
    output = next(name for name, a in made.kernel.arguments.items() if a.access != "read")
    for sizes in case.sizes:
        tensors = inputs(made.kernel, sizes, made.dtype)
        wanted = case.expected(tensors, sizes)
        if made.epilogue:
            tensors["bias"] = np.linspace(-2, 2, sizes["N"]).astype(made.dtype)
            wanted = np.maximum(wanted + tensors["bias"], 0)
        kinds = {"size": np.int64, "scalar": np.dtype(made.dtype).type}
        known = {**sizes, **case.scalars}
        call(
            library,
            [
                tensors[a["name"]] if a["kind"] == "tensor" else kinds[a["kind"]](known[a["name"]])
                for a in made.arguments()
            ],
        )
        assert case.close(tensors[output], wanted), sizes


def bundled(tmp_path: Path) -> openblas.OpenBlas:
    try:
        return find_openblas(tmp_path)
    except UnavailableError as error:
        without(str(error))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(CASES))
def test_plain_c_is_right_for_every_size(name: str, dtype: str, built: Path) -> None:
    made = variant("plain", name, dtype)
    checked(made, made.build(built))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_plain_product_takes_an_epilogue(dtype: str, built: Path) -> None:
    made = variant("plain", "matmul", dtype, epilogue=FUSED)
    checked(made, made.build(built))


@pytest.mark.parametrize("name", sorted(CASES))
def test_plain_c_does_not_depend_on_what_is_decided(name: str) -> None:
    made = variant("plain", name, "float32")
    chosen = {
        transform: {tunable: spec.values[-1] for tunable, spec in group.items()}
        for transform, group in made.kernel.tunables.items()
    }
    assert (
        replace(made, params=chosen).source() == made.source() == replace(made, params={}).source()
    )


def test_every_kernel_has_a_plain_source() -> None:
    for name in CASES:
        assert load_kernel(name).sources["plain"].template == f"kernels/{name}/plain.c.j2"
        assert ("openblas" in load_kernel(name).sources) == (name in BY_OPENBLAS)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BY_OPENBLAS)
def test_openblas_is_right_for_every_size(
    name: str, dtype: str, threads: int, built: Path, tmp_path: Path
) -> None:
    found = bundled(tmp_path)
    made = variant("openblas", name, dtype, threads=threads)
    library = made.build(built)

    def in_a_process() -> None:
        # As the runner does: the library first, for all to see, then the kernel that calls it.
        ctypes.CDLL(str(found.path), mode=ctypes.RTLD_GLOBAL)
        checked(made, library)

    assert survives(in_a_process)


def test_openblas_takes_an_epilogue_and_the_threads_it_is_told(built: Path, tmp_path: Path) -> None:
    found = bundled(tmp_path)
    made = variant("openblas", "matmul", "float32", threads=2, epilogue=FUSED)
    library = made.build(built)

    def in_a_process() -> None:
        loaded = ctypes.CDLL(str(found.path), mode=ctypes.RTLD_GLOBAL)
        checked(made, library)
        names = [f"{prefix}openblas_get_num_threads64_" for prefix in ("scipy_", "")]
        assert next(getattr(loaded, n)() for n in names if hasattr(loaded, n)) == 2

    assert survives(in_a_process)


def test_openblas_is_known_by_its_file_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "numpy.libs" / "libopenblas64_p-r0-1.so"
    package = tmp_path / "numpy" / "__init__.py"
    for path in (library, package):
        path.parent.mkdir()
        path.touch()
    spec = type("Spec", (), {"origin": str(package)})
    monkeypatch.setattr(openblas.importlib.util, "find_spec", lambda name: spec)
    library.write_bytes(b"..OpenBLAS 0.3.23 \0cblas_sgemm64_\0")
    first = find_openblas(tmp_path)
    assert (first.path, first.version) == (library, "0.3.23")
    assert find_openblas(tmp_path) == first
    library.write_bytes(b"..OpenBLAS 0.3.24 \0cblas_sgemm64_\0..")
    assert find_openblas(tmp_path).version == "0.3.24"
    assert find_openblas(tmp_path).identity != first.identity
    library.write_bytes(b"OpenBLAS 0.3.24 with other names")
    with pytest.raises(UnavailableError, match="cblas_sgemm64_"):
        find_openblas(tmp_path)
    library.unlink()
    with pytest.raises(UnavailableError, match=r"numpy\.libs.*openblas"):
        find_openblas(tmp_path)


def small(name: str, dtype: str) -> Workload:
    workload = load_workload(name)
    return replace(
        workload, dtype=dtype, sizes={**workload.sizes, **workload.cases["small"]["sizes"]}
    )


def expression(golden: str, dtype: str = "float32", **others: Any) -> Workload:
    """A workload of one vector and what is to be computed from it."""
    copying = replace(load_workload("gelu"), name="mine", sizes={"N": 50}, dtype=dtype)
    tensors = {"x": Tensor(("N",), fill=Fill(low=1, high=2)), "y": Tensor(("N",))}
    return replace(copying, tensors=tensors, golden={"y": golden}, **others)


def peer(workload: Workload, **others: Any) -> NumpyPeer:
    return NumpyPeer(workload, 0, [ROOT], POLICY, **others)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_numpy_gives_right_values_and_samples_for_every_workload(name: str, dtype: str) -> None:
    pin = max(os.sched_getaffinity(0))
    measured = peer(small(name, dtype), pin=pin)
    samples = measured.sample()
    assert len(samples.wall_ns) == len(samples.cpu_ns) == len(samples.involuntary) == 3
    assert samples.inner >= 1
    assert all(time > 0 for time in samples.wall_ns)
    assert measured.sample().inner == samples.inner, "found in the first process and kept"


@pytest.mark.parametrize("name", ["conv2d", "stencil5"])
def test_numpy_is_measured_alike_whether_its_process_verified_or_not(name: str) -> None:
    measured = peer(load_workload(name))
    request = {**measured.request(), "inner": 5}
    for verify in (True, False):
        answer = measured.run_worker({**request, "verify": verify})
        # A temporary of these workloads is hundreds of pages.
        assert answer["page_faults"] / (5 * POLICY.samples) < 20, f"{verify=}"


class Watched(np.ndarray):
    """Notes what is made from it and how."""

    dtypes: set[np.dtype]
    operations: list[str]

    def __array_finalize__(self, other: Any) -> None:
        self.dtypes = getattr(other, "dtypes", set())
        self.operations = getattr(other, "operations", [])
        self.dtypes.add(self.dtype)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        if context:
            self.operations.append(context[0].__name__)
        return super().__array_wrap__(array, context, return_scalar)


def watched(workload: Workload) -> dict[str, Watched]:
    dtypes: set[np.dtype] = set()
    operations: list[str] = []
    arrays = {}
    for name, array in DataSets([ROOT]).inputs(workload, 0).items():
        arrays[name] = array.view(Watched)
        arrays[name].dtypes, arrays[name].operations = dtypes, operations
    return arrays


@pytest.mark.parametrize("name", NAMES)
def test_numpy_stays_in_the_workloads_element_type(name: str) -> None:
    workload = small(name, "float32")
    arrays = watched(workload)
    program(workload, arrays)()
    assert next(iter(arrays.values())).dtypes <= {np.dtype("float32")}
    for text in workload.golden.values():
        if text in REFERENCES:
            assert REFERENCES[text](arrays, workload.scalars, {}).dtype == np.float32


def test_numpy_computes_once_what_a_golden_says_twice() -> None:
    workload = small("softmax", "float32")
    arrays = watched(workload)
    compute = program(workload, arrays)
    operations = arrays["x"].operations
    operations.clear()
    compute()
    assert operations == ["subtract", "exp", "divide"]


def test_numpy_lays_out_what_is_but_a_view() -> None:
    workload = small("transpose", "float32")
    x = DataSets([ROOT]).inputs(workload, 0)
    result = program(workload, x)()["y"]
    assert result.flags.c_contiguous
    assert not np.shares_memory(result, x["x"])
    same = expression("x")
    copied = DataSets([ROOT]).inputs(same, 0)
    assert not np.shares_memory(program(same, copied)()["y"], copied["x"])


@pytest.mark.parametrize(
    "golden",
    [
        "1 if N > 3 and N < 99 else x",
        "where(x > 1.5, x, 0.0)",
        "x % 1 + x // 1 - -x",
        "reshape(x, (N,))[0:N]",
        "ceil_div(N, 7) * maximum(x, 1.2, 1.3)",
        "abs(x - mean(x)) ** 2 / std(x) + N",
    ],
)
def test_numpy_computes_any_golden_that_can_be_verified(golden: str) -> None:
    broadcast = f"({golden}) + 0 * x"
    peer(expression(broadcast, tolerance={"float32": Tolerance(1e-4, 1e-5)})).sample()


def test_numpy_that_is_not_exact_enough_is_wrong() -> None:
    with pytest.raises(DeviceError, match=r"'numpy' of workload 'mine': y\[") as raised:
        peer(expression("sqrt(x) * 0.1", tolerance={"float32": Tolerance(0.0)})).sample()
    assert raised.value.status == "wrong"


def test_a_golden_that_numpy_cannot_do_in_that_type_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"'numpy' of workload 'mine': .* in int32"):
        peer(expression("x ** (0 - 1)", "int32")).sample()


def test_a_numpy_process_that_dies_or_hangs_is_told_from_one_that_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(numpy_peer, "_WORKER", ("-c", "import os; os.abort()"))
    with pytest.raises(DeviceError, match=signal.SIGABRT.name) as crashed:
        peer(expression("x")).sample()
    assert crashed.value.status == "crashed"
    monkeypatch.setattr(numpy_peer, "_WORKER", ("-c", "import signal; signal.pause()"))
    monkeypatch.setattr(numpy_peer, "START_S", 0.0)
    with pytest.raises(DeviceError, match="did not end") as hung:
        peer(expression("x"), timeout=0.01).sample()
    assert hung.value.status == "timeout"


def test_numpy_is_refused_where_it_cannot_be_measured_like_a_kernel() -> None:
    cold = NumpyPeer(expression("x"), 0, [ROOT], replace(POLICY, cache="cold"))
    with pytest.raises(ConfigError, match=r"measure\.cache.*'numpy'"):
        cold.sample()
    with pytest.raises(ConfigError, match="counts instructions"):
        peer(expression("x")).exact()
    with pytest.raises(DeviceError, match="core 100000"):
        peer(expression("x"), pin=100000).sample()


def test_numpy_is_placed_on_the_cores_a_kernel_would_have() -> None:
    allowed = sorted(os.sched_getaffinity(0))
    assert cores_from(None, 4) == []
    assert cores_from(allowed[-1], 1) == allowed[-1:]
    assert cores_from(allowed[-1], len(allowed)) == [allowed[-1], *allowed[:-1]]
    assert numpy_identity() == numpy_identity()
