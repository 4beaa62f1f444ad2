"""Plain C and OpenCL C files as kernels: parses a function's signature and macros without a
compiler."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernloom.base.errors import ConfigError, nearest
from kernloom.base.files import MAX_SOURCE_BYTES, read_text
from kernloom.config.schema import Scalar
from kernloom.plan.schedule import StepRecord

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")
_QUALIFIERS = {"const", "restrict", "__restrict", "__restrict__", "volatile", "register"}
_TYPES = {
    "float": "float32",
    "double": "float64",
    "int": "int32",
    "int32_t": "int32",
    "signed": "int32",
    "long": "int64",
    "long long": "int64",
    "long int": "int64",
    "int64_t": "int64",
    "size_t": "int64",
    "ptrdiff_t": "int64",
    "ssize_t": "int64",
    "unsigned char": "uint8",
    "uint8_t": "uint8",
}
_SPACES = ("global", "constant", "local", "private")


@dataclass(frozen=True)
class Dialect:
    """Keywords of parameter lists in one language."""

    types: Mapping[str, str]
    """Type name -> dtype."""
    spaces: Mapping[str, str] = field(default_factory=dict)
    """Qualifier -> address space."""


C = Dialect(_TYPES)
OPENCL_C = Dialect(
    {
        "float": "float32",
        "double": "float64",
        "int": "int32",
        "long": "int64",
        "uchar": "uint8",
        "unsigned char": "uint8",
    },
    {prefix + space: space for space in _SPACES for prefix in ("", "__")},
)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a C function."""

    name: str
    ctype: str
    """The type as written in a cast."""
    dtype: str
    """Element type as a dtype; '' if there is none."""
    pointer: bool
    constant: bool
    space: str = ""
    """Address space of a pointer in OpenCL C."""


def read_signature(
    text: str, function: str, *, where: str, key: str, dialect: Dialect = C
) -> tuple[Parameter, ...]:
    """The parameters of `function` as declared in the file."""
    plain = _COMMENT.sub(" ", text)
    match = re.search(rf"\b{re.escape(function)}\s*\(([^()]*)\)\s*\{{", plain)
    if not match:
        defined = re.findall(r"\b([A-Za-z_]\w*)\s*\([^()]*\)\s*\{", plain)
        names = [name for name in defined if name not in ("if", "for", "while", "switch")]
        raise ConfigError(
            f"{where} defines no function '{function}'", key=key, hint=nearest(function, names)
        )
    inner = match.group(1).strip()
    if inner in ("", "void"):
        return ()
    return tuple(_parameter(part.strip(), where, key, dialect) for part in inner.split(","))


def _parameter(text: str, where: str, key: str, dialect: Dialect) -> Parameter:
    if text.count("*") + ("[" in text) > 1:
        raise ConfigError(
            f"{where}: '{text}' points to pointers",
            key=key,
            hint="A tensor is passed as one pointer to its first element.",
        )
    pointer = "*" in text or "[" in text
    words = _WORD.findall(text.split("[")[0])
    if len(words) < 2:
        raise ConfigError(f"{where}: cannot read the parameter '{text}'", key=key)
    *kind, name = words
    space = next((dialect.spaces[word] for word in kind if word in dialect.spaces), "")
    base = " ".join(w for w in kind if w not in _QUALIFIERS and w not in dialect.spaces)
    constant = "const" in text.split("*")[0].split() or space == "constant"
    # An array of arrays is a pointer to rows; only `void *` converts to it.
    shown = "void" if text.count("[") > 1 else base
    shown = f"{'const ' if constant else ''}{shown}{' *' if pointer else ''}"
    return Parameter(name, shown, dialect.types.get(base, ""), pointer, constant, space)


def check_signature(
    parameters: tuple[Parameter, ...], record: StepRecord, name: str, *, key: str
) -> None:
    """Refuse a function whose parameters differ from the kernel's config in type or order."""
    wanted = record.arguments
    if len(parameters) != len(wanted):
        raise ConfigError(
            f"{name}() takes {len(parameters)} arguments "
            f"({', '.join(parameter.name for parameter in parameters)}), but the kernel declares "
            f"{len(wanted)} ({', '.join(argument.name for argument in wanted)})",
            key=key,
        )
    _check_order(parameters, [argument.name for argument in wanted], name, key)
    for parameter, argument in zip(parameters, wanted, strict=True):
        is_tensor = argument.kind == "tensor"
        if parameter.pointer != is_tensor:
            raise ConfigError(
                f"{name}()'s '{parameter.name}' is "
                f"{'a pointer' if parameter.pointer else 'a value'}, but '{argument.name}' is a "
                f"{argument.kind}",
                key=f"{key}.{argument.name}",
            )
        if is_tensor and parameter.dtype != argument.dtype:
            raise ConfigError(
                f"{name}()'s '{parameter.name}' is {parameter.ctype}, but tensor "
                f"'{argument.binding}' is {argument.dtype}",
                key=f"{key}.{argument.name}",
            )
        if is_tensor and parameter.constant and argument.access != "read":
            raise ConfigError(
                f"{name}()'s '{parameter.name}' is const, but the kernel says it is "
                f"{argument.access}",
                key=f"{key}.{argument.name}",
            )
        if (
            argument.kind == "size"
            and parameter.dtype == "int32"
            and int(argument.binding) >= 2**31
        ):
            raise ConfigError(
                f"{name}()'s '{parameter.name}' is {parameter.ctype}, too small for "
                f"{argument.binding}",
                key=f"{key}.{argument.name}",
            )
        if argument.kind == "size" and parameter.dtype not in ("int32", "int64"):
            raise ConfigError(
                f"{name}()'s '{parameter.name}' is {parameter.ctype}, but '{argument.name}' is a "
                "size",
                key=f"{key}.{argument.name}",
            )


def _check_order(
    parameters: Sequence[Parameter], arguments: Sequence[str], function: str, key: str
) -> None:
    """Arguments are positional, so a name used on both sides must have the same position."""
    for parameter, argument in zip(parameters, arguments, strict=True):
        if parameter.name != argument and parameter.name in arguments:
            shown = ", ".join(parameter.name for parameter in parameters)
            raise ConfigError(
                f"{function}()'s parameter '{parameter.name}' would get the argument '{argument}': "
                f"the function takes ({shown}), but the kernel declares ({', '.join(arguments)})",
                key=key,
                hint="Arguments are passed by position: list them in the function's order, or "
                "give the parameter another name.",
            )


def words_in(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(_COMMENT.sub(" ", text)))


def check_macros(
    words: Collection[str], macros: Mapping[str, Scalar], *, where: str, key: str
) -> None:
    """Refuse macros that the file never mentions, which are typing errors."""
    for macro in macros:
        if macro not in words:
            capitals = [word for word in words if word.isupper()]
            raise ConfigError(
                f"{where} does not use the macro '{macro}'",
                key=f"{key}.macros",
                hint=nearest(macro, capitals),
            )


def read_with_includes(path: Path, root: Path) -> dict[str, str]:
    """The file and all its `#include "..."` files, by path below `root`; none may leave it."""
    found: dict[str, str] = {}
    waiting = [path.resolve()]
    root = root.resolve()
    while waiting:
        current = waiting.pop()
        name = current.relative_to(root).as_posix()
        if name in found:
            continue
        found[name] = read_text(current, limit=MAX_SOURCE_BYTES)
        for include in _INCLUDE.findall(_COMMENT.sub(" ", found[name])):
            target = (current.parent / include).resolve()
            if not target.is_relative_to(root):
                raise ConfigError(f"includes '{include}', which leaves {root}", key=str(current))
            if target.is_file():
                waiting.append(target)
    return found
