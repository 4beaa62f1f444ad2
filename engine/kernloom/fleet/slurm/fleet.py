"""Trials on the nodes of a cluster: chunks of points as tasks of Slurm job arrays.

The whole state is in the submission's folder, so the fleet repeatedly compares the wanted points,
the tries, the queue and the finished trials until nothing is missing.
"""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

from kernloom.base.errors import UnavailableError
from kernloom.base.files import sha256_json
from kernloom.build.builder import Outcome
from kernloom.config.schema import NOT_IDENTITY
from kernloom.config.settings import FleetSettings
from kernloom.fleet.local import Local, LocalSettings
from kernloom.fleet.slurm.queue import (
    QueueDownError,
    TaskState,
    check_here,
    check_settings,
    submit,
    tasks_in_queue,
)
from kernloom.fleet.slurm.settings import SlurmSettings
from kernloom.fleet.slurm.submission import (
    ResultReader,
    Round,
    Submission,
    TaskRow,
    begin,
    only_engine,
    read_submission,
)
from kernloom.fleet.slurm.trial_ids import TrialIdLog, node_pool_of, unmeasured_id
from kernloom.measure.trial import Trial
from kernloom.plan.identity import identity_anywhere
from kernloom.plan.planned import Planned
from kernloom.run.assembly import Assembly
from kernloom.run.fleet import Fleet, FleetSetup, Keep, TrialBuild
from kernloom.run.progress import Progress
from kernloom.run.sharing import Share
from kernloom.store.store import Store

RERUNS = ("none", "failed", "all")
"""Values of `rerun`: each has its own submissions."""
MAX_TASKS = 1000
"""Largest array: Slurm's default MaxArraySize."""
SHRINK = 4
"""Every retry has chunks smaller by this factor, so that a point that kills its task takes few
others with it."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.1, 2.0
"""Pause between two reads of the results: short for short tasks."""
DRAIN_S = 10.0
"""Time for tasks to leave the queue after all their trials are gathered."""


class Slurm(Fleet):
    """A cluster, seen from a machine that can submit to it."""

    Settings: ClassVar[type[FleetSettings]] = SlurmSettings

    def __init__(
        self, assembly: Assembly, settings: SlurmSettings, store: Store, progress: Progress
    ) -> None:
        super().__init__()
        self._assembly = assembly
        self._settings = settings
        self._store = store
        self._progress = progress
        self._outcomes: Mapping[str, Outcome] = {}
        self._folder = Path(settings.folder or assembly.places.build / "fleet").absolute()
        self._node_pool = node_pool_of(settings)
        self._keys: dict[str, str] = {}
        """Plan id -> its key, which is the same on every login node."""
        self._key = ""
        """Digest of the whole sweep."""

    @classmethod
    def create(cls, settings: SlurmSettings, setup: FleetSetup) -> Self:
        return cls(setup.assembly, settings, setup.store, setup.progress)

    @cached_property
    def _gathered(self) -> TrialIdLog:
        return TrialIdLog(self._folder / "gathered" / self._node_pool)

    @contextmanager
    def at_work(self, plans: Sequence[Planned]) -> Iterator[None]:
        check_settings(self._settings)
        self._key = sha256_json(sorted(set(self._keys_of(plans).values())))[:16]

        def waiting() -> None:
            self._progress.say("another kernloom looks after this sweep; waiting for it to end")

        with only_engine(self._folder / f"{self._node_pool}-{self._key}.lock", waiting):
            yield

    def trial_ids(self, plans: Sequence[Planned]) -> Mapping[str, str]:
        gathered = self._gathered.trials()
        keys = self._keys_of(plans)
        return {plan: gathered[key] for plan, key in keys.items() if key in gathered}

    def _keys_of(self, plans: Sequence[Planned]) -> Mapping[str, str]:
        for plan in plans:
            if plan.id not in self._keys:
                self._keys[plan.id] = identity_anywhere(plan, self._assembly.arch_as_asked)
        return self._keys

    def _submission_folder(self, rerun: str) -> Path:
        """Folder of this sweep's submission; one for each value of `rerun`, because their trials
        differ."""
        name = f"{self._node_pool}-{self._key}"
        return self._folder / (name if rerun == "none" else f"{name}-{rerun}")

    def execute(
        self, plans: Sequence[Planned], build: TrialBuild, keep: Keep, share: Share | None = None
    ) -> None:
        # No sharing: `at_work` permits only one engine per sweep.
        self._remove_finished_submissions()
        if plans:
            check_here(self._settings)
        if self._settings.build == "login":
            self._outcomes = build(plans)
        here = [plan for plan in plans if plan.refusal or not self._built(plan)]
        # Refused points need no node.
        local = Local(self._assembly, self._progress, LocalSettings(self._settings.name))
        local.measure(here, self._outcomes, keep)
        settled = {plan.id for plan in here}
        away = {self._keys[plan.id]: plan for plan in plans if plan.id not in settled}
        while away:
            folder = self._submission_folder(plans[0].experiment.rerun)
            found = read_submission(folder)
            submission = found or begin(folder, away, self._settings)
            try:
                self._wait_for_submission(submission, away, keep, resumed=found is not None)
            except KeyboardInterrupt:
                self._print_resume_hint(submission)
                raise
            for point in submission.points:
                away.pop(point.plan, None)

    def _remove_finished_submissions(self) -> None:
        """Remove submissions that an engine had completely gathered when it was killed: a later
        command would take their trials for new ones."""
        for rerun in RERUNS:
            # An unreadable one matters only to a command that resumes it.
            with suppress(UnavailableError):
                submission = read_submission(self._submission_folder(rerun))
                if submission is None:
                    continue
                points = range(len(submission.points))
                rows = list(ResultReader(submission).rows(submission.rounds(), points))
                if len(self._taken(submission, rows)) == len(points):
                    self._close(submission)

    def _taken(self, submission: Submission, rows: Sequence[TaskRow]) -> dict[int, str]:
        """Point -> creation time of the stored trial; the last one may not be recorded."""
        taken = submission.taken()
        there = self._store.latest([row.trial.id for row in rows if row.point not in taken])
        for row in rows:
            if row.trial.id in there and there[row.trial.id].created == row.trial.created:
                taken.setdefault(row.point, row.trial.created)
        return taken

    def _built(self, plan: Planned) -> bool:
        outcomes = (self._outcomes.get(artifact.key) for _, artifact in plan.named_artifacts)
        return all(outcome is None or outcome.ok for outcome in outcomes)

    def _wait_for_submission(
        self, submission: Submission, plans: Mapping[str, Planned], keep: Keep, *, resumed: bool
    ) -> None:
        """Wait for the trials of a submission, and resubmit lost points."""
        reader = ResultReader(submission)
        waiting = {
            number: plans[point.plan]
            for number, point in enumerate(submission.points)
            if point.plan in plans
        }
        total = len(waiting)
        if resumed:
            self._progress.say(f"going on with the submission in {submission.folder}")
            rows = list(reader.rows(submission.rounds(), waiting))
            taken = self._taken(submission, rows)
            stored = [row for row in rows if taken.get(row.point) == row.trial.created]
            for row in stored:
                self._take(submission, row, waiting, keep, stored=True)
            for row in rows:
                self._take(submission, row, waiting, keep)
        pause, asked = FIRST_PAUSE_S, -math.inf
        while waiting:
            if time.monotonic() - asked >= min(self._settings.poll, 10 * pause):
                asked = time.monotonic()
                self._poll(submission, reader, waiting, keep, total)
            else:
                for row in reader.rows(submission.rounds(), set(waiting)):
                    self._take(submission, row, waiting, keep)
            if waiting:
                time.sleep(min(pause, self._settings.poll))
                pause = min(pause * 1.2, LAST_PAUSE_S)
        self._close(submission)

    def _poll(
        self,
        submission: Submission,
        reader: ResultReader,
        waiting: dict[int, Planned],
        keep: Keep,
        total: int,
    ) -> None:
        """Query the queue, gather trials, and handle points that no task has any more."""
        rounds = submission.rounds()
        try:
            states = tasks_in_queue(round.name for round in rounds)
        except QueueDownError as error:
            self._progress.say(f"{error.message}; asking again")
            return
        # After the queue: the files of a finished task are complete by now.
        for row in reader.rows(rounds, set(waiting)):
            self._take(submission, row, waiting, keep)
        tasks = [(r, n, set(points)) for r in rounds for n, points in enumerate(r.tasks)]
        alive = set()
        for round, number, points in tasks:
            found = states.get((round.name, number))
            if found and not found.ended:
                alive |= points
        self._show(states, total - len(waiting), total)
        tries = Counter(point for _, _, points in tasks for point in points)
        missing = [number for number in waiting if number not in alive]
        again = [number for number in missing if tries[number] <= self._settings.retries]
        hopeless = [number for number in missing if tries[number] > self._settings.retries]
        for number in hopeless:
            why = self._why(submission, rounds, number, states)
            trial_id = unmeasured_id(submission.points[number].plan, self._node_pool)
            row = TaskRow(number, _interrupted(trial_id, waiting[number], why))
            submission.note_given_up()
            self._take(submission, row, waiting, keep)
        if again and not rounds:
            self._submit(submission, again, tries)
        elif again:
            self._progress.say(f"{len(again)} points of lost tasks are submitted again")
            try:
                self._submit(submission, again, tries)
            except QueueDownError as error:
                self._progress.say(f"{error.message}; asking again")

    def _submit(
        self, submission: Submission, points: Sequence[int], tries: Mapping[int, int]
    ) -> None:
        round = submission.add_round(chunks(points, tries, self._settings.chunk))
        words = [sys.executable, "-P", "-m", "kernloom.fleet.slurm.task"]
        argv = [*words, str(submission.folder), str(round.number)]
        logs = submission.folder / "slurm"
        try:
            submit(self._settings, round.name, logs, argv, len(round.tasks))
        except BaseException as error:
            if round.number == 0:
                shutil.rmtree(submission.folder, ignore_errors=True)
            unsure = isinstance(error, QueueDownError) and error.unsure
            if round.number and isinstance(error, UnavailableError) and not unsure:
                # Otherwise a round that the queue never had would count as a try.
                submission.drop_round(round)
            raise
        self._progress.say(
            f"submitted to Slurm as {round.name}: {len(points)} points, {len(round.tasks)} tasks"
        )

    def _take(
        self,
        submission: Submission,
        row: TaskRow,
        waiting: dict[int, Planned],
        keep: Keep,
        *,
        stored: bool = False,
    ) -> None:
        """Handle a finished trial, unless its point has one already."""
        plan = waiting.pop(row.point, None)
        if plan is None:
            return
        trial = self._settled(row.trial, plan)
        keep(plan, trial, stored=stored)
        self._gathered.add(self._key, self._keys[plan.id], trial.id)
        submission.note_taken(row.point, trial)

    def _settled(self, trial: Trial, plan: Planned) -> Trial:
        """The trial as one of this run: equal config sections become those of the plan, and
        artifacts built by this run are not reported as cached."""
        data = plan.point.data
        config = {
            key: data[key] if key in data and data[key] == value else value
            for key, value in (trial.config or data).items()
        }
        config |= {key: data[key] for key in NOT_IDENTITY if key in data}
        artifacts = tuple(
            {**item, "cached": self._outcomes[item["key"]].cached}
            if item["key"] in self._outcomes
            else item
            for item in trial.artifacts
        )
        return replace(_named(trial, plan), config=config, artifacts=artifacts)

    def _show(self, states: Mapping[tuple[str, int], TaskState], done: int, total: int) -> None:
        running = sum(state.state == "RUNNING" for state in states.values())
        pending = [state for state in states.values() if state.state == "PENDING"]
        reasons = Counter(state.reason for state in pending).most_common(1)
        note = f"{running} tasks running, {len(pending)} waiting"
        if reasons and reasons[0][0] not in ("", "None"):
            note += f" ({reasons[0][0]})"
        self._progress.update("measuring on Slurm", done, total, note)

    def _why(
        self,
        submission: Submission,
        rounds: Sequence[Round],
        number: int,
        states: Mapping[tuple[str, int], TaskState],
    ) -> str:
        """The known facts about the last task that had a point and did not finish it."""
        tried = [(r, n) for r in rounds for n, points in enumerate(r.tasks) if number in points]
        round, task = tried[-1]
        state = states.get((round.name, task))
        said = f" ({state.state})" if state else ""
        times = "once" if len(tried) == 1 else f"{len(tried)} times"
        why = submission.why_failed(round.number, task)
        logs = _lost_name(submission) / "slurm"
        text = f"its task on Slurm ended {times} without finishing it{said}"
        return "\n".join([f"{text}; its output is in {logs}", *([why] if why else [])])

    def _print_resume_hint(self, submission: Submission) -> None:
        names = [round.name for round in submission.rounds()]
        if names:
            self.notes.append(
                "the tasks go on in Slurm: the same command gathers their trials, and "
                f"`{' && '.join(f'scancel --name={name}' for name in names)}` ends them"
            )

    def _close(self, submission: Submission) -> None:
        """Remove the submission; keep the output of tasks that lost points."""
        names = [round.name for round in submission.rounds()]
        deadline = time.monotonic() + DRAIN_S
        try:
            while time.monotonic() < deadline:
                if all(state.ended for state in tasks_in_queue(names).values()):
                    break
                time.sleep(FIRST_PAUSE_S)
        except QueueDownError:
            pass
        kept = _lost_name(submission)
        wanted = submission.has_given_up
        submission.folder.rename(kept)
        if not wanted:
            shutil.rmtree(kept, ignore_errors=True)


def chunks(points: Sequence[int], tries: Mapping[int, int], size: int) -> list[list[int]]:
    """The points of each task: points with more tries in smaller chunks."""
    least = math.ceil(len(points) / MAX_TASKS)
    found = []
    for tried in sorted({tries.get(point, 0) for point in points}):
        group = [point for point in points if tries.get(point, 0) == tried]
        length = max(size // SHRINK**tried, least, 1)
        found += [group[start : start + length] for start in range(0, len(group), length)]
    return found


def _named(trial: Trial, plan: Planned) -> Trial:
    """The trial with the names that its point has in this run."""
    experiment = plan.experiment
    return replace(
        trial,
        workload=experiment.workload.name,
        case=experiment.case,
        target=experiment.target.name,
        point=plan.point.swept,
        overrides=plan.point.words,
    )


def _interrupted(id: str, plan: Planned, message: str) -> Trial:
    blank = Trial(id, "", "", "", "interrupted", verified=False)
    return replace(
        _named(blank, plan),
        params=plan.params,
        provider=plan.provider,
        config=plan.point.data,
        stage="fleet",
        message=message,
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )


def _lost_name(submission: Submission) -> Path:
    return submission.folder.with_name(f"{submission.folder.name}-{submission.token}")
