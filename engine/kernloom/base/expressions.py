"""One small, safe expression language for shapes, constraints, cost formulas and goldens.

Python's grammar, but only the nodes and functions listed here: no attributes (except `.T`), no
calls by value, no comprehension, no import, no eval. The same expression works on plain numbers
and, vectorised, on numpy arrays, so a constraint can be evaluated on a whole tuning space at once,
with the same result for each element as for plain numbers. Expressions that would take far more
memory or time than their text suggests (huge powers, repeated text, huge broadcasts) are refused.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

from kernloom.base.arithmetic import (
    BINARY,
    COMPARE,
    FUNCTIONS,
    MAX_BITS,
    check_broadcast,
    where,
)
from kernloom.base.array_functions import is_array, number, shown
from kernloom.base.errors import ConfigError, ExpressionError, nearest

MAX_LENGTH = 2000
MAX_DEPTH = 200

_KEYWORDS = {"axis", "keepdims"}
_UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", re.ASCII)
_LONGEST_SIZE = 60
Value: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""A compiled expression: variables -> value."""


def parse_size(value: Any, *, key: str = "") -> int:
    """Bytes from `65536`, `64KiB`, `1.5 MiB` or `2GB`."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    text = str(value)
    match = _SIZE.fullmatch(text) if len(text) <= _LONGEST_SIZE else None
    unit = match.group(2).lower() if match else ""
    if not match or (unit and unit not in _UNITS):
        raise ConfigError(
            f"'{text[:60]}' is not a size",
            key=key,
            hint="Write bytes as 4096, 64KiB, 1.5MiB or 2GB.",
        )
    digits, factor = match.group(1), _UNITS.get(unit, 1)
    return int(float(digits) * factor) if "." in digits else int(digits) * factor


def format_size(count: float) -> str:
    """Bytes for people: `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if count < 1024 or unit == "PiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


@dataclass(frozen=True)
class Expression:
    """A parsed, checked expression; evaluate it as often as needed."""

    text: str
    tree: ast.expr
    names: frozenset[str]

    @cached_property
    def _value(self) -> Value:
        return _compiled(self.tree)

    def __call__(self, variables: Mapping[str, Any]) -> Any:
        try:
            for name in self.names:
                if hasattr(variables.get(name), "__array__"):
                    with _quietly():
                        return _plain(self._value(variables))
            return _plain(self._value(variables))
        except ExpressionError as error:
            raise ExpressionError(f"in '{self.text}': {error.message}") from None
        except (
            ArithmeticError,
            AttributeError,
            IndexError,
            MemoryError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            reason = str(error) or type(error).__name__
            if isinstance(error, OverflowError):
                reason = "a number is too large"
            raise ExpressionError(f"'{self.text}' cannot be evaluated: {reason}") from None


def _quietly() -> AbstractContextManager[Any]:
    """Suppress numpy's warnings: the result itself shows them, as inf or NaN."""
    import numpy

    return numpy.errstate(all="ignore")


def _plain(value: Any) -> Any:
    """A numpy scalar as a Python number."""
    return value.item() if hasattr(value, "__array__") and value.ndim == 0 else value


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """Parse an expression; anything outside the language is refused by name."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"an expression of {len(text)} characters is too long")
    try:
        with warnings.catch_warnings():
            # Python's style warnings, such as for `1if x`, do not apply to this language.
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = getattr(error, "msg", str(error))
        raise ExpressionError(f"'{text}' is not an expression: {reason}") from None
    names: set[str] = set()
    _check(tree, names, 0)
    return Expression(text, tree, frozenset(names))


def evaluate(text: str | int | float | bool, variables: Mapping[str, Any], *, key: str = "") -> Any:
    """The value of `text`, found at `key` of the config; numbers evaluate to themselves."""
    if not isinstance(text, str):
        return text
    try:
        return parse(text)(variables)
    except ExpressionError as error:
        if not key:
            raise
        raise ExpressionError(error.message, key=key, hint=error.hint) from None


def names_in(texts: Iterable[str | int | float]) -> set[str]:
    return {name for text in texts if isinstance(text, str) for name in parse(text).names}


def _check(node: ast.AST, names: set[str], depth: int) -> None:
    """Refuse nodes that are not in the language, and collect the names of variables."""
    if depth > MAX_DEPTH:
        raise ExpressionError("the expression is nested too deeply")
    children: list[ast.AST] = []
    match node:
        case ast.Constant(value=bool()):
            return
        case ast.Constant(value=int() as literal) if literal.bit_length() > MAX_BITS:
            raise ExpressionError("a number in the expression is too large")
        case ast.Constant(value=int() | float() | str()):
            return
        case ast.Name(id=name):
            names.add(name)
            return
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            if name not in FUNCTIONS:
                raise ExpressionError(f"unknown function '{name}'", hint=nearest(name, FUNCTIONS))
            for keyword in keywords:
                if keyword.arg not in _KEYWORDS:
                    raise ExpressionError(f"'{name}' takes no argument '{keyword.arg}'")
            children = [*args, *(keyword.value for keyword in keywords)]
        case ast.Attribute(value=value, attr="T"):
            children = [value]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
            children = [left, right]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not(), operand=operand):
            children = [operand]
        case ast.BoolOp(values=values):
            children = list(values)
        case ast.Compare(left=left, ops=ops, comparators=rest):
            if any(type(op) not in COMPARE for op in ops):
                raise ExpressionError("only == != < <= > >= compare values")
            children = [left, *rest]
        case ast.IfExp(test=test, body=body, orelse=orelse):
            children = [test, body, orelse]
        case ast.Tuple(elts=elts) | ast.List(elts=elts):
            children = list(elts)
        case ast.Subscript(value=value, slice=index):
            children = [value, index]
        case ast.Slice(lower=lower, upper=upper, step=step):
            children = [part for part in (lower, upper, step) if part is not None]
        case _:
            text = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
            raise ExpressionError(f"'{text}' is not allowed in an expression")
    for child in children:
        _check(child, names, depth + 1)


def _compiled(node: ast.AST | None) -> Value:
    """A checked syntax tree as a function of the variables."""
    match node:
        case None:
            return lambda variables: None
        case ast.Constant(value=value):
            return lambda variables: value
        case ast.Name(id=name):
            return _named(name)
        case ast.BinOp(left=left, op=op, right=right):
            operation, a, b = BINARY[type(op)], _compiled(left), _compiled(right)
            return lambda variables: operation(a(variables), b(variables))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _negation(_compiled(operand))
        case ast.UnaryOp(op=op, operand=operand):
            inner = _compiled(operand)
            if isinstance(op, ast.USub):
                return lambda variables: -number(inner(variables))
            return lambda variables: number(inner(variables))
        case ast.BoolOp(op=op, values=values):
            return _boolean(isinstance(op, ast.And), [_compiled(child) for child in values])
        case ast.Compare(left=left, ops=ops, comparators=rest):
            return _comparison(
                _compiled(left),
                [
                    (COMPARE[type(op)], _compiled(child))
                    for op, child in zip(ops, rest, strict=True)
                ],
            )
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _choice(_compiled(test), _compiled(body), _compiled(orelse))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            positional = [_compiled(arg) for arg in args]
            named = {str(keyword.arg): _compiled(keyword.value) for keyword in keywords}
            return lambda variables: FUNCTIONS[name](
                *[arg(variables) for arg in positional],
                **{key: arg(variables) for key, arg in named.items()},
            )
        case ast.Tuple(elts=elts):
            elements = [_compiled(element) for element in elts]
            return lambda variables: tuple([element(variables) for element in elements])
        case ast.List(elts=elts):
            elements = [_compiled(element) for element in elts]
            return lambda variables: [element(variables) for element in elements]
        case ast.Attribute(value=inside):
            whole = _compiled(inside)
            return lambda variables: whole(variables).T
        case ast.Subscript(value=inside, slice=index):
            whole, place = _compiled(inside), _compiled(index)
            return lambda variables: whole(variables)[_index(place(variables))]
        case ast.Slice(lower=lower, upper=upper, step=step):
            ends = [_compiled(part) for part in (lower, upper, step)]
            return lambda variables: slice(*[end(variables) for end in ends])
    raise ExpressionError(f"'{type(node).__name__}' is not allowed")


def _named(name: str) -> Value:
    def value(variables: Mapping[str, Any]) -> Any:
        try:
            return variables[name]
        except KeyError:
            raise ExpressionError(f"unknown name '{name}'. {nearest(name, variables)}") from None

    return value


def _negation(operand: Value) -> Value:
    def value(variables: Mapping[str, Any]) -> Any:
        truth = operand(variables)
        return ~truth.astype(bool) if is_array(truth) else not truth

    return value


def _choice(test: Value, body: Value, orelse: Value) -> Value:
    def value(variables: Mapping[str, Any]) -> Any:
        chosen = test(variables)
        if is_array(chosen):
            return where(chosen, body(variables), orelse(variables))
        return body(variables) if chosen else orelse(variables)

    return value


def _boolean(conjunction: bool, parts: Sequence[Value]) -> Value:
    def value(variables: Mapping[str, Any]) -> Any:
        result: Any = conjunction
        for part in parts:
            truth = part(variables)
            if is_array(truth) or is_array(result):
                import numpy

                check_broadcast(result, truth)
                both = numpy.logical_and if conjunction else numpy.logical_or
                result = both(result, truth)
            elif bool(truth) != conjunction:
                # Scalars short-circuit, so `N > 0 and M % N == 0` is safe.
                return not conjunction
        return result

    return value


def _comparison(left: Value, rest: Sequence[tuple[Callable[[Any, Any], Any], Value]]) -> Value:
    def value(variables: Mapping[str, Any]) -> Any:
        result: Any = True
        before = left(variables)
        for compare, right in rest:
            after = right(variables)
            check_broadcast(before, after, result)
            this = compare(before, after)
            result = (result & this) if is_array(this) or is_array(result) else result and this
            before = after
        return result

    return value


def _index(index: Any) -> Any:
    """Numbers and slices only: an array of indices could repeat the indexed array at will."""
    for part in index if isinstance(index, tuple) else (index,):
        if not isinstance(part, (int, slice)):
            raise ExpressionError(f"{shown(part)} is not an index or a slice")
    return index
