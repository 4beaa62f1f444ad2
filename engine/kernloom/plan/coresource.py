"""C around a kernel for a PE of an accelerator: its entry, and the wrapper of plain C functions."""

from __future__ import annotations

from collections.abc import Sequence

from kernloom.base.errors import ConfigError
from kernloom.base.expressions import evaluate, format_size
from kernloom.config.accelerator import CORE_TYPES
from kernloom.config.schema import Arch, KernelSource, Scalar
from kernloom.plan.cores import SRAM, sram_bytes
from kernloom.plan.csource import Parameter, check_signature
from kernloom.plan.schedule import ELEMENT, BoundArgument, StepRecord
from kernloom.plan.tiling import partial_results

HEADER = "kernloom/core.h"
"""Name of the API's header, in #include and among the files of a source."""
ENTRY = "kl_core_entry"
TYPE = "kl_core_type"
FLAGS = ("-ffp-contract=off", "-I.")
"""Results are the same on every ISA; headers are found from any folder of the source."""
ALIGNMENT = 64
"""Of SRAM that a kernel allocates."""
_EXPORTED = '__attribute__((visibility("default")))'
_CORE = "struct kl_core *"


def preamble() -> str:
    return f'#include "{HEADER}"\n\n'


def is_core_function(parameters: Sequence[Parameter]) -> bool:
    """Whether a C function uses the API of core kernels: its first parameter is the PE."""
    return bool(parameters) and parameters[0].ctype == _CORE


def check_core_signature(
    parameters: Sequence[Parameter], record: StepRecord, name: str, *, key: str
) -> None:
    """Refuse a function of the API whose parameters differ from the kernel's config."""
    taken = parameters[1:]
    for parameter, argument in zip(taken, record.arguments, strict=False):
        if argument.kind == "tensor" and parameter.ctype not in ("uint64_t", "unsigned long"):
            raise ConfigError(
                f"{name}()'s '{parameter.name}' is {parameter.ctype}, but a core kernel gets the "
                f"address of tensor '{argument.name}' as uint64_t",
                key=f"{key}.{argument.name}",
            )
    addresses = tuple(
        Parameter(p.name, p.ctype, a.dtype, pointer=True, constant=False)
        if a.kind == "tensor"
        else p
        for p, a in zip(taken, record.arguments, strict=False)
    )
    check_signature((*addresses, *taken[len(addresses) :]), record, name, key=key)


def core_entry(function: str, record: StepRecord) -> str:
    """The entry of a kernel that uses the API itself."""
    arguments = record.arguments
    values = "".join(_value(i, a) for i, a in enumerate(arguments) if a.kind != "tensor")
    passed = ", ".join(
        f"args[{i}]" if a.kind == "tensor" else a.name for i, a in enumerate(arguments)
    )
    core_type = str(record.decisions["core"]["type"])
    if partial_results(record):
        # Addresses of partial results follow the kernel's own arguments.
        passed = f"args + {len(arguments)}, {passed}"
    return _entry(f"{values}    {function}(core, {passed});\n", core_type)


def check_fits(record: StepRecord, arch: Arch, key: str) -> None:
    """Refuse to wrap a function whose tensors do not fit into SRAM together."""
    needed = sum(-(-_bytes(a) // ALIGNMENT) * ALIGNMENT for a in _tensors(record))
    if needed > sram_bytes(arch):
        raise ConfigError(
            f"kernel '{record.kernel.name}' is plain C: its tensors need {needed} bytes of SRAM "
            f"({format_size(needed)}), but a PE has {sram_bytes(arch)} "
            f"({format_size(sram_bytes(arch))})",
            key=SRAM,
            hint=f"Give it a source that loads tiles ({key.rpartition('.')[0]}.core), or smaller "
            "sizes.",
        )


def wrapper_entry(
    function: str, casts: Sequence[str], record: StepRecord, source: KernelSource
) -> str:
    """The entry of a plain C function: loads all tensors it reads, calls it, and stores all tensors
    it writes. `casts` are the types of its parameters."""
    lines: list[str] = []
    arguments = record.arguments
    tensors = [(i, a) for i, a in enumerate(arguments) if a.kind == "tensor"]
    lines += [_value(i, a) for i, a in enumerate(arguments) if a.kind != "tensor"]
    for _, argument in tensors:
        lines.append(f"    void *{argument.name} = kl_allocate(core, {_bytes(argument)});\n")
    loaded = [(i, a) for i, a in tensors if a.access != "write"]
    for i, argument in loaded:
        lines.append(
            f"    const kl_tag load_{argument.name} = "
            f"kl_load(core, {argument.name}, args[{i}], {_bytes(argument)});\n"
        )
    lines += [f"    kl_wait(core, load_{argument.name});\n" for _, argument in loaded]
    passed = ", ".join(f"({cast}){a.name}" for cast, a in zip(casts, arguments, strict=True))
    lines.append(f"    {function}({passed});\n")
    unit = str(record.decisions["core"]["unit"]).upper()
    lines.append(
        f"    kl_charge(core, KL_UNIT_{unit}, KL_DTYPE_{record.dtype.upper()}, "
        f"{_operations(record, source)});\n"
    )
    stored = [(i, a) for i, a in tensors if a.access != "read"]
    for i, argument in stored:
        lines.append(
            f"    const kl_tag store_{argument.name} = "
            f"kl_store(core, args[{i}], {argument.name}, {_bytes(argument)});\n"
        )
    lines += [f"    kl_wait(core, store_{argument.name});\n" for _, argument in stored]
    return _entry("".join(lines), str(record.decisions["core"]["type"]))


def _operations(record: StepRecord, source: KernelSource) -> int:
    if source.charge is None or source.charge.operations is None:
        return sum(argument.elements for argument in _tensors(record))
    known: dict[str, Scalar] = {**record.sizes, "element": ELEMENT[record.dtype]}
    key = f"{record.key}.sources.charge.operations"
    count = evaluate(source.charge.operations, known, key=key)
    if isinstance(count, bool) or not isinstance(count, (int, float)) or not 0 <= count < 2**63:
        raise ConfigError(f"{count!r} is no number of operations", key=key)
    return round(count)


def _tensors(record: StepRecord) -> list[BoundArgument]:
    return [argument for argument in record.arguments if argument.kind == "tensor"]


def _bytes(argument: BoundArgument) -> int:
    return argument.elements * ELEMENT[argument.dtype]


def _value(index: int, argument: BoundArgument) -> str:
    name = argument.name
    return (
        f"    {argument.ctype} {name};\n"
        f"    __builtin_memcpy(&{name}, &args[{index}], sizeof {name});\n"
    )


def _entry(body: str, core_type: str) -> str:
    return (
        f"{_EXPORTED} extern const uint32_t {TYPE};\n"
        f"const uint32_t {TYPE} = {CORE_TYPES.index(core_type)}; /* {core_type} */\n\n"
        f"{_EXPORTED} void {ENTRY}(struct kl_core *core, const uint64_t *args);\n"
        f"void {ENTRY}(struct kl_core *core, const uint64_t *args)\n{{\n{body}}}\n"
    )
