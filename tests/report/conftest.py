from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernloom.measure.trial import Trial


@pytest.fixture
def make_trial() -> Callable[..., Trial]:
    def make(**changes: Any) -> Trial:
        values: dict[str, Any] = {
            "id": "0123456789abcdef" * 4,
            "workload": "matmul",
            "case": "default",
            "target": "host",
            "status": "ok",
            "verified": True,
            "params": {
                "tile": {"multiply": {"mr": 6, "kc": 512}},
                "pack": {"multiply": {"b": True}},
            },
            "provider": "model",
            "metrics": {
                "median_ns": 12345.0,
                "ci_low_ns": 12300.0,
                "ci_high_ns": 12500.0,
                "gflops": 88.123,
                "deterministic": [],
            },
            "artifacts": ({"name": "matmul.multiply", "key": "k1", "cached": True},),
            "config": {"arch": {"name": "zen4"}, "toolchain": {"name": "gcc"}},
            "created": "2025-01-02T03:04:05.678+00:00",
        }
        return Trial(**(values | changes))

    return make
