"""The definition of the messages between the engine and a runner or simulator.

Every message is a header, a packed little-endian struct and a tail. The name of a field's
annotation is its wire type: `U16`, `U32` and `U64` are part of the struct; `Text` and
`tuple[Record, ...]` put their length there and their content into the tail, in field order.
`native/include/kernloom/messages.h` is generated from these classes (`generate_header`).

Bulk data never travels in a message: MemoryWrite and MemoryRead refer to bytes of a window of
shared memory. A launch refers to loaded kernels by handle and never carries code. Every request
gets exactly one Response per addressee, with the responder in its header.

A message is for the part of a device that its header names, where EVERY is a wildcard; with
`addressees` it is for all parts that these records at the start of the body name.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import IntEnum, IntFlag
from typing import Any, ClassVar, TypeAlias, TypeVar

U16: TypeAlias = int
U32: TypeAlias = int
U64: TypeAlias = int
Text: TypeAlias = str

MAGIC = 0x4D4F4F4C
"""`LOOM` in byte order."""
VERSION = 7
MAX_MESSAGE_BYTES = 64 << 20
EVERY = 0xFFFF
"""Wildcard in a part of an addressee."""

COPY_IN = (1 << 64) - 2
COPY_OUT = (1 << 64) - 1
"""Used instead of a kernel's handle: copy the one buffer from or to host memory."""
UNKNOWN_KINDS = (1 << 64) - 1
"""Used instead of the bits of a kernel's buffer arguments where they are not known."""

FORMATS = {"U16": "H", "U32": "I", "U64": "Q"}


class Kind(IntEnum):
    """The type of a message."""

    HELLO = 1
    ALLOCATE = 2
    FREE = 3
    MEMORY_WRITE = 4
    MEMORY_READ = 5
    MEMORY_FILL = 6
    LOAD = 7
    KERNEL_LAUNCH = 8
    MMU_MAP = 9
    MMU_UNMAP = 10
    PE_DMA = 11
    CLOSE = 12
    RESPONSE = 13
    CONFIGURE = 14
    PLACE = 15
    TRACE = 16
    DOCUMENT = 17
    VARY = 18


class Status(IntEnum):
    """The outcome of a request."""

    OK = 0
    INVALID = 1
    UNSUPPORTED = 2
    WRONG_VERSION = 3
    OUT_OF_MEMORY = 4
    OUT_OF_BOUNDS = 5
    USE_AFTER_FREE = 6
    DOUBLE_FREE = 7
    UNKNOWN_ADDRESS = 8
    UNKNOWN_KERNEL = 9
    WRONG_ARGUMENT_COUNT = 10
    LOAD_FAILED = 11
    UNAVAILABLE = 12
    NO_ANSWER = 13
    """A part of the device did not answer in virtual time."""
    DAMAGED = 14
    """A message arrived with a wrong checksum."""
    HAZARD = 15
    """A task transferred what it did not declare, or raced with another one."""
    FORBIDDEN = 16
    """A kernel asked the system for what the sandbox refuses."""
    CHANGED_STATE = 17
    """A kernel changed the rounding or the blocked signals of its thread."""


class Documents(IntEnum):
    """What an accelerator can tell about the tasks of its last launch, as JSON."""

    DEPENDENCIES = 0
    """Every edge of the graph; needs the setting `deps=1`."""
    REPLAY = 1
    """Runs a task again from a dump of its arguments; needs the setting `replay=TASK`."""


class Exit(IntEnum):
    """Exit codes with which a runner or its supervisor reports why it ended by itself."""

    DISCONNECTED = 6
    """The channel is closed: the engine has ended, or a kernel closed the descriptor."""
    LEFTOVERS = 109
    """The runner ended with code 0, but its kernels had left processes, which were killed."""


class Policy(IntEnum):
    """How a tensor is placed on the addressed PEs."""

    OWNER = 0
    """On the first one; every PE of the device maps it there."""
    REPLICATE = 1
    """A copy on each; each maps its own."""
    SHARD = 2
    """In units, in turn; every PE of the device maps each unit to its owner."""


class ArgumentKind(IntEnum):
    """The type of a launch argument's bits."""

    BUFFER = 1
    SCALAR = 2


class Change(IntEnum):
    """What happens to a piece of a tensor between two runs of a launch."""

    EXCHANGE = 1
    """An input: it has the content of one data set, then of the other, in turn."""
    RESTORE = 2
    """A tensor that kernels update: it gets its first content again."""
    POISON = 3
    """An output: every byte is 0xFF."""


class Moment(IntEnum):
    """When a tensor is copied into the window, relative to the run that is proven."""

    BEFORE = 0
    AFTER = 1


class Changes(IntEnum):
    """Whether the inputs of a sample changed between its runs (Vary)."""

    NONE = 0
    ALL = 1
    PROOF = 2
    """One of its runs was proven. It lasts longer than others, since copies of tensors displace
    what caches held."""


class Clock(IntFlag):
    """The clocks read before and after every sample."""

    WALL = 1
    THREAD_CPU = 2
    CONTEXT_SWITCHES = 4
    OTHERS = 8
    """CPU time of threads that are not ours."""
    ALL = 15


class Condition(IntFlag):
    """Conditions under which a launch takes its samples: requested in a launch, achieved in a
    response."""

    COLD = 1
    """All buffers are flushed from the caches before every sample."""
    REALTIME = 2
    """The threads that run kernels are in the real-time scheduling class."""
    FIXED_ADDRESSES = 4
    """No randomized addresses; decided at process start, so present only in responses."""
    SANDBOXED = 8
    """A filter of system calls surrounded the kernels; only in responses."""


@dataclass(frozen=True)
class Addressee:
    """The part of a device that a message is for; a host has only (0, 0, 0)."""

    sip: U16 = 0
    cube: U16 = 0
    pe: U16 = 0

    def __str__(self) -> str:
        return ".".join("*" if part == EVERY else str(part) for part in vars(self).values())


HOST = Addressee()


@dataclass(frozen=True)
class Header:
    """Opens every message; `correlation` is the operation, `request` the message."""

    magic: U32
    version: U16
    kind: U16
    size: U32
    """Size of the whole message, header included."""
    sip: U16
    cube: U16
    pe: U16
    addressees: U16
    """Number of Addressee records at the start of the body; 0: the part named here."""
    correlation: U64
    request: U64


@dataclass(frozen=True)
class Hello:
    """First message of a session; the response's value is the version the other side speaks."""

    KIND: ClassVar[Kind] = Kind.HELLO
    version: U32


@dataclass(frozen=True)
class Allocate:
    """The response's value is the buffer's address; the label names it in messages."""

    KIND: ClassVar[Kind] = Kind.ALLOCATE
    bytes: U64
    label: Text


@dataclass(frozen=True)
class Free:
    KIND: ClassVar[Kind] = Kind.FREE
    address: U64


@dataclass(frozen=True)
class MemoryWrite:
    """From the window at `offset` to the device's memory at `address`."""

    KIND: ClassVar[Kind] = Kind.MEMORY_WRITE
    address: U64
    offset: U64
    bytes: U64


@dataclass(frozen=True)
class MemoryRead:
    """From the device's memory at `address` to the window at `offset`."""

    KIND: ClassVar[Kind] = Kind.MEMORY_READ
    address: U64
    offset: U64
    bytes: U64


@dataclass(frozen=True)
class MemoryFill:
    KIND: ClassVar[Kind] = Kind.MEMORY_FILL
    address: U64
    bytes: U64
    value: U32


@dataclass(frozen=True)
class Load:
    """The response's value is the kernel's handle."""

    KIND: ClassVar[Kind] = Kind.LOAD
    arguments: U32
    """Number of arguments; a launch with another number is refused."""
    path: Text
    entry: Text
    """The function; `kl_orchestrate` for an orchestration."""
    name: Text = ""
    """What orchestrations, traces and messages call the kernel; empty: as its file."""
    buffers: U64 = UNKNOWN_KINDS
    """Bit i is set if argument i is a buffer; tasks with other kinds of arguments are refused."""


@dataclass(frozen=True)
class LaunchCall:
    """One kernel call; it takes the next `arguments` entries of the launch's arguments."""

    kernel: U64
    """A handle, or COPY_IN or COPY_OUT on devices with memory of their own."""
    arguments: U32


@dataclass(frozen=True)
class LaunchArgument:
    kind: U32
    bits: U64
    """A buffer's address, or the bit pattern of a scalar."""


@dataclass(frozen=True)
class KernelLaunch:
    """All calls in order are one iteration; a sample is `inner` iterations.

    `inner` 0 means: after the warm-up, find the count for which a sample lasts at least
    `min_sample_ns`, keep it for all samples and report it as the response's value. With cold caches
    it is always 1.

    With an orchestration the calls are the kernels that its tasks can use, without arguments, and
    the arguments are the orchestration's: its tensors are the buffers and its values the scalars.
    """

    KIND: ClassVar[Kind] = Kind.KERNEL_LAUNCH
    warmup: U32
    samples: U32
    inner: U64
    min_sample_ns: U64
    clock: U32
    conditions: U32
    calls: tuple[LaunchCall, ...]
    arguments: tuple[LaunchArgument, ...]
    orchestration: U64 = 0
    """The handle of an orchestration; 0: the calls are executed one after the other."""


@dataclass(frozen=True)
class Mapping:
    virtual_address: U64
    physical_address: U64
    bytes: U64
    sip: U16 = 0
    """The PE that owns the memory."""
    cube: U16 = 0
    pe: U16 = 0
    reserved: U16 = 0


@dataclass(frozen=True)
class MmuMap:
    """Teaches the addressed PEs these mappings; refused whole if one overlaps another."""

    KIND: ClassVar[Kind] = Kind.MMU_MAP
    mappings: tuple[Mapping, ...]


@dataclass(frozen=True)
class MmuUnmap:
    KIND: ClassVar[Kind] = Kind.MMU_UNMAP
    virtual_address: U64
    bytes: U64


@dataclass(frozen=True)
class PeDma:
    """Copy by the addressee's own DMA engine, within device memory or from or to its SRAM.

    The response's value is the virtual time that the copy itself took, in picoseconds.
    """

    KIND: ClassVar[Kind] = Kind.PE_DMA
    source: U64
    destination: U64
    bytes: U64


@dataclass(frozen=True)
class Close:
    """Last message of a session; the other side answers and ends."""

    KIND: ClassVar[Kind] = Kind.CLOSE


@dataclass(frozen=True)
class Configure:
    """Sent to an accelerator after Hello: what the device is, as lines `key=value`."""

    KIND: ClassVar[Kind] = Kind.CONFIGURE
    settings: Text


@dataclass(frozen=True)
class Place:
    """Allocates a tensor on the addressed PEs; the response's value is its virtual address."""

    KIND: ClassVar[Kind] = Kind.PLACE
    bytes: U64
    unit: U64
    """Bytes of a shard; 0: equal parts."""
    policy: U32
    label: Text


@dataclass(frozen=True)
class Trace:
    """Copies bytes of the trace into the window; the response's value is its whole length."""

    KIND: ClassVar[Kind] = Kind.TRACE
    offset: U64
    """In the trace."""
    window: U64
    """Offset in the window."""
    bytes: U64


@dataclass(frozen=True)
class Document:
    """Copies bytes of a document into the window; the response's value is its whole length. A
    request for 0 bytes makes it."""

    KIND: ClassVar[Kind] = Kind.DOCUMENT
    document: U32
    offset: U64
    """In the document."""
    window: U64
    """Offset in the window."""
    bytes: U64


@dataclass(frozen=True)
class Piece:
    """Bytes of a tensor that change between the runs of a launch."""

    address: U64
    bytes: U32
    change: U32
    own: U64
    """Offset in the window of its content in the data set of this launch; unused for POISON."""
    other: U64
    """The same in another data set; only for EXCHANGE."""


@dataclass(frozen=True)
class Span:
    """Bytes of the device's memory."""

    address: U64
    bytes: U64


@dataclass(frozen=True)
class Snapshot:
    """Bytes to copy into the window at `offset`, before or after the run that is proven."""

    address: U64
    bytes: U64
    offset: U64
    moment: U32


@dataclass(frozen=True)
class Vary:
    """The next launch changes its tensors between its runs, so that no run can reuse the results of
    another.

    While it samples, one piece of each kind changes before a run; the order is drawn from `secret`.
    One run is drawn, and copied by `snapshots`; `poisoned` is filled with 0xFF before the last
    sample. Whatever needs time happens while the clocks stand. The response tells the mixture of
    both data sets in the drawn and in the last run, `drawn` and `last`: a digit for each exchanged
    piece, 1 where it has the content of the other set. With snapshots of before it, and where
    nothing is told, the drawn run computes the unmixed data set; `drawn` is then the mixture of
    another run that is drawn, before which nothing special happens, `restored` the number of the
    piece that was restored just before it, and `content` that piece after it, in hexadecimal
    digits.
    """

    KIND: ClassVar[Kind] = Kind.VARY
    secret: U64
    pieces: tuple[Piece, ...]
    poisoned: tuple[Span, ...]
    snapshots: tuple[Snapshot, ...]


@dataclass(frozen=True)
class Sample:
    """One sample of a launch: the total of its `inner` iterations."""

    wall_ns: U64
    cpu_ns: U64
    involuntary: U32
    voluntary: U32
    instructions: U64
    """Exact where a counter is present; otherwise 0."""
    transfer_ns: U64 = 0
    """The part of `wall_ns` spent on copies between host and device."""
    virtual_ps: U64 = 0
    """Virtual time in picoseconds, where the device keeps it."""
    others_ns: U64 = 0
    """CPU time of threads that are neither the measured one nor the runner's own workers."""
    changes: U32 = 0
    """A value of Changes."""


@dataclass(frozen=True)
class Response:
    """Answers the request whose ids its header repeats."""

    KIND: ClassVar[Kind] = Kind.RESPONSE
    answers: U32
    """The kind of the request."""
    status: U32
    value: U64
    """An address, a handle, a version or an inner count."""
    detail: Text
    """What is wrong; for a launch that succeeded, a report as lines `key=value`."""
    samples: tuple[Sample, ...]
    conditions: U32 = 0
    """For a launch: the conditions under which its samples were taken."""
    virtual_ps: U64 = 0
    """Virtual time that the request took, where the device keeps it."""


Message: TypeAlias = (
    Hello
    | Allocate
    | Free
    | MemoryWrite
    | MemoryRead
    | MemoryFill
    | Load
    | KernelLaunch
    | MmuMap
    | MmuUnmap
    | PeDma
    | Close
    | Response
    | Configure
    | Place
    | Trace
    | Document
    | Vary
)

RECORDS: dict[str, type] = {
    cls.__name__: cls
    for cls in (Addressee, LaunchCall, LaunchArgument, Mapping, Piece, Span, Snapshot, Sample)
}
MESSAGES: dict[Kind, type[Message]] = {
    cls.KIND: cls
    for cls in (
        Hello,
        Allocate,
        Free,
        MemoryWrite,
        MemoryRead,
        MemoryFill,
        Load,
        KernelLaunch,
        MmuMap,
        MmuUnmap,
        PeDma,
        Close,
        Response,
        Configure,
        Place,
        Trace,
        Document,
        Vary,
    )
}


class MessageError(Exception):
    """Bytes that are not a message of this version."""

    def __init__(self, message: str, status: Status = Status.INVALID) -> None:
        super().__init__(message)
        self.status = status
        """The status of the response to them."""


@dataclass(frozen=True)
class Member:
    """One field of a struct on the wire."""

    name: str
    wire: str
    """`U16`, `U32`, `U64`, `Text` or the name of a record."""

    @property
    def in_tail(self) -> bool:
        return self.wire not in FORMATS

    @property
    def record(self) -> type | None:
        return RECORDS.get(self.wire)


@dataclass(frozen=True)
class Layout:
    """A dataclass as a packed struct."""

    members: tuple[Member, ...]
    fixed: struct.Struct
    tail: tuple[tuple[int, type | None], ...]
    """Position and record of the members whose content is in the tail; text has no record."""


_layouts: dict[type, Layout] = {}


def layout(cls: type) -> Layout:
    known = _layouts.get(cls)
    if known is None:
        members = []
        for item in fields(cls):
            annotation = str(item.type)
            members.append(
                Member(item.name, annotation.removeprefix("tuple[").removesuffix(", ...]"))
            )
        code = "".join(FORMATS.get(member.wire, "I") for member in members)
        tail = tuple((at, member.record) for at, member in enumerate(members) if member.in_tail)
        known = _layouts[cls] = Layout(tuple(members), struct.Struct("<" + code), tail)
    return known


HEADER = layout(Header).fixed
T = TypeVar("T")


def _pack_struct(value: Any) -> bytes:
    shape = layout(type(value))
    fixed = list(vars(value).values())
    if not shape.tail:
        return shape.fixed.pack(*fixed)
    tail = []
    for at, record in shape.tail:
        content = fixed[at].encode() if record is None else fixed[at]
        fixed[at] = len(content)
        tail.append(content if record is None else b"".join(map(_pack_struct, content)))
    return b"".join((shape.fixed.pack(*fixed), *tail))


def pack(
    message: Message,
    *,
    correlation: int,
    request: int,
    addressee: Addressee | None = None,
    addressees: Sequence[Addressee] = (),
) -> bytes:
    """The whole message, ready to be sent."""
    body = b"".join((*map(_pack_struct, addressees), _pack_struct(message)))
    to = addressee or HOST
    size = HEADER.size + len(body)
    if size > MAX_MESSAGE_BYTES:
        raise MessageError(f"a message of {size} bytes is larger than {MAX_MESSAGE_BYTES}")
    parts = (to.sip, to.cube, to.pe, len(addressees))
    header = HEADER.pack(MAGIC, VERSION, message.KIND, size, *parts, correlation, request)
    return header + body


def unpack_header(data: bytes | bytearray | memoryview) -> Header:
    """The header at the start of `data`, checked."""
    if len(data) < HEADER.size:
        raise MessageError(f"{len(data)} bytes are too few for a header")
    header = Header(*HEADER.unpack_from(data))
    if header.magic != MAGIC:
        raise MessageError(f"no message starts with {header.magic:#010x}")
    if header.version != VERSION:
        raise MessageError(
            f"version {header.version} of the messages, not {VERSION}", Status.WRONG_VERSION
        )
    if not HEADER.size <= header.size <= MAX_MESSAGE_BYTES:
        raise MessageError(f"a message cannot have {header.size} bytes")
    return header


def unpack(data: bytes | bytearray | memoryview) -> tuple[Header, Message]:
    """Unpack exactly one whole message."""
    header = unpack_header(data)
    return header, unpack_body(header, data)


def unpack_addressees(header: Header, data: bytes | bytearray | memoryview) -> list[Addressee]:
    """The parts of a device that a message is for, wildcards included."""
    record = layout(Addressee).fixed
    end = HEADER.size + header.addressees * record.size
    if end > len(data):
        raise MessageError(f"the list of {header.addressees} addressees is cut short")
    if not header.addressees:
        return [Addressee(header.sip, header.cube, header.pe)]
    listed = memoryview(data)[HEADER.size : end]
    return [Addressee(*parts) for parts in record.iter_unpack(listed)]


def unpack_body(header: Header, data: bytes | bytearray | memoryview) -> Message:
    """Unpack the body of `data`, which is one whole message including its header."""
    if len(data) != header.size:
        raise MessageError(f"{len(data)} bytes where the header says {header.size}")
    cls = MESSAGES.get(header.kind)  # type: ignore[call-overload]
    if cls is None:
        raise MessageError(f"unknown kind of message {header.kind}")
    shape = layout(cls)
    start = HEADER.size + header.addressees * layout(Addressee).fixed.size
    at = start + shape.fixed.size
    if at > header.size:
        raise MessageError(f"{cls.__name__} is cut short")
    values: list[Any] = list(shape.fixed.unpack_from(data, start))
    for place, record in shape.tail:
        stride = layout(record).fixed.size if record else 1
        end = at + values[place] * stride
        if end > header.size:
            raise MessageError(f"{cls.__name__}.{shape.members[place].name} is cut short")
        part = memoryview(data)[at:end]
        if record is None:
            values[place] = str(part, "utf-8", "replace")
        else:
            values[place] = tuple(
                record(*parts) for parts in layout(record).fixed.iter_unpack(part)
            )
        at = end
    if at != header.size:
        raise MessageError(f"{cls.__name__} has {header.size - at} bytes too many")
    message: Message = cls(*values)
    return message
