"""Which device a target means, and what is refused before anything runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernloom.base.errors import ConfigError, UnavailableError
from kernloom.device.opencl.choice import (
    Found,
    Options,
    check_dtypes,
    check_host_memory,
    choose,
    in_place,
)

CPU = Found(
    platform="Portable Computing Language",
    version="OpenCL 3.0 PoCL 3.1",
    device="pthread-cpu",
    kind="OpenCL 3.0 PoCL HSTR: pthread-cpu",
    driver="3.1",
    units=8,
    fp64=True,
    memory=1,
    unified=True,
)
GPU = Found(
    platform="Big Vendor",
    version="OpenCL 2.1",
    device="Fast GPU",
    kind="OpenCL 2.0",
    driver="5",
    units=100,
    fp64=False,
    memory=1,
    unified=False,
)
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
    assert "kernloom doctor --install" in error.value.hint


def test_double_is_refused_by_name_where_the_device_has_none() -> None:
    check_dtypes(CPU, {"float64"})
    check_dtypes(GPU, {"float32", "int64"})
    with pytest.raises(ConfigError, match=r"float64.*'Fast GPU'"):
        check_dtypes(GPU, {"float32", "float64"})


def test_host_memory_is_read_in_place_where_it_can_be_and_is_not_to_be_copied() -> None:
    assert in_place(CPU, Options())
    assert in_place(CPU, Options(host_memory="in_place"))
    assert not in_place(CPU, Options(host_memory="copy"))
    assert not in_place(GPU, Options())


def test_reading_in_place_is_refused_by_name_where_the_device_has_its_own_memory() -> None:
    check_host_memory(CPU, Options(host_memory="in_place"))
    check_host_memory(GPU, Options())
    with pytest.raises(ConfigError, match="'Fast GPU' cannot read in place") as error:
        check_host_memory(GPU, Options(host_memory="in_place"))
    assert error.value.key == "target.options.host_memory"
    assert error.value.hint == "Allowed: auto, copy."
