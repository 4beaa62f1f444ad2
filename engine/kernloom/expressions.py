"""One small, safe expression language for shapes, constraints, cost formulas and goldens.

Python's grammar, but only the nodes and functions listed here: no attributes (except `.T`), no
calls by value, no comprehension, no import, no eval. The same expression works on plain numbers and,
vectorised, on numpy arrays, so a constraint can be asked of a whole tuning space at once.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kernloom.errors import ConfigError, nearest

MAX_LENGTH = 2000
MAX_POWER_BITS = 256

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
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse_size(value: Any, *, key: str = "") -> int:
    """Bytes from `65536`, `64KiB`, `1.5 MiB` or `2GB`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(str(value))
    unit = match.group(2).lower() if match else ""
    if not match or (unit and unit not in _UNITS):
        raise ConfigError(
            f"'{value}' is not a size", key=key, hint="Write bytes as 4096, 64KiB, 1.5MiB or 2GB."
        )
    return int(float(match.group(1)) * _UNITS.get(unit, 1))


def format_size(count: float) -> str:
    """Bytes for people: `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if count < 1024 or unit == "PiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError


class ExpressionError(ConfigError):
    """An expression that cannot be read or evaluated."""


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__") and getattr(value, "ndim", 0) > 0


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int):
        if exponent < 0:
            return float(base) ** exponent
        if base.bit_length() * exponent > MAX_POWER_BITS:
            raise ExpressionError(f"{base}**{exponent} is too large")
    return base**exponent


def _numpy_or_math(name: str) -> Callable[..., Any]:
    scalar = getattr(math, name)

    def call(value: Any) -> Any:
        if hasattr(value, "__array__"):
            import numpy

            return getattr(numpy, name)(value)
        return scalar(value)

    return call


def _extreme(name: str) -> Callable[..., Any]:
    """min and max over their arguments, element by element where one is an array."""
    plain = {"minimum": min, "maximum": max}[name]

    def call(*values: Any) -> Any:
        if not any(hasattr(value, "__array__") for value in values):
            return plain(*values)
        import numpy

        result = values[0]
        for value in values[1:]:
            result = getattr(numpy, name)(result, value)
        return result

    return call


def _numpy(name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        import numpy

        return getattr(numpy, name)(*args, **kwargs)

    return call


def _ceil_div(a: Any, b: Any) -> Any:
    return -(-a // b)


def _round_up(a: Any, b: Any) -> Any:
    return -(-a // b) * b


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": _extreme("minimum"),
    "max": _extreme("maximum"),
    "minimum": _extreme("minimum"),
    "maximum": _extreme("maximum"),
    "abs": abs,
    "ceil_div": _ceil_div,
    "round_up": _round_up,
    **{n: _numpy_or_math(n) for n in ("sqrt", "exp", "log", "log2", "tanh", "floor", "ceil")},
    **{
        n: _numpy(n)
        for n in ("sum", "mean", "var", "std", "amax", "amin", "where", "transpose", "reshape")
    },
}
_KEYWORDS = {"axis", "keepdims"}

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


@dataclass(frozen=True)
class Expression:
    """A parsed, checked expression; evaluate it as often as needed."""

    text: str
    tree: ast.expr
    names: frozenset[str]

    def __call__(self, variables: Mapping[str, Any]) -> Any:
        try:
            return _Evaluator(variables).visit(self.tree)
        except ExpressionError as error:
            raise ExpressionError(f"in '{self.text}': {error.message}") from None
        except (ArithmeticError, TypeError, ValueError, IndexError) as error:
            raise ExpressionError(f"'{self.text}' cannot be evaluated: {error}") from None


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
    try:
        _check(tree, names)
    except RecursionError:
        raise ExpressionError(f"'{text[:60]}...' is nested too deeply") from None
    return Expression(text, tree, frozenset(names))


def evaluate(text: str | int | float | bool, variables: Mapping[str, Any]) -> Any:
    """The value of `text`; numbers stand for themselves."""
    return parse(text)(variables) if isinstance(text, str) else text


def names_in(texts: Iterable[str | int | float]) -> set[str]:
    return {name for text in texts if isinstance(text, str) for name in parse(text).names}


def _check(node: ast.AST, names: set[str]) -> None:
    """Refuse what is not in the language and collect the variables' names."""
    match node:
        case ast.Constant(value=bool() | int() | float() | str()):
            return
        case ast.Name(id=name):
            names.add(name)
            return
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            if name not in _FUNCTIONS:
                raise ExpressionError(
                    f"unknown function '{name}'", hint=nearest(name, _FUNCTIONS)
                )
            for keyword in keywords:
                if keyword.arg not in _KEYWORDS:
                    raise ExpressionError(f"'{name}' takes no argument '{keyword.arg}'")
            for child in (*args, *(keyword.value for keyword in keywords)):
                _check(child, names)
            return
        case ast.Attribute(value=value, attr="T"):
            _check(value, names)
            return
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            children: list[ast.AST] = [left, right]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not(), operand=operand):
            children = [operand]
        case ast.BoolOp(values=values):
            children = list(values)
        case ast.Compare(left=left, ops=ops, comparators=rest):
            if any(type(op) not in _COMPARE for op in ops):
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
            shown = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
            raise ExpressionError(f"'{shown}' is not allowed in an expression")
    for child in children:
        _check(child, names)


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
                return _BINARY[type(op)](self.visit(left), self.visit(right))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                value = self.visit(operand)
                return ~value.astype(bool) if _is_array(value) else not value
            case ast.UnaryOp(op=op, operand=operand):
                value = self.visit(operand)
                return -value if isinstance(op, ast.USub) else value
            case ast.BoolOp(op=op, values=values):
                return self._boolean(isinstance(op, ast.And), values)
            case ast.Compare(left=left, ops=ops, comparators=rest):
                return self._comparison(left, ops, rest)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                chosen = self.visit(test)
                if _is_array(chosen):
                    import numpy

                    return numpy.where(chosen, self.visit(body), self.visit(orelse))
                return self.visit(body) if chosen else self.visit(orelse)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                positional = [self.visit(arg) for arg in args]
                named = {str(k.arg): self.visit(k.value) for k in keywords}
                return _FUNCTIONS[name](*positional, **named)
            case ast.Tuple(elts=elts):
                return tuple(self.visit(element) for element in elts)
            case ast.List(elts=elts):
                return [self.visit(element) for element in elts]
            case ast.Attribute(value=value):
                return self.visit(value).T
            case ast.Subscript(value=value, slice=index):
                return self.visit(value)[self.visit(index)]
            case ast.Slice(lower=lower, upper=upper, step=step):
                return slice(self.visit(lower), self.visit(upper), self.visit(step))
        raise ExpressionError(f"'{type(node).__name__}' is not allowed")

    def _boolean(self, conjunction: bool, values: list[ast.expr]) -> Any:
        result: Any = conjunction
        for child in values:
            value = self.visit(child)
            if _is_array(value) or _is_array(result):
                import numpy

                both = numpy.logical_and if conjunction else numpy.logical_or
                result = both(result, value)
            elif bool(value) != conjunction:
                # Scalars short-circuit, so `N > 0 and M % N == 0` is safe.
                return value
            else:
                result = value
        return result

    def _comparison(self, left: ast.expr, ops: list[ast.cmpop], rest: list[ast.expr]) -> Any:
        result: Any = True
        before = self.visit(left)
        for op, node in zip(ops, rest, strict=True):
            after = self.visit(node)
            this = _COMPARE[type(op)](before, after)
            result = (result & this) if _is_array(this) or _is_array(result) else result and this
            before = after
        return result
