"""The worker's kernels: programs built by the driver, and their numbers of work-items."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyopencl as cl

from kernloom.base.errors import ConfigError
from kernloom.base.expressions import evaluate
from kernloom.device.messages import ArgumentKind, LaunchArgument, Status
from kernloom.device.opencl.memory import Block, Memory, RequestError

LAUNCH = "launch.json"
_TYPES = {
    "float32": ("float", 4),
    "float64": ("double", 8),
    "int32": ("int", 4),
    "int64": ("long", 8),
    "uint8": ("uchar", 1),
}
"""Element type -> its name in OpenCL C and its size in bytes."""
_SIGNED = 1 << 63


@dataclass(frozen=True)
class Argument:
    """One argument of a kernel, as launch.json describes it."""

    name: str
    kind: str
    dtype: str


@dataclass(frozen=True)
class Pass:
    """One function of a kernel and its numbers of work-items."""

    function: str
    items: tuple[int | str, ...]
    group: tuple[int | str, ...]


@dataclass(frozen=True)
class Loaded:
    """A kernel that can be launched."""

    program: Any
    arguments: tuple[Argument, ...]
    tunables: Mapping[str, Any]
    passes: tuple[Pass, ...]
    """Run one after the other, all with the same arguments."""
    scratch: Argument | None = None
    """Their last argument: device memory that lasts for one launch."""
    elements: int | str = 0
    """Elements of the scratch memory."""

    @property
    def function(self) -> str:
        return self.passes[0].function


@dataclass(frozen=True)
class Prepared:
    """A function of a call that is ready to enqueue: arguments set, numbers of work-items known."""

    kernel: Any
    items: tuple[int, ...]
    group: tuple[int, ...]


class Kernels:
    """All kernels that a session has loaded."""

    def __init__(self, context: Any, device: Any, memory: Memory) -> None:
        self._context = context
        self._device = device
        self._memory = memory
        self._programs: dict[tuple[str, str], Any] = {}
        """Text and include folder -> program."""
        self._loaded: list[Loaded] = []

    def load(self, path: Path, entry: str, count: int) -> int:
        """Build a kernel; returns its handle."""
        description = _description(path)
        entries = description.get("entries", {})
        if entry not in entries:
            known = ", ".join(sorted(entries)) or "(none)"
            raise _not_loaded(f"{path} has no entry '{entry}'. It has: {known}.")
        try:
            loaded = _loaded(self._program(path, description), entries[entry])
        except (KeyError, TypeError, AttributeError) as error:
            raise _not_loaded(f"{LAUNCH} beside {path} is damaged: {error!r}") from None
        if len(loaded.arguments) != count:
            raise _not_loaded(
                f"kernel '{loaded.function}' takes {len(loaded.arguments)} arguments, not {count}"
            )
        for each in loaded.passes:
            _check_function(loaded, each.function)
        self._loaded.append(loaded)
        return len(self._loaded)

    def _program(self, path: Path, description: Mapping[str, Any]) -> Any:
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _not_loaded(f"{path} cannot be read: {error}") from None
        options = [*map(str, description.get("options", ())), "-cl-kernel-arg-info"]
        include = description.get("include")
        key = (source, "" if include is None else str(path.parent))
        if key not in self._programs:
            program = cl.Program(self._context, source)
            try:
                if include is None:
                    self._programs[key] = program.build(options)
                else:
                    # Relative, because drivers split their options at the spaces of a path.
                    with contextlib.chdir(path.parent / str(include)):
                        self._programs[key] = program.build([*options, "-I", "."])
            except cl.Error as error:
                raise _not_loaded(f"{path} does not compile:\n{_log(error)}") from None
        return self._programs[key]

    def prepare(
        self, handle: int, arguments: Sequence[LaunchArgument]
    ) -> tuple[list[Prepared], list[Block], int | None]:
        """The functions that a call enqueues, its buffers, and the address of its scratch memory,
        which the caller must free."""
        if not 1 <= handle <= len(self._loaded):
            raise RequestError(Status.UNKNOWN_KERNEL, f"no kernel has the handle {handle}")
        loaded = self._loaded[handle - 1]
        if len(arguments) != len(loaded.arguments):
            raise RequestError(
                Status.WRONG_ARGUMENT_COUNT,
                f"kernel '{loaded.function}' takes {len(loaded.arguments)} arguments, "
                f"not {len(arguments)}",
            )
        known = dict(loaded.tunables)
        blocks, values = [], []
        for declared, given in zip(loaded.arguments, arguments, strict=True):
            wanted = ArgumentKind.BUFFER if declared.kind == "tensor" else ArgumentKind.SCALAR
            if given.kind != wanted:
                raise RequestError(
                    Status.INVALID,
                    f"argument '{declared.name}' of kernel '{loaded.function}' is a "
                    f"{declared.kind}, and was given something else",
                )
            if wanted is ArgumentKind.BUFFER:
                block, value = self._memory.argument(given.bits)
                blocks.append(block)
            else:
                value = given.bits.to_bytes(8, "little")[: _TYPES[declared.dtype][1]]
            if declared.kind == "size":
                known[declared.name] = given.bits - ((given.bits & _SIGNED) << 1)
            values.append(value)
        prepared = [self._prepared(loaded, each, known, values) for each in loaded.passes]
        if loaded.scratch is None:
            return prepared, blocks, None
        (elements,) = _numbers([loaded.elements], known, loaded.function)
        nbytes = elements * _TYPES[loaded.scratch.dtype][1]
        scratch = self._memory.allocate(nbytes, f"scratch of {loaded.function}")
        block, buffer = self._memory.argument(scratch)
        for each in prepared:
            each.kernel.set_arg(len(values), buffer)
        return prepared, [*blocks, block], scratch

    def _prepared(
        self, loaded: Loaded, each: Pass, known: Mapping[str, Any], values: Sequence[Any]
    ) -> Prepared:
        # Arguments are state of a kernel object, so each call has its own.
        kernel = cl.Kernel(loaded.program, each.function)
        for place, value in enumerate(values):
            kernel.set_arg(place, value)
        items = _numbers(each.items, known, each.function)
        group = _numbers(each.group, known, each.function)
        self._check_sizes(kernel, each.function, items, group)
        return Prepared(kernel, items, group)

    def _check_sizes(
        self, kernel: Any, function: str, items: tuple[int, ...], group: tuple[int, ...]
    ) -> None:
        info = cl.kernel_work_group_info.WORK_GROUP_SIZE
        most = kernel.get_work_group_info(info, self._device)
        limits = self._device.max_work_item_sizes
        size = 1
        for extent in group:
            size *= extent
        if size > most or any(g > limit for g, limit in zip(group, limits, strict=False)):
            raise RequestError(
                Status.INVALID,
                f"kernel '{function}' wants work-groups of {list(group)}, but this device takes "
                f"{most} work-items, at most {list(limits)}",
            )
        if any(extent % part for extent, part in zip(items, group, strict=True)):
            raise RequestError(
                Status.INVALID,
                f"kernel '{function}' has {list(items)} work-items, which groups of "
                f"{list(group)} do not divide",
            )


def _description(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise _not_loaded(f"there is no file {path}")
    beside = path.with_name(LAUNCH)
    try:
        description = json.loads(beside.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise _not_loaded(f"there is no {LAUNCH} beside {path}") from None
    except (OSError, ValueError) as error:
        raise _not_loaded(f"{beside} cannot be read: {error}") from None
    if not isinstance(description, dict) or not isinstance(description.get("entries"), dict):
        raise _not_loaded(f"{beside} has no entries")
    return description


def _loaded(program: Any, entry: Mapping[str, Any]) -> Loaded:
    passes = [entry, *([entry["finish"]] if entry.get("finish") else [])]
    scratch = entry.get("scratch")
    return Loaded(
        program,
        tuple(Argument(**argument) for argument in entry["arguments"]),
        dict(entry.get("tunables", {})),
        tuple(Pass(str(p["function"]), tuple(p["items"]), tuple(p["group"])) for p in passes),
        Argument("scratch", "tensor", scratch["dtype"]) if scratch else None,
        scratch["elements"] if scratch else 0,
    )


def _check_function(loaded: Loaded, function: str) -> None:
    """Refuse a function whose arguments differ from launch.json: the driver would not notice."""
    arguments = [*loaded.arguments, *([loaded.scratch] if loaded.scratch else [])]
    try:
        kernel = cl.Kernel(loaded.program, function)
    except cl.Error:
        raise _not_loaded(f"the program has no kernel '{function}'") from None
    if kernel.num_args != len(arguments):
        raise _not_loaded(
            f"kernel '{function}' takes {kernel.num_args} arguments, but {LAUNCH} names "
            f"{len(arguments)}"
        )
    info = cl.kernel_arg_info.TYPE_NAME
    for place, argument in enumerate(arguments):
        name = _TYPES[argument.dtype][0]
        wanted = f"{name}*" if argument.kind == "tensor" else name
        try:
            said = str(kernel.get_arg_info(place, info)).replace(" ", "")
        except cl.Error:
            return  # this driver does not report arguments
        if said not in (wanted, wanted.replace("uchar", "unsignedchar")):
            raise _not_loaded(
                f"argument '{argument.name}' of kernel '{function}' is {said}, but "
                f"{LAUNCH} says {wanted}"
            )


def _numbers(
    texts: Sequence[int | str], known: Mapping[str, Any], function: str
) -> tuple[int, ...]:
    numbers = []
    for text in texts:
        try:
            value = evaluate(text, known)
        except ConfigError as error:
            raise RequestError(Status.INVALID, f"kernel '{function}': {error.message}") from None
        if isinstance(value, bool) or int(value) != value or value < 1:
            raise RequestError(
                Status.INVALID, f"kernel '{function}': '{text}' is {value}, not a number of items"
            )
        numbers.append(int(value))
    return tuple(numbers)


def _log(error: cl.Error) -> str:
    """The compiler's log, without pyopencl's hints around it."""
    text = str(error)
    _, found, log = text.partition("\n\n")
    log = log.partition("\n(options:")[0] if found else text
    return log.strip() or text


def _not_loaded(detail: str) -> RequestError:
    return RequestError(Status.LOAD_FAILED, detail)
