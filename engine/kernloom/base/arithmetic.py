"""Operators and functions of expressions, for numbers and arrays, with bounded results.

The grammar is in `expressions`; the bounds here keep a short text from producing a huge result.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

from kernloom.base.array_functions import (
    ARRAY_FUNCTIONS,
    check_elements,
    is_array,
    number,
    numbers,
    product,
)
from kernloom.base.errors import ExpressionError

MAX_BITS = 256
"""Longest integer that an operation may produce."""
MAX_GROUP = 1024
"""Largest group of tiles that `grouped` considers."""
_PLAIN = (int, float)
"""Operand types that need no conversion or broadcast check."""


def _arithmetic(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`operation` restricted to numbers and arrays, with a bounded result."""

    def call(a: Any, b: Any) -> Any:
        if type(a) not in _PLAIN or type(b) not in _PLAIN:
            a, b = number(a), number(b)
            check_broadcast(a, b)
        return _bounded(operation(a, b))

    return call


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ExpressionError(f"a number of {value.bit_length()} bits is too large")
    if isinstance(value, complex):
        raise ExpressionError("the root of a negative number is not a number here")
    return value


def check_broadcast(*values: Any) -> None:
    """Refuse operands whose broadcast result would be much larger than they are."""
    arrays = [value for value in values if is_array(value)]
    if len({array.shape for array in arrays}) > 1:
        import numpy

        shape = numpy.broadcast_shapes(*(array.shape for array in arrays))
        check_elements(math.prod(shape), arrays)


def _power(base: Any, exponent: Any) -> Any:
    if is_array(base) or is_array(exponent):
        return _array_power(base, exponent)
    if isinstance(base, int) and isinstance(exponent, int):
        if exponent < 0:
            return float(base) ** exponent
        if base.bit_length() * exponent > MAX_BITS:
            raise ExpressionError(f"{base}**{exponent} is too large")
    return base**exponent


def _array_power(base: Any, exponent: Any) -> Any:
    """Integers stay integers unless that would overflow or the exponent is negative."""
    import numpy

    rounded = numpy.asarray(base, dtype=float) ** exponent
    whole = all(numpy.asarray(value).dtype.kind in "iu" for value in (base, exponent))
    if whole and numpy.all(numpy.asarray(exponent) >= 0) and numpy.all(abs(rounded) < 2.0**62):
        return base**exponent
    return rounded


def _dividing(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Integer arrays divided by zero give NaN there: numpy's 0 would satisfy `N % 0 == 0`, and its
    infinity `N / 0 > 1`."""

    def call(a: Any, b: Any) -> Any:
        whole = all(_kind(value) in "iu" for value in (a, b))
        if not whole or not (is_array(a) or is_array(b)):
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


def _numpy_or_math(name: str) -> Callable[..., Any]:
    scalar = getattr(math, name)

    def call(value: Any) -> Any:
        if hasattr(value, "__array__"):
            import numpy

            return getattr(numpy, name)(value)
        return scalar(value)

    return call


def _extreme(name: str) -> Callable[..., Any]:
    """min and max over the arguments, element by element if one is an array."""
    plain = {"minimum": min, "maximum": max}[name]

    def call(*values: Any) -> Any:
        if not any(hasattr(value, "__array__") for value in values):
            return plain(*values)
        import numpy

        check_broadcast(*values)
        result = values[0]
        for value in values[1:]:
            result = getattr(numpy, name)(result, value)
        return result

    return call


def _reduction(name: str) -> Callable[..., Any]:
    # Keyword-only: numpy would take a further positional argument as an output array.
    def call(value: Any, *, axis: Any = None, keepdims: Any = False) -> Any:
        import numpy

        return getattr(numpy, name)(numbers(value), axis=axis, keepdims=bool(keepdims))

    return call


def where(condition: Any, yes: Any, no: Any) -> Any:
    if not any(hasattr(value, "__array__") for value in (condition, yes, no)):
        return yes if condition else no
    import numpy

    check_broadcast(condition, yes, no)
    return numpy.where(condition, yes, no)


def _reshape(value: Any, shape: Any) -> Any:
    return numbers(value).reshape(shape)


def _transpose(value: Any, axes: Any = None) -> Any:
    return numbers(value).transpose(axes)


def _ceil_div(a: Any, b: Any) -> Any:
    return -BINARY[ast.FloorDiv](-number(a), b)


def _round_up(a: Any, b: Any) -> Any:
    return BINARY[ast.Mult](_ceil_div(a, b), b)


def _overlapped(a: Any, b: Any, parts: Any) -> Any:
    """The time of two kinds of work, each in equal parts, of which one can run ahead of the other
    by a part."""
    longer, shorter = _extreme("maximum")(a, b), _extreme("minimum")(a, b)
    return BINARY[ast.Add](longer, BINARY[ast.Div](shorter, parts))


def _grouped(group: Any, *counts: Any) -> Any:
    """Tiles of a task: at most `group` that follow each other and form a box in a grid with these
    numbers of tiles, slowest first."""
    result, left = 1, group
    for count in reversed(counts):
        part = _largest_divisor(count, left)
        result = BINARY[ast.Mult](result, part)
        # Only whole rows can be joined with those beside them.
        left = where(part == count, BINARY[ast.FloorDiv](left, count), 1)
    return result


def _largest_divisor(count: Any, limit: Any) -> Any:
    most = limit.max() if hasattr(limit, "__array__") else limit
    largest: Any = 1
    for divisor in range(2, int(min(number(most), MAX_GROUP)) + 1):
        divides = BINARY[ast.BitAnd](BINARY[ast.Mod](count, divisor) == 0, number(limit) >= divisor)
        largest = where(divides, divisor, largest)
    return largest


def _distributed(
    time: Any, tasks: Any, pes: Any, overhead: Any, handling: Any, submitting: Any
) -> Any:
    """The time of work in equal tasks, which several PEs execute in rounds. Each task takes some
    time of its PE, `overhead`, and of the scheduler, `handling`; all of them are submitted first.
    """
    add, multiply, least = BINARY[ast.Add], BINARY[ast.Mult], _extreme("minimum")
    scheduling = multiply(least(tasks, pes), handling)
    each = add(BINARY[ast.Div](time, tasks), overhead)
    rounds = multiply(_extreme("maximum")(each, scheduling), _ceil_div(tasks, pes))
    return add(add(rounds, scheduling), submitting)


def _spread(bandwidth: Any, memories: Any, stripe: Any, *tensors: Any) -> Any:
    """The bandwidth of several memories together. `tensors`: elements that are copied of each
    tensor, elements that it has, and those that a tile spans. A tensor of few stripes is in few
    memories; a tile that spans a part of a stripe uses some of the channels of a memory, and tasks
    that begin together use the same ones. Tensors are copied one after the other."""
    add, divide = BINARY[ast.Add], BINARY[ast.Div]
    total: Any = 0
    time: Any = 0
    least = _extreme("minimum")
    for copied, elements, span in zip(tensors[::3], tensors[1::3], tensors[2::3], strict=True):
        own = least(memories, _ceil_div(elements, stripe))
        own = BINARY[ast.Mult](own, least(1, divide(span, stripe)))
        total = add(total, copied)
        time = add(time, divide(copied, own))
    return BINARY[ast.Mult](bandwidth, divide(total, time))


def _shared(alone: Any, tasks: Any, pes: Any, memory: Any, cube_pes: Any, network: Any) -> Any:
    """The bandwidth that each of several tasks gets: at most that of a PE alone, and a share of
    all memories and of its cube's link to the network."""
    least, divide = _extreme("minimum"), BINARY[ast.Div]
    shares = divide(memory, least(tasks, pes)), divide(network, least(tasks, cube_pes))
    return least(alone, *shares)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": _extreme("minimum"),
    "max": _extreme("maximum"),
    "minimum": _extreme("minimum"),
    "maximum": _extreme("maximum"),
    "abs": lambda value: abs(number(value)),
    "ceil_div": _ceil_div,
    "round_up": _round_up,
    "overlapped": _overlapped,
    "grouped": _grouped,
    "distributed": _distributed,
    "spread": _spread,
    "shared": _shared,
    "where": where,
    "transpose": _transpose,
    "reshape": _reshape,
    **{n: _numpy_or_math(n) for n in ("sqrt", "exp", "log", "log2", "tanh", "floor", "ceil")},
    **{n: _reduction(n) for n in ("sum", "mean", "var", "std", "amax", "amin")},
    **ARRAY_FUNCTIONS,
}
BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: _arithmetic(operator.add),
    ast.Sub: _arithmetic(operator.sub),
    ast.Mult: _arithmetic(operator.mul),
    ast.Div: _arithmetic(_dividing(operator.truediv)),
    ast.FloorDiv: _arithmetic(_dividing(operator.floordiv)),
    ast.Mod: _arithmetic(_dividing(operator.mod)),
    ast.Pow: _arithmetic(_power),
    ast.MatMult: product,
    ast.BitAnd: _arithmetic(operator.and_),
    ast.BitOr: _arithmetic(operator.or_),
}
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
