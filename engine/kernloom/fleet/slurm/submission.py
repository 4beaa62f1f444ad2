"""A submission: a folder shared by all nodes, with the whole state of a running sweep.

    submission.json     the points
    rounds/N.json       the tasks of the Nth submission to the queue, and the points of each
    results/N-I.jsonl   the trials of task I of round N, each on disk the moment it ended
    results/N-I.failed  why the task could not continue, if it said so
    taken               the trials that an engine has stored
    given-up            exists if points were given up: the output of their tasks is kept
    slurm/              the output of the tasks

The folder tells what is finished and what was tried; no state is kept elsewhere, so a killed engine
is replaced by the next one, on any machine.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from kernloom.base.errors import UnavailableError
from kernloom.base.files import sha256_json
from kernloom.base.sealed import DamagedFileError, read_sealed, seal, unseal, write_sealed
from kernloom.config.schema import NOT_IDENTITY, OBSERVATIONS
from kernloom.fleet.slurm.settings import SlurmSettings
from kernloom.measure.trial import Samples, Trial
from kernloom.plan.planned import Planned

FORMAT = 3
NOT_SENT = (
    *("store", "fleet", "output", "rerun", "recipe", "show", "sweep"),
    *(*OBSERVATIONS, "trace_level"),
)
"""Root keys that apply to the whole run and not to a task."""
NO_STORE = ("store=sqlite", "store.path=null", "store.url=null")
"""Replaces the store in a task's config: its files must not contain a password."""


@dataclass(frozen=True)
class SentPoint:
    """A point as sent to a task: the overrides that compose it, and its expected identity."""

    plan: str
    """The plan's key, the same on every login node."""
    words: tuple[str, ...]
    config: str
    """Hash of the config without the arch, which depends on the node if it is `native`."""
    arch: str
    artifacts: tuple[str, ...]


@dataclass(frozen=True)
class Round:
    """One submission to the queue."""

    number: int
    name: str
    """Unique name of the job."""
    tasks: tuple[tuple[int, ...], ...]
    """The points of each task."""


@dataclass(frozen=True)
class TaskRow:
    """A trial that a task has finished."""

    point: int
    trial: Trial


@dataclass(frozen=True)
class Submission:
    """The folder of a submission."""

    folder: Path
    token: str
    points: tuple[SentPoint, ...]
    fleet: SlurmSettings

    def rounds(self) -> list[Round]:
        found = []
        for path in sorted((self.folder / "rounds").glob("*.json")):
            try:
                data = read_sealed(path, self._key(path))
            except (OSError, DamagedFileError) as error:
                raise _unreadable(path, self.folder, error) from None
            tasks = tuple(tuple(task) for task in data["tasks"])
            found.append(Round(int(path.stem), data["name"], tasks))
        return found

    def add_round(self, tasks: Sequence[Sequence[int]]) -> Round:
        """Add a round, recorded before it is submitted: after a kill in between, its name finds it
        again."""
        number = len(self.rounds())
        round = Round(number, f"kernloom-{self.token}-{number}", tuple(map(tuple, tasks)))
        results = self.folder / "results"
        results.mkdir(exist_ok=True)
        for task in range(len(tasks)):
            # Created here, because some file systems cache that a file does not exist.
            self.results(number, task).touch()
        path = self._round_file(number)
        write_sealed(path, {"name": round.name, "tasks": round.tasks}, self._key(path))
        return round

    def drop_round(self, round: Round) -> None:
        """Forget the last round, which the queue never had."""
        self._round_file(round.number).unlink()

    def _round_file(self, number: int) -> Path:
        return self.folder / "rounds" / f"{number:04}.json"

    def note_taken(self, point: int, trial: Trial) -> None:
        """Record that the store has this trial of a point."""
        with (self.folder / "taken").open("a", encoding="utf-8") as file:
            line = {"point": point, "created": trial.created}
            file.write(seal(line, self._key(self.folder / "taken")) + "\n")

    def taken(self) -> dict[int, str]:
        """Point -> creation time of the stored trial."""
        found = {}
        with suppress(FileNotFoundError):
            for line in (self.folder / "taken").read_bytes().splitlines():
                # The last line may be torn; the trial of a damaged line is stored again.
                with suppress(ValueError):
                    data = unseal(line, self._key(self.folder / "taken"))
                    found[data["point"]] = data["created"]
        return found

    def _key(self, path: Path) -> str:
        """The key that ties a sealed file to this submission."""
        return f"{self.token}/{path.name}"

    def note_given_up(self) -> None:
        (self.folder / "given-up").touch()

    @property
    def has_given_up(self) -> bool:
        return (self.folder / "given-up").exists()

    def results(self, round: int, task: int) -> Path:
        return self.folder / "results" / f"{round}-{task}.jsonl"

    def failure(self, round: int, task: int) -> Path:
        return self.results(round, task).with_suffix(".failed")

    def note_failure(self, round: int, task: int, why: str) -> None:
        """Record why a task could not continue."""
        path = self.failure(round, task)
        write_sealed(path, {"why": why}, self._key(path))

    def why_failed(self, round: int, task: int) -> str:
        """A task's recorded reason for not continuing; empty if there is none."""
        path = self.failure(round, task)
        try:
            return str(read_sealed(path, self._key(path))["why"])
        except FileNotFoundError:
            return ""
        except (OSError, DamagedFileError) as error:
            return f"{path.name}, where it says why, cannot be read: {error}"

    def ended(self, points: Collection[int]) -> set[int]:
        """The points among these that any task has finished."""
        return {row.point for row in ResultReader(self).rows(self.rounds(), points)}


class ResultReader:
    """Reads the results of a submission as they grow."""

    def __init__(self, submission: Submission) -> None:
        self._submission = submission
        self._read: dict[Path, int] = {}

    def rows(self, rounds: Sequence[Round], points: Collection[int]) -> Iterator[TaskRow]:
        """Rows written since the last call by tasks with any of these points; skips an incomplete
        line."""
        for round in rounds:
            for number, task in enumerate(round.tasks):
                if any(point in points for point in task):
                    yield from self._rows(self._submission.results(round.number, number))

    def _rows(self, path: Path) -> Iterator[TaskRow]:
        try:
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read()
        except OSError:
            return
        whole = data.rfind(b"\n") + 1
        self._read[path] = self._read.get(path, 0) + whole
        for line in data[:whole].splitlines():
            # A task that was killed while writing and then restarted left a torn line. The point of
            # a damaged line counts as not done.
            with suppress(ValueError, KeyError, TypeError):
                row = unseal(line, _rows_key(path))
                yield TaskRow(row["point"], trial_from(row["trial"]))


def append_row(path: Path, row: TaskRow) -> None:
    """Write a trial to disk, without the store in its config, which does not belong to the task."""
    data = asdict(row.trial)
    data["config"] = {key: value for key, value in data["config"].items() if key != "store"}
    text = seal({"point": row.point, "trial": data}, _rows_key(path))
    with path.open("ab") as file:
        # Ends a line that was torn when this task was killed.
        start = b"\n" if file.tell() and not _ends_line(path) else b""
        file.write(start + text.encode("utf-8", "replace") + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _rows_key(path: Path) -> str:
    """The key of a results file: its submission's folder, and its own name."""
    return f"{path.parent.parent.name}/{path.name}"


def _ends_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def trial_from(data: Mapping[str, Any]) -> Trial:
    """A trial from the JSON of `asdict`."""
    samples = tuple(_samples_from(entry) for entry in data["samples"])
    lists = {key: tuple(value) for key, value in data.items() if isinstance(value, list)}
    known = {field.name for field in fields(Trial)}
    given = {key: value for key, value in data.items() if key in known}
    return Trial(**{**given, **lists, "samples": samples})


def _samples_from(data: Mapping[str, Any]) -> Samples:
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
    # Already judged where the trial ran.
    return Samples(**{**given, "watch": None})


def sent_point(plan: Planned, key: str) -> SentPoint:
    data = plan.point.data
    return SentPoint(
        plan=key,
        words=(*plan.point.overrides.without(*NOT_SENT).text, *NO_STORE),
        config=sha256_json({key: data[key] for key in data if key not in (*NOT_IDENTITY, "arch")}),
        arch=sha256_json(data["arch"]),
        artifacts=tuple(artifact.key for _, artifact in plan.named_artifacts),
    )


def begin(folder: Path, plans: Mapping[str, Planned], fleet: SlurmSettings) -> Submission:
    """Create a submission of plans, given by their keys."""
    points = tuple(sent_point(plan, key) for key, plan in plans.items())
    submission = Submission(folder, secrets.token_hex(4), points, fleet)
    (folder / "rounds").mkdir(parents=True, exist_ok=True)
    write_sealed(
        folder / "submission.json",
        {
            "format": FORMAT,
            "token": submission.token,
            "points": [asdict(point) for point in points],
            "fleet": asdict(fleet),
        },
    )
    return submission


def read_submission(folder: Path) -> Submission | None:
    """The submission in a folder; None if there is none."""
    path = folder / "submission.json"
    try:
        data = read_sealed(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _unreadable(path, folder, error) from None
    if data.get("format") != FORMAT:
        raise UnavailableError(
            f"the submission {path} was made by another version of Kernloom",
            hint=f"Finish it with that one, or remove {folder}.",
        )
    points = tuple(
        SentPoint(
            **{**entry, "words": tuple(entry["words"]), "artifacts": tuple(entry["artifacts"])}
        )
        for entry in data["points"]
    )
    known = {field.name for field in fields(SlurmSettings)}
    # Earlier versions also recorded the settings of other fleets.
    fleet = {key: value for key, value in data["fleet"].items() if key in known}
    return Submission(folder, data["token"], points, SlurmSettings(**fleet))


def _unreadable(path: Path, folder: Path, error: Exception) -> UnavailableError:
    return UnavailableError(
        f"the submission's file {path} cannot be read: {error}",
        hint=f"Remove {folder} to begin anew; what it had gathered is in the store.",
    )


@contextmanager
def only_engine(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Wait until no other engine holds this submission's lock file; calls `waiting` if one does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(handle, fcntl.LOCK_EX)
            if os.fstat(handle).st_nlink:
                yield
                path.unlink(missing_ok=True)
                return
        finally:
            os.close(handle)
