"""Arguments of `compare`: sets of overrides in quotes, recipe files, ids of trials."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from kernloom.base.errors import UsageError
from kernloom.config.compose import Composer
from kernloom.config.overrides import Overrides
from kernloom.run.comparing import Contender
from kernloom.run.contenders import Contenders

_ID = re.compile(r"[0-9a-f]{6,16}")


def parse_quoted(text: str, composer: Composer) -> Overrides:
    """The overrides in one argument of the command line."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"'{text}' has a quote that is not closed: {error}") from None
    return composer.parse(words, multirun=False)


def contenders_of(given: Sequence[str], make: Contenders, composer: Composer) -> list[Contender]:
    """Plan each argument as a contender, named by its text."""
    made: list[Contender] = []
    for text in given:
        name, number = text.strip() or "(defaults)", 2
        while any(name == other.name for other in made):
            name, number = f"{text.strip() or '(defaults)'} ({number})", number + 1
        if text.endswith((".yaml", ".yml")) and "=" not in text:
            made += make.recipe(name, Path(text))
        elif _ID.fullmatch(text):
            made.append(make.stored(name, text))
        else:
            made.append(make.composed(name, parse_quoted(text, composer)))
    return made
