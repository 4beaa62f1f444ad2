"""Variants of an accelerator: the same virtual time everywhere, and what sanitizers find."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from accelerator_bench import Bench
from subjects import KINDS, Subject

import attacks
from kernloom.base.errors import DeviceError
from kernloom.device.accelerator import AcceleratorDevice
from kernloom.device.accelerator.session import AcceleratorSession
from kernloom.device.contract import Call, LaunchSettings, Scalar


def traced(subject: Subject, **settings: str) -> tuple[bytes, tuple[float, ...], bytes]:
    """Result, virtual times and trace of some tasks."""
    device = subject.device
    assert isinstance(device, AcceleratorDevice)
    control = {"accelerator_control": device.paths["control-ringmap"]}
    other = AcceleratorDevice(
        device.paths | control,
        device.settings | {"trace": "1"} | settings,
        arch="small",
        emulator=device.emulator,
        sanitized=device.sanitized,
    )
    with other.open(timeout=60) as session:
        assert isinstance(session, AcceleratorSession)
        bench = Bench(session, subject.library)
        axpy = bench.load("axpy")
        x, y = session.allocate(1 << 16, "x"), session.allocate(1 << 16, "y")
        session.write(x, np.arange(1 << 14, dtype="float32"))
        session.fill(y, 0)
        args = (Scalar(1 << 14), Scalar(0.3, "float32"), x, y)
        result = session.launch([Call(axpy, args)] * 3, LaunchSettings(samples=2))
        assert len(result.readings["virtual_ns"]) == 2
        return bytes(session.read(y)), result.readings["virtual_ns"], session.trace()


VARIANTS = ("accelerator-ringmap", "accelerator-asan", "accelerator-tsan", "accelerator-riscv64")


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [name for name in VARIANTS if name in KINDS],
)
def test_results_virtual_times_and_traces_are_equal_in_every_variant(
    build_subject: Callable[[str], Subject], variant: str
) -> None:
    plain = traced(build_subject("accelerator"))
    assert len(plain[2]) > 1000
    assert traced(build_subject(variant)) == plain


RUNS = 100 if attacks.whole() else 5
RUN_ON = (
    ("accelerator", "1"),
    ("accelerator", "2"),
    ("accelerator-asan", "2"),
    ("accelerator-riscv64", "1"),
    ("accelerator-riscv64", "2"),
)
"""Device and worker threads of successive runs."""


@pytest.mark.slow
def test_no_byte_of_a_trace_differs_between_runs(
    build_subject: Callable[[str], Subject],
) -> None:
    """Five runs; a hundred with --attack."""
    runs = itertools.islice(itertools.cycle(RUN_ON), RUNS)
    found = [traced(build_subject(name), threads=threads) for name, threads in runs]
    assert len(found) == RUNS
    assert len(found[0][2]) > 1000
    differing = [number for number, run in enumerate(found) if run != found[0]]
    assert not differing


def opened(subject: Subject) -> Bench:
    session = subject.device.open(timeout=60)
    assert isinstance(session, AcceleratorSession)
    return Bench(session, subject.library)


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0, 27, 1 << 12])
def test_the_address_sanitizer_finds_a_kernel_that_leaves_its_sram(
    build_subject: Callable[[str], Subject], offset: int
) -> None:
    bench = opened(build_subject("accelerator-asan"))
    with bench.session, pytest.raises(DeviceError, match="use-after-poison") as error:
        bench.run("overrun_sram", Scalar(offset))
    assert error.value.status == "out_of_bounds"


if "accelerator-tsan" in KINDS:

    @pytest.mark.slow
    def test_the_thread_sanitizer_finds_a_race_of_a_kernel(
        build_subject: Callable[[str], Subject],
    ) -> None:
        bench = opened(build_subject("accelerator-tsan"))
        with bench.session, pytest.raises(DeviceError, match=r"data race .* in add") as error:
            bench.run("race")
        assert error.value.status == "crashed"
