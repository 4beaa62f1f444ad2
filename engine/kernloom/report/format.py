"""The contract of an output format, and the report types that commands pass to it."""

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
    from kernloom.measure.why import Insight
    from kernloom.report.questions import Answer
    from kernloom.store.store import Store


@dataclass(frozen=True)
class RunReport:
    """The outcome of a run or sweep."""

    trials: Sequence[Trial]
    """In the order of their points; most trials of a large sweep are on disk."""
    build: Mapping[str, Any]
    """Numbers of built and cached artifacts, and the time."""
    samples_of: Callable[[Trial], Sequence[Samples]] = attrgetter("samples")
    """Reads samples from the store on request."""
    interrupted: bool = False
    error: Mapping[str, Any] | None = None
    """Why the run ended early, as a document; the trials that ended before are here."""
    screened: Sequence[Trial] | None = None
    """Screening results of every point, if a screening selected the points to measure."""
    screening: str = ""
    """The screening in one line."""
    insight: Insight | None = None
    """What-if and explanations, if they were asked for."""


@dataclass(frozen=True)
class CheckReport:
    """The outcome of `check`."""

    trials: Sequence[Trial]
    build: Mapping[str, Any]


@dataclass(frozen=True)
class CompareReport:
    """The outcome of `compare`."""

    found: Compared
    failing: Collection[str] = ()
    """Verdicts that count as a failure."""


@dataclass(frozen=True)
class ResultsReport:
    """Trials that `results` found in the store."""

    trials: Iterable[Trial]
    """An iterator: a format that needs them twice keeps them in a `Spool`."""
    store: Store
    metric: str = ""
    """The requested metric."""
    say: Callable[[str], None] = lambda note: None
    """Prints a note about the answer to the terminal."""


@dataclass(frozen=True)
class StudyReport:
    """The outcome of `tune`."""

    document: Mapping[str, Any]
    """Leaders, importance, failures and the whole history, as plain data."""
    trials: Sequence[Trial] = ()
    """Those of the search and of the race, in order."""
    samples_of: Callable[[Trial], Sequence[Samples]] = attrgetter("samples")
    objective: str = ""
    """The metric that was minimised."""


Report: TypeAlias = RunReport | CheckReport | CompareReport | StudyReport
TrialText: TypeAlias = Callable[[Trial], str]


@dataclass(frozen=True)
class Format:
    """An output format, `output=NAME`. It serves the commands for whose reports it has a writer.

    A writer gets a report and a text file: stdout, a file, or a buffer that is copied to stdout
    when complete. Trials are read one by one, so that memory does not grow with their number.
    """

    about: str
    run: Callable[[RunReport, TextIO], None] | None = None
    check: Callable[[CheckReport, TextIO], None] | None = None
    compare: Callable[[CompareReport, TextIO], None] | None = None
    tune: Callable[[StudyReport, TextIO], None] | None = None
    results: Callable[[ResultsReport, TextIO], int] | None = None
    """Returns the number of trials."""
    results_file: Callable[[ResultsReport, Path], int] | None = None
    """The same for a binary format, which is only written to a file (`--to FILE`), atomically."""
    rows: Callable[[Answer, TextIO], None] | None = None
    """Writes answers of `results` with --columns, --group or --pivot, if supported."""
    trial_line: TrialText | None = None
    """Text that `run` prints for each trial the moment it ends; `run` then writes only the rest."""
    screened_line: TrialText | None = None
    """The same for each screened point."""
    tells_screening: bool = False
    """Whether `run` writes the screening; otherwise it is printed on stderr."""
    tells_insight: bool = False
    """Whether `run` writes what-if and explanations."""
    for_people: bool = False
    """Whether it is read on a terminal, where notes and progress may appear beside it."""
    exact: bool = False
    """Whether control characters are written to a file or a pipe unchanged."""
    ranks: bool = False
    """Whether its readers rank trials, so that `results` leaves out those of earlier kernel
    sources."""

    @property
    def commands(self) -> tuple[str, ...]:
        """The commands it serves."""
        writers = {
            "run": self.run,
            "results": self.results or self.results_file,
            "compare": self.compare,
            "check": self.check,
            "tune": self.tune,
        }
        return tuple(command for command, writer in writers.items() if writer)

    def write(self, report: Report, out: TextIO) -> None:
        """Write the report of a command it serves."""
        if isinstance(report, RunReport) and self.run:
            self.run(report, out)
        elif isinstance(report, CheckReport) and self.check:
            self.check(report, out)
        elif isinstance(report, CompareReport) and self.compare:
            self.compare(report, out)
        elif isinstance(report, StudyReport) and self.tune:
            self.tune(report, out)
        else:
            raise KernloomError(f"this format ({self.about}) has no {type(report).__name__}")
