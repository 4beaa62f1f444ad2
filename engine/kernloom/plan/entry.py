"""C text around a kernel: the comment that lists its decisions, and the entry that calls it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernloom.config.schema import Scalar
from kernloom.plan.csource import Parameter
from kernloom.plan.schedule import ELEMENT, BoundArgument, StepRecord
from kernloom.plan.source import ENTRY
from kernloom.plan.variables import compiled_decisions


def comment_of(record: StepRecord) -> str:
    """A comment in the source with the decisions of every transform."""
    lines = [f" * {record.kernel.name} {record.dtype}"]
    for transform, group in compiled_decisions(record).items():
        chosen = " ".join(f"{name}={literal(value)}" for name, value in group.items())
        lines.append(f" * {transform}: {chosen or '(nothing)'}")
    if record.epilogue:
        lines.append(f" * epilogue: {record.epilogue.kernel}")
    # Other characters could end the comment or join lines, and the rest would be code.
    body = "\n".join(re.sub(r"[^\w .:=+()*-]", "?", line).replace("*/", "* /") for line in lines)
    return f"/*\n{body}\n */\n"


def literal(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def parameter_type(argument: BoundArgument) -> str:
    if argument.kind != "tensor":
        return argument.ctype
    return f"{'const ' if argument.access == 'read' else ''}{argument.ctype} *"


def entry_of(function: str, arguments: Sequence[BoundArgument]) -> str:
    return entry_with(function, [_cast(i, argument) for i, argument in enumerate(arguments)])


def _cast(index: int, argument: BoundArgument) -> str:
    if argument.kind != "tensor":
        return value_of(index, argument)
    constant = "const " if argument.access == "read" else ""
    return f"({constant}{argument.ctype} *)args[{index}]"


def value_of(index: int, argument: BoundArgument) -> str:
    return f"*(const {argument.ctype} *)args[{index}]"


def entry_with(function: str, casts: Sequence[str]) -> str:
    joined = ",\n        ".join(casts)
    return (
        f'__attribute__((visibility("default"))) void {ENTRY}(void *const *args);\n'
        f"void {ENTRY}(void *const *args)\n{{\n    {function}(\n        {joined});\n}}\n"
    )


def size_checks(parameters: Sequence[Parameter], arguments: Sequence[BoundArgument]) -> str:
    """Makes the compiler refuse `long *` for 64-bit tensors where a long has 32 bits."""
    return "".join(
        f"_Static_assert(sizeof *({parameter.ctype})0 == {ELEMENT[argument.dtype]}, "
        f'"the elements of {argument.name} are {argument.dtype}");\n'
        for parameter, argument in zip(parameters, arguments, strict=True)
        if parameter.pointer and argument.dtype == "int64"
    )
