"""A task of a submission, on a node: `python -m kernloom.fleet.slurm.task FOLDER ROUND TASK`.

Plans its points with the same code and the identity of its own machine, builds missing artifacts,
and writes every trial to disk the moment it ends.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import sleep

from kernloom.base.errors import ConfigError, KernloomError, Terminated, UnavailableError
from kernloom.base.machine import machine_class
from kernloom.base.streams import prepare_streams
from kernloom.fleet.local import Local
from kernloom.fleet.slurm.submission import (
    SentPoint,
    Submission,
    TaskRow,
    append_row,
    read_submission,
    sent_point,
)
from kernloom.fleet.slurm.trial_ids import node_pool_of, unmeasured_id
from kernloom.measure.trial import Trial
from kernloom.plan.planned import Planned
from kernloom.run.assembly import Assembly
from kernloom.run.planning import plan_each
from kernloom.run.progress import NoProgress

ENDING = ("SIGTERM", "SIGKILL")
GRACE_S = 1.0
"""Ending a task signals its processes one by one: a kernel ended by such a signal may have been hit
just before this process, which then writes nothing."""


def main(arguments: Sequence[str]) -> int:
    folder, round, task = Path(arguments[0]), int(arguments[1]), int(arguments[2])

    def end(number: int, frame: object) -> None:
        raise Terminated

    # The second is submitit's signal that the time is up.
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGUSR2, end)
    prepare_streams()
    submission = read_submission(folder)
    if submission is None:
        print(f"kernloom: {folder} is gone: nothing to do", file=sys.stderr)
        return 0
    try:
        _execute(submission, round, task)
    except KernloomError as error:
        print(f"kernloom: error: {error}", file=sys.stderr)
        submission.note_failure(round, task, str(error))
        return error.exit_code
    except Terminated:
        print("kernloom: terminated; everything finished so far is kept", file=sys.stderr)
        return 143
    return 0


def _execute(submission: Submission, round: int, task: int) -> None:
    path = submission.results(round, task)
    # Slurm restarts a task whose node failed, and another round may have finished its points.
    mine = submission.rounds()[round].tasks[task]
    ended = submission.ended(set(mine))
    numbers = [number for number in mine if number not in ended]
    assembly = Assembly()
    plans: list[Planned] = []
    points: dict[int, int] = {}
    for number in numbers:
        sent = submission.points[number]
        try:
            plan = _planned(assembly, sent)
        except (ConfigError, UnavailableError) as error:
            trial_id = unmeasured_id(sent.plan, node_pool_of(submission.fleet))
            append_row(path, TaskRow(number, _refused(trial_id, error)))
            continue
        points[id(plan)] = number
        plans.append(plan)

    def keep(plan: Planned, trial: Trial, *, stored: bool = False) -> None:
        if trial.status == "crashed" and any(name in trial.message for name in ENDING):
            sleep(GRACE_S)
        append_row(path, TaskRow(points[id(plan)], trial))

    if plans:
        artifacts = {item.key: item for plan in plans for _, item in plan.named_artifacts}
        outcomes = assembly.builder(plans[0].experiment).build(artifacts.values())
        local = Local(assembly, NoProgress(), submission.fleet.on_node)
        local.measure(plans, outcomes, keep)


def _planned(assembly: Assembly, sent: SentPoint) -> Planned:
    (point,) = assembly.composer.points(assembly.composer.parse(sent.words, multirun=False))
    (plan,) = plan_each(assembly, [point], alone=True)
    now = sent_point(plan, sent.plan)
    # Another arch (`native` on another kind of machine) means other artifacts.
    same = now.arch != sent.arch or now.artifacts == sent.artifacts
    if now.config != sent.config or not same:
        raise ConfigError(
            "its config, source or compiler is not what it was when the point was submitted",
            hint="Run the command again; if nothing has changed, the node has another compiler.",
        )
    return plan


def _refused(id: str, error: KernloomError) -> Trial:
    status = "unavailable" if isinstance(error, UnavailableError) else "refused"
    return Trial(
        id=id,
        workload="",
        case="",
        target="",
        status=status,
        verified=False,
        stage=error.stage or "plan",
        message=str(error),
        machine=machine_class(),
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
