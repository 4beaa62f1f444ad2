"""What was typed, taken apart: the command, its flags, and the overrides that Hydra will read."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TextIO, get_args

from kernloom.base.errors import UsageError, nearest
from kernloom.base.visible_text import exact

Output = Literal["table", "json", "jsonl", "csv", "parquet", "t4"]


@dataclass(frozen=True)
class Flag:
    """A `--flag` of a command."""

    about: str
    value: str = ""
    """What its value is called in the help text; '' for a plain switch."""


@dataclass(frozen=True)
class Invocation:
    """One command with its arguments."""

    command: str
    words: tuple[str, ...] = ()
    """key=value overrides and other plain words, in order."""
    flags: Mapping[str, str] = field(default_factory=dict)
    multirun: bool = False
    output: Output = "table"
    stdout: TextIO = field(default_factory=lambda: sys.stdout)
    stderr: TextIO = field(default_factory=lambda: sys.stderr)

    @property
    def data_out(self) -> TextIO:
        """stdout for data that must stay exact when it goes to a file or another program."""
        return exact(self.stdout)

    @property
    def for_people(self) -> bool:
        return self.output == "table"


MULTIRUN = ("-m", "--multirun")


def parse(
    command: str, arguments: Sequence[str], known: Mapping[str, Flag], *, sweeps: bool
) -> Invocation:
    """Split flags from words; unknown flags are refused with the nearest one."""
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
            flag = known.get(name)
            if flag is None:
                allowed = [f"--{flag}" for flag in known] + (["-m"] if sweeps else []) + ["--help"]
                raise UsageError(f"'{command}' has no flag '{word}'", hint=nearest(word, allowed))
            if flag.value and not equals:
                if not waiting:
                    raise UsageError(f"--{name} needs a value: --{name} {flag.value}")
                value = waiting.pop(0)
            elif equals and not flag.value:
                raise UsageError(f"--{name} takes no value")
            flags[name] = value
        else:
            words.append(word)
    return Invocation(command, tuple(words), flags, multirun, output_of(words))


def output_of(words: Sequence[str]) -> Output:
    """The last `output=` among the words; wrong ones are reported later, by the schema."""
    output: Output = "table"
    for word in words:
        key, _, value = word.partition("=")
        if key == "output" and value in get_args(Output):
            output = value  # type: ignore[assignment]
    return output


def check_output(command: str, words: Sequence[str], allowed: Sequence[str]) -> None:
    """Refuse a form of output that the command does not have."""
    for word in words:
        key, equals, value = word.partition("=")
        if key == "output" and equals and value not in allowed:
            raise UsageError(f"'{command}' has no output={value}", hint=nearest(value, allowed))


def without_output(words: Sequence[str]) -> tuple[str, ...]:
    """The words of a command that reads no experiment, less `output=`."""
    return tuple(word for word in words if not word.startswith("output="))


def destination(path: str, key: str) -> Path:
    """Where a file is to be written, refused before any work is done if that cannot be."""
    target = Path(path)
    # Files appear by rename: that would replace a device or a pipe by a plain file.
    if not path or (target.exists() and not target.is_file()):
        raise UsageError(f"{key}: '{path}' is not the name of a file")
    if not target.parent.is_dir():
        raise UsageError(
            f"{key}: cannot write {path}: there is no folder {target.parent}",
            hint="Make the folder first, or name another file.",
        )
    return target
