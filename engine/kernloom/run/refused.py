"""Trials of cases that could not be planned."""

from __future__ import annotations

from kernloom.base.errors import KernloomError, UnavailableError
from kernloom.measure.trial import Trial


def refused_trial(workload: str, case: str, target: str, error: KernloomError) -> Trial:
    """A trial that is shown with its error, and is not stored."""
    return Trial(
        id="",
        workload=workload,
        case=case,
        target=target,
        status="unavailable" if isinstance(error, UnavailableError) else "refused",
        verified=False,
        stage="plan",
        message=str(error),
    )
