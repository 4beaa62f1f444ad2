"""The messages: what is packed is unpacked, and nothing that is sent can break the runner."""

from __future__ import annotations

import os
import random
import select
import time
from collections.abc import Iterator

import pytest
from subjects import Subject, without

from kernloom.device import messages
from kernloom.device.connection import Connection
from kernloom.device.messages import (
    HEADER,
    MAGIC,
    VERSION,
    Addressee,
    Allocate,
    Change,
    Close,
    Configure,
    Document,
    Free,
    Hello,
    KernelLaunch,
    Kind,
    LaunchArgument,
    LaunchCall,
    Load,
    Mapping,
    MemoryFill,
    MemoryRead,
    MemoryWrite,
    Message,
    MessageError,
    MmuMap,
    MmuUnmap,
    Moment,
    PeDma,
    Piece,
    Place,
    Policy,
    Response,
    Sample,
    Snapshot,
    Span,
    Status,
    Trace,
    Vary,
    pack,
    unpack,
    unpack_addressees,
)
from kernloom.device.runner import RunnerSession

EXAMPLES: list[Message] = [
    Hello(VERSION),
    Allocate(2**63, "A"),
    Allocate(1, ""),
    Free(0xFFFF_FFFF_FFFF_FFFF),
    MemoryWrite(1, 2, 3),
    MemoryRead(4, 5, 6),
    MemoryFill(7, 8, 0xFF),
    Load(5, "/tmp/ü/kernel.so", "kl_entry", "matmul"),
    KernelLaunch(
        1, 2, 3, 4, 7, 3, (LaunchCall(1, 2), LaunchCall(2, 0)), (LaunchArgument(1, 64),) * 2, 5
    ),
    Vary(
        2**64 - 1,
        (Piece(64, 64, Change.EXCHANGE, 0, 64), Piece(1, 2, Change.POISON, 3, 4)),
        (Span(5, 6),),
        (Snapshot(7, 8, 9, Moment.AFTER),),
    ),
    MmuMap((Mapping(0, 4096, 4096), Mapping(4096, 0, 64, 1, 35, 2))),
    MmuUnmap(0, 4096),
    PeDma(1, 2, 3),
    Close(),
    Response(Kind.LOAD, Status.OK, 1, "", (Sample(1, 2, 3, 4, 5), Sample(5, 6, 7, 8, 9)), 7),
    Response(Kind.FREE, Status.DOUBLE_FREE, 0, "buffer 'x'", ()),
    Response(Kind.PE_DMA, Status.OK, 1, "", (Sample(0, 0, 0, 0, 0, 0, 2**63),), 0, 2**63),
    Configure("topology.sips=1\ntrace=0\n"),
    Place(2**40, 64, Policy.SHARD, "weights"),
    Trace(1, 2, 3),
    Document(1, 4096, 0, 512),
]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_comes_back_as_it_was_packed(message: Message) -> None:
    to = Addressee(1, 2, messages.EVERY)
    header, again = unpack(pack(message, correlation=2**60, request=9, addressee=to))
    assert again == message
    assert (header.correlation, header.request) == (2**60, 9)
    assert (header.sip, header.cube, header.pe) == (1, 2, messages.EVERY)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_to_several_parts_names_them_before_its_body(message: Message) -> None:
    parts = [Addressee(0, 1, 2), Addressee(3, messages.EVERY, messages.EVERY)]
    data = pack(message, correlation=1, request=2, addressees=parts)
    header, again = unpack(data)
    assert (again, header.addressees) == (message, 2)
    assert unpack_addressees(header, data) == parts
    alone = pack(message, correlation=1, request=2, addressee=parts[0])
    assert unpack_addressees(unpack(alone)[0], alone) == parts[:1]


def test_a_list_of_parts_that_is_cut_short_is_refused() -> None:
    data = HEADER.pack(MAGIC, VERSION, Kind.CLOSE, HEADER.size + 11, 0, 0, 0, 2, 1, 1) + bytes(11)
    with pytest.raises(MessageError):
        unpack(data)
    with pytest.raises(MessageError, match="2 addressees is cut short"):
        unpack_addressees(messages.unpack_header(data), data)


def test_every_kind_has_an_example_and_a_class() -> None:
    assert {type(message).KIND for message in EXAMPLES} == set(Kind) == set(messages.MESSAGES)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_cut_short_or_prolonged_is_refused(message: Message) -> None:
    data = pack(message, correlation=1, request=1)
    for wrong in (*(data[:n] for n in range(len(data))), data + b"\0"):
        with pytest.raises(MessageError):
            unpack(wrong)
        if len(wrong) >= HEADER.size:
            fixed = HEADER.pack(MAGIC, VERSION, message.KIND, len(wrong), 0, 0, 0, 0, 1, 1)
            with pytest.raises(MessageError):
                unpack(fixed + wrong[HEADER.size :])


def test_another_magic_version_or_kind_is_refused() -> None:
    for magic, version, kind in ((0, VERSION, 1), (MAGIC, VERSION + 1, 1), (MAGIC, VERSION, 99)):
        with pytest.raises(MessageError):
            unpack(HEADER.pack(magic, version, kind, HEADER.size, 0, 0, 0, 0, 1, 1))


class Raw:
    """Bytes to a runner and its answers back."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def send(self, data: bytes) -> None:
        self.connection.send(data, time.monotonic() + 20)

    def receive(self) -> tuple[messages.Header, Response]:
        header, message = self.connection.receive(time.monotonic() + 20)
        assert isinstance(message, Response)
        return header, message

    def returncode(self) -> int:
        """Of the runner, which ends by itself."""
        ended = os.pidfd_open(self.connection.process.pid)
        try:
            assert select.select([ended], [], [], 20)[0]
        finally:
            os.close(ended)
        return self.connection.end()


@pytest.fixture
def raw(subject: Subject) -> Iterator[Raw]:
    with subject.device.open() as session:
        assert isinstance(session, RunnerSession)
        raw = Raw(session._connection)
        # An accelerator has been configured, after its greeting was received.
        if session._posted:
            _, greeting = raw.receive()
            assert (greeting.answers, greeting.status) == (Kind.HELLO, Status.OK)
        yield raw


# A part with flash is booted for every launch, and takes no messages.
speaking = without("flash")


@speaking
def test_requests_may_be_sent_before_earlier_ones_are_answered(raw: Raw) -> None:
    for request in range(1, 51):
        raw.send(pack(Allocate(request, f"b{request}"), correlation=7, request=request))
    for request in range(1, 51):
        header, response = raw.receive()
        assert (header.correlation, header.request) == (7, request)
        assert (response.answers, response.status) == (Kind.ALLOCATE, Status.OK)


@speaking
def test_every_request_gets_exactly_one_response_whatever_its_bytes(raw: Raw) -> None:
    numbers = random.Random(1)
    for request in range(1, 1500):
        kind = numbers.choice([kind for kind in [*Kind, 0, 99] if kind != Kind.CLOSE])
        if numbers.random() < 0.5:
            body = bytearray(numbers.randbytes(numbers.randrange(100)))
        else:
            example = numbers.choice([m for m in EXAMPLES if kind == m.KIND] or EXAMPLES)
            body = bytearray(pack(example, correlation=1, request=1)[HEADER.size :])
            for _ in range(numbers.randrange(4)):
                if body:
                    body[numbers.randrange(len(body))] = numbers.randrange(256)
        size = HEADER.size + len(body)
        raw.send(HEADER.pack(MAGIC, VERSION, kind, size, 0, 0, 0, 0, request, request) + body)
        header, response = raw.receive()
        assert (header.request, response.answers) == (request, kind)
    raw.send(pack(Close(), correlation=1, request=0))
    assert raw.receive()[1].status == Status.OK
    with pytest.raises(EOFError):
        raw.receive()
    assert raw.returncode() == 0


@speaking
@pytest.mark.parametrize(
    ("magic", "version", "size", "status"),
    [
        (0, VERSION, HEADER.size, Status.INVALID),
        (MAGIC, VERSION + 1, HEADER.size, Status.WRONG_VERSION),
        (MAGIC, VERSION, HEADER.size - 1, Status.INVALID),
        (MAGIC, VERSION, 2**32 - 1, Status.INVALID),
    ],
)
def test_what_is_not_a_message_is_answered_and_ends_the_runner(
    raw: Raw, magic: int, version: int, size: int, status: Status
) -> None:
    raw.send(HEADER.pack(magic, version, Kind.HELLO, size, 0, 0, 0, 0, 1, 1))
    assert raw.receive()[1].status == status
    with pytest.raises(EOFError):
        raw.receive()
    assert raw.returncode() == 3


@without("mmu", "flash")
def test_a_device_without_parts_refuses_to_be_addressed_by_part(raw: Raw) -> None:
    raw.send(pack(Allocate(8, "x"), correlation=1, request=1, addressees=[Addressee(0, 0, 0)]))
    header, response = raw.receive()
    assert (header.addressees, response.status) == (0, Status.INVALID)
    assert "no parts to address" in response.detail


@speaking
def test_another_version_in_hello_is_refused(raw: Raw) -> None:
    raw.send(pack(Hello(VERSION + 1), correlation=1, request=1))
    _, response = raw.receive()
    assert (response.status, response.value) == (Status.WRONG_VERSION, VERSION)
