"""The contract of an output format, and the documents that commands hand to it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from kernloom.base.errors import KernloomError
from kernloom.measure.trial import Samples, Trial

if TYPE_CHECKING:
    from kernloom.measure.comparison import Compared
    from kernloom.report.questions import Answer
    from kernloom.store.store import Store


@dataclass(frozen=True)
class RunReport:
    """What a run or sweep came to."""

    trials: Sequence[Trial]
    """In the order of their points; of a large sweep most of them are on disk."""
    build: Mapping[str, Any]
    """How many artifacts were built and cached, in what time."""
    samples_of: Callable[[Trial], Sequence[Samples]] = attrgetter("samples")
    """Samples are read from the store when they are asked for."""
    interrupted: bool = False
    error: Mapping[str, Any] | None = None
    """Why the run ended early, as a document; the trials that ended before are here."""
    screened: Sequence[Trial] | None = None
    """A quick look at every point, where one decided which points are measured."""
    screening: str = ""
    """The screening in one line."""


@dataclass(frozen=True)
class CheckReport:
    """What `check` found."""

    trials: Sequence[Trial]
    build: Mapping[str, Any]


@dataclass(frozen=True)
class CompareReport:
    """What `compare` found."""

    found: Compared
    failing: Collection[str] = ()
    """Verdicts that count as a failure."""


@dataclass(frozen=True)
class ResultsReport:
    """Trials that `results` found in the store."""

    trials: Iterable[Trial]
    """They can be read once: a format that needs them twice keeps them in a `Spool`."""
    store: Store
    metric: str = ""
    """The metric that was asked for."""
    say: Callable[[str], None] = lambda note: None
    """Tells the person at the terminal something about the answer."""


Report: TypeAlias = RunReport | CheckReport | CompareReport
TrialText: TypeAlias = Callable[[Trial], str]


@dataclass(frozen=True)
class Format:
    """A form of output: `output=NAME`. It serves the commands whose documents it has a writer for.

    A writer gets a document and a text file: stdout, a file, or what becomes stdout when all of it
    is written. Trials are read one by one, so that memory does not grow with their number.
    """

    about: str
    run: Callable[[RunReport, TextIO], None] | None = None
    check: Callable[[CheckReport, TextIO], None] | None = None
    compare: Callable[[CompareReport, TextIO], None] | None = None
    results: Callable[[ResultsReport, TextIO], int] | None = None
    """Returns the number of trials."""
    results_file: Callable[[ResultsReport, Path], int] | None = None
    """The same for a binary format, which goes to a file only (`--to FILE`) and replaces it whole
    or not at all."""
    rows: Callable[[Answer, TextIO], None] | None = None
    """Answers of `results` with --columns, --group or --pivot, where it has them."""
    trial_line: TrialText | None = None
    """A line that `run` prints for each trial the moment it ends; `run` then writes what is left
    to say."""
    screened_line: TrialText | None = None
    """The same for each point that is screened."""
    tells_screening: bool = False
    """`run` writes the screening; otherwise it is told on stderr."""
    for_people: bool = False
    """Read on a terminal: notes and progress may stand beside it."""
    exact: bool = False
    """Control characters reach a file or a pipe as they are."""
    ranks: bool = False
    """Its readers rank trials, so `results` leaves out those of earlier kernel sources."""

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands that it serves."""
        writers = {
            "run": self.run,
            "results": self.results or self.results_file,
            "compare": self.compare,
            "check": self.check,
        }
        return tuple(command for command, writer in writers.items() if writer)

    def write(self, report: Report, out: TextIO) -> None:
        """Write the document of a command that it serves."""
        if isinstance(report, RunReport) and self.run:
            self.run(report, out)
        elif isinstance(report, CheckReport) and self.check:
            self.check(report, out)
        elif isinstance(report, CompareReport) and self.compare:
            self.compare(report, out)
        else:
            raise KernloomError(f"this format ({self.about}) has no {type(report).__name__}")
