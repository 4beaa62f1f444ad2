"""What a platform reports about a launch, as metrics and conditions of a trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernloom.measure.why import WHY, why_digest

LIMITER = "limiter"
"""Condition of a trial: the resource that most of its time was spent on."""
_UTILISATION, _BYTES = "utilisation.", "bytes."


def report_metrics(report: Mapping[str, str]) -> dict[str, float]:
    """Utilisation by core type, and bytes by link: `utilisation_matrix`, `noc_bytes`."""
    metrics: dict[str, float] = {}
    for key, text in report.items():
        if key.startswith(_UTILISATION):
            metrics[f"utilisation_{_name(key, _UTILISATION)}"] = float(text)
        elif key.startswith(_BYTES):
            metrics[f"{_name(key, _BYTES)}_bytes"] = int(text)
    return metrics


def report_conditions(report: Mapping[str, str]) -> dict[str, Any]:
    """The limiter by name, and why the launch took so long."""
    why = why_digest(report)
    found = {LIMITER: report[LIMITER]} if report.get(LIMITER) else {}
    return found | ({WHY: why} if why else {})


def _name(key: str, prefix: str) -> str:
    return key.removeprefix(prefix).replace(".", "_")
