"""Plain OpenCL C files as kernels: signature check and macro definitions.

The driver compiles one text and launches its functions by name, so the file needs no wrapper: the
macros come first, then the file itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from kernloom.base.errors import ConfigError
from kernloom.config.schema import KernelSource
from kernloom.plan.csource import Parameter, check_signature
from kernloom.plan.schedule import StepRecord

MAIN = "kernel.cl"
FINISH = "_finish"
"""Name suffix of a function that is launched after another one."""


def functions_of(source: KernelSource) -> tuple[str, ...]:
    """The functions of a plain file to launch, in order."""
    first = str(source.function)
    return (first, f"{first}{FINISH}") if source.finish else (first,)


def check_functions(
    signatures: Mapping[str, tuple[Parameter, ...]],
    source: KernelSource,
    record: StepRecord,
    *,
    key: str,
) -> tuple[str, ...]:
    """Element types of the arguments as declared; all functions have the same arguments."""
    found: dict[tuple[str, ...], str] = {}
    arguments_key = f"{record.key}.arguments"
    for function, parameters in signatures.items():
        own = parameters
        if source.work and source.work.scratch is not None:
            _check_scratch(parameters, function, record, key)
            own = parameters[:-1]
        check_signature(own, record, function, key=arguments_key)
        _check_values(own, function, record, arguments_key)
        found.setdefault(tuple(parameter.dtype for parameter in own), function)
    if len(found) > 1:
        names = " and ".join(f"{name}()" for name in found.values())
        raise ConfigError(f"{names} take sizes of different types", key=arguments_key)
    return next(iter(found))


def kernel_text(header: str, macros: Mapping[str, str], name: str, text: str) -> str:
    """The text for the driver; errors show the file's own name and lines."""
    defines = "".join(f"#define {macro} {value}\n" for macro, value in macros.items())
    return f'{header}{defines}#line 1 "{PurePosixPath(name).name}"\n{text}'


def _check_scratch(
    parameters: Sequence[Parameter], function: str, record: StepRecord, key: str
) -> None:
    last = parameters[-1] if len(parameters) > len(record.arguments) else None
    if last is None or not last.pointer or last.dtype != record.dtype:
        raise ConfigError(
            f"{function}() does not take the scratch memory as its last argument",
            key=f"{key}.work.scratch",
            hint=f"Declare a last parameter that points to __global {record.dtype} elements.",
        )


def _check_values(
    parameters: Sequence[Parameter], function: str, record: StepRecord, key: str
) -> None:
    """The driver passes bytes, so types must match exactly and tensors be in global memory."""
    for parameter, argument in zip(parameters, record.arguments, strict=True):
        if parameter.pointer and parameter.space not in ("global", "constant"):
            raise ConfigError(
                f"{function}()'s '{parameter.name}' points to "
                f"{parameter.space or 'private'} memory",
                key=f"{key}.{argument.name}",
                hint="A tensor is passed as __global (or __constant).",
            )
        if argument.kind == "scalar" and parameter.dtype != argument.dtype:
            raise ConfigError(
                f"{function}()'s '{parameter.name}' is {parameter.ctype}, but scalar "
                f"'{argument.name}' is {argument.dtype}",
                key=f"{key}.{argument.name}",
            )
