"""What stands on the command line, in Hydra's grammar, as data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override as HydraOverride
from hydra.errors import HydraException

from kernloom.errors import UsageError

PATH_KEYS = re.compile(
    r"(recipe|trace|select\.file|store\.path|store\.url|workload\.tensors\.\w+\.fill\.path)"
)
"""Keys whose value is a path or URL: taken as it is, whatever characters it holds."""

OPEN_KEYS = ("select.fixed.", "pipeline.stages.", "workload.cases.")
"""Maps that take new names without Hydra's leading `+`."""


@dataclass(frozen=True)
class Override:
    """One `key=value` of the command line."""

    text: str
    kind: Literal["change", "add", "force", "delete"]
    key: str
    values: tuple[Any, ...]
    """One value; several in a sweep; none for `~key`."""
    group: bool
    """Chooses an option of a config group."""
    package: str | None = None

    @property
    def swept(self) -> bool:
        return len(self.values) > 1

    def hydra_text(self, value: Any) -> str:
        """The group choice in Hydra's spelling."""
        prefix = {"change": "", "add": "+", "force": "++", "delete": "~"}[self.kind]
        package = f"@{self.package}" if self.package else ""
        return f"{prefix}{self.key}{package}" + ("" if self.kind == "delete" else f"={value}")


def parse_overrides(
    words: Sequence[str], loader: ConfigLoader, *, multirun: bool
) -> tuple[Override, ...]:
    parser = OverridesParser.create(config_loader=loader)
    return tuple(_parse(word, parser, loader, multirun=multirun) for word in words)


def _parse(
    word: str, parser: OverridesParser, loader: ConfigLoader, *, multirun: bool
) -> Override:
    try:
        parsed = parser.parse_overrides([_prepared(word)])[0]
    except HydraException as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"'{word}' cannot be read: {reason}",
            hint="Write key=value; quote values that hold any of , ( ) [ ] { } : = \\ ' \".",
        ) from None
    group = bool(loader.get_group_options(parsed.key_or_group)) if loader else False
    kind: Literal["change", "add", "force", "delete"] = "change"
    if parsed.is_delete():
        kind = "delete"
    elif parsed.is_add():
        kind = "add"
    elif parsed.is_force_add() or _is_open(parsed.key_or_group):
        kind = "force"
    return Override(
        text=word,
        kind=kind,
        key=parsed.key_or_group,
        values=tuple(_values(parsed, word, multirun=multirun)),
        group=group,
        package=parsed.package,
    )


def _prepared(word: str) -> str:
    """Quote the value of a path key so that Hydra's grammar takes it whole."""
    key, equals, value = word.partition("=")
    if not equals or not PATH_KEYS.fullmatch(key.lstrip("+")):
        return word
    if value == "null" or value[:1] in ("'", '"'):
        return word
    return f"{key}='{value.replace(chr(92) + chr(39), chr(39)).replace(chr(39), chr(92) + chr(39))}'"


def _is_open(key: str) -> bool:
    return key.startswith(OPEN_KEYS)


def _values(parsed: HydraOverride, word: str, *, multirun: bool) -> Iterator[Any]:
    if parsed.is_delete():
        return
    if not parsed.is_sweep_override():
        yield parsed.value()
        return
    if not multirun:
        raise UsageError(
            f"'{word}' names several values, but this is a single run",
            hint="Add -m to sweep over them, or write a list as key=[a,b].",
        )
    if not parsed.is_discrete_sweep():
        raise UsageError(
            f"'{word}' is a continuous interval, which cannot be enumerated",
            hint="Use choice(...) or range(start,stop,step).",
        )
    try:
        values = [HydraOverride._convert_value(value) for value in parsed.sweep_iterator()]
    except HydraException as error:
        raise UsageError(f"'{word}': {error}") from None
    if not values:
        raise UsageError(f"'{word}' matches nothing, so there is nothing to sweep over")
    yield from values
