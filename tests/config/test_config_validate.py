"""Whatever templates and C sources get as text is checked before anything is planned."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from kernloom.base.errors import ConfigError
from kernloom.config.validate import experiment

Compose = Callable[..., dict[str, Any]]
CODE = 'x"; system("id'


@pytest.fixture
def axpy(compose: Compose) -> dict[str, Any]:
    """The data of an experiment, to be changed."""
    return copy.deepcopy(compose("workload=axpy"))


def renamed(mapping: dict[str, Any], name: str) -> None:
    """Give the first entry another name."""
    mapping[name] = mapping.pop(next(iter(mapping)))


def refused(data: dict[str, Any]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        experiment(data)
    return caught.value


def test_an_experiment_as_it_is_shipped_is_valid(axpy: dict[str, Any]) -> None:
    assert experiment(axpy).workload.name == "axpy"


def test_an_unknown_dtype_of_an_argument_is_named(axpy: dict[str, Any]) -> None:
    axpy["workload"]["kernels"]["axpy"]["arguments"]["alpha"]["dtype"] = "flaot32"
    error = refused(axpy)
    assert error.key == "workload.kernels.axpy.arguments.alpha.dtype"
    assert error.message.endswith("unknown dtype 'flaot32'")
    assert "Did you mean 'float32'?" in error.hint


@pytest.mark.parametrize("part", ["tensors", "steps"])
@pytest.mark.parametrize("name", [CODE, "a-b", "1st", "", "é", "../x"])
def test_names_in_a_workload_are_identifiers(axpy: dict[str, Any], part: str, name: str) -> None:
    renamed(axpy["workload"][part], name)
    error = refused(axpy)
    assert error.key == f"workload.{part}"
    assert error.message.endswith(f"{name!r} cannot be used as a name")


@pytest.mark.parametrize("isa", [CODE, "x86 64", "../x", "", "a\nb"])
def test_an_isa_is_plain(axpy: dict[str, Any], isa: str) -> None:
    axpy["arch"]["isa"] = isa
    error = refused(axpy)
    assert error.key == "arch.isa"
    assert error.message.endswith(f"{isa!r} cannot be used as a name")
