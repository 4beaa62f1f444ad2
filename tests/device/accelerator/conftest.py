"""Accelerators with other settings than those of the contract suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from accelerator_bench import Bench
from building import RUNTIMES
from subjects import Subject

from kernloom.device.accelerator import AcceleratorDevice
from kernloom.device.accelerator.session import AcceleratorSession


@pytest.fixture
def subject(build_subject: Callable[[str], Subject]) -> Subject:
    return build_subject("accelerator")


@pytest.fixture
def opened(subject: Subject) -> Callable[..., Any]:
    """Opens a device with these settings on top of the usual ones."""
    device = subject.device
    assert isinstance(device, AcceleratorDevice)

    @contextmanager
    def open_with(runtime: str = "hostgraph", **settings: object) -> Iterator[Bench]:
        own = {key.replace("__", "."): str(value) for key, value in settings.items()}
        control = {"accelerator_control": device.paths[f"control-{runtime}"]}
        other = AcceleratorDevice(device.paths | control, device.settings | own, arch="small")
        with other.open(timeout=60) as session:
            assert isinstance(session, AcceleratorSession)
            yield Bench(session, subject.library)

    return open_with


@pytest.fixture
def bench(opened: Callable[..., Any]) -> Iterator[Bench]:
    with opened() as bench:
        yield bench


@pytest.fixture(params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name
