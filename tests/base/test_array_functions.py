"""Array functions of expressions: what numpy computes, within bounds of memory and time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernloom.base.array_functions import ARRAY_FUNCTIONS
from kernloom.base.errors import ExpressionError
from kernloom.base.expressions import evaluate, parse

A = np.arange(12.0).reshape(3, 4) * 1.5 - 4
B = np.arange(20.0).reshape(4, 5)
V = np.array([3.0, -1.0, 2.0, 5.0])
W = np.array([1.0, 2.0, -1.0])
KNOWN = {"A": A, "B": B, "v": V, "w": W, "n": 2}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("convolve(v, w)", np.convolve(V, W)),
        ("convolve(v, w, 'valid')", np.convolve(V, W, "valid")),
        ("convolve(v, w, 'same')", np.convolve(V, W, "same")),
        ("pad(v, n)", np.pad(V, 2)),
        ("pad(v, (1, 0), 7.5)", np.pad(V, (1, 0), constant_values=7.5)),
        ("pad(A, ((0, 1), (2, 0)))", np.pad(A, ((0, 1), (2, 0)))),
        ("pad(A, 1, 'edge')", np.pad(A, 1, "edge")),
        ("pad(A > 0, 1, 0.5)", np.pad((A > 0).astype(float), 1, constant_values=0.5)),
        ("roll(v, n)", np.roll(V, 2)),
        ("roll(A, -1, axis=1)", np.roll(A, -1, axis=1)),
        ("cumsum(v)", np.cumsum(V)),
        ("cumsum(A, axis=0)", np.cumsum(A, axis=0)),
        ("dot(v, w[0]*v)", np.dot(V, V)),
        ("dot(A, B)", A @ B),
        ("einsum('ij,jk->ik', A, B)", A @ B),
        ("einsum('ij -> ji', A)", A.T),
        ("einsum('i,i->', v, v)", V @ V),
        ("sort(v)", np.sort(V)),
        ("sort(A * -1, axis=0)", np.sort(-A, axis=0)),
        ("argmax(v)", 3),
        ("argmax(A, axis=1, keepdims=True)", np.argmax(A, axis=1, keepdims=True)),
    ],
)
def test_it_computes_what_numpy_does(text: str, value: Any) -> None:
    result = np.asarray(evaluate(text, KNOWN))
    assert result.shape == np.shape(value)
    np.testing.assert_array_equal(result, value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("pad(v, 2 ** 40)", "too large"),
        ("pad(v, -1)", "negative"),
        ("pad(v, 1.5)", "cannot read the widths"),
        ("pad(A, ((1, 1), (1, 1), (1, 1)))", "for each of 2 dimensions"),
        ("pad(v, 1, 'nonsense')", "no mode 'nonsense'"),
        ("pad(v, 1, A)", "cannot be evaluated"),
        ("convolve(A, v)", "takes vectors"),
        ("convolve(v, 3)", "takes arrays, not 3"),
        ("convolve(v, w, mode='same')", "takes no argument 'mode'"),
        ("einsum(A, B)", "begins with its subscripts"),
        ("einsum('ij,jk', A, B)", "write it as"),
        ("einsum('...j->j', A)", "write it as"),
        ("einsum('ij,jk->ik', A)", "2 operands, and 1"),
        ("einsum('ijk->i', A)", "3 subscripts"),
        ("einsum('ij,ij->i', A, B)", "'i' is 3 and 4 at once"),
        ("einsum('ij->ik', A)", "cannot give 'ik'"),
        ("einsum('ij->ii', A)", "cannot give 'ii'"),
        ("einsum('a,b,c,d->abcd', z, z, z, z)", "too large"),
        ("einsum('a,b,c,d->', z, z, z, z)", "too many"),
        ("dot(pad(z, 100000), pad(z, 1))", "cannot be evaluated"),
        ("roll(v, 1.5)", "whole number"),
        ("sort(v, axis='x')", "whole number"),
        ("argmax(3)", "takes arrays"),
        ("cumsum('text')", "not a number"),
    ],
)
def test_bad_or_huge_arguments_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate(text, {**KNOWN, "z": np.ones(1000)})
    assert problem in str(caught.value)


@pytest.mark.parametrize("text", ["L @ L", "dot(L, L)", "einsum('ij,jk->ik', L, L)"])
def test_products_have_the_same_limit_by_any_name(text: str) -> None:
    with pytest.raises(ExpressionError, match="too many"):
        evaluate(text, {"L": np.broadcast_to(1.0, (8192, 8192))})


def test_an_unknown_function_names_the_nearest() -> None:
    with pytest.raises(ExpressionError) as caught:
        parse("convolv(v, w)")
    assert "'convolv'" in str(caught.value)
    assert "convolve" in caught.value.hint


def test_every_function_refuses_what_is_no_array() -> None:
    for name in ARRAY_FUNCTIONS:
        for text in (f"{name}()", f"{name}('x')", f"{name}(1, 2)"):
            with pytest.raises(ExpressionError):
                evaluate(text, KNOWN)
