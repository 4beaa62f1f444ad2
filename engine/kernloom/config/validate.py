"""Validation of resolved data as an Experiment: types by the schema, then rules across keys."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kernloom.base.digest import DigestCache, digest_of
from kernloom.base.errors import ConfigError, nearest
from kernloom.base.expressions import names_in, parse_size
from kernloom.config.accelerator import check_accelerator
from kernloom.config.convert import convert
from kernloom.config.distribution import check_distribute
from kernloom.config.schema import (
    CORE,
    DTYPES,
    FLOAT_VALUES,
    ROOT_KEYS,
    VALUES,
    Experiment,
    Kernel,
    KernelSource,
    MicroKernel,
    OwnOrchestration,
    Runtime,
    Step,
    Tunable,
    Workload,
)

_ROOT_KEYS = frozenset(ROOT_KEYS)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PLAIN = re.compile(r"\w[\w.+-]*", re.ASCII)
HEAPS = {"ring": "runtime.ring.heap", "graph": "runtime.graph.heap"}
"""Section of a runtime -> key of its memory for outputs."""
LEAST_MEMORY = 4096
"""Smallest memory limit: one page."""
ARCH_NAMES = (
    "registers",
    "vector_bytes",
    "element",
    "lanes_max",
    "l1",
    "l2",
    "l3",
    "cores",
    "fusable",
)
"""Names other than sizes and tunables that a kernel's constraints and model may use."""
_IMPORT = re.compile(r"[A-Za-z_][\w.+-]*")
"""Names in `workload.allow`."""
CORE_NAMES = (
    "sram",
    "hbm_bandwidth",
    "stripe",
    "dma_bandwidth",
    "noc_bandwidth",
    "bandwidth",
    "latency",
    "core_mhz",
    "matrix_rate",
    "vector_rate",
    "speed",
    "startup",
    "pes",
    "cubes",
    "cube_pes",
    "overhead",
    "handling",
    "submit",
)
"""Further names for sources of the family `core`: data of an accelerator."""


def experiment(data: Mapping[str, Any], cache: DigestCache | None = None) -> Experiment:
    """The validated experiment; sections in the cache are not checked again."""
    cache = DigestCache() if cache is None else cache
    for name in data:
        if name not in _ROOT_KEYS:
            raise ConfigError(f"unknown key '{name}'", hint=nearest(name, ROOT_KEYS))
    result = convert(Experiment, data, "", cache)
    _check_workload(result.workload, cache)
    parts = (result.target, result.arch, result.toolchain, result.runtime, result.measure)
    key = (_check_target, *map(digest_of, parts))
    cache.by_key(key, lambda: _check_target(result))
    _check_memory_limit(result)
    return result


def _check_memory_limit(experiment: Experiment) -> None:
    limit = experiment.memory_limit
    if limit is not None and parse_size(limit, key="memory_limit") < LEAST_MEMORY:
        raise ConfigError(
            f"{limit} is too small", key="memory_limit", hint="Allowed: 4KiB or more, or null."
        )


def _check_target(experiment: Experiment) -> None:
    target = experiment.target
    # These become parts of paths below build/, or text of a source.
    named = {
        "arch.name": experiment.arch.name,
        "arch.isa": experiment.arch.isa,
        "target.variant": target.variant,
        "runtime.name": experiment.runtime.name,
    }
    for key, name in named.items():
        _check_text([name], _PLAIN, key)
    if target.variant not in target.variants:
        raise ConfigError(
            f"target '{target.name}' has no variant '{target.variant}'",
            key="target.variant",
            hint=nearest(target.variant, target.variants),
        )
    if target.variant not in experiment.toolchain.variants:
        own = target.machine.toolchain
        raise ConfigError(
            f"toolchain '{experiment.toolchain.name}' cannot build variant '{target.variant}'",
            key="target.variant",
            hint=f"Leave `toolchain` out: the variant has its own, {own}."
            if own and own != experiment.toolchain.name
            else nearest(target.variant, experiment.toolchain.variants),
        )
    arch = experiment.arch
    if arch.vector_bits is not None and arch.vector_bits not in arch.vector_lengths:
        raise ConfigError(
            f"arch '{arch.name}' has no vectors of {arch.vector_bits} bits",
            key="arch.vector_bits",
            hint=f"Allowed: {', '.join(map(str, arch.vector_lengths))}.",
        )
    check_accelerator(arch, DTYPES)
    _check_heaps(experiment.runtime)
    _check_micro_kernels(arch.micro_kernels, "arch.micro_kernels")
    policy = experiment.measure
    if policy.max_rounds < policy.min_rounds:
        raise ConfigError(
            f"{policy.max_rounds} is less than min_rounds, {policy.min_rounds}",
            key="measure.max_rounds",
        )


def _check_workload(workload: Workload, cache: DigestCache) -> None:
    _check_dtype(workload.dtype, "workload.dtype")
    symbols = frozenset([*workload.sizes, "element"])
    for name, size in workload.sizes.items():
        _check_names([size], symbols, f"workload.sizes.{name}")
    # The other sections depend only on the names of the sizes, which all points of a sweep share.
    beside = (workload.tensors, workload.cost, workload.tolerance, workload.kernels)
    key = (
        _check_beside_sizes,
        symbols,
        *map(digest_of, (*beside, workload.steps, workload.golden, workload.orchestration)),
        tuple(workload.scalars),
    )
    cache.by_key(key, lambda: _check_beside_sizes(workload, symbols))
    _check_allow(workload)


def _check_allow(workload: Workload) -> None:
    for name in workload.allow:
        if not _IMPORT.fullmatch(name):
            raise ConfigError(
                f"{name!r} is no name of a function, a library or a group",
                key="workload.allow",
                hint="One of them is `printf`, `libgomp.so.1` or `openmp`.",
            )


def _check_beside_sizes(workload: Workload, symbols: frozenset[str]) -> None:
    _check_text(workload.tensors, _IDENTIFIER, "workload.tensors")
    _check_text(workload.steps, _IDENTIFIER, "workload.steps")
    for name, tensor in workload.tensors.items():
        key = f"workload.tensors.{name}"
        _check_names(tensor.shape, symbols, f"{key}.shape")
        if tensor.dtype is not None:
            _check_dtype(tensor.dtype, f"{key}.dtype")
        if tensor.fill.kind in ("file", "generator"):
            wanted = "path" if tensor.fill.kind == "file" else "generator"
            if not getattr(tensor.fill, wanted):
                raise ConfigError(
                    f"fill kind '{tensor.fill.kind}' needs '{wanted}'", key=f"{key}.fill"
                )
        if tensor.fill.low > tensor.fill.high:
            raise ConfigError("low is above high", key=f"{key}.fill")
    _check_names([workload.cost.flops], symbols, "workload.cost.flops")
    _check_names([workload.cost.bytes], symbols, "workload.cost.bytes")
    for dtype, tolerance in workload.tolerance.items():
        _check_dtype(dtype, "workload.tolerance")
        for part, value in vars(tolerance).items():
            _check_names([value], symbols, f"workload.tolerance.{dtype}.{part}")
    for name in workload.region:
        if name not in workload.golden:
            raise ConfigError(
                f"'{name}' is not an output with a golden",
                key="workload.region",
                hint=nearest(name, workload.golden),
            )
    _check_fuzz(workload)
    for name, kernel in workload.kernels.items():
        kernel.derive(_check_kernel, name)
    _check_steps(workload)


def _check_fuzz(workload: Workload) -> None:
    """What may be drawn is what the workload has."""
    fuzz = workload.fuzz
    for name, limits in fuzz.sizes.items():
        key = f"workload.fuzz.sizes.{name}"
        if name not in workload.sizes:
            raise ConfigError(f"unknown size '{name}'", key=key, hint=nearest(name, workload.sizes))
        high = limits.high
        least = max(limits.low, 1)
        if high is not None and least > high // limits.multiple * limits.multiple:
            raise ConfigError(
                f"no multiple of {limits.multiple} is from {least} to {high}", key=key
            )
    for name, kinds in fuzz.values.items():
        key = f"workload.fuzz.values.{name}"
        if name not in workload.tensors:
            raise ConfigError(
                f"unknown tensor '{name}'", key=key, hint=nearest(name, workload.tensors)
            )
        dtype = workload.tensors[name].dtype or workload.dtype
        for kind in kinds:
            if kind not in VALUES:
                raise ConfigError(f"unknown values '{kind}'", key=key, hint=nearest(kind, VALUES))
            if kind in FLOAT_VALUES and not dtype.startswith("float"):
                whole = [value for value in VALUES if value not in FLOAT_VALUES]
                raise ConfigError(
                    f"'{name}' has elements of {dtype}, and none of them is {kind}",
                    key=key,
                    hint=f"Whole numbers can be: {', '.join(whole)}.",
                )
        if not kinds:
            raise ConfigError("no values are left to draw", key=key)
    _check_names([fuzz.alignment], {"element"}, "workload.fuzz.alignment")


def _check_steps(workload: Workload) -> None:
    if workload.orchestration:
        _check_orchestration(workload, workload.orchestration)
        return
    if not workload.steps:
        raise ConfigError("a workload needs at least one step", key="workload.steps")
    outputs: dict[str, str] = {}
    written: set[str] = set()
    for name, step in workload.steps.items():
        key = f"workload.steps.{name}"
        if step.kernel not in workload.kernels:
            raise ConfigError(
                f"unknown kernel '{step.kernel}'",
                key=f"{key}.kernel",
                hint=nearest(step.kernel, workload.kernels),
            )
        kernel = workload.kernels[step.kernel]
        for argument in step.args:
            if argument not in kernel.arguments:
                raise ConfigError(
                    f"kernel '{step.kernel}' has no argument '{argument}'",
                    key=f"{key}.args",
                    hint=nearest(argument, kernel.arguments),
                )
        for argument, declared in kernel.arguments.items():
            bound = step.args.get(argument, argument)
            if declared.kind == "tensor" and bound not in workload.tensors:
                raise ConfigError(
                    f"unknown tensor '{bound}'",
                    key=f"{key}.args.{argument}",
                    hint=nearest(str(bound), workload.tensors),
                )
        _check_aliases(step, kernel, key)
        bound_to = _tensors_by_access(step, kernel)
        for tensor in (*bound_to["read"], *bound_to["update"]):
            outputs.pop(tensor, None)
        for tensor in (*bound_to["write"], *bound_to["update"]):
            outputs[tensor] = name
            written.add(tensor)
    _check_golden_names(workload, outputs, written)


def _check_orchestration(workload: Workload, own: OwnOrchestration) -> None:
    """The rules for a workload that submits its tasks itself."""
    key = "workload.orchestration"
    if workload.steps:
        raise ConfigError(
            "a workload has either steps or an orchestration of its own, and this one has both",
            key=key,
        )
    # These are names in C++ source.
    _check_text(own.kernels, _IDENTIFIER, f"{key}.kernels")
    _check_text(workload.sizes, _IDENTIFIER, "workload.sizes")
    _check_text(workload.scalars, _IDENTIFIER, "workload.scalars")
    if not own.kernels:
        raise ConfigError("names no kernel", key=f"{key}.kernels")
    taken = {"Element": "type of the generated header", "Launch": "type of the generated header"}
    for what, names in (
        *(("size", workload.sizes), ("scalar", workload.scalars)),
        *(("tensor", workload.tensors), ("kernel", own.kernels)),
    ):
        for name in names:
            if name.startswith("kl_"):
                raise ConfigError(
                    f"'{name}' begins like a name of Kernloom's own", key=key, hint="Rename it."
                )
            if name in taken:
                raise ConfigError(
                    f"'{name}' is the name of a {taken[name]} and of a {what}; an orchestration "
                    "has one name for each",
                    key=key,
                )
            taken[name] = what
    symbols = {*workload.sizes, "element"}
    for name, submitted in own.kernels.items():
        where = f"{key}.kernels.{name}"
        if submitted.kernel not in workload.kernels:
            raise ConfigError(
                f"unknown kernel '{submitted.kernel}'",
                key=f"{where}.kernel",
                hint=nearest(submitted.kernel, workload.kernels),
            )
        arguments = workload.kernels[submitted.kernel].arguments
        sizes = [name for name, argument in arguments.items() if argument.kind == "size"]
        for size, value in submitted.sizes.items():
            if size not in sizes:
                raise ConfigError(
                    f"kernel '{submitted.kernel}' has no size '{size}'",
                    key=f"{where}.sizes",
                    hint=nearest(size, sizes),
                )
            _check_names([value], symbols, f"{where}.sizes.{size}")
        for size in sizes:
            if size not in submitted.sizes and size not in workload.sizes:
                raise ConfigError(
                    f"nothing says how large '{size}' of kernel '{submitted.kernel}' usually is",
                    key=f"{where}.sizes",
                    hint=f"Parameters are chosen by it: sizes: {{{size}: ...}}.",
                )
    for tensor in own.access:
        if tensor not in workload.tensors:
            raise ConfigError(
                f"unknown tensor '{tensor}'",
                key=f"{key}.access",
                hint=nearest(tensor, workload.tensors),
            )
    written = {name for name, access in workload.accesses() if access != "read"}
    _check_golden_names(workload, dict.fromkeys(sorted(written), "(orchestration)"), written)


def _tensors_by_access(step: Step, kernel: Kernel) -> dict[str, list[str]]:
    tensors: dict[str, list[str]] = {"read": [], "write": [], "update": []}
    for name, argument in kernel.arguments.items():
        if argument.kind == "tensor":
            tensors[argument.access].append(str(step.args.get(name, name)))
    return tensors


def _check_golden_names(
    workload: Workload, outputs: Mapping[str, str], written: Collection[str]
) -> None:
    """Every output needs a golden, and every golden a tensor that is written. `outputs` are the
    tensors whose last value no step reads, each with the step that writes it."""
    if not workload.golden:
        raise ConfigError(
            "no output has a golden reference",
            key="workload.golden",
            hint=f"Outputs: {', '.join(outputs)}.",
        )
    for name, step in outputs.items():
        if name not in workload.golden:
            raise ConfigError(
                f"'{name}' has no golden, so nothing would verify it: step '{step}' writes it and "
                "no later step reads it",
                key="workload.golden",
                hint=f"Say what it must be: workload.golden.{name}.",
            )
    for name in workload.golden:
        if name not in written:
            raise ConfigError(
                f"'{name}' is not a tensor that a step writes",
                key="workload.golden",
                hint=nearest(name, written),
            )


def _check_aliases(step: Step, kernel: Kernel, key: str) -> None:
    """Refuse a written tensor that is also another argument: kernels assume no aliasing."""
    bound = [
        (str(step.args.get(name, name)), name, argument.access)
        for name, argument in kernel.arguments.items()
        if argument.kind == "tensor"
    ]
    for tensor, name, access in bound:
        others = [other for same, other, _ in bound if same == tensor and other != name]
        if access != "read" and others:
            raise ConfigError(
                f"tensor '{tensor}' is written as '{name}' and is also '{others[0]}'",
                key=f"{key}.args",
                hint="Give them different tensors.",
            )


def _check_kernel(kernel: Kernel, name: str) -> None:
    key = f"workload.kernels.{name}"
    # These are written into C source, where other text would be code.
    _check_text([kernel.name], _IDENTIFIER, f"{key}.name")
    _check_text(kernel.arguments, _IDENTIFIER, f"{key}.arguments")
    for dtype in kernel.dtypes:
        _check_dtype(dtype, f"{key}.dtypes")
    sizes = [name for name, argument in kernel.arguments.items() if argument.kind == "size"]
    common = _check_space(kernel, kernel.tunables, sizes, key)
    for name, argument in kernel.arguments.items():
        where = f"{key}.arguments.{name}"
        _check_names(argument.shape, set(sizes), f"{where}.shape")
        if argument.dtype is not None:
            _check_dtype(argument.dtype, f"{where}.dtype")
    for family, source in kernel.sources.items():
        where = f"{key}.sources.{family}"
        if bool(source.template) == bool(source.file):
            raise ConfigError("name either a template or a file", key=where)
        if source.file and not source.function:
            raise ConfigError("a plain file needs its function's name", key=f"{where}.function")
        known = common
        if source.tunables is not None:
            more = CORE_NAMES if family == CORE else ()
            known = _check_space(source, source.tunables, [*sizes, *more], where)
        elif source.constraints or source.model != "0":
            raise ConfigError("constraints and a model need tunables of its own", key=where)
        if source.work:
            _check_work(source, known, where)
        elif source.finish:
            raise ConfigError("work that is finished must have begun", key=f"{where}.work")
        if source.charge and source.charge.operations is not None:
            symbols = {*sizes, "element"}
            _check_names([source.charge.operations], symbols, f"{where}.charge.operations")
        if source.distribute:
            if family != CORE or not source.template:
                raise ConfigError(
                    "only a template of the family `core` computes in tiles that can be shared out",
                    key=f"{where}.distribute",
                )
            check_distribute(
                source.distribute,
                kernel.arguments,
                source.tunables or {},
                known,
                _check_names,
                f"{where}.distribute",
            )
        for macro, value in source.macros.items():
            if isinstance(value, str):
                _check_names([value], known | {*sizes}, f"{where}.macros.{macro}")
    _check_micro_kernels(kernel.micro_kernels, f"{key}.micro_kernels")


def _check_heaps(runtime: Runtime) -> None:
    for section, key in HEAPS.items():
        sizes = getattr(runtime, section)
        if sizes is not None and parse_size(sizes.heap, key=key) < 1:
            raise ConfigError("is empty", key=key, hint="Allowed: 1 or more bytes.")


def _check_micro_kernels(micro_kernels: Mapping[str, MicroKernel], key: str) -> None:
    # Names and functions are written into C source.
    _check_text(micro_kernels, _PLAIN, key)
    for name, micro in micro_kernels.items():
        _check_text([micro.function], _IDENTIFIER, f"{key}.{name}.function")
        _check_text([micro.operation], _IDENTIFIER, f"{key}.{name}.operation")
        _check_dtype(micro.dtype, f"{key}.{name}.dtype")
        if micro.cost is not None:
            _check_names([micro.cost], {"m", "n", "k"}, f"{key}.{name}.cost")


def _check_space(
    of: Kernel | KernelSource,
    tunables: Mapping[str, Mapping[str, Tunable]],
    sizes: Iterable[str],
    key: str,
) -> set[str]:
    """The names that expressions next to these tunables may use."""
    _check_text(tunables, _IDENTIFIER, f"{key}.tunables")
    transforms: dict[str, str] = {}
    for transform, group in tunables.items():
        _check_text(group, _IDENTIFIER, f"{key}.tunables.{transform}")
        for name, tunable in group.items():
            where = f"{key}.tunables.{transform}.{name}"
            texts = [value for value in (*tunable.values, tunable.off) if isinstance(value, str)]
            _check_text(texts, _PLAIN, where)
            if not tunable.values:
                raise ConfigError("has no values", key=f"{where}.values")
            if name in transforms:
                raise ConfigError(f"is also a tunable of '{transforms[name]}'", key=where)
            transforms[name] = transform
    known = {*transforms, *sizes, *ARCH_NAMES}
    for index, constraint in enumerate(of.constraints):
        _check_names([constraint], known, f"{key}.constraints[{index}]")
    _check_names([of.model], known, f"{key}.model")
    return known


def _check_work(source: KernelSource, known: set[str], key: str) -> None:
    for name, work in (("work", source.work), ("finish", source.finish)):
        if work is None:
            continue
        where = f"{key}.{name}"
        _check_names(work.items, known, f"{where}.items")
        _check_names(work.group, known, f"{where}.group")
        if not 1 <= len(work.items) <= 3 or len(work.items) != len(work.group):
            raise ConfigError(
                f"{len(work.items)} dimensions of items, {len(work.group)} of the group",
                key=where,
                hint="Allowed: 1 to 3, the same for both.",
            )
        if work.scratch is not None:
            _check_names([work.scratch], known, f"{where}.scratch")
            if name == "finish":
                raise ConfigError(
                    "both functions have the same scratch",
                    key=f"{where}.scratch",
                    hint=f"Say it in {key}.work.",
                )


def _check_dtype(dtype: str, key: str) -> None:
    if dtype not in DTYPES:
        raise ConfigError(f"unknown dtype '{dtype}'", key=key, hint=nearest(dtype, DTYPES))


def _check_text(texts: Iterable[str], allowed: re.Pattern[str], key: str) -> None:
    for text in texts:
        if not allowed.fullmatch(text):
            raise ConfigError(
                f"{text!r} cannot be used as a name",
                key=key,
                hint="Allowed: letters, digits and _"
                + (", not a digit first." if allowed is _IDENTIFIER else ", and . + - inside."),
            )


def _check_names(texts: Any, known: Collection[str], key: str) -> None:
    if any(isinstance(text, str) and not text.strip() for text in texts):
        raise ConfigError("has no value", key=key)
    try:
        used = names_in(texts)
    except ConfigError as error:
        raise ConfigError(error.message, key=key, hint=error.hint) from None
    for name in sorted(used):
        if name not in known:
            raise ConfigError(f"unknown name '{name}'", key=key, hint=nearest(name, known))
