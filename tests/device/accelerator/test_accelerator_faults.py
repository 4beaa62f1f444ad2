"""Injected faults: whatever happens to a message or a PE, an operation ends with a status."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from kernloom.base.errors import DeviceError
from kernloom.base.gauges import VIRTUAL_TIME
from kernloom.config.schema import STATUSES
from kernloom.device.accelerator.session import VIRTUAL_BASE
from kernloom.device.contract import Call, Scalar
from kernloom.device.messages import Addressee, Mapping, Policy

FAR = VIRTUAL_BASE + (1 << 50)


def test_a_dead_pe_is_named_with_the_request(opened: Callable[..., Any]) -> None:
    with opened(faults__dead="0.1.2", timeout_ns=1_000_000) as bench:
        with pytest.raises(DeviceError) as error:
            bench.session.mmu_map([Mapping(FAR, 0, 4096)])
        assert error.value.status == "timeout"
        assert "PE 0.1.2 did not answer MmuMap (request " in error.value.message
        limit = r"within 1000000 ns of virtual time \(target\.options\.timeout_ns\), "
        instant = re.search(limit + r"until the virtual instant (\d+) ns", error.value.message)
        assert instant is not None and int(instant[1]) >= 1_000_000
        assert error.value.code == "no_answer"
        assert "1 of 6 parts failed: 0.1.2; 5 succeeded" in error.value.message
        with pytest.raises(DeviceError, match=r"'x' cannot be mapped: PE 0\.1\.2 did not answer"):
            bench.session.allocate(8, "x")
        # Those that live have no mapping of it left, and go on.
        alive = [Addressee(0, 0, 0), Addressee(0, 0, 1)]
        with bench.session.place(64, Policy.REPLICATE, pes=alive, label="y") as tensor:
            bench.session.fill(tensor.buffer, 7)
            assert bench.session.read(tensor.buffer) == b"\x07" * 64


def test_a_task_on_a_dead_pe_is_a_timeout_that_names_it(
    opened: Callable[..., Any], runtime: str
) -> None:
    with opened(runtime, faults__dead="0.0.0", timeout_ns=5000_000) as bench:
        spin = bench.builtin("spin", 1)
        with pytest.raises(DeviceError) as error:
            bench.session.launch([Call(spin, (Scalar(10),))] * 3)
        assert error.value.status == "timeout"
        assert "PE 0.0.0 did not answer Run of task 1 'spin'" in error.value.message
        assert "(target.options.timeout_ns), until the virtual instant " in error.value.message


def everything(bench: Any) -> bytes:
    """One of each operation."""
    x, y = bench.session.allocate(4096, "x"), bench.session.allocate(4096, "y")
    bench.session.write(x, bytes(range(256)) * 16)
    bench.session.fill(y, 0)
    copy = bench.builtin("copy", 3)
    bench.session.launch([Call(copy, (y, x, Scalar(4096)))] * 3)
    bench.session.dma_probe(x.address, y.address, 64, [Addressee(0, 0, 0)])
    found = bytes(bench.session.read(y))
    bench.session.free(x)
    bench.session.free(y)
    return found


FAULTS = [
    *({"faults__lose": n} for n in range(1, 45)),
    *({"faults__corrupt": n} for n in range(1, 45)),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_lost_or_corrupt_message_is_a_status_and_never_a_hang(
    opened: Callable[..., Any], runtime: str, fault: dict[str, int]
) -> None:
    with opened(runtime, timeout_ns=10_000_000, **fault) as bench:
        try:
            assert everything(bench) == bytes(range(256)) * 16
        except DeviceError as error:
            assert error.status in STATUSES
            wanted = "did not answer" if "faults__lose" in fault else "damaged message"
            assert wanted in error.message


def test_a_late_message_is_waited_for_unless_the_time_is_over(
    opened: Callable[..., Any], runtime: str
) -> None:
    with opened(runtime, faults__late="5:100000") as bench:
        assert everything(bench) == bytes(range(256)) * 16
    for number in range(1, 40, 3):
        with opened(runtime, faults__late=f"{number}:100000", timeout_ns=50_000) as bench:
            for _ in range(3):
                try:
                    assert everything(bench) == bytes(range(256)) * 16
                except DeviceError as error:
                    assert error.status == "timeout"


@pytest.mark.parametrize("link", ["pcie", "io_cpu", "management", "noc"])
def test_a_slow_link_makes_a_launch_slower_and_nothing_else(
    opened: Callable[..., Any], link: str
) -> None:
    took = []
    for settings in ({}, {"faults__slow": f"{link}:100"}):
        with opened(**settings) as bench:
            assert everything(bench) == bytes(range(256)) * 16
            spin = bench.builtin("spin", 1)
            result = bench.session.launch([Call(spin, (Scalar(10),))])
            took.append(result.per_run(VIRTUAL_TIME)[0])
    assert took[0] < took[1]
