"""Parser of override words in Hydra's grammar: one typed override per word."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernloom.base.errors import UsageError
from kernloom.config.groups import Groups
from kernloom.config.overrides import CONSTANTS, WORD, Kind, Override, Overrides, is_open, spelled

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override as HydraOverride

PATH_KEYS = re.compile(
    r"(recipe|trace|deps|replay|select\.file|store\.path|store\.url|build\.cache"
    r"|workload\.tensors\.\w+\.fill\.path)"
)
"""Keys whose value is a path, a URL or the name of a task: taken literally, with any characters."""
_SWEPT_PATHS = re.compile(r"select\.file|workload\.tensors\.\w+\.fill\.path")
"""Paths that can be swept, so that commas separate values."""
_QUOTED = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_CHOICE = re.compile(r"choice\(.*\)", re.DOTALL)
EXPRESSION_KEYS = re.compile(r"sweep\.where|search\.objective")
"""Keys whose value is an expression: taken literally, unless it is a list."""

HYDRA = ("hydra/", "hydra.")
"""Prefixes of the keys of Hydra's own settings."""
_SIGNS: dict[str, Kind] = {"": "change", "+": "add", "++": "force", "~": "delete"}
_LONGEST_WORD = 1 << 16
_LONGEST_KEY = 1000
_LONGEST_NUMBER = 1000
_MAX_NESTED = 50
_MAX_IN_LISTS = 4000
"""Limit of values inside brackets: the time of Hydra's parser grows with their square."""
_SHOWN = 200
_PLAIN = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)=([\w.,-]+)", re.ASCII)
_INTEGER = re.compile(r"-?(?:0|[1-9]\d*)", re.ASCII)
_FLOAT = re.compile(r"-?(?:0|[1-9]\d*)\.\d+", re.ASCII)
_DIGITS = re.compile(rf"\d{{{_LONGEST_NUMBER},}}", re.ASCII)
MAX_VALUES = 10**12
"""Limit of values per key; more is a mistake."""
_MAX_LISTED = 1_000_000
"""Limit of values held in memory; integer ranges are not expanded."""


def parse_overrides(
    words: Sequence[str], groups: Groups, *, multirun: bool, to_hydra: bool = False
) -> Overrides:
    """The overrides of a command line. With `to_hydra`, a word that sets something of Hydra's own
    is left to Hydra: its sweep values are not enumerated and none is refused."""
    if to_hydra and any(word.lstrip("+~").startswith(HYDRA) for word in words):
        handed_over = tuple(parse_for_hydra(word, groups) for word in words)
        return Overrides(handed_over, multirun, for_hydra=True)
    for word in words:
        _check_length(word)
        if word.lstrip("+~").startswith(HYDRA):
            raise UsageError(
                f"'{_shown(word)}' is a setting of Hydra's own, and nothing here is launched by "
                "Hydra",
                hint="For its launchers and sweepers: kernloom run -m hydra/launcher=...",
            )
    return Overrides(tuple(parse_override(w, groups, multirun=multirun) for w in words), multirun)


def parse_override(word: str, groups: Groups, *, multirun: bool) -> Override:
    """Parse one word with the fastest parser that can read it."""
    return (
        _path(word, multirun=multirun)
        or _plain(word, groups, multirun=multirun)
        or _parse(word, groups, multirun=multirun)
    )


def parse_for_hydra(word: str, groups: Groups) -> Override:
    """One word of a command that Hydra executes. `swept` marks an axis of Hydra's search; its
    values, and words that cannot be parsed, are left to Hydra."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import ChoiceSweep
    from hydra.errors import HydraException

    literal = _path(word, multirun=True)
    if literal:
        # Hydra's grammar would not take the value as it is.
        sign = word[: len(word) - len(word.lstrip("+"))]
        return replace(literal, text=f"{sign}{literal.key}={spelled(literal.values[0])}")
    typed = word.partition("=")[0]
    key, _, package = typed.lstrip("+~").partition("@")
    kind = _SIGNS.get(typed[: len(typed) - len(typed.lstrip("+~"))], "force")
    values: tuple[Any, ...] = ()
    swept = False
    try:
        parsed = OverridesParser.create().parse_override(word)
    except (HydraException, ArithmeticError, ValueError, RecursionError):
        pass  # Hydra reports the error itself.
    else:
        value = parsed.value()
        one = isinstance(value, ChoiceSweep) and len(value.list) == 1
        swept = parsed.is_sweep_override() and not one
        values = () if parsed.is_sweep_override() else (value,)
    return Override(word, kind, key, values, groups.exists(key), swept, package or None)


def is_literal(key: str) -> bool:
    """Whether the value of a key is taken as it is, with characters of Hydra's grammar."""
    return bool(PATH_KEYS.fullmatch(key) or EXPRESSION_KEYS.fullmatch(key))


def _check_length(word: str) -> None:
    """Refuse absurdly long words, before a parser recurses over them."""
    key, _, value = word.partition("=")
    if len(key) > _LONGEST_KEY:
        raise UsageError(f"'{_shown(word)}': a key of {len(key)} characters is too long")
    number = len(value) > _LONGEST_NUMBER and _DIGITS.search(value)
    if number:
        raise UsageError(f"'{_shown(word)}': a number of {len(number[0])} digits is too long")


def _check_nesting(word: str) -> None:
    """Limit nesting and list lengths: Hydra's parser recurses, and is slow on long lists."""
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
    """A path, URL or expression, which may contain characters of Hydra's grammar."""
    key, equals, text = word.partition("=")
    name = key.lstrip("+")
    expression = EXPRESSION_KEYS.fullmatch(name) and not text.startswith("[")
    if not equals or not (expression or PATH_KEYS.fullmatch(name)):
        return None
    kind = _SIGNS.get(key.removesuffix(name))
    if kind is None:
        return None
    value: str | None = text
    if text == "null":
        value = None
    elif _SWEPT_PATHS.fullmatch(name) and _means_several(text, multirun=multirun):
        return None
    elif len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        value = _unquoted(text)
    return Override(word, kind, name, (value,), group=False)


def _means_several(text: str, *, multirun: bool) -> bool:
    """Whether a path has several values: separated by commas and not quoted as a whole."""
    commas = multirun and "," in text and not _QUOTED.fullmatch(text)
    return commas or bool(_CHOICE.fullmatch(text))


def _unquoted(text: str) -> str:
    """The text inside quotes, by Hydra's rule: a backslash is special only before a quote."""
    quote = text[0]
    return re.sub(rf"(\\+)({quote}|$)", lambda m: m[1][: len(m[1]) // 2] + m[2], text[1:-1])


def _plain(word: str, groups: Groups, *, multirun: bool) -> Override | None:
    """A simple word, parsed without Hydra's parser, which is slow to import."""
    match = _PLAIN.fullmatch(word)
    if not match:
        return None
    key, text = match.groups()
    parts = text.split(",")
    if len(parts) > 1 and not multirun:
        return None
    values: list[Any] = []
    for part in parts:
        if part in CONSTANTS:
            values.append(CONSTANTS[part])
        elif _INTEGER.fullmatch(part):
            values.append(int(part))
        elif _FLOAT.fullmatch(part):
            values.append(float(part))
        elif WORD.fullmatch(part) and part.lower() not in (*CONSTANTS, "inf", "nan"):
            values.append(part)
        else:
            return None
    kind: Kind = "force" if is_open(key) else "change"
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
    elif parsed.is_force_add() or is_open(parsed.key_or_group):
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
        # The ends of the range are not numbers, or overflow.
        reason = str(error) if isinstance(error, OverflowError) else "it has no such values"
        raise UsageError(f"'{_shown(word)}' cannot be enumerated: {reason}") from None
    if not values:
        problem = "matches nothing" if isinstance(parsed._value, Glob) else "is an empty range"
        raise UsageError(f"'{word}' {problem}, so there is nothing to sweep over")
    return values


def _enumerated(parsed: HydraOverride, word: str, groups: Groups) -> Sequence[Any]:
    """The values of a sweep; a long range of integers stays a range."""
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
