"""Parameter files: the winner of a study for the provider `file`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernloom.base.errors import ConfigError
from kernloom.config.reader import dump_yaml, read_yaml
from kernloom.plan.select import MADE_FOR
from kernloom.tune.document import Outcome
from kernloom.tune.racing import Leader

FIRST_WORDS = "# Found by `kernloom tune`"


def workload_of(path: Path) -> str:
    """The workload that a parameter file was made for; empty if it does not say."""
    try:
        made_for = read_yaml(path)[MADE_FOR]
        return str(made_for["workload"])
    except (ConfigError, OSError, KeyError, TypeError):
        return ""


def parameter_file(outcome: Outcome, best: Leader) -> str:
    """The text of a parameter file, with what it was made for."""
    plan = outcome.plan
    experiment = plan.experiment
    shown = outcome.objectives[0].shown(best.trial)
    searched = {axis.step for axis in plan.study.tunables}
    varied = {one.key: best.point[one.key] for one in plan.study.varied}
    made_for: dict[str, Any] = {
        "workload": experiment.workload.name,
        "case": experiment.case,
        "steps": {
            record.name: {
                "kernel": record.kernel.name,
                "sizes": dict(record.sizes),
                "dtype": record.dtype,
            }
            for record in plan.schedule
            if record.name in searched
        },
        "target": experiment.target.name,
        "arch": experiment.arch.name,
        "toolchain": str(varied.get("toolchain", experiment.toolchain.name)),
        "trial": best.trial.id,
    }
    words = [f"{key}={value}" for key, value in varied.items()]
    also = f"# Also needed: {' '.join(words)}\n" if words else ""
    return (
        f"{FIRST_WORDS}: {shown}, of {len(outcome.history.all)} points.\n"
        "# To use it: select.file=THIS_FILE.\n"
        f"{also}" + dump_yaml({MADE_FOR: made_for, **plan.study.fixed(best.point)})
    )
