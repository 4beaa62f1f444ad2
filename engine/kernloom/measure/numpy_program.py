"""A workload's goldens as a numpy user would write them, in the workload's own element type.

The expression language checks every operand and computes in float64; neither is part of numpy's
cost. Here an expression becomes a tree of closures, one per operation, and common subexpressions
are computed once.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernloom.base.errors import ConfigError
from kernloom.base.expressions import parse
from kernloom.config.goldens import golden_file
from kernloom.config.schema import Workload
from kernloom.measure.data import REFERENCE_FUNCTIONS, Array
from kernloom.plan.inspect import sizes_of, tensors_of
from kernloom.plan.schedule import TensorSpec

Computed = Callable[[], Any]

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": np.minimum,
    "max": np.maximum,
    **{
        name: getattr(np, name)
        for name in (
            *("abs", "amax", "amin", "ceil", "exp", "floor", "log", "log2", "maximum", "mean"),
            *("minimum", "reshape", "sqrt", "std", "sum", "tanh", "transpose", "var", "where"),
            *("argmax", "convolve", "cumsum", "dot", "einsum", "roll", "sort"),
        )
    },
}
_TWO_ARGUMENTS = ("min", "max", "minimum", "maximum")
# Written with operators, because numpy reuses an operand's memory only in operator expressions.
_BINARY: dict[type[ast.operator], Callable[[Computed, Computed], Computed]] = {
    ast.Add: lambda left, right: lambda: left() + right(),
    ast.Sub: lambda left, right: lambda: left() - right(),
    ast.Mult: lambda left, right: lambda: left() * right(),
    ast.Div: lambda left, right: lambda: left() / right(),
    ast.FloorDiv: lambda left, right: lambda: left() // right(),
    ast.Mod: lambda left, right: lambda: left() % right(),
    ast.Pow: lambda left, right: lambda: left() ** right(),
    ast.MatMult: lambda left, right: lambda: left() @ right(),
}


def program(workload: Workload, inputs: Mapping[str, Array]) -> Callable[[], dict[str, Array]]:
    """Computes every output of the workload from the arrays that a kernel would be given."""
    scalars = {
        name: float(np.dtype(workload.dtype).type(value))
        for name, value in workload.scalars.items()
    }
    tensors = tensors_of(workload)
    outputs = {
        name: _output(tensors[name], _golden(text, name, workload, inputs, scalars), inputs)
        for name, text in workload.golden.items()
    }
    return lambda: {name: compute() for name, compute in outputs.items()}


def _golden(
    text: str,
    name: str,
    workload: Workload,
    inputs: Mapping[str, Array],
    scalars: Mapping[str, float],
) -> Computed:
    sizes = sizes_of(workload)
    if file := golden_file(text):
        raise ConfigError(
            f"numpy cannot be measured with {file}, which runs in a process of its own",
            key=f"workload.golden.{name}",
            hint="The peer numpy needs an expression or a registered reference.",
        )
    if text.isidentifier() and text not in inputs:
        reference = REFERENCE_FUNCTIONS.get(text, key=f"workload.golden.{name}")
        return lambda: reference(dict(inputs), dict(scalars), dict(sizes))
    expression = parse(text)
    variables = {**sizes, **scalars, **inputs}
    compiled = _Compiler(variables).compiled(expression.tree)
    # Operations that are rare in goldens are left to the language itself.
    return compiled or (lambda: expression(variables))


def _output(
    spec: TensorSpec, compute: Computed, inputs: Mapping[str, Array]
) -> Callable[[], Array]:
    """The result as the tensor that a kernel would have written. One run shows what that takes: a
    transposed view, for example, must be copied."""
    dtype = np.dtype(spec.dtype)
    first = np.asarray(compute())
    if first.shape != spec.shape:
        raise ConfigError(f"'{spec.name}' comes out as {list(first.shape)}, not {list(spec.shape)}")
    if first.dtype.kind not in "fiub":
        raise ConfigError(f"'{spec.name}' comes out as {first.dtype}, not {dtype}")
    if any(np.may_share_memory(first, array) for array in inputs.values()):
        return lambda: np.array(compute(), dtype=dtype, order="C")
    if first.dtype != dtype or not first.flags.c_contiguous:
        return lambda: np.ascontiguousarray(compute(), dtype=dtype)
    return compute


class _Compiler:
    """Compiles a checked expression to closures; None for unsupported nodes."""

    def __init__(self, variables: Mapping[str, Any]) -> None:
        self._variables = variables
        self._texts: Counter[str] = Counter()
        self._kept: dict[str, Any] = {}

    def compiled(self, tree: ast.expr) -> Computed | None:
        self._count(tree)
        whole = self._node(tree)
        if whole is None or not any(times > 1 for times in self._texts.values()):
            return whole

        def run() -> Any:
            result = whole()
            self._kept.clear()
            return result

        return run

    def _count(self, node: ast.AST) -> None:
        """Count the occurrences of each subexpression, except within repeated ones."""
        if isinstance(node, (ast.BinOp, ast.Call)):
            text = ast.dump(node)
            self._texts[text] += 1
            if self._texts[text] > 1:
                return
        for child in ast.iter_child_nodes(node):
            self._count(child)

    def _node(self, node: ast.expr) -> Computed | None:
        compute = self._operation(node)
        text = ast.dump(node)
        if compute is None or self._texts[text] < 2:
            return compute
        kept = self._kept

        def once() -> Any:
            if text not in kept:
                kept[text] = compute()
            return kept[text]

        return once

    def _operation(self, node: ast.expr) -> Computed | None:
        match node:
            case ast.Constant(value=value):
                return lambda: value
            case ast.Name(id=name) if name in self._variables:
                variable = self._variables[name]
                return lambda: variable
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                one, other = self._node(left), self._node(right)
                return _BINARY[type(op)](one, other) if one and other else None
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                positive = self._node(operand)
                return (lambda: -positive()) if positive else None
            case ast.Attribute(value=value):
                array = self._node(value)
                return (lambda: array().T) if array else None
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                return self._call(name, args, keywords)
        return None

    def _call(
        self, name: str, args: list[ast.expr], keywords: list[ast.keyword]
    ) -> Computed | None:
        function = _FUNCTIONS.get(name)
        if function is None or (name in _TWO_ARGUMENTS and len(args) != 2):
            return None
        try:
            named = {str(k.arg): ast.literal_eval(k.value) for k in keywords}
        except ValueError:
            return None
        found = [compute for arg in args if (compute := self._node(arg))]
        if len(found) < len(args):
            return None
        if len(found) == 1:
            (only,) = found
            return lambda: function(only(), **named)
        return lambda: function(*[compute() for compute in found], **named)
