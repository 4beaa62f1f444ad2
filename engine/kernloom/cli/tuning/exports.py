"""`export=PATH` of `tune`: a parameter file, results in T4, or a folder of C sources."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernloom.base.errors import UsageError
from kernloom.base.files import write_atomically
from kernloom.cli.invocation import destination
from kernloom.report.format import StudyReport
from kernloom.report.formats import write_file
from kernloom.tune.document import Outcome
from kernloom.tune.export import MANIFEST
from kernloom.tune.parameter_file import FIRST_WORDS, parameter_file, workload_of
from kernloom.tune.planning import StudyPlan
from kernloom.tune.winner import Make

PARAMETERS = (".yaml", ".yml")
RESULTS = (".json",)


@dataclass(frozen=True)
class Export:
    """One destination, refused before any work if it cannot be written."""

    path: Path

    @classmethod
    def of(cls, text: str) -> Export:
        path = Path(text)
        if (path.exists() and not (path.is_file() or path.is_dir())) or (
            path.is_symlink() and not path.exists()
        ):
            raise UsageError(f"export: cannot write {path}: it is no file and no folder")
        if path.suffix in (*PARAMETERS, *RESULTS):
            _check_earlier(destination(text, "export"))
            return cls(path)
        if not text or path.is_file() or (path.suffix and not path.is_dir()):
            raise UsageError(
                f"export: '{text}' is neither a folder nor a .yaml or .json file",
                hint="FILE.yaml: parameters; FILE.json: all results in T4; FOLDER: C sources.",
            )
        if path.is_dir() and any(path.iterdir()) and not (path / MANIFEST).exists():
            raise UsageError(
                f"export: {path} is not empty, and not an export of before",
                hint="Name a new folder.",
            )
        if not path.parent.is_dir():
            raise UsageError(
                f"export: cannot write {path}: there is no folder {path.parent}",
                hint="Make the folder first, or name another one.",
            )
        return cls(path)

    def check(self, plan: StudyPlan) -> None:
        """Refuse a folder of C sources for kernels that are no C, and to replace an export of
        another workload."""
        workload = plan.experiment.workload.name
        if (earlier := self._earlier_workload()) not in ("", workload):
            raise UsageError(
                f"export: {self.path} is an export of workload '{earlier}', not of '{workload}'",
                hint="Name another one, or delete it first.",
            )
        if self.path.suffix not in (*PARAMETERS, *RESULTS):
            from kernloom.tune.export.variants import check_exportable

            check_exportable(plan.base)

    def _earlier_workload(self) -> str:
        """The workload of the parameters or of the library that are there; empty if none are."""
        if self.path.suffix in PARAMETERS and self.path.exists():
            return workload_of(self.path)
        try:
            manifest = json.loads((self.path / MANIFEST).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return ""
        return str(manifest.get("of", "")) if isinstance(manifest, dict) else ""

    def write(self, outcome: Outcome, report: StudyReport, problem: Callable[[Make], str]) -> str:
        """Write it; returns what was written, for people. `problem` verifies parameters."""
        best = outcome.race.best
        if self.path.suffix in RESULTS:
            write_file("t4", report, self.path)
            return f"results written: {self.path} ({len(report.trials)} trials, T4)"
        if best is None:
            return f"not written: {self.path}"
        if self.path.suffix in PARAMETERS:
            write_atomically(self.path, parameter_file(outcome, best))
            return f"parameters written: {self.path} (use it: select.file={self.path})"
        from kernloom.tune.export.library import write_library

        return write_library(outcome, best, self.path, problem)


def _check_earlier(path: Path) -> None:
    """Refuse to replace a file that is not an export of before."""
    begin = FIRST_WORDS if path.suffix in PARAMETERS else '{"results":'
    if path.exists():
        with path.open("rb") as file:
            there = file.read(len(begin.encode()))
        if there != begin.encode():
            raise UsageError(f"export: {path} is not an export of before", hint="Name a new file.")
