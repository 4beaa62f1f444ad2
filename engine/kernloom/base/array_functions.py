"""Functions of expressions that work on whole arrays, with bounded memory and time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kernloom.base.errors import ExpressionError, nearest

MAX_ELEMENTS = 2**27
"""Largest array that an operation may produce, unless an operand is larger."""
MAX_STEPS = 2**33
"""Most multiplications of a convolution: about ten seconds."""
MAX_PRODUCT_STEPS = 2**38
"""Most multiplications of a product of matrices of floats by `@`, `dot` or `einsum`: numpy has a
library for those."""
MAX_DIMENSIONS = 8
"""Most dimensions of an operand of `pad` or `einsum`."""
CONVOLVE_MODES = ("full", "same", "valid")
PAD_MODES = ("edge", "reflect", "symmetric", "wrap")


def is_array(value: Any) -> bool:
    return hasattr(value, "__array__") and getattr(value, "ndim", 0) > 0


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def number(value: Any) -> Any:
    """An operand of arithmetic: a number or an array of numbers, truth values as 0 and 1."""
    if hasattr(value, "__array__"):
        return value.astype(int) if value.dtype.kind == "b" else value
    if isinstance(value, (int, float)):
        return value
    raise ExpressionError(f"{shown(value)} is not a number")


def numbers(value: Any) -> Any:
    """An array as it is, or a list of numbers converted to an array."""
    if hasattr(value, "__array__"):
        return value
    import numpy

    return numpy.asarray([number(item) for item in value])


def check_elements(count: int, operands: Iterable[Any]) -> None:
    if count > max(MAX_ELEMENTS, *(operand.size for operand in operands)):
        raise ExpressionError(f"an array of {count} elements is too large")


def _check_steps(count: int, function: str, most: int = MAX_STEPS) -> None:
    if count > most:
        raise ExpressionError(f"{function} would take {count} multiplications, which is too many")


def _most_products(operands: Iterable[Any]) -> int:
    """Of a product of these operands."""
    floats = all(operand.dtype.kind == "f" for operand in operands)
    return MAX_PRODUCT_STEPS if floats else MAX_STEPS


def _array(value: Any, function: str) -> Any:
    """A numeric array that is an argument of `function`."""
    found = number(numbers(value)) if not isinstance(value, (int, float)) else value
    if not is_array(found):
        raise ExpressionError(f"{function} takes arrays, not {shown(value)}")
    return found


def _whole(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ExpressionError(f"{what} must be a whole number, not {shown(value)}")
    return value


def _one_of(value: Any, allowed: Sequence[str], function: str) -> str:
    if value not in allowed:
        raise ExpressionError(
            f"{function} has no mode {shown(value)}", hint=nearest(str(value), allowed)
        )
    return str(value)


def product(a: Any, b: Any) -> Any:
    """`A @ B`."""
    if not is_array(a) or not is_array(b):
        raise ExpressionError("@ multiplies arrays only")
    a, b = number(a), number(b)
    import numpy

    # Matrices of equal places in two stacks are multiplied.
    stack = numpy.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows = a.shape[-2] if a.ndim > 1 else 1
    columns = b.shape[-1] if b.ndim > 1 else 1
    count = math.prod(stack) * rows * columns
    check_elements(count, (a, b))
    _check_steps(count * a.shape[-1], "@", _most_products((a, b)))
    return a @ b


def _dot(a: Any, b: Any) -> Any:
    """As numpy's: the last axis of `a` with the last but one of `b`."""
    a, b = _array(a, "dot"), _array(b, "dot")
    axis = -2 if b.ndim > 1 else -1
    count = (a.size // max(a.shape[-1], 1)) * (b.size // max(b.shape[axis], 1))
    check_elements(count, (a, b))
    _check_steps(count * a.shape[-1], "dot", _most_products((a, b)))
    import numpy

    return numpy.dot(a, b)


def _einsum(subscripts: Any, *operands: Any) -> Any:
    """As numpy's, with all operands' subscripts and without ellipsis."""
    if not isinstance(subscripts, str):
        raise ExpressionError("einsum begins with its subscripts: einsum('ij,jk->ik', A, B)")
    arrays = [_array(operand, "einsum") for operand in operands]
    inputs, arrow, output = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    letters = inputs.replace(",", "")
    if "." in subscripts or not arrow or not all(letter.isalpha() for letter in letters + output):
        raise ExpressionError(f"einsum cannot read '{subscripts}': write it as 'ij,jk->ik'")
    if len(terms) != len(arrays):
        raise ExpressionError(
            f"einsum has subscripts of {len(terms)} operands, and {len(arrays)} operands"
        )
    extents: dict[str, int] = {}
    for term, array in zip(terms, arrays, strict=True):
        if len(term) != array.ndim or array.ndim > MAX_DIMENSIONS:
            raise ExpressionError(
                f"einsum's '{term}' has {len(term)} subscripts, its operand {array.ndim} dimensions"
            )
        for letter, extent in zip(term, array.shape, strict=True):
            if extents.setdefault(letter, extent) != extent:
                raise ExpressionError(
                    f"einsum's '{letter}' is {extents[letter]} and {extent} at once"
                )
    for letter in output:
        if letter not in extents or output.count(letter) > 1:
            raise ExpressionError(f"einsum cannot give '{output}': '{letter}'")
    check_elements(math.prod(extents[letter] for letter in output), arrays)
    _check_steps(math.prod(extents.values()), "einsum", _most_products(arrays))
    import numpy

    # Pairs of operands that are products of matrices are computed as such.
    order = ("greedy", MAX_ELEMENTS)
    return numpy.einsum(f"{inputs}->{output}", *arrays, optimize=order)


def _convolve(a: Any, b: Any, mode: Any = "full") -> Any:
    """Of two vectors: `full`, `same` or `valid`."""
    a, b = _array(a, "convolve"), _array(b, "convolve")
    mode = _one_of(mode, CONVOLVE_MODES, "convolve")
    if a.ndim != 1 or b.ndim != 1:
        raise ExpressionError("convolve takes vectors")
    check_elements(a.size + b.size, (a, b))
    _check_steps(a.size * b.size, "convolve")
    import numpy

    return numpy.convolve(a, b, mode)


def _pad(value: Any, widths: Any, fill: Any = 0) -> Any:
    """`widths`: a number, (before, after), or one such pair for each dimension; `fill`: a number,
    or a mode of numpy's."""
    array = _array(value, "pad")
    pairs = _pairs(widths, array.ndim)
    extents = [
        extent + before + after for extent, (before, after) in zip(array.shape, pairs, strict=True)
    ]
    check_elements(math.prod(extents), (array,))
    import numpy

    if isinstance(fill, str):
        mode: Any = _one_of(fill, PAD_MODES, "pad")
        if array.size == 0:
            raise ExpressionError("pad has nothing to repeat in an array without elements")
        return numpy.pad(array, pairs, mode)
    if isinstance(fill, float) and array.dtype.kind != "f":
        array = array.astype(float)
    return numpy.pad(array, pairs, constant_values=number(fill))


def _pairs(widths: Any, dimensions: int) -> list[tuple[int, int]]:
    if dimensions > MAX_DIMENSIONS:
        raise ExpressionError(f"pad takes at most {MAX_DIMENSIONS} dimensions")
    if isinstance(widths, int):
        widths = (widths, widths)
    if not isinstance(widths, (tuple, list)) or not widths:
        raise ExpressionError(f"pad cannot read the widths {shown(widths)}")
    if not isinstance(widths[0], (tuple, list)):
        widths = [widths] * dimensions
    if len(widths) != dimensions or any(
        not isinstance(pair, (tuple, list)) or len(pair) != 2 for pair in widths
    ):
        raise ExpressionError(
            f"pad needs (before, after) for each of {dimensions} dimensions, not {shown(widths)}"
        )
    pairs = [(_whole(before, "a width"), _whole(after, "a width")) for before, after in widths]
    if any(width < 0 for pair in pairs for width in pair):
        raise ExpressionError("a width cannot be negative")
    return pairs


def _roll(value: Any, shift: Any, *, axis: Any = None) -> Any:
    import numpy

    return numpy.roll(_array(value, "roll"), _whole(shift, "the shift"), axis=_axis(axis))


def _cumsum(value: Any, *, axis: Any = None) -> Any:
    import numpy

    return numpy.cumsum(_array(value, "cumsum"), axis=_axis(axis))


def _sort(value: Any, *, axis: Any = -1) -> Any:
    import numpy

    return numpy.sort(_array(value, "sort"), axis=_axis(axis))


def _argmax(value: Any, *, axis: Any = None, keepdims: Any = False) -> Any:
    import numpy

    return numpy.argmax(_array(value, "argmax"), axis=_axis(axis), keepdims=bool(keepdims))


def _axis(axis: Any) -> Any:
    return None if axis is None else _whole(axis, "axis")


ARRAY_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "argmax": _argmax,
    "convolve": _convolve,
    "cumsum": _cumsum,
    "dot": _dot,
    "einsum": _einsum,
    "pad": _pad,
    "roll": _roll,
    "sort": _sort,
}
