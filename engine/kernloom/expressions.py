"""One small, safe expression language for shapes, constraints, cost formulas and goldens.

Python's grammar, but only the nodes and functions listed here: no attributes (except `.T`), no
calls by value, no comprehension, no import, no eval. The same expression works on plain numbers
and, vectorised, on numpy arrays, so a constraint can be asked of a whole tuning space at once:
element by element it gives what it would give for the numbers alone. What would take more memory or
time than its text suggests (huge powers, repeated text, arrays that blow each other up) is refused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kernloom.arithmetic import (
    BINARY,
    COMPARE,
    FUNCTIONS,
    MAX_BITS,
    check_broadcast,
    is_array,
    number,
    shown,
    where,
)
from kernloom.errors import ConfigError, ExpressionError, nearest

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

    def __call__(self, variables: Mapping[str, Any]) -> Any:
        try:
            with _quietly(variables.values()):
                return _plain(_Evaluator(variables).visit(self.tree))
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
            raise ExpressionError(f"'{self.text}' cannot be evaluated: {reason}") from None


def _quietly(values: Iterable[Any]) -> AbstractContextManager[Any]:
    """What numpy would warn about is in the result, as inf or NaN."""
    if not any(hasattr(value, "__array__") for value in values):
        return nullcontext()
    import numpy

    return numpy.errstate(all="ignore")


def _plain(value: Any) -> Any:
    """A single number of numpy's as Python's own."""
    return value.item() if hasattr(value, "__array__") and value.ndim == 0 else value


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """Read an expression; anything outside the language is refused by name."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"an expression of {len(text)} characters is too long")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = getattr(error, "msg", str(error))
        raise ExpressionError(f"'{text}' is not an expression: {reason}") from None
    names: set[str] = set()
    _check(tree, names, 0)
    return Expression(text, tree, frozenset(names))


def evaluate(text: str | int | float | bool, variables: Mapping[str, Any], *, key: str = "") -> Any:
    """The value of `text`, which stands at `key`; numbers stand for themselves."""
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
    """Refuse what is not in the language and collect the variables' names."""
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


class _Evaluator:
    """Walks a checked tree."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self.variables = variables

    def visit(self, node: ast.AST | None) -> Any:
        match node:
            case None:
                return None
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                try:
                    return self.variables[name]
                except KeyError:
                    raise ExpressionError(
                        f"unknown name '{name}'. {nearest(name, self.variables)}"
                    ) from None
            case ast.BinOp(left=left, op=op, right=right):
                return BINARY[type(op)](self.visit(left), self.visit(right))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                value = self.visit(operand)
                return ~value.astype(bool) if is_array(value) else not value
            case ast.UnaryOp(op=op, operand=operand):
                value = number(self.visit(operand))
                return -value if isinstance(op, ast.USub) else value
            case ast.BoolOp(op=op, values=values):
                return self._boolean(isinstance(op, ast.And), values)
            case ast.Compare(left=left, ops=ops, comparators=rest):
                return self._comparison(left, ops, rest)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                chosen = self.visit(test)
                if is_array(chosen):
                    return where(chosen, self.visit(body), self.visit(orelse))
                return self.visit(body) if chosen else self.visit(orelse)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                positional = [self.visit(arg) for arg in args]
                named = {str(k.arg): self.visit(k.value) for k in keywords}
                return FUNCTIONS[name](*positional, **named)
            case ast.Tuple(elts=elts):
                return tuple(self.visit(element) for element in elts)
            case ast.List(elts=elts):
                return [self.visit(element) for element in elts]
            case ast.Attribute(value=value):
                return self.visit(value).T
            case ast.Subscript(value=value, slice=index):
                return self.visit(value)[_index(self.visit(index))]
            case ast.Slice(lower=lower, upper=upper, step=step):
                return slice(self.visit(lower), self.visit(upper), self.visit(step))
        raise ExpressionError(f"'{type(node).__name__}' is not allowed")

    def _boolean(self, conjunction: bool, values: list[ast.expr]) -> Any:
        result: Any = conjunction
        for child in values:
            value = self.visit(child)
            if is_array(value) or is_array(result):
                import numpy

                check_broadcast(result, value)
                both = numpy.logical_and if conjunction else numpy.logical_or
                result = both(result, value)
            elif bool(value) != conjunction:
                # Scalars short-circuit, so `N > 0 and M % N == 0` is safe.
                return not conjunction
        return result

    def _comparison(self, left: ast.expr, ops: list[ast.cmpop], rest: list[ast.expr]) -> Any:
        result: Any = True
        before = self.visit(left)
        for op, node in zip(ops, rest, strict=True):
            after = self.visit(node)
            check_broadcast(before, after, result)
            this = COMPARE[type(op)](before, after)
            result = (result & this) if is_array(this) or is_array(result) else result and this
            before = after
        return result


def _index(index: Any) -> Any:
    """Numbers and slices only: an array of indices could repeat what it indexes at will."""
    for part in index if isinstance(index, tuple) else (index,):
        if not isinstance(part, (int, slice)):
            raise ExpressionError(f"{shown(part)} is not an index or a slice")
    return index
