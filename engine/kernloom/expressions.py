"""One small, safe expression language for shapes, constraints, cost formulas and goldens.

Python's grammar, but only the nodes and functions listed here: no attributes (except `.T`), no
calls by value, no comprehension, no import, no eval. The same expression works on plain numbers
and, vectorised, on numpy arrays, so a constraint can be asked of a whole tuning space at once:
element by element it gives what it would give for the numbers alone. What would take more memory or
time than its text suggests (huge powers, repeated text, arrays that blow each other up) is refused.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kernloom.errors import ConfigError, nearest

MAX_LENGTH = 2000
MAX_DEPTH = 200
MAX_BITS = 256
"""No whole number grows longer."""
MAX_ELEMENTS = 2**27
"""No array that is larger than those it is made from has more elements."""

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


class ExpressionError(ConfigError):
    """An expression that cannot be read or evaluated."""


def _is_array(value: Any) -> bool:
    return hasattr(value, "__array__") and getattr(value, "ndim", 0) > 0


def _number(value: Any) -> Any:
    """An operand of arithmetic: a number or an array of numbers, truth values as 0 and 1."""
    if hasattr(value, "__array__"):
        return value.astype(int) if value.dtype.kind == "b" else value
    if isinstance(value, (int, float)):
        return value
    raise ExpressionError(f"{_shown(value)} is not a number")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _arithmetic(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`operation` on numbers and arrays only, with a result of a size that can be borne."""

    def call(a: Any, b: Any) -> Any:
        a, b = _number(a), _number(b)
        _check_broadcast(a, b)
        return _bounded(operation(a, b))

    return call


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ExpressionError(f"a number of {value.bit_length()} bits is too large")
    if isinstance(value, complex):
        raise ExpressionError("the root of a negative number is not a number here")
    return value


def _check_broadcast(*values: Any) -> None:
    """Arrays that fill each other out must not make a much larger one."""
    arrays = [value for value in values if _is_array(value)]
    if len({array.shape for array in arrays}) > 1:
        import numpy

        shape = numpy.broadcast_shapes(*(array.shape for array in arrays))
        _check_elements(math.prod(shape), arrays)


def _check_elements(count: int, operands: Iterable[Any]) -> None:
    if count > max(MAX_ELEMENTS, *(operand.size for operand in operands)):
        raise ExpressionError(f"an array of {count} elements is too large")


def _power(base: Any, exponent: Any) -> Any:
    if _is_array(base) or _is_array(exponent):
        return _array_power(base, exponent)
    if isinstance(base, int) and isinstance(exponent, int):
        if exponent < 0:
            return float(base) ** exponent
        if base.bit_length() * exponent > MAX_BITS:
            raise ExpressionError(f"{base}**{exponent} is too large")
    return base**exponent


def _array_power(base: Any, exponent: Any) -> Any:
    """Whole numbers stay whole unless that would overflow or the exponent is negative."""
    import numpy

    rounded = numpy.asarray(base, dtype=float) ** exponent
    whole = all(numpy.asarray(value).dtype.kind in "iu" for value in (base, exponent))
    if whole and numpy.all(numpy.asarray(exponent) >= 0) and numpy.all(abs(rounded) < 2.0**62):
        return base**exponent
    return rounded


def _dividing(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Whole arrays divided by zero give NaN there: numpy's 0 would satisfy `N % 0 == 0`."""

    def call(a: Any, b: Any) -> Any:
        whole = all(_kind(value) in "iu" for value in (a, b))
        if not whole or not (_is_array(a) or _is_array(b)):
            return operation(a, b)
        import numpy

        zero = numpy.asarray(b) == 0
        if not zero.any():
            return operation(a, b)
        return numpy.where(zero, numpy.nan, operation(a, numpy.where(zero, 1, b)))

    return call


def _kind(value: Any) -> str:
    return (
        str(value.dtype.kind) if hasattr(value, "dtype") else "f" if type(value) is float else "i"
    )


def _product(a: Any, b: Any) -> Any:
    """`A @ B`."""
    if not _is_array(a) or not _is_array(b):
        raise ExpressionError("@ multiplies arrays only")
    a, b = _number(a), _number(b)
    rows = math.prod(a.shape[:-1])
    columns = math.prod(b.shape[:-2]) * b.shape[-1] if b.ndim > 1 else 1
    _check_elements(rows * columns, (a, b))
    return a @ b


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

        _check_broadcast(*values)
        result = values[0]
        for value in values[1:]:
            result = getattr(numpy, name)(result, value)
        return result

    return call


def _reduction(name: str) -> Callable[..., Any]:
    # Nothing further by position: numpy would take an array to write into.
    def call(value: Any, *, axis: Any = None, keepdims: Any = False) -> Any:
        import numpy

        return getattr(numpy, name)(_numbers(value), axis=axis, keepdims=bool(keepdims))

    return call


def _numbers(value: Any) -> Any:
    """An array, or a list of numbers as one."""
    if hasattr(value, "__array__"):
        return value
    import numpy

    return numpy.asarray([_number(item) for item in value])


def _where(condition: Any, yes: Any, no: Any) -> Any:
    if not any(hasattr(value, "__array__") for value in (condition, yes, no)):
        return yes if condition else no
    import numpy

    _check_broadcast(condition, yes, no)
    return numpy.where(condition, yes, no)


def _reshape(value: Any, shape: Any) -> Any:
    return _numbers(value).reshape(shape)


def _transpose(value: Any, axes: Any = None) -> Any:
    return _numbers(value).transpose(axes)


def _ceil_div(a: Any, b: Any) -> Any:
    return -_BINARY[ast.FloorDiv](-_number(a), b)


def _round_up(a: Any, b: Any) -> Any:
    return _BINARY[ast.Mult](_ceil_div(a, b), b)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": _extreme("minimum"),
    "max": _extreme("maximum"),
    "minimum": _extreme("minimum"),
    "maximum": _extreme("maximum"),
    "abs": lambda value: abs(_number(value)),
    "ceil_div": _ceil_div,
    "round_up": _round_up,
    "where": _where,
    "transpose": _transpose,
    "reshape": _reshape,
    **{n: _numpy_or_math(n) for n in ("sqrt", "exp", "log", "log2", "tanh", "floor", "ceil")},
    **{n: _reduction(n) for n in ("sum", "mean", "var", "std", "amax", "amin")},
}
_KEYWORDS = {"axis", "keepdims"}

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: _arithmetic(operator.add),
    ast.Sub: _arithmetic(operator.sub),
    ast.Mult: _arithmetic(operator.mul),
    ast.Div: _arithmetic(operator.truediv),
    ast.FloorDiv: _arithmetic(_dividing(operator.floordiv)),
    ast.Mod: _arithmetic(_dividing(operator.mod)),
    ast.Pow: _arithmetic(_power),
    ast.MatMult: _product,
    ast.BitAnd: _arithmetic(operator.and_),
    ast.BitOr: _arithmetic(operator.or_),
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
        case ast.Constant(value=int() as number) if number.bit_length() > MAX_BITS:
            raise ExpressionError("a number in the expression is too large")
        case ast.Constant(value=int() | float() | str()):
            return
        case ast.Name(id=name):
            names.add(name)
            return
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            if name not in _FUNCTIONS:
                raise ExpressionError(f"unknown function '{name}'", hint=nearest(name, _FUNCTIONS))
            for keyword in keywords:
                if keyword.arg not in _KEYWORDS:
                    raise ExpressionError(f"'{name}' takes no argument '{keyword.arg}'")
            children = [*args, *(keyword.value for keyword in keywords)]
        case ast.Attribute(value=value, attr="T"):
            children = [value]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            children = [left, right]
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
                return _BINARY[type(op)](self.visit(left), self.visit(right))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                value = self.visit(operand)
                return ~value.astype(bool) if _is_array(value) else not value
            case ast.UnaryOp(op=op, operand=operand):
                value = _number(self.visit(operand))
                return -value if isinstance(op, ast.USub) else value
            case ast.BoolOp(op=op, values=values):
                return self._boolean(isinstance(op, ast.And), values)
            case ast.Compare(left=left, ops=ops, comparators=rest):
                return self._comparison(left, ops, rest)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                chosen = self.visit(test)
                if _is_array(chosen):
                    return _where(chosen, self.visit(body), self.visit(orelse))
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
                return self.visit(value)[_index(self.visit(index))]
            case ast.Slice(lower=lower, upper=upper, step=step):
                return slice(self.visit(lower), self.visit(upper), self.visit(step))
        raise ExpressionError(f"'{type(node).__name__}' is not allowed")

    def _boolean(self, conjunction: bool, values: list[ast.expr]) -> Any:
        result: Any = conjunction
        for child in values:
            value = self.visit(child)
            if _is_array(value) or _is_array(result):
                import numpy

                _check_broadcast(result, value)
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
            _check_broadcast(before, after, result)
            this = _COMPARE[type(op)](before, after)
            result = (result & this) if _is_array(this) or _is_array(result) else result and this
            before = after
        return result


def _index(index: Any) -> Any:
    """Numbers and slices only: an array of indices could repeat what it indexes at will."""
    for part in index if isinstance(index, tuple) else (index,):
        if not isinstance(part, (int, slice)):
            raise ExpressionError(f"{_shown(part)} is not an index or a slice")
    return index
