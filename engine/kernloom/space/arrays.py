"""Evaluation of expressions on arrays, with exactly the results of plain values per element.

An expression of plain values can fail (division by zero, text compared with a number) where arrays
give NaN or false. Only expressions that cannot fail for any of the given values are evaluated here.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any, Literal

from kernloom.base.errors import ExpressionError
from kernloom.base.expressions import Expression
from kernloom.space.clauses import EXACT, largest

Kind = Literal["number", "truth", "text", "any"]
_NUMERIC = ("number", "truth")
_EXTREMES = {"min", "max", "minimum", "maximum"}
_ROUNDED = {"floor", "ceil", "abs"}
_MULTIPLES = {"ceil_div", "round_up"}


def exact_mask(expression: Expression, variables: Mapping[str, Any]) -> Any | None:
    """The truth of an expression over scalars and broadcasting arrays; None if plain values might
    give another result."""
    sizes = {}
    kinds: dict[str, Kind] = {}
    for name in expression.names:
        value = variables[name]
        kind = _kind(value)
        if kind is None:
            return None
        kinds[name] = kind
        sizes[name] = _bound(value) if kind in _NUMERIC else 0.0
    checked = _Checked(kinds, {name: variables[name] for name in expression.names})
    if checked.kind(expression.tree) != "truth" or not largest(expression.tree, sizes) <= EXACT:
        return None
    try:
        return expression(variables)
    except ExpressionError:
        return None


def _kind(value: Any) -> Kind | None:
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "text"
    kinds: dict[str, Kind] = {"b": "truth", "i": "number", "f": "number", "U": "text", "O": "any"}
    return kinds.get(getattr(getattr(value, "dtype", None), "kind", ""))


def _bound(value: Any) -> float:
    if not hasattr(value, "dtype"):
        return abs(float(value))
    if value.dtype.kind == "b" or not value.size:
        return 1.0
    # NaN compares as false, so it exceeds every bound.
    return float(abs(value).max())


class _Checked:
    """The kind of value of an expression, given the kinds of its variables; None if it may fail."""

    def __init__(self, kinds: Mapping[str, Kind], values: Mapping[str, Any]) -> None:
        self._kinds = kinds
        self._values = values

    def kind(self, node: ast.expr) -> Kind | None:
        match node:
            case ast.Constant(value=value):
                return _kind(value)
            case ast.Name(id=name):
                return self._kinds[name]
            case ast.BinOp():
                return "number" if self._is_number(node) else None
            case ast.UnaryOp(op=op, operand=operand):
                if not self._numeric(operand):
                    return None
                return "truth" if isinstance(op, ast.Not) else "number"
            case ast.BoolOp(values=values):
                return "truth" if self._numeric(*values) else None
            case ast.Compare(left=left, ops=ops, comparators=rest):
                sides = [self.kind(side) for side in (left, *rest)]
                pairs = zip(sides, ops, sides[1:], strict=False)
                return "truth" if all(_comparable(*pair) for pair in pairs) else None
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._choice(test, body, orelse)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call(name, args)
        return None

    def _numeric(self, *nodes: ast.expr) -> bool:
        return all(self.kind(node) in _NUMERIC for node in nodes)

    def _is_number(self, node: ast.BinOp) -> bool:
        if not self._numeric(node.left, node.right):
            return False
        match node.op:
            case ast.Add() | ast.Sub() | ast.Mult():
                return True
            case ast.Div() | ast.FloorDiv() | ast.Mod():
                return self._is_never_zero(node.right)
            case ast.Pow():
                return self._is_whole(node.left) and isinstance(node.right, ast.Constant)
        return False

    def _is_never_zero(self, node: ast.expr) -> bool:
        match node:
            case ast.Constant(value=value):
                return bool(value)
            case ast.Name(id=name):
                value = self._values[name]
                return bool(value.all() if hasattr(value, "dtype") else value)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                both = (left, right)
                return all(self._is_whole(one) and self._is_never_zero(one) for one in both)
        return False

    def _is_whole(self, node: ast.expr) -> bool:
        match node:
            case ast.Constant(value=value):
                return type(value) is int
            case ast.Name(id=name):
                value = self._values[name]
                return type(value) is int or getattr(value, "dtype", "") == "int64"
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult(), right=right):
                return self._is_whole(left) and self._is_whole(right)
        return False

    def _choice(self, test: ast.expr, body: ast.expr, orelse: ast.expr) -> Kind | None:
        yes, no = self.kind(body), self.kind(orelse)
        # Arrays have one type: a choice between a boolean and a number would always be a number.
        return yes if self._numeric(test) and yes == no and yes in _NUMERIC else None

    def _call(self, name: str, args: list[ast.expr]) -> Kind | None:
        if name == "where" and len(args) == 3:
            return self._choice(args[0], args[1], args[2])
        numbers = all(self.kind(arg) == "number" for arg in args)
        fits = (
            (name in _EXTREMES and len(args) >= 2)
            or (name in _ROUNDED and len(args) == 1)
            or (name in _MULTIPLES and len(args) == 2 and self._is_never_zero(args[1]))
        )
        return "number" if numbers and fits else None


def _comparable(left: Kind | None, op: ast.cmpop, right: Kind | None) -> bool:
    if left is None or right is None:
        return False
    if isinstance(op, (ast.Eq, ast.NotEq)) and "any" in (left, right):
        return True
    return (left in _NUMERIC and right in _NUMERIC) or left == right == "text"
