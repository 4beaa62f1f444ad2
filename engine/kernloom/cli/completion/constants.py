"""Constants of Kernloom's modules, read from their source: importing the modules takes longer than
a completion may."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kernloom

_PACKAGE = Path(kernloom.__file__).resolve().parent


class _NotConstantError(Exception):
    """An expression that only running the module could evaluate."""


@dataclass(frozen=True)
class Call:
    """A call with constant arguments, such as `Flag("write to a file", "FILE")`."""

    function: str
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    """Constant values, and None for all others."""


def constants(module: str) -> dict[str, Any]:
    """Name -> value of the constants at the top of a module (`report/formats/csv`)."""
    found: dict[str, Any] = {}
    for statement in _statements(module):
        if isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value:
            targets, value = [statement.target], statement.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name):
                try:
                    found[target.id] = _evaluate(value, found)
                except _NotConstantError:
                    continue
    return found


def literal_fields(module: str) -> dict[str, tuple[Any, ...]]:
    """Name -> choices of the fields that the classes of a module annotate with a Literal."""
    found: dict[str, tuple[Any, ...]] = {}
    for statement in _statements(module):
        for inner in statement.body if isinstance(statement, ast.ClassDef) else ():
            if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
                choices = _or_none(inner.annotation, {})
                if isinstance(choices, tuple):
                    found[inner.target.id] = choices
    return found


def _statements(module: str) -> list[ast.stmt]:
    try:
        return ast.parse((_PACKAGE / f"{module}.py").read_text(encoding="utf-8")).body
    except (OSError, SyntaxError, ValueError):
        return []  # Installed without sources.


def _evaluate(node: ast.expr, known: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name() if node.id in known:
            return known[node.id]
        case ast.Tuple() | ast.List():
            return tuple(_elements(node.elts, known))
        case ast.Dict() if None not in node.keys:
            keys = (_evaluate(key, known) for key in node.keys if key)
            values = (_evaluate(value, known) for value in node.values)
            return dict(zip(keys, values, strict=True))
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inside):
            choices = _evaluate(inside, known)
            return choices if isinstance(choices, tuple) else (choices,)
        case ast.Call(func=ast.Name(id="get_args"), args=[only]):
            return _evaluate(only, known)
        case ast.Call(func=ast.Name(id=name)):
            keywords = {word.arg: _or_none(word.value, known) for word in node.keywords if word.arg}
            return Call(name, tuple(_elements(node.args, known)), keywords)
        case _:
            raise _NotConstantError


def _elements(nodes: list[ast.expr], known: Mapping[str, Any]) -> list[Any]:
    found: list[Any] = []
    for node in nodes:
        if isinstance(node, ast.Starred):
            found += _evaluate(node.value, known)
        else:
            found.append(_evaluate(node, known))
    return found


def _or_none(node: ast.expr, known: Mapping[str, Any]) -> Any:
    try:
        return _evaluate(node, known)
    except _NotConstantError:
        return None
