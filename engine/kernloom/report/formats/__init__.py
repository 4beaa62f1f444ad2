"""Output formats by name, one file each; `output=NAME` of run, results, compare and check."""

from __future__ import annotations

from pathlib import Path

from kernloom.base.errors import UsageError, nearest
from kernloom.base.files import replacing
from kernloom.base.registry import Registry
from kernloom.report.format import Format, Report

FORMATS: Registry[Format] = Registry(
    "format",
    {},
    later={
        "table": "kernloom.report.formats.table:TABLE",
        "json": "kernloom.report.formats.json:JSON",
        "jsonl": "kernloom.report.formats.jsonl:JSONL",
        "csv": "kernloom.report.formats.csv:CSV",
        "parquet": "kernloom.report.formats.parquet:PARQUET",
        "t4": "kernloom.report.formats.t4:T4",
        "junit": "kernloom.report.formats.junit:JUNIT",
    },
    group="kernloom.formats",
)


def format_for(name: str, report: str, *, command: str = "") -> Format:
    """The format `name` for the reports of a command (`report`); `command` is the typed command, if
    different. A format that does not serve it is refused, with a list of those that do."""
    found = FORMATS.get(name, key="output") if FORMATS.knows(name) else None
    if found is None or report not in found.commands:
        raise UsageError(
            f"'{command or report}' has no output={name}", hint=nearest(name, formats_for(report))
        )
    return found


def write_file(name: str, report: Report, path: Path) -> None:
    """Write a command's report to a file atomically."""
    with replacing(path) as out:
        FORMATS.get(name, key="output").write(report, out)


def formats_with_rows() -> list[str]:
    """The names of formats that can show rows of chosen keys."""
    return [name for name in FORMATS.names() if FORMATS.get(name, key="output").rows]


def formats_for(report: str) -> list[str]:
    """The names of formats that serve a command's reports."""
    names = FORMATS.names()
    return [name for name in names if report in FORMATS.get(name, key="output").commands]
