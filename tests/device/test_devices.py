"""Task runtimes and traces are refused by what the device declares, not by its family."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kernloom.base.errors import ConfigError
from kernloom.base.gauges import TIME, VIRTUAL_TIME
from kernloom.device.devices import DEVICES, check_supported


def experiment(device: str, runtime: str = "none", trace: str | None = None) -> Any:
    return SimpleNamespace(
        target=SimpleNamespace(name="mine", device=device, family="accelerator"),
        runtime=SimpleNamespace(name=runtime),
        trace=trace,
        deps=None,
        replay=None,
    )


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> None:
    found = SimpleNamespace(runtimes=("none", "ringmap"), gauges=(VIRTUAL_TIME, TIME))
    monkeypatch.setattr(DEVICES, "get", lambda name, key: found)


def test_a_device_has_the_runtimes_and_the_trace_that_it_declares(simulator: None) -> None:
    check_supported(experiment("simulator", "ringmap", "trace.json"))
    with pytest.raises(ConfigError, match="no task runtime 'ringmop'") as caught:
        check_supported(experiment("simulator", "ringmop"))
    assert "Did you mean 'ringmap'?" in caught.value.hint


@pytest.mark.parametrize("device", ["host", "opencl"])
def test_no_other_device_has_them(device: str) -> None:
    check_supported(experiment(device))
    with pytest.raises(ConfigError, match="no task runtime 'ringmap'"):
        check_supported(experiment(device, "ringmap"))
    with pytest.raises(ConfigError, match="no virtual time to trace"):
        check_supported(experiment(device, trace="trace.json"))
