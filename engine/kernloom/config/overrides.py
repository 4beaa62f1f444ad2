"""What stands on the command line, in Hydra's grammar, as data."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from kernloom.base.errors import UsageError
from kernloom.config.groups import Groups

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override as HydraOverride

Kind = Literal["change", "add", "force", "delete"]

PATH_KEYS = re.compile(
    r"(recipe|trace|select\.file|store\.path|store\.url|workload\.tensors\.\w+\.fill\.path)"
)
"""Keys whose value is a path or URL: taken as it is, whatever characters it holds."""
_SWEPT_PATHS = re.compile(r"select\.file|workload\.tensors\.\w+\.fill\.path")
"""Those of them that a point may have a path of its own for, which makes commas mean several."""
_QUOTED = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_CHOICE = re.compile(r"choice\(.*\)", re.DOTALL)
EXPRESSION_KEYS = re.compile(r"sweep\.where")
"""Keys whose value is an expression: taken as it is, unless it is a list."""

OPEN_KEYS = (
    "select.fixed.",
    "pipeline.stages.",
    "workload.cases.",
    "sweep.axes.",
    "sweep.points.",
)
"""Maps that take new names without Hydra's leading `+`."""

_LONGEST_WORD = 1 << 16
_LONGEST_KEY = 1000
_LONGEST_NUMBER = 1000
_MAX_NESTED = 50
_MAX_IN_LISTS = 4000
"""Values inside brackets: the time that Hydra's parser takes grows with their square."""
_SHOWN = 200
_PLAIN = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)=([\w.,-]+)", re.ASCII)
_INTEGER = re.compile(r"-?(?:0|[1-9]\d*)", re.ASCII)
_FLOAT = re.compile(r"-?(?:0|[1-9]\d*)\.\d+", re.ASCII)
_DIGITS = re.compile(rf"\d{{{_LONGEST_NUMBER},}}", re.ASCII)
_WORD = re.compile(r"[A-Za-z][A-Za-z_0-9]*")
_CONSTANTS = {"true": True, "false": False, "null": None}
_QUOTES = re.compile(r"(\\*)('|$)")
MAX_VALUES = 10**12
"""More values than anybody could give one key by intention."""
_MAX_LISTED = 1_000_000
"""More than is written out in memory; a range of whole numbers need not be."""


@dataclass(frozen=True)
class Override:
    """One `key=value` of the command line."""

    text: str
    kind: Kind
    key: str
    values: Sequence[Any]
    """One value; several in a sweep; none for `~key`, one for `~key=value`."""
    group: bool
    """Chooses an option of a config group."""
    swept: bool = False
    package: str | None = None

    def word(self, value: Any) -> str:
        """As it stands on the command line, or would if this were its only value."""
        # Behind the sign there may be thousands of values.
        return f"{self.text[: self.text.index('=')]}={spelled(value)}" if self.swept else self.text

    def hydra_text(self, value: Any) -> str:
        """The group choice in Hydra's spelling."""
        prefix = {"change": "", "add": "+", "force": "++", "delete": "~"}[self.kind]
        package = f"@{self.package}" if self.package else ""
        chosen = "" if self.kind == "delete" and value is None else f"={value}"
        return f"{prefix}{self.key}{package}{chosen}"


def spelled(value: Any) -> str:
    """A value in Hydra's grammar."""
    if isinstance(value, (bool, type(None))):
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(spelled, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{spelled(inner)}" for key, inner in value.items()) + "}"
    text = str(value)
    if not isinstance(value, str) or (
        _WORD.fullmatch(text) and text.lower() not in (*_CONSTANTS, "inf", "nan")
    ):
        return text
    # In front of a quote, and nowhere else, a backslash stands for the character after it.
    inside = _QUOTES.sub(lambda m: m[1] * 2 + ("\\'" if m[2] else ""), text)
    return f"'{inside}'"


def parse_overrides(
    words: Sequence[str], groups: Groups, *, multirun: bool
) -> tuple[Override, ...]:
    for word in words:
        _check_length(word)
    return tuple(
        _path(word, multirun=multirun)
        or _plain(word, groups, multirun=multirun)
        or _parse(word, groups, multirun=multirun)
        for word in words
    )


def _check_length(word: str) -> None:
    """Refuse what nobody types, before a parser recurses over it."""
    key, _, value = word.partition("=")
    if len(key) > _LONGEST_KEY:
        raise UsageError(f"'{_shown(word)}': a key of {len(key)} characters is too long")
    number = len(value) > _LONGEST_NUMBER and _DIGITS.search(value)
    if number:
        raise UsageError(f"'{_shown(word)}': a number of {len(number[0])} digits is too long")


def _check_nesting(word: str) -> None:
    """Bound what Hydra's parser is given: it recurses, and takes long over long lists."""
    problem = ""
    if len(word) > _LONGEST_WORD:
        problem = f"{len(word):,} characters are too many"
    depth = deepest = commas = 0
    for character in _QUOTED.sub("", word):
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth > 0:
            commas += 1
    if deepest > _MAX_NESTED:
        problem = f"nested {deepest} deep; at most {_MAX_NESTED} are read"
    elif commas > _MAX_IN_LISTS and not _CHOICE.search(word):
        problem = f"a list of {commas:,} values; at most {_MAX_IN_LISTS:,} are read"
    if problem:
        raise UsageError(f"'{_shown(word)}': {problem}", hint="Put it into a file below configs/.")


def _shown(word: str) -> str:
    return word if len(word) <= _SHOWN else f"{word[: _SHOWN - 3]}..."


def _path(word: str, *, multirun: bool) -> Override | None:
    """A path, URL or expression, which may hold whatever Hydra's grammar gives a meaning to."""
    key, equals, text = word.partition("=")
    name = key.lstrip("+")
    expression = EXPRESSION_KEYS.fullmatch(name) and not text.startswith("[")
    if not equals or not (expression or PATH_KEYS.fullmatch(name)):
        return None
    kinds: dict[str, Kind] = {"": "change", "+": "add", "++": "force"}
    if key.removesuffix(name) not in kinds:
        return None
    value: str | None = text
    if text == "null":
        value = None
    elif _SWEPT_PATHS.fullmatch(name) and _means_several(text, multirun=multirun):
        return None
    elif len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        value = _unquoted(text)
    return Override(word, kinds[key.removesuffix(name)], name, (value,), group=False)


def _means_several(text: str, *, multirun: bool) -> bool:
    """Whether a path is a choice among several: by its commas, unless all of it is in quotes."""
    commas = multirun and "," in text and not _QUOTED.fullmatch(text)
    return commas or bool(_CHOICE.fullmatch(text))


def _unquoted(text: str) -> str:
    """What is in the quotes, as Hydra reads it: a backslash is special in front of a quote only."""
    quote = text[0]
    return re.sub(rf"(\\+)({quote}|$)", lambda m: m[1][: len(m[1]) // 2] + m[2], text[1:-1])


def _plain(word: str, groups: Groups, *, multirun: bool) -> Override | None:
    """A word so plain that Hydra's parser, which takes a while to import, is not needed."""
    match = _PLAIN.fullmatch(word)
    if not match:
        return None
    key, text = match.groups()
    parts = text.split(",")
    if len(parts) > 1 and not multirun:
        return None
    values: list[Any] = []
    for part in parts:
        if part in _CONSTANTS:
            values.append(_CONSTANTS[part])
        elif _INTEGER.fullmatch(part):
            values.append(int(part))
        elif _FLOAT.fullmatch(part):
            values.append(float(part))
        elif _WORD.fullmatch(part) and part.lower() not in (*_CONSTANTS, "inf", "nan"):
            values.append(part)
        else:
            return None
    kind: Kind = "force" if _is_open(key) else "change"
    return Override(word, kind, key, tuple(values), groups.exists(key), len(values) > 1)


def _parse(word: str, groups: Groups, *, multirun: bool) -> Override:
    from hydra import version
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    version.setbase("1.3")
    _check_nesting(word)
    try:
        parsed = OverridesParser.create().parse_overrides([word])[0]
    except HydraException as error:
        if "=" not in word:
            problem = f"'{_shown(word)}' is not key=value"
            raise UsageError(problem, hint=_meant(word, groups)) from None
        said = str(error).splitlines()[0][: 2 * _SHOWN]
        reason = "" if "mismatched input" in said else f": {said}"
        problem = f"'{_shown(word)}' cannot be read{reason}"
        raise UsageError(problem, hint=_how_to_write(word)) from None
    except (ArithmeticError, ValueError, RecursionError) as error:
        problem = f"'{_shown(word)}' cannot be read: {error}"
        raise UsageError(problem, hint=_how_to_write(word)) from None
    kind: Kind = "change"
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
        values=_values(parsed, word, groups, multirun=multirun),
        group=groups.exists(parsed.key_or_group),
        swept=parsed.is_sweep_override(),
        package=parsed.package,
    )


def _how_to_write(word: str) -> str:
    key = word.partition("=")[0].lstrip("+")
    if _SWEPT_PATHS.fullmatch(key):
        return (
            f"Several paths: {key}=choice('a 1.yaml',b.yaml), or sweep.axes.{key}=[...]. "
            f"One path that has a comma: {key}='a,1.yaml'."
        )
    return "Write key=value; quote values that hold any of , ( ) [ ] { } < > : = \\ ' \"."


def _meant(word: str, groups: Groups) -> str:
    for group in ("workload", "target", "toolchain", "arch", "measure"):
        if word in groups.options(group):
            return f"Did you mean {group}={word}?"
    return "For instance: workload=softmax workload.sizes.N=1000."


def _is_open(key: str) -> bool:
    return key.startswith(OPEN_KEYS)


def _values(parsed: HydraOverride, word: str, groups: Groups, *, multirun: bool) -> Sequence[Any]:
    from hydra.core.override_parser.types import Glob

    if parsed.is_delete():
        return () if parsed.value() is None else (parsed.value(),)
    if not parsed.is_sweep_override():
        return (parsed.value(),)
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
    if getattr(parsed._value, "tags", None):
        raise UsageError(
            f"'{word}': tags mean nothing to a grid",
            hint="Leave tag() away; sweep.points gives points names.",
        )
    try:
        values = _enumerated(parsed, word, groups)
    except (ArithmeticError, ValueError, TypeError) as error:
        # Ends of a range that are no numbers, or larger than any.
        reason = str(error) if isinstance(error, OverflowError) else "it has no such values"
        raise UsageError(f"'{_shown(word)}' cannot be enumerated: {reason}") from None
    if not values:
        problem = "matches nothing" if isinstance(parsed._value, Glob) else "is an empty range"
        raise UsageError(f"'{word}' {problem}, so there is nothing to sweep over")
    return values


def _enumerated(parsed: HydraOverride, word: str, groups: Groups) -> Sequence[Any]:
    """The values of a sweep; a long range of whole numbers stays one."""
    from hydra.core.override_parser.types import Glob, RangeSweep
    from hydra.core.override_parser.types import Override as HydraOverride

    key, sweep = parsed.key_or_group, parsed._value
    if isinstance(sweep, Glob):
        if not groups.exists(key):
            raise UsageError(
                f"'{word}': glob() chooses among the options of a config group, "
                f"and '{key}' is none",
                hint="Use choice(...) or range(start,stop,step).",
            )
        return tuple(sweep.filter(groups.options(key)))
    if isinstance(sweep, RangeSweep):
        start, stop, step = sweep.start or 0, sweep.stop or 0, sweep.step
        whole = all(isinstance(number, int) for number in (start, stop, step))
        if not step or (stop - start) / step > (MAX_VALUES if whole else _MAX_LISTED):
            problem = "has more values than can be swept" if step else "never ends: its step is 0"
            raise UsageError(f"'{word}' {problem}", hint="Write range(start,stop,step).")
        if whole and not sweep.shuffle:
            return range(int(start), int(stop), int(step))
    return tuple(HydraOverride._convert_value(value) for value in parsed.sweep_iterator())
