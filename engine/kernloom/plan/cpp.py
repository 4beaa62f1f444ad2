"""Expressions over sizes as C++, for orchestrations that do not depend on the sizes themselves."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from kernloom.base.expressions import parse

_OPERATORS: Mapping[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "/",
    ast.Mod: "%",
}
"""With the same meaning for positive whole numbers."""
_FUNCTIONS: Mapping[str, tuple[str, int]] = {
    "ceil_div": ("kernloom::ceil_div", 2),
    "round_up": ("kernloom::round_up", 2),
    "min": ("std::min", 2),
    "max": ("std::max", 2),
}

_KEYWORDS = frozenset(
    [
        "alignas",
        "alignof",
        "and",
        "and_eq",
        "asm",
        "auto",
        "bitand",
        "bitor",
        "bool",
        "break",
        "case",
        "catch",
        "char",
        "char8_t",
        "char16_t",
        "char32_t",
        "class",
        "compl",
        "concept",
        "const",
        "consteval",
        "constexpr",
        "constinit",
        "const_cast",
        "continue",
        "co_await",
        "co_return",
        "co_yield",
        "decltype",
        "default",
        "delete",
        "do",
        "double",
        "dynamic_cast",
        "else",
        "enum",
        "explicit",
        "export",
        "extern",
        "false",
        "float",
        "for",
        "friend",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "mutable",
        "namespace",
        "new",
        "noexcept",
        "not",
        "not_eq",
        "nullptr",
        "operator",
        "or",
        "or_eq",
        "private",
        "protected",
        "public",
        "register",
        "reinterpret_cast",
        "requires",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "static_assert",
        "static_cast",
        "struct",
        "switch",
        "template",
        "this",
        "thread_local",
        "throw",
        "true",
        "try",
        "typedef",
        "typeid",
        "typename",
        "union",
        "unsigned",
        "using",
        "virtual",
        "void",
        "volatile",
        "wchar_t",
        "while",
        "xor",
        "xor_eq",
        "linux",
        "unix",
    ]
)
_VARIABLES = frozenset(
    [
        "tasks",
        "task",
        "kernel",
        "tiles",
        "splits",
        "split",
        "sum",
        "partial",
        "product",
        "adding",
        "elements",
        "scope",
        "one",
        "part",
        "Tensor",
        "Tiling",
        "Axis",
        "Range",
        "Scope",
        "Orchestration",
        "Launch",
        "std",
        "kernloom",
    ]
)
"""Names with a meaning in the template."""


def identifier(name: str) -> str:
    """A name of a config as a variable in the rendered C++."""
    return f"{name}_" if name in _VARIABLES else member(name)


def member(name: str) -> str:
    """A name of a config as a member of a struct in C++."""
    return f"{name}_" if name in _KEYWORDS else name


def cpp_of(text: str | int, names: Mapping[str, str]) -> str | None:
    """A size expression in C++ over these variables; None if it has no simple form there."""
    if not isinstance(text, str):
        return str(text)
    return _written(parse(text).tree, names)


def _subtracts(*nodes: ast.expr) -> bool:
    """Whether a part of them may be negative, which unsigned numbers are not."""
    return any(isinstance(one, ast.Sub) for node in nodes for one in ast.walk(node))


def _written(node: ast.expr, names: Mapping[str, str]) -> str | None:
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() as value) if value >= 0:
            return f"{value}u" if value < 2**32 else f"{value}ull"
        case ast.Name(id=name):
            return names.get(name)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            if isinstance(op, (ast.FloorDiv, ast.Mod)) and _subtracts(left, right):
                return None
            a, b = _written(left, names), _written(right, names)
            return f"({a} {_OPERATORS[type(op)]} {b})" if a and b else None
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            if _subtracts(*args):
                return None
            function, count = _FUNCTIONS[name]
            parts = [_written(arg, names) for arg in args]
            if len(parts) != count or None in parts:
                return None
            typed = function if function.startswith("kernloom") else f"{function}<uint64_t>"
            return f"{typed}({', '.join(map(str, parts))})"
    return None
