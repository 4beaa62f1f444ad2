"""The process that a shell's script starts at every TAB: words in, candidates out.

`kernloom completion SHELL --words N -- WORDS...`: WORDS is the command line with the program's name
as word 0, and N the word under the cursor, cut at the cursor. Every line of the answer is a kind
and a text, and behind a tab what it means (`candidates.Candidate.line`).
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from kernloom.cli.completion.candidates import shown_to
from kernloom.cli.completion.completer import Line, complete

PATIENCE_S = 2.0
"""After this long nobody waits for an answer: a file system may not respond."""
_QUOTES = "'\""


def answer(arguments: Sequence[str]) -> int:
    """Print the candidates, or nothing: a shell would show an error amid what its user types."""
    signal.signal(signal.SIGALRM, lambda number, frame: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    with suppress(Exception):
        for line in _candidates(arguments):
            print(line)
        sys.stdout.flush()
    signal.setitimer(signal.ITIMER_REAL, 0)
    return 0


def _candidates(arguments: Sequence[str]) -> list[str]:
    shell, _, number, _, *given = arguments
    index = int(number)
    words = [unquoted(word) for word in given] if shell == "bash" else given
    typed = words[index] if index < len(words) else ""
    line = Line(words[1:index], typed, words[index + 1 :])
    found = complete(line, describe=shell != "bash")
    return [candidate.line() for candidate in shown_to(shell, found, typed)]


def unquoted(word: str) -> str:
    """A word of bash without its quotes, of which the last may not be typed yet."""
    if not set(word) & {*_QUOTES, "\\"}:
        return word
    for end in ("", *_QUOTES):
        with suppress(ValueError):
            return "".join(shlex.split(word + end))
    return word
