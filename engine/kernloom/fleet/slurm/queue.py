"""Slurm's queue: submission through submitit, queries, and explained errors."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kernloom
from kernloom.base.errors import ConfigError, UnavailableError, nearest
from kernloom.fleet.slurm.settings import SlurmSettings

PROGRAMS = ("sbatch", "squeue", "srun", "sinfo")
ENDED = frozenset(
    (
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    )
)
"""States of a task that will not run again; Slurm shows a requeued task as pending."""
ASK_S = 120
"""Timeout for a busy controller."""
SIGNAL_S = 10
"""Submitit asks for a warning time before the limit; our tasks need none."""
UNREACHABLE = re.compile("unable to contact|connect failure|connection refused", re.IGNORECASE)
BROKEN_OFF = re.compile("timed out|zero bytes|communication", re.IGNORECASE)
"""Messages of sbatch: the request was not received, or its response was not."""
PING = "Ask `scontrol ping` whether its controller is up, or use fleet=local."
_OPTION = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)
OURS = {
    "array": "fleet.chunk and fleet.max_tasks",
    "exclusive": "fleet.exclusive",
    "job-name": "nothing: submissions are found by it",
    "partition": "fleet.partition",
    "time": "fleet.time",
}
"""Options of sbatch that other keys set."""


@dataclass(frozen=True)
class TaskState:
    """The state of a task in the queue."""

    state: str
    reason: str = ""

    @property
    def ended(self) -> bool:
        return self.state in ENDED


class QueueDownError(UnavailableError):
    """Slurm does not answer; `unsure` if it may have executed the request nevertheless."""

    def __init__(self, message: str, *, hint: str = "", unsure: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.unsure = unsure


def check_settings(fleet: SlurmSettings) -> None:
    """Refuse settings that cannot be part of a batch script; sbatch checks the rest."""
    for name, value in fleet.options.items():
        key = f"fleet.options.{name}"
        if not _OPTION.fullmatch(name):
            raise ConfigError(
                "is no long option of sbatch", key=key, hint="Write account, not --account."
            )
        if name in OURS:
            raise ConfigError("is set elsewhere", key=key, hint=f"Use {OURS[name]}.")
        _check_printable(str(value), key)
    _check_printable(fleet.partition or "", "fleet.partition")


def _check_printable(text: str, key: str) -> None:
    if not text.isprintable():
        raise ConfigError(f"{text!r} is not printable", key=key)


def check_here(fleet: SlurmSettings) -> None:
    """Refuse a machine that cannot submit, before anything is built."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        raise UnavailableError(
            f"fleet '{fleet.name}' needs Slurm, and there is no {', '.join(missing)} on the PATH",
            hint="Run it on a login node of the cluster, or use fleet=local.",
        )
    if importlib.util.find_spec("submitit") is None:
        raise UnavailableError(
            f"fleet '{fleet.name}' needs the Python package submitit",
            hint=f"{sys.executable} -m pip install submitit",
        )
    partitions = [name.rstrip("*") for name in _ask(["sinfo", "--noheader", "--format=%R"]).split()]
    if fleet.partition and fleet.partition not in partitions:
        raise UnavailableError(
            f"fleet.partition: Slurm has no partition '{fleet.partition}'",
            hint=nearest(fleet.partition, partitions),
        )


def tasks_in_queue(names: Iterable[str]) -> Mapping[tuple[str, int], TaskState]:
    """(Job name, task number) -> state, for tasks that Slurm still knows."""
    chosen = ",".join(names)
    if not chosen:
        return {}
    told = _ask(
        [
            "squeue",
            "--noheader",
            "--array",
            "--states=all",
            f"--name={chosen}",
            "--format=%j|%K|%T|%r",
        ]
    )
    found = {}
    for line in told.splitlines():
        name, number, state, reason = (*line.strip().split("|", 3), "", "", "")[:4]
        # A job of one task is not an array: its number is N/A.
        found[name, int(number) if number.isdigit() else 0] = TaskState(state, reason)
    return found


def _ask(argv: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ASK_S
        )
    except subprocess.TimeoutExpired:
        raise QueueDownError(f"Slurm does not answer: {argv[0]} took over {ASK_S} s") from None
    except OSError as error:
        raise QueueDownError(f"Slurm cannot be asked: {argv[0]}: {error.strerror}") from None
    if done.returncode:
        raise QueueDownError(
            f"Slurm does not answer: {_last_line(done.stderr) or argv[0]}",
            hint=PING,
        )
    return done.stdout


def submit(fleet: SlurmSettings, name: str, folder: Path, argv: Sequence[str], tasks: int) -> None:
    """Submit an array that runs `argv` with the task number as its last argument.

    Submitit stores only the arguments of the command.
    """
    from submitit import SlurmExecutor
    from submitit.core.utils import FailedJobError, FailedSubmissionError
    from submitit.helpers import CommandFunction

    engine = Path(kernloom.__file__).resolve().parents[1]
    command = ["env", f"PYTHONPATH={engine}", *argv]
    executor = SlurmExecutor(folder=folder, max_num_timeout=0)
    options: dict[str, Any] = {
        "job_name": name,
        "time": fleet.time,
        "array_parallelism": fleet.max_tasks,
        "signal_delay_s": SIGNAL_S,
        "additional_parameters": dict(fleet.options),
    }
    if fleet.partition:
        options["partition"] = fleet.partition
    if fleet.exclusive == "node":
        options["exclusive"] = True
    executor.update_parameters(**options)
    task = CommandFunction(command, verbose=True, cwd=Path.cwd())
    try:
        executor.map_array(task, range(tasks))
    except FailedSubmissionError as error:
        said = _last_line(str(error))
        raise QueueDownError(f"sbatch has an unusual answer: {said}", unsure=True) from None
    except FailedJobError as error:
        raise _not_submitted(_last_line(str(error))) from None


def _not_submitted(said: str) -> UnavailableError:
    """The error for sbatch's message."""
    unreachable, broken_off = UNREACHABLE.search(said), BROKEN_OFF.search(said)
    if unreachable or broken_off:
        unsure = not unreachable
        return QueueDownError(f"Slurm does not answer: {said}", hint=PING, unsure=unsure)
    return UnavailableError(
        f"Slurm refuses the tasks: {said}",
        hint="See fleet.partition, fleet.time and fleet.options; what is finished is kept.",
    )


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return re.sub(r"^\w+: (error: )?", "", lines[-1]) if lines else ""
