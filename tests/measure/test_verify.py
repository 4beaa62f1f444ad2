"""What counts as right: within tolerance, and nothing that is not a number slips through."""

from __future__ import annotations

import numpy as np
import pytest

from kernloom.base.errors import DeviceError
from kernloom.config.schema import Tolerance, Workload
from kernloom.measure.data import Array, nan_warnings
from kernloom.measure.verify import compare

TOLERANCE = {"float32": Tolerance(rtol=0.1, atol=0.01)}
GOLDEN = np.array([1.0, -2.0, 0.0, 4.0])


def error_of(result: Array, golden: Array = GOLDEN) -> float:
    workload = Workload("w", {}, {}, {}, {}, {}, tolerance=TOLERANCE)
    return compare("y", result.astype(np.float32), golden, workload)


def test_the_error_is_the_largest_share_of_what_is_tolerated() -> None:
    assert error_of(GOLDEN) == 0
    assert error_of(np.where(GOLDEN == 0, 0.005, GOLDEN)) == pytest.approx(0.5, rel=1e-5)


@pytest.mark.parametrize("wrong", [0.2, np.nan, np.inf, -np.inf])
def test_one_element_that_is_off_is_wrong(wrong: float) -> None:
    with pytest.raises(DeviceError, match=r"y\[2\].*1 of 4"):
        error_of(np.where(GOLDEN == 0, wrong, GOLDEN))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_what_is_no_finite_number_must_be_met_exactly(special: float) -> None:
    golden = np.where(GOLDEN == 0, special, GOLDEN)
    computed = golden.astype(np.float32)
    assert error_of(computed, golden) == 0
    with pytest.raises(DeviceError, match=r"y\[2\]"):
        error_of(GOLDEN, golden)
    with pytest.raises(DeviceError, match=r"y\[2\]"):
        error_of(np.where(GOLDEN == 0, 1 if np.isnan(special) else -special, GOLDEN), golden)


def test_an_element_that_was_never_written_is_wrong_even_where_nan_is_right() -> None:
    result = GOLDEN.astype(np.float32)
    result.view(np.uint32)[2] = 0xFFFFFFFF
    with pytest.raises(DeviceError, match="never written"):
        error_of(result, np.where(GOLDEN == 0, np.nan, GOLDEN))


def test_a_golden_with_nan_in_it_says_how_much_it_does_not_prove() -> None:
    partly = np.where(GOLDEN == 0, np.nan, GOLDEN)
    infinite = np.where(GOLDEN == 0, np.inf, GOLDEN)
    goldens = {"whole": np.arange(3), "y": partly, "finite": GOLDEN, "infinite": infinite}
    (warning,) = nan_warnings(goldens)
    assert warning.startswith("1 of 4 elements of the golden of 'y' are NaN")


@pytest.mark.parametrize(
    ("dtype", "golden", "wrong"),
    [
        ("uint8", np.array([255, 7], np.uint8), [0, 7]),
        ("int64", np.array([5, np.iinfo(np.int64).min]), [5, 0]),
        ("int64", np.array([np.iinfo(np.int64).min, 5]), [np.iinfo(np.int64).max, 5]),
        ("uint8", np.array([True, False]), [1, 2]),
    ],
)
def test_differences_of_integers_do_not_wrap_around(
    dtype: str, golden: Array, wrong: list[int]
) -> None:
    workload = Workload("w", {}, {}, {}, {}, {}, tolerance={dtype: Tolerance(atol=1)})
    assert compare("y", golden.astype(dtype), golden, workload) == 0
    with pytest.raises(DeviceError, match="1 of 2 elements"):
        compare("y", np.array(wrong, dtype), golden, workload)
