"""Clauses: parts of constraints that are evaluated on arrays, or solved for one key.

Arrays are used only where they give exactly the results of plain numbers: integers must stay small
enough for that, and functions whose last digit may differ are left out. A clause never refuses a
point that its constraint allows; points that pass are checked again by the constraint.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

from kernloom.base.errors import ExpressionError
from kernloom.base.expressions import Expression, parse

EXACT = 2.0**53
"""Largest integer range that float64 represents exactly."""
_SAME_SIZE = {"min", "max", "minimum", "maximum", "where", "abs", "sqrt", "floor", "ceil"}
"""Functions with results no larger than their arguments."""
_SUMS = {"ceil_div", "round_up"}


@dataclass(frozen=True)
class Clause:
    """A condition that must be true, on its own or with others."""

    expression: Expression
    keys: Mapping[str, str]
    """Name in the expression -> swept key."""
    known: Mapping[str, Any]
    """Name in the expression -> its one value."""

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(self.keys.values())

    def mask(self, values: Mapping[str, Any], bounds: Mapping[str, float]) -> Any | None:
        """Truth for scalar or array values of the keys; None if arrays are not exact."""
        result = self._evaluated(self.expression, values, bounds)
        if isinstance(result, bool) or getattr(getattr(result, "dtype", None), "kind", "") == "b":
            return result
        return None

    def solved(self, key: str, values: Mapping[str, Any], bounds: Mapping[str, float]) -> Any:
        """The value that the clause requires of a key, given the others; None if it does not."""
        for one, other in self._sides:
            if isinstance(one, ast.Name) and self.keys.get(one.id) == key:
                expression = parse(ast.unparse(other))
                if one.id not in expression.names:
                    return self._evaluated(expression, values, bounds)
        return None

    @cached_property
    def _sides(self) -> tuple[tuple[ast.expr, ast.expr], ...]:
        match self.expression.tree:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                return ((left, right), (right, left))
        return ()

    def _evaluated(
        self, expression: Expression, values: Mapping[str, Any], bounds: Mapping[str, float]
    ) -> Any:
        variables = dict(self.known)
        sizes = {name: _size(value) for name, value in variables.items()}
        for name, key in self.keys.items():
            if name in expression.names:
                if key not in values:
                    return None
                variables[name] = values[key]
                sizes[name] = bounds[key] if key in bounds else _size(values[key])
        if largest(expression.tree, sizes) > EXACT:
            return None
        try:
            return expression(variables)
        except ExpressionError:
            return None


def clauses_of(
    expression: Expression, keys: Mapping[str, str], known: Mapping[str, Any]
) -> tuple[Clause, ...]:
    """Conditions implied by an expression; those that use other names are left out."""
    parts = parts_of(expression)
    if len(parts) > 1:
        return tuple(clause for part in parts for clause in clauses_of(part, keys, known))
    if not expression.names <= keys.keys() | known.keys():
        return ()
    used = {name: key for name, key in keys.items() if name in expression.names}
    return (Clause(expression, used, known),) if used else ()


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """The operands of `and`, nested ones too, or the expression itself."""
    tree = expression.tree
    if not isinstance(tree, ast.BoolOp) or not isinstance(tree.op, ast.And):
        return (expression,)
    inner = [parse(ast.unparse(part)) for part in tree.values]
    return tuple(part for one in inner for part in parts_of(one))


def _size(value: Any) -> float:
    return abs(value) if isinstance(value, (int, float)) else 0.0


def largest(node: ast.expr, sizes: Mapping[str, float]) -> float:
    """Bound of all intermediate numbers; infinite where arrays may differ from numbers."""

    def of(*nodes: ast.expr) -> list[float]:
        return [largest(child, sizes) for child in nodes]

    result = inf
    match node:
        case ast.Constant(value=value):
            result = _size(value)
        case ast.Name(id=name):
            result = sizes[name]
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.BitAnd() | ast.BitOr()):
            result = sum(of(left, node.right)) + isinstance(node.op, (ast.BitAnd, ast.BitOr))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            a, b = of(left, right)
            result = max(a * b, a, b) if max(a, b) < inf else inf
        case ast.BinOp(left=left, op=ast.Div() | ast.FloorDiv() | ast.Mod(), right=right):
            result = max(of(left, right))
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as exponent)):
            base = max(1.0, *of(left))
            if 0 <= exponent <= 64 and base <= EXACT:
                result = max(base, base**exponent)
        case ast.UnaryOp(operand=operand):
            result = max(of(operand))
        case ast.BoolOp(values=values):
            result = max(1.0, *of(*values))
        case ast.Compare(left=left, comparators=rest):
            result = max(1.0, *of(left, *rest))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            result = max(of(test, body, orelse))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if args:
            if name in _SAME_SIZE:
                result = max(of(*args))
            elif name in _SUMS:
                result = sum(of(*args)) + 1
    return result if result <= EXACT else inf
