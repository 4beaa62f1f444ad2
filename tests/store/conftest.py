from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kernloom
from kernloom.measure.trial import Samples, Trial

_NUMBERS = itertools.count()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "project" / ".kernloom" / "store.db"


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, path: Path) -> Path | str:
    """Where a store can be: a file, or a schema of its own on a server."""
    if request.param == "sqlite":
        return path
    server = request.getfixturevalue("server")
    name = f"store{next(_NUMBERS)}"
    server.execute(f"CREATE SCHEMA {name}")
    url: str = server.url(query=f"?options=-csearch_path%3D{name}")
    return url


@pytest.fixture
def make_trial() -> Callable[..., Trial]:
    def make(id: str = "a1", **changes: Any) -> Trial:
        values: dict[str, Any] = {
            "workload": "matmul",
            "case": "default",
            "target": "host",
            "status": "ok",
            "verified": True,
            "point": {"workload.sizes.M": 64},
            "params": {"tile": {"multiply": {"mr": 6}}},
            "provider": "model",
            "metrics": {"median_ns": 1500.25, "gflops": 88.0, "deterministic": []},
            "artifacts": ({"name": "matmul.multiply", "key": "k1", "cached": False},),
            "config": {
                "arch": {"name": "x86_64_v3"},
                "toolchain": {"name": "gcc"},
                "target": {"name": "host", "variant": "release"},
                "workload": {"sizes": {"M": 64, "N": 32}},
                "seed": 7,
            },
            "machine": {"cpu": "test", "cores": 2},
            "created": "2025-01-02T03:04:05.678+00:00",
            "seconds": 0.25,
        }
        return Trial(id=id, **(values | changes))

    return make


@pytest.fixture
def two_processes() -> tuple[Samples, ...]:
    return (
        Samples(inner=10, wall_ns=(1.5, 2.25), cpu_ns=(1.25, 2.0), involuntary=(0, 1)),
        Samples(inner=10, wall_ns=(0.1, 3.0), cpu_ns=(0.3, 2.5), involuntary=(2, 0)),
    )


@pytest.fixture
def environment() -> dict[str, str]:
    """For child processes: they use the same Kernloom."""
    return os.environ | {"PYTHONPATH": str(Path(kernloom.__file__).parent.parent)}
