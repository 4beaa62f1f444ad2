"""Which device a target means, and what is refused before anything runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernloom.device.opencl.choice import Found, Options, check_dtypes, choose
from kernloom.errors import ConfigError, UnavailableError

CPU = Found("Portable Computing Language", "OpenCL 3.0 PoCL 3.1", "pthread-cpu", "3.1", 8, True, 1)
GPU = Found("Big Vendor", "OpenCL 2.1", "Fast GPU", "5", 100, False, 1)
MACHINE = (CPU, GPU, replace(GPU, device="Faster GPU"))


@pytest.mark.parametrize(
    ("options", "place"),
    [
        (Options(), 0),
        (Options(index=2), 2),
        (Options(platform="big vendor"), 1),
        (Options(platform="pocl 3.1"), 0),
        (Options(device="faster"), 2),
        (Options(device="gpu", index=1), 2),
    ],
)
def test_a_device_is_chosen_by_platform_name_and_index(options: Options, place: int) -> None:
    assert choose(MACHINE, options) == place


@pytest.mark.parametrize(
    "options", [Options(index=3), Options(device="tpu"), Options("Big", "pth")]
)
def test_a_device_that_is_not_there_is_named_with_those_that_are(options: Options) -> None:
    with pytest.raises(UnavailableError, match=r"target\.options\.") as error:
        choose(MACHINE, options)
    assert "Fast GPU" in error.value.hint


def test_without_any_device_the_hint_says_what_to_install() -> None:
    with pytest.raises(UnavailableError) as error:
        choose((), Options())
    assert "pocl-opencl-icd" in error.value.hint
    assert "kernloom[opencl]" in error.value.hint


def test_double_is_refused_by_name_where_the_device_has_none() -> None:
    check_dtypes(CPU, {"float64"})
    check_dtypes(GPU, {"float32", "int64"})
    with pytest.raises(ConfigError, match=r"float64.*'Fast GPU'"):
        check_dtypes(GPU, {"float32", "float64"})
