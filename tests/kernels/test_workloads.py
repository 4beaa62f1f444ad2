"""Every workload that ships composes, fits its promised sizes and agrees with its golden."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import ROOT, Variant, best_machine, call, modelled
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from kernloom.base.expressions import evaluate
from kernloom.config.convert import convert
from kernloom.config.schema import Workload
from kernloom.measure.references import REFERENCES

FILES = sorted((ROOT / "configs/workload").glob("*.yaml"))
NAMES = [path.stem for path in FILES if "\nsteps:" in path.read_text()]
"""Those that every device can compute; others submit tasks themselves (test_kernel_tasks.py)."""
CASES = ("default", "small", "ragged", "large")


@cache
def load_workload(name: str) -> Workload:
    with initialize_config_dir(str(ROOT / "configs"), version_base="1.3"):
        composed = OmegaConf.to_container(compose(f"workload/{name}").workload, resolve=True)
    return convert(Workload, composed, "workload")


def sizes_of(workload: Workload, case: str) -> dict[str, int]:
    changed = {} if case == "default" else workload.cases[case]["sizes"]
    given = {**workload.sizes, **changed}
    return {name: evaluate(value, given) for name, value in given.items()}


def shapes_of(workload: Workload, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(evaluate(size, sizes) for size in tensor.shape)
        for name, tensor in workload.tensors.items()
    }


def total_bytes(workload: Workload, case: str, element: int) -> int:
    shapes = shapes_of(workload, sizes_of(workload, case))
    return sum(int(np.prod(shape)) * element for shape in shapes.values())


def filled(workload: Workload, sizes: Mapping[str, int], dtype: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    tensors = {}
    for name, shape in shapes_of(workload, sizes).items():
        fill = workload.tensors[name].fill
        made = {
            "uniform": lambda f=fill, s=shape: random.uniform(f.low, f.high, s),
            "normal": lambda f=fill, s=shape: random.normal(f.mean, f.std, s),
            "integers": lambda f=fill, s=shape: random.integers(int(f.low), int(f.high) + 1, s),
        }[fill.kind]()
        tensors[name] = np.asarray(made).astype(dtype)
    return tensors


def golden_of(
    workload: Workload, output: str, tensors: Mapping[str, np.ndarray], sizes: Mapping[str, int]
) -> np.ndarray:
    inputs = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    golden = workload.golden[output]
    if golden in REFERENCES:
        return REFERENCES[golden](inputs, workload.scalars, sizes)
    return np.asarray(evaluate(golden, {**sizes, **workload.scalars, **inputs}))


def bound(value: int | float | str, known: Mapping[str, Any]) -> Any:
    return known[value] if value in known else evaluate(value, known)


@pytest.mark.parametrize("name", NAMES)
def test_a_workload_keeps_within_its_promised_sizes(name: str) -> None:
    workload = load_workload(name)
    assert set(workload.cases) == set(CASES) - {"default"}
    assert total_bytes(workload, "default", 8) <= 4 << 20
    assert total_bytes(workload, "small", 8) <= 64 << 10
    assert total_bytes(workload, "large", 4) > total_bytes(workload, "default", 4)


@pytest.mark.parametrize("name", NAMES)
def test_a_workloads_costs_and_tolerances_are_numbers(name: str) -> None:
    workload = load_workload(name)
    for case in CASES:
        names = {**sizes_of(workload, case), "element": 4}
        assert evaluate(workload.cost.bytes, names) > 0
        assert evaluate(workload.cost.flops, names) >= 0
        for tolerance in workload.tolerance.values():
            assert 0 <= evaluate(tolerance.rtol, names) < 1e-3
            assert 0 <= evaluate(tolerance.atol, names) < 1
    assert set(workload.tolerance) == {"float32", "float64"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", ["small", "ragged", "default"])
@pytest.mark.parametrize("name", NAMES)
def test_the_steps_of_a_workload_give_its_golden(
    name: str, case: str, dtype: str, built: Path
) -> None:
    workload, machine = load_workload(name), best_machine()
    sizes = sizes_of(workload, case)
    tensors = filled(workload, sizes, dtype)
    wanted = {output: golden_of(workload, output, tensors, sizes) for output in workload.golden}
    known = {**sizes, **workload.scalars, **tensors}
    for step in workload.steps.values():
        kernel = workload.kernels[step.kernel]
        values: dict[str, Any] = {
            argument: bound(step.args.get(argument, argument), known)
            for argument in kernel.arguments
        }
        step_sizes = {n: v for n, v in values.items() if kernel.arguments[n].kind == "size"}
        for argument, declared in kernel.arguments.items():
            if declared.kind == "tensor":
                shape = tuple(evaluate(size, step_sizes) for size in declared.shape)
                assert values[argument].shape == shape
        chosen = modelled(kernel, step_sizes, machine, dtype)
        assert chosen
        variant = Variant(kernel, dtype, chosen, machine)
        passed = [
            {"size": np.int64, "scalar": np.dtype(dtype).type, "tensor": np.asarray}[a["kind"]](
                values[a["name"]]
            )
            for a in variant.arguments()
        ]
        call(variant.build(built), passed)
    tolerance = workload.tolerance[dtype]
    rtol, atol = (float(evaluate(item, sizes)) for item in (tolerance.rtol, tolerance.atol))
    for output, expected in wanted.items():
        np.testing.assert_allclose(tensors[output], expected, rtol=rtol, atol=atol)
