"""Dispatches a command and turns every failure into one clear message and an exit code."""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn

from kernloom import __version__
from kernloom.base.errors import KernloomError, Terminated, UsageError, nearest
from kernloom.base.streams import prepare_streams
from kernloom.cli.hydra_flags import (
    CONFIG_FLAGS,
    HYDRA_FLAGS,
    NOT_SERVED,
    QUESTIONS,
    SHORT,
    flags_with_hydra,
    with_config_dir,
)
from kernloom.cli.invocation import Flag, Invocation, check_output, output_of, parse

COMMANDS = {
    "run": "one experiment, or with -m a sweep: build, verify, measure, store",
    "plan": "what would be built and run, what is cached, and why the rest is not",
    "tune": "search the tunables of a workload on a target; space=FILE: a recorded space",
    "build": "build the experiment's artifacts (--all: every runtime whose toolchain is present)",
    "explain": "why an artifact is or was rebuilt",
    "check": "correctness only: every case of the workloads on the target",
    "compare": "measure two or more in the same rounds: faster, slower, equivalent",
    "results": "query the store: table, csv, json",
    "recipe": "save, lock, run, verify, show, compare and pack recipes",
    "targets": "every target: available, or why not and what to install",
    "doctor": "this machine: compilers, clocks, noise, peak and bandwidth, places",
    "completion": "a script for bash, zsh or fish that completes these words",
}
INTERRUPTED = 130
TERMINATED = 143
_THREAD_TIMEOUT = "OPENBLAS_THREAD_TIMEOUT"
"""How long idle threads spin, as a power of two of clock ticks; 4 is the least."""


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    prepare_streams()
    signal.signal(signal.SIGTERM, _terminated)
    try:
        code = _dispatch(words)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        # A second Ctrl-C must not interrupt the final message.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("kernloom: interrupted; everything finished so far is kept", file=sys.stderr)
        return INTERRUPTED
    except Terminated:
        print("kernloom: terminated; everything finished so far is kept", file=sys.stderr)
        return TERMINATED
    except KernloomError as error:
        return _failed(error, words)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = "Free some space and run the command again."
        elif error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            hint = "Make the folder writable, or work in another one."
        elif error.filename:
            hint = ""
        else:
            raise
        where = f" {error.filename}" if error.filename else ""
        reason = error.strerror or str(error)
        _abandon_stdout(only_if_full=True)
        return _failed(KernloomError(f"cannot use{where}: {reason}", hint=hint), words)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0 if words else 2
    if words[0] == "--hydra-help":
        words = ["run", *words]
    if words[0] in ("-V", "--version", "version"):
        print(f"kernloom {__version__}")
        return 0
    name, *rest = words
    if name not in COMMANDS:
        raise UsageError(f"unknown command '{name}'", hint=nearest(name, COMMANDS))
    if name == "completion" and rest[1:2] == ["--words"]:
        # From a shell's script: the words are of another command line, --help among them or not.
        from kernloom.cli.completion import protocol

        return protocol.answer(rest)
    with _let_idle_threads_sleep():
        command: Any = importlib.import_module(f"kernloom.cli.commands.{name}")
    flags: dict[str, Flag] = getattr(command, "FLAGS", {})
    sweeps: bool = getattr(command, "SWEEPS", False)
    reads_configs: bool = getattr(command, "READS_CONFIGS", False)
    if any(word in ("-h", "--help") for word in rest):
        shown = flags | CONFIG_FLAGS if reads_configs else flags
        print(_command_help(name, command, shown, sweeps=sweeps))
        return 0
    given = flags_with_hydra(flags, sweeps=sweeps, reads_configs=reads_configs)
    invocation: Invocation = parse(
        name, rest, given, sweeps=sweeps, short=SHORT, not_served=NOT_SERVED
    )
    if any(flag in invocation.flags for flag in QUESTIONS):
        from kernloom.cli import hydra_answers

        return hydra_answers.answer(invocation)
    check_output(name, rest, getattr(command, "REPORT", ""))
    code: int = command.run(with_config_dir(invocation) if sweeps else invocation)
    return code


@contextlib.contextmanager
def _let_idle_threads_sleep() -> Iterator[None]:
    """Let the threads that numpy's library starts on import sleep until there is work; otherwise
    they spin and slow down the start. Child processes, including a measured numpy, are not
    affected."""
    told = _THREAD_TIMEOUT in os.environ
    os.environ.setdefault(_THREAD_TIMEOUT, "4")
    try:
        yield
    finally:
        if not told:
            del os.environ[_THREAD_TIMEOUT]


def help_text() -> str:
    lines = [f"  {name:10} {about}" for name, about in COMMANDS.items()]
    return "\n".join(
        [
            "usage: kernloom COMMAND [key=value ...]",
            "",
            *lines,
            "",
            "Any key of configs/ can be overridden: workload=softmax workload.sizes.N=1000",
            "toolchain=clang arch=x86_64_v3 select.fixed.tile.mr=8. With -m, lists are swept:",
            "kernloom run -m workload=softmax workload.sizes.N=64,128 toolchain=gcc,clang",
            "output=json prints one JSON document on stdout. kernloom COMMAND --help says more.",
        ]
    )


def _command_help(name: str, command: Any, flags: dict[str, Flag], *, sweeps: bool) -> str:
    usage = getattr(command, "USAGE", "[key=value ...]")
    lines = [f"usage: kernloom {name} {'[-m] ' if sweeps else ''}{usage}", ""]
    lines += [(command.__doc__ or COMMANDS[name]).strip(), ""]
    shown = {f"--{flag} {item.value}".strip(): item.about for flag, item in flags.items()}
    if sweeps:
        shown["-m, --multirun"] = "sweep over every key that is given several values"
    if report := getattr(command, "REPORT", ""):
        from kernloom.report.formats import formats_for

        shown["output=FORMAT"] = ", ".join(formats_for(report))
    lines += [f"  {flag:22} {about}" for flag, about in shown.items()]
    if sweeps:
        lines += ["", "Hydra's flags:"]
        letters = {name: f"-{letter}, " for letter, name in SHORT.items()}
        for flag, item in HYDRA_FLAGS.items():
            lines.append(f"  {letters.get(flag, '')}--{flag} {item.value}".rstrip())
            lines.append(f"{'':25}{item.about}")
    return "\n".join(lines).rstrip()


def _abandon_stdout(*, only_if_full: bool = False) -> None:
    """Discard what stdout still holds, so that the interpreter's last flush succeeds."""
    if only_if_full:
        try:
            sys.stdout.flush()
            return
        except OSError:
            pass
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _failed(error: KernloomError, words: Sequence[str]) -> int:
    if output_of(words) in ("json", "jsonl"):
        try:
            print(json.dumps({"error": error.document()}), flush=True)
        except OSError:
            _abandon_stdout()
    print(f"kernloom: error: {error}", file=sys.stderr)
    return error.exit_code


def _terminated(number: int, frame: FrameType | None) -> NoReturn:
    """End by unwinding, so that child processes and temporary files are removed too."""
    raise Terminated
