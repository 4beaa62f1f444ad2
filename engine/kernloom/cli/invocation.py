"""A parsed command line: the command, its flags, and the overrides for Hydra."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TextIO

from kernloom.base.errors import UsageError, nearest
from kernloom.base.visible_text import exact

if TYPE_CHECKING:
    from kernloom.report.format import Format

TABLE = "table"
PLAIN_OUTPUTS = (TABLE, "json", "jsonl")
"""Output formats of commands that have no formats of their own."""


@dataclass(frozen=True)
class Flag:
    """A `--flag` of a command."""

    about: str
    value: str = ""
    """Name of its value in the help text; '' for a plain switch."""
    default: str = ""
    """Its value if it is given without one; '' if a value is required."""


@dataclass(frozen=True)
class Invocation:
    """One command with its arguments."""

    command: str
    words: tuple[str, ...] = ()
    """key=value overrides and other arguments, in order."""
    flags: Mapping[str, str] = field(default_factory=dict)
    multirun: bool = False
    output: str = TABLE
    stdout: TextIO = field(default_factory=lambda: sys.stdout)
    stderr: TextIO = field(default_factory=lambda: sys.stderr)

    @property
    def data_out(self) -> TextIO:
        """stdout for data that must be exact in a file or a pipe."""
        return exact(self.stdout)

    def out_for(self, form: Format) -> TextIO:
        """stdout as a format needs it."""
        return self.data_out if form.exact else self.stdout

    @property
    def for_people(self) -> bool:
        return self.output == TABLE


MULTIRUN = ("-m", "--multirun")


def parse(
    command: str,
    arguments: Sequence[str],
    known: Mapping[str, Flag],
    *,
    sweeps: bool,
    short: Mapping[str, str] = MappingProxyType({}),
    not_served: Mapping[str, str] = MappingProxyType({}),
) -> Invocation:
    """Split flags from words; unknown flags are refused with the nearest known one. `short`: letter
    -> name of a flag. `not_served`: flags of another program -> what to use instead."""
    words: list[str] = []
    flags: dict[str, str] = {}
    multirun = False
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        if word in MULTIRUN and sweeps:
            multirun = True
        elif word.startswith("-") and word != "-":
            name, equals, value = word.lstrip("-").partition("=")
            name = short.get(name, name) if word[1:2] != "-" else name
            flag = known.get(name)
            if flag is None:
                allowed = [f"--{flag}" for flag in known] + (["-m"] if sweeps else []) + ["--help"]
                hint = not_served.get(name) or nearest(word, allowed)
                raise UsageError(f"'{command}' has no flag '{word}'", hint=hint)
            if flag.value and not equals:
                if flag.default and (not waiting or _is_no_value(waiting[0])):
                    waiting.insert(0, flag.default)
                if not waiting:
                    raise UsageError(f"--{name} needs a value: --{name} {flag.value}")
                value = waiting.pop(0)
            elif equals and not flag.value:
                raise UsageError(f"--{name} takes no value")
            flags[name] = value
        else:
            words.append(word)
    return Invocation(command, tuple(words), flags, multirun, output_of(words))


def _is_no_value(word: str) -> bool:
    """Whether the word after a flag is another flag or an override."""
    return word.startswith("-") or "=" in word


def outputs_in(words: Sequence[str]) -> list[str]:
    """The value of every `output=` among the words."""
    pairs = (word.partition("=") for word in words)
    return [value for key, equals, value in pairs if key == "output" and equals]


def output_of(words: Sequence[str]) -> str:
    """The last `output=` among the words."""
    return [TABLE, *outputs_in(words)][-1]


def check_output(command: str, words: Sequence[str], report: str = "") -> None:
    """Refuse an output format that the command does not have. `report` names the command's reports,
    if formats serve them."""
    for name in outputs_in(words):
        if report:
            from kernloom.report.formats import format_for

            format_for(name, report, command=command)
        elif name not in PLAIN_OUTPUTS:
            hint = nearest(name, PLAIN_OUTPUTS)
            raise UsageError(f"'{command}' has no output={name}", hint=hint)


def without_output(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a command that reads no experiment, without `output=`."""
    return tuple(word for word in words if not word.startswith("output="))


def destination(path: str, key: str) -> Path:
    """The path of a file to be written, refused before any work if it cannot be written."""
    target = Path(path)
    # Files appear by rename, which would replace a device or a pipe by a plain file.
    if not path or (target.exists() and not target.is_file()):
        raise UsageError(f"{key}: '{path}' is not the name of a file")
    if not target.parent.is_dir():
        raise UsageError(
            f"{key}: cannot write {path}: there is no folder {target.parent}",
            hint="Make the folder first, or name another file.",
        )
    return target
