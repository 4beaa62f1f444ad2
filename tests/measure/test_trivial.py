"""Tolerances that would accept an output without work, and outputs that are trivially right."""

from __future__ import annotations

import numpy as np
import pytest

from kernloom.base.errors import ConfigError, DeviceError
from kernloom.config.schema import Tolerance, Workload
from kernloom.measure.allowances import Bounds
from kernloom.measure.regions import check_region, region_of
from kernloom.measure.trivial import too_wide
from kernloom.measure.verify import compare

GOLDEN = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def warned(
    golden: np.ndarray, bounds: Bounds, region: np.ndarray | None = None, **inputs: np.ndarray
) -> str:
    regions = {} if region is None else {"y": region}
    return " ".join(too_wide({"y": golden}, inputs, regions, {"y": "float32"}, {"y": bounds}))


def test_a_tolerance_that_accepts_a_trivial_output_is_named_with_it() -> None:
    assert "would also accept zeros" in warned(GOLDEN, Bounds(0, 7))
    assert "the mean everywhere" in warned(GOLDEN, Bounds(0, 3))
    assert "the input 'x' unchanged" in warned(GOLDEN, Bounds(0.1), x=GOLDEN * 1.05)
    assert not warned(GOLDEN, Bounds(1e-5, 1e-6), x=GOLDEN * 1.05)


def test_an_output_that_is_trivially_right_is_no_fault_of_the_tolerance() -> None:
    assert not warned(np.zeros(4), Bounds(1e-5, 1e-6))
    assert not warned(np.full(4, 3.0), Bounds(1e-5, 1e-6))
    assert not warned(GOLDEN, Bounds(1e-5, 1e-6), x=GOLDEN.astype(np.float32))


def test_only_the_region_is_judged() -> None:
    region = np.zeros(GOLDEN.shape, dtype=bool)
    region[0, 0] = True
    assert "zeros" in warned(GOLDEN, Bounds(0, 1.5), region)


def result(values: np.ndarray, region: np.ndarray | None = None, **tolerance: float) -> float:
    workload = Workload("w", {}, {}, {}, {}, {}, tolerance={"float32": Tolerance(**tolerance)})
    return compare("y", values.astype(np.float32), GOLDEN, workload, region=region)


def test_errors_are_counted_in_units_in_the_last_place() -> None:
    off = np.nextafter(GOLDEN.astype(np.float32), np.float32(9))
    assert result(off, ulp=2) == pytest.approx(0.5)
    with pytest.raises(DeviceError, match=r"0 \+ 0\*\|golden\| \+ 0\.5 ulp, at most by 1 ulp"):
        result(off, ulp=0.5)


def test_poison_outside_of_the_region_is_ignored() -> None:
    values = GOLDEN.astype(np.float32)
    values.view(np.uint32)[:, 2] = 0xFFFFFFFF
    region = region_of("y", (":", "0:n-1"), (2, 3), {"n": 3}, lambda text, key: None)
    assert result(values, region, rtol=1e-6) == 0
    with pytest.raises(DeviceError, match="never written"):
        result(values, ~region, rtol=1e-6)


@pytest.mark.parametrize(
    ("region", "problem"),
    [
        (("1:2",), "1 slices are given"),
        (("0:1:2", ":"), "is no slice"),
        (("", ":"), "a slice is empty"),
        (("0.5", ":"), "is no index"),
        ("wide", "has shape"),
        ("number", "is no mask"),
    ],
)
def test_a_region_that_does_not_fit_is_refused(region: str | tuple[str, ...], problem: str) -> None:
    found = {"wide": np.ones(7, dtype=bool), "number": np.ones(2)}
    with pytest.raises(ConfigError, match=problem):
        region_of("y", region, (2, 3), {}, lambda text, key: found[text])
    with pytest.raises(ConfigError, match="leaves nothing"):
        check_region("y", np.zeros((2, 3), dtype=bool))
