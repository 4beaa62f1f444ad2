"""What every device promises, on every device."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from building import types
from subjects import Crash, Subject, having, with_each, without

from kernloom.base.errors import DeviceError
from kernloom.base.gauges import INSTRUCTIONS, TIME
from kernloom.config.schema import DTYPES, STATUSES
from kernloom.device.contract import (
    CAPABILITIES,
    Buffer,
    BufferRequest,
    Call,
    KernelRequest,
    LaunchResult,
    LaunchSettings,
    LoadedKernel,
    Scalar,
    Session,
    Transfer,
    require,
)


def load(session: Session, subject: Subject, name: str) -> LoadedKernel:
    return session.load(subject.library, types(name), entry=name)


def run(session: Session, subject: Subject, name: str, *args: Buffer | Scalar) -> LaunchResult:
    return session.launch([Call(load(session, subject, name), args)])


def crash(session: Session, subject: Subject) -> str:
    """Has the kernel write to nowhere; how the device calls that."""
    with pytest.raises(DeviceError) as error:
        run(session, subject, "write_to", Scalar(0))
    assert error.value.status == "crashed"
    return subject.kind.crashes["write_to", 0]


def number(session: Session, buffer: Buffer) -> int:
    return int.from_bytes(session.read(buffer, 8), "little")


def measured(subject: Subject, result: LaunchResult) -> list[tuple[int, ...]]:
    """What the device promises to measure of every sample."""
    promised = {
        "wall_clock": [result.wall_ns],
        "cpu_clock": [result.cpu_ns],
        "context_switches": [result.involuntary, result.voluntary],
        "instructions": [result.instructions],
    }
    has = subject.device.capabilities
    return [samples for name, lists in promised.items() if name in has for samples in lists]


@contextmanager
def refused(code: str) -> Iterator[pytest.ExceptionInfo[DeviceError]]:
    with pytest.raises(DeviceError) as error:
        yield error
    assert error.value.code == code


def test_capabilities_are_known_words_and_what_is_missing_is_refused_by_name(
    subject: Subject,
) -> None:
    assert subject.device.capabilities <= CAPABILITIES.keys()
    require(subject.device, "memory", "launch")
    with pytest.raises(DeviceError, match="has no 'teleport'") as refusal:
        require(subject.device, "teleport")
    assert refusal.value.status == "refused"


def test_a_device_says_who_it_is(subject: Subject) -> None:
    device = subject.device
    assert device.identity == f"{device.name}:{device.arch}:{device.index}"
    assert device.arch


@pytest.mark.parametrize("dtype", [*DTYPES, "float16", "bool", "int16", "complex64"])
def test_arrays_of_every_type_come_back_as_they_went(
    session: Session, subject: Subject, dtype: str
) -> None:
    for count in subject.kind.counts:
        array = np.random.default_rng(count).integers(0, 255, count).astype(dtype)
        buffer = session.allocate(array.nbytes, "x")
        session.write(buffer, array)
        assert np.array_equal(np.frombuffer(session.read(buffer), dtype), array)


def test_arrays_that_are_not_contiguous_are_written_in_c_order(session: Session) -> None:
    array = np.arange(60, dtype="float64").reshape(6, 10).T[::2]
    buffer = session.allocate(array.nbytes)
    session.write(buffer, array)
    assert session.read(buffer) == array.tobytes()


def test_nothing_is_written_for_an_empty_array(session: Session) -> None:
    buffer = session.allocate(8)
    session.fill(buffer, 7)
    session.write(buffer, np.zeros((0, 3)))
    assert session.read(buffer) == b"\x07" * 8


def test_parts_of_a_buffer_are_written_and_read(session: Session) -> None:
    buffer = session.allocate(10)
    session.fill(buffer, 0xAB)
    session.write(buffer, b"xyz", offset=4)
    assert session.read(buffer) == b"\xab" * 4 + b"xyz" + b"\xab" * 3
    assert session.read(buffer, 2, offset=5) == b"yz"
    assert session.read(buffer, offset=9) == b"\xab"
    assert session.read(buffer, 0) == b""


def test_transfers_larger_than_the_window_go_in_pieces(session: Session, subject: Subject) -> None:
    array = np.arange(subject.kind.pieces // 4, dtype="uint32")
    buffer = session.allocate(array.nbytes, "large")
    session.write(buffer, array)
    assert np.array_equal(np.frombuffer(session.read(buffer), "uint32"), array)


def test_buffers_and_kernels_are_prepared_together(session: Session, subject: Subject) -> None:
    given = np.arange(12, dtype="float64").reshape(3, 4).T
    wanted = [
        BufferRequest(8, "counter", 0),
        BufferRequest(given.nbytes, "given", given),
        BufferRequest(5, "filled", 0xAB),
        BufferRequest(10, "part", b"xyz"),
    ]
    kernel = KernelRequest(subject.library, types("count"), "count")
    buffers, kernels = session.prepare(wanted, [kernel, kernel])
    assert [(b.nbytes, b.label) for b in buffers] == [(w.nbytes, w.label) for w in wanted]
    calls = [Call(count, (buffers[0],)) for count in kernels]
    result, seen = session.launch_and_view(calls, LaunchSettings(samples=2), buffers)
    assert all(len(samples) == 2 for samples in measured(subject, result))
    assert int.from_bytes(seen[0], "little") == 2 * 2
    assert (seen[1], seen[2], seen[3][:3]) == (given.tobytes(), b"\xab" * 5, b"xyz")
    assert [bytes(view) for view in session.view(buffers[::-1])][2] == given.tobytes()
    # What was left to be sent does not undo what is written next.
    (late,), _ = session.prepare([BufferRequest(8, "late", given[:1, 0])], [])
    session.write(late, b"12345678")
    assert session.read(late) == b"12345678"


def test_what_cannot_be_prepared_is_refused_as_if_it_was_asked_for_alone(
    session: Session, subject: Subject
) -> None:
    good, kernel = BufferRequest(8, "good", 1), KernelRequest(subject.library, types("count"))
    with pytest.raises(DeviceError, match="'huge'") as error:
        session.prepare([good, BufferRequest(1 << 50, "huge", 1)], [])
    assert error.value.status == "out_of_memory"
    with refused("load_failed"):
        session.prepare([good], [replace(kernel, entry="missing"), kernel])
    with refused("invalid"):
        session.prepare([BufferRequest(2, "small", b"too much")], [])
    (buffer,), _ = session.prepare([good], [])
    assert session.read(buffer) == b"\1" * 8


def test_a_crash_is_blamed_on_the_launch_whatever_was_sent_with_it(
    session: Session, subject: Subject
) -> None:
    kernel = KernelRequest(subject.library, types("write_to"), "write_to")
    buffers, (write_to,) = session.prepare([BufferRequest(8, "x", 1)], [kernel])
    with pytest.raises(DeviceError) as error:
        session.launch_and_view([Call(write_to, (Scalar(0),))], LaunchSettings(), buffers)
    assert error.value.status == "crashed"
    assert error.value.message.startswith(subject.kind.crashes["write_to", 0])
    assert "Memory" not in error.value.message.removeprefix("MemManage")


@with_each("samples", "answers")
def test_whatever_a_launch_answers_the_answers_after_it_are_found(
    session: Session, subject: Subject, samples: int
) -> None:
    wanted = [BufferRequest(8, f"b{value}", value) for value in range(5)]
    kernel = KernelRequest(subject.library, types("count"), "count")
    buffers, (count,) = session.prepare(wanted, [kernel])
    settings = LaunchSettings(samples=samples, timeout=60)
    start = time.monotonic()
    result, seen = session.launch_and_view([Call(count, (buffers[0],))], settings, buffers)
    assert all(len(taken) == samples for taken in measured(subject, result))
    assert int.from_bytes(seen[0], "little") == samples
    assert [bytes(view) for view in seen[1:]] == [bytes([value] * 8) for value in range(1, 5)]
    # Nobody waited, until the launch's time was over, for bytes that do not come.
    assert time.monotonic() < start + 60


def test_more_than_fits_the_window_is_prepared_and_looked_at(
    session: Session, subject: Subject
) -> None:
    large = np.arange(subject.kind.pieces // 4, dtype="uint32")
    small = np.arange(100, dtype="uint8")
    contents = [small, large, small[::-1]]
    wanted = [BufferRequest(c.nbytes, f"b{i}", c) for i, c in enumerate(contents)]
    buffers, _ = session.prepare(wanted, [])
    for view, content in zip(session.view(buffers), contents, strict=True):
        assert np.array_equal(np.frombuffer(view, content.dtype), content)


def test_buffers_are_aligned_and_do_not_overlap(session: Session, subject: Subject) -> None:
    buffers = [session.allocate(nbytes) for nbytes in subject.kind.buffers]
    assert all(buffer.address % 64 == 0 for buffer in buffers)
    ordered = sorted(buffers, key=lambda buffer: buffer.address)
    for lower, upper in itertools.pairwise(ordered):
        assert lower.address + lower.nbytes <= upper.address


def test_an_address_inside_a_buffer_is_the_rest_of_it(session: Session, subject: Subject) -> None:
    buffer = session.allocate(512, "whole")
    session.fill(buffer, 0)
    rest = Buffer(buffer.address + 256, 256)
    session.fill(Buffer(rest.address, 8), 1)
    session.write(rest, b"xyz", offset=8)
    assert session.read(rest, 12) == b"\1" * 8 + b"xyz\0"
    run(session, subject, "write_at", Scalar(16), rest)
    assert session.read(buffer, 18, offset=256)[16:] == b"\x11\0"
    assert session.read(buffer, 256) == bytes(256)
    with refused("invalid"):
        session.fill(Buffer(rest.address, 257), 0)


@having("guards")
def test_addresses_are_those_that_kernels_see(session: Session, subject: Subject) -> None:
    one, other = session.allocate(100), session.allocate(100)
    session.fill(other, 0)
    run(session, subject, "write_at", Scalar(other.address - one.address + 7), one)
    assert session.read(other, 9) == bytes(7) + b"\x11\0"


@pytest.mark.parametrize("nbytes", [0, -1, 1 << 40, 1 << 60, (1 << 64) - 1, 1 << 70])
def test_impossible_allocations_are_refused_and_the_session_goes_on(
    session: Session, nbytes: int
) -> None:
    with pytest.raises(DeviceError) as error:
        session.allocate(nbytes, "too much")
    assert error.value.code in ("out_of_memory", "invalid")
    session.fill(session.allocate(100), 1)


def test_more_than_there_is_is_out_of_memory(session: Session) -> None:
    with pytest.raises(DeviceError, match="'too much'") as error:
        session.allocate(1 << 45, "too much")
    assert error.value.status == "out_of_memory"


def test_freed_memory_can_be_had_again(session: Session, subject: Subject) -> None:
    for _ in range(50):
        buffer = session.allocate(subject.kind.large)
        session.fill(buffer, 1)
        session.free(buffer)


def test_use_after_free_and_double_free_are_told_apart(session: Session) -> None:
    buffer = session.allocate(100, "gone")
    session.free(buffer)
    with refused("use_after_free"):
        session.write(buffer, b"x")
    with refused("use_after_free"):
        session.read(buffer)
    with refused("use_after_free"):
        session.fill(buffer, 0)
    with refused("double_free"):
        session.free(buffer)
    # A later buffer never takes the address of a freed one.
    again = session.allocate(100)
    assert again.address != buffer.address
    with refused("double_free"):
        session.free(buffer)


def test_unknown_addresses_are_refused(session: Session) -> None:
    buffer = session.allocate(100)
    with refused("unknown_address"):
        session.fill(Buffer(0xDEAD000, 8), 0)
    with refused("unknown_address"):
        session.free(Buffer(buffer.address + 8, 92))
    with refused("unknown_address"):
        session.fill(Buffer(buffer.address - 8, 8), 0)


def test_transfers_beyond_a_buffer_are_refused(session: Session) -> None:
    buffer = session.allocate(100, "small")
    with refused("invalid"):
        session.write(buffer, b"x" * 101)
    with refused("invalid"):
        session.write(buffer, b"x", offset=-1)
    with refused("invalid"):
        session.read(buffer, 10, offset=91)
    with refused("invalid"):
        session.fill(Buffer(buffer.address, 101), 0)
    with refused("invalid"):
        session.fill(buffer, 256)


def test_a_kernel_computes(session: Session, subject: Subject) -> None:
    x = np.arange(1021, dtype="float32")
    y = np.ones(1021, dtype="float32")
    buffers = [session.allocate(array.nbytes) for array in (x, y)]
    for buffer, array in zip(buffers, (x, y), strict=True):
        session.write(buffer, array)
    run(session, subject, "axpy", Scalar(1021), Scalar(0.5, "float32"), *buffers)
    assert np.array_equal(np.frombuffer(session.read(buffers[1]), "float32"), y + 0.5 * x)
    assert np.array_equal(np.frombuffer(session.read(buffers[0]), "float32"), x)


def test_scalars_arrive_with_their_type(session: Session, subject: Subject) -> None:
    out = session.allocate(24)
    run(
        session,
        subject,
        "scalars",
        Scalar(-(2**40)),
        Scalar(0.25, "float32"),
        Scalar(1e300, "float64"),
        out,
    )
    assert np.frombuffer(session.read(out)).tolist() == [-(2.0**40), 0.25, 1e300]


def test_scalars_that_do_not_fit_are_refused() -> None:
    for scalar in (Scalar(2**63), Scalar(1e300, "float32"), Scalar(1, "float128")):
        with pytest.raises(DeviceError):
            _ = scalar.bits


def test_calls_of_a_launch_run_in_order_for_every_iteration(
    session: Session, subject: Subject
) -> None:
    counter = session.allocate(8)
    count, twice = load(session, subject, "count"), load(session, subject, "twice")
    session.fill(counter, 0)
    result = session.launch(
        [Call(count, (counter,)), Call(twice, (counter,))],
        LaunchSettings(warmup=1, inner=2, samples=3),
    )
    expected = 0
    for _ in range(1 + 2 * 3):
        expected = (expected + 1) * 2
    assert number(session, counter) == expected
    assert result.inner == 2
    for samples in measured(subject, result):
        assert len(samples) == 3


@having("calibrate")
def test_calibration_makes_samples_long_enough_and_reports_the_count(
    session: Session, subject: Subject
) -> None:
    counter = session.allocate(8)
    session.fill(counter, 0)
    count = load(session, subject, "count")
    settings = LaunchSettings(warmup=3, inner=0, samples=4, min_sample_ns=200_000)
    result = session.launch([Call(count, (counter,))], settings)
    assert result.inner > 1
    assert all(ns > 0 for ns in result.wall_ns)
    assert number(session, counter) >= 3 + 4 * result.inner


@having("calibrate")
@pytest.mark.parametrize("warmup", [0, 1, 5])
def test_a_run_that_is_long_enough_is_a_sample_and_is_found_while_warming_up(
    session: Session, subject: Subject, warmup: int
) -> None:
    counter = session.allocate(8)
    session.fill(counter, 0)
    count = Call(load(session, subject, "count"), (counter,))
    settings = LaunchSettings(warmup=warmup, inner=0, samples=4, min_sample_ns=1)
    assert session.launch([count], settings).inner == 1
    # Two runs are proof; what the warm-up lacks of them is made up for.
    assert number(session, counter) == max(warmup, 2) + 4


@without("calibrate")
def test_where_there_is_no_calibration_it_is_refused(session: Session, subject: Subject) -> None:
    call = Call(load(session, subject, "count"), (session.allocate(8),))
    with refused("unsupported") as error:
        session.launch([call], LaunchSettings(inner=0))
    assert "has no 'calibrate'" in error.value.message
    session.launch([call])


@without("transfers")
def test_where_there_are_no_transfers_they_are_refused(session: Session, subject: Subject) -> None:
    buffer = session.allocate(8)
    call = Call(load(session, subject, "count"), (buffer,))
    for transfer in (Transfer(buffer, "in"), Transfer(buffer, "out")):
        with refused("unsupported") as error:
            session.launch([call, transfer])
        assert "has no 'transfers'" in error.value.message
    session.launch([call])


def test_a_launch_has_what_every_gauge_of_the_device_shows(
    session: Session, subject: Subject
) -> None:
    gauges, has = subject.device.gauges, subject.device.capabilities
    assert (INSTRUCTIONS in gauges) == ("instructions" in has)
    assert (TIME in gauges) == ("wall_clock" in has)
    counter = session.allocate(8)
    result = run(session, subject, "count", counter)
    for gauge in gauges:
        shown = result.wall_ns if gauge == TIME else result.per_run(gauge)
        assert len(shown) == 1


@having("instructions")
def test_counts_are_exact_and_repeat(session: Session, subject: Subject) -> None:
    def count(rounds: int) -> int:
        return run(session, subject, "spin", Scalar(rounds)).instructions[0]

    assert count(2000) - count(1000) == 3000
    assert count(1000) == count(1000)
    assert 3 * 1000 <= count(1000) < 3 * 1000 + 100


@having("instructions")
def test_every_sample_has_its_own_count_and_warm_up_has_none(
    session: Session, subject: Subject
) -> None:
    spin = Call(load(session, subject, "spin"), (Scalar(1000),))
    few, more = (
        session.launch([spin], LaunchSettings(warmup=5, inner=inner, samples=2)) for inner in (3, 5)
    )
    for result, inner in ((few, 3), (more, 5)):
        first, second = result.instructions
        assert first == second
        assert 3000 * inner <= first < 3000 * inner + 100 * (inner + 1)
        assert result.wall_ns == ()


def test_any_number_of_samples_comes_back(session: Session, subject: Subject) -> None:
    counter = session.allocate(8)
    count = load(session, subject, "count")
    result = session.launch([Call(count, (counter,))], LaunchSettings(samples=subject.kind.samples))
    for samples in measured(subject, result):
        assert len(samples) == subject.kind.samples


def test_settings_out_of_range_are_refused(session: Session, subject: Subject) -> None:
    call = Call(load(session, subject, "count"), (session.allocate(8),))
    for settings in (
        LaunchSettings(samples=-1),
        LaunchSettings(samples=10**9),
        LaunchSettings(inner=-1),
        LaunchSettings(warmup=1 << 40),
    ):
        with refused("invalid"):
            session.launch([call], settings)
    with refused("invalid"):
        session.launch([])


@with_each("work", "tasks")
def test_every_task_of_a_parallel_kernel_runs_once(
    session: Session, subject: Subject, work: tuple[int, int]
) -> None:
    tasks, threads = work
    out = session.allocate(8 * max(tasks, 1))
    session.fill(out, 0)
    run(session, subject, "parallel", Scalar(tasks), Scalar(threads), out)
    run(session, subject, "parallel", Scalar(tasks), Scalar(threads), out)
    done = np.frombuffer(session.read(out), "int64")[:tasks]
    assert np.array_equal(done, 2 * np.arange(1, tasks + 1))


def test_unknown_kernels_and_libraries_are_refused(session: Session, subject: Subject) -> None:
    missing = subject.library.with_name("missing.so")
    with refused("load_failed") as error:
        session.load(missing, 0)
    assert "missing.so" in str(error.value)
    with refused("load_failed") as error:
        session.load(subject.library, 0, entry="nothing_of_this_name")
    assert "nothing_of_this_name" in str(error.value)
    with refused("unknown_kernel"):
        session.launch([Call(LoadedKernel(99, missing, 0), ())])
    with refused("unknown_kernel"):
        session.launch([Call(LoadedKernel(0, missing, 0), ())])


def test_a_wrong_number_of_arguments_is_refused(session: Session, subject: Subject) -> None:
    count = load(session, subject, "count")
    buffer = session.allocate(8)
    for args in ((), (buffer, buffer)):
        with refused("wrong_argument_count"):
            session.launch([Call(count, args)])


def test_an_argument_of_another_type_is_refused(session: Session, subject: Subject) -> None:
    scalars = load(session, subject, "scalars")
    out = session.allocate(24, "out")
    right = (Scalar(1), Scalar(0.5, "float32"), Scalar(0.25, "float64"), out)
    wrong: list[tuple[int, Buffer | Scalar]] = [
        (0, Scalar(1, "int32")),
        (1, Scalar(0.5, "float64")),
        (2, Scalar(1)),
        (2, out),
        (3, Scalar(out.address)),
    ]
    for place, argument in wrong:
        args = (*right[:place], argument, *right[place + 1 :])
        with refused("wrong_argument_type") as error:
            session.launch([Call(scalars, args)])
        assert f"argument {place} " in error.value.message
        assert error.value.status == "refused"
    session.launch([Call(scalars, right)])
    assert np.frombuffer(session.read(out)).tolist() == [1, 0.5, 0.25]


def test_a_kernel_is_not_launched_on_freed_memory(session: Session, subject: Subject) -> None:
    count = load(session, subject, "count")
    buffer = session.allocate(8)
    session.free(buffer)
    with refused("use_after_free"):
        session.launch([Call(count, (buffer,))])
    with refused("unknown_address"):
        session.launch([Call(count, (Buffer(64, 8),))])


def overrun(subject: Subject, kernel: str, nbytes: int, offset: int) -> None:
    with subject.device.open() as session:
        buffer = session.allocate(nbytes, "victim")
        session.allocate(100, "bystander")
        with pytest.raises(DeviceError, match="'victim'") as error:
            run(session, subject, kernel, Scalar(offset), buffer)
        assert error.value.status == "out_of_bounds"
        assert f"byte offset {offset}" in error.value.message


@with_each("place", "overruns", "guards")
def test_a_write_outside_a_buffer_is_out_of_bounds_and_named(
    subject: Subject, place: tuple[int, int]
) -> None:
    overrun(subject, "write_at", *place)


@with_each("place", "overruns", "guards", "threads")
def test_a_write_of_a_worker_outside_a_buffer_is_out_of_bounds_and_named(
    subject: Subject, place: tuple[int, int]
) -> None:
    overrun(subject, "write_at_from_worker", *place)


@with_each("offset", "reads", "guards")
def test_a_read_beyond_the_slack_is_out_of_bounds(
    session: Session, subject: Subject, offset: int
) -> None:
    buffer = session.allocate(100, "victim")
    with pytest.raises(DeviceError, match=f"'victim'.* byte offset {offset}") as error:
        run(session, subject, "read_at", Scalar(offset), buffer)
    assert error.value.status == "out_of_bounds"


@having("guards")
def test_a_stale_pointer_is_reported_with_the_freed_buffer(
    session: Session, subject: Subject
) -> None:
    stale, kept = session.allocate(100, "stale"), session.allocate(100, "kept")
    session.free(stale)
    with pytest.raises(DeviceError, match="freed buffer 'stale'") as error:
        run(session, subject, "write_at", Scalar(stale.address - kept.address), kept)
    assert error.value.status == "out_of_bounds"


@with_each("name", "signals")
def test_a_signal_ends_the_session_with_its_name_and_the_last_words(
    session: Session, subject: Subject, name: str
) -> None:
    with pytest.raises(DeviceError, match=f"^{name} .*KernelLaunch") as error:
        run(session, subject, "raise_signal", Scalar(signal.Signals[name]))
    assert error.value.status == "crashed"
    assert "about to raise" in error.value.stderr


@with_each("wrong", "crashes")
def test_a_crash_ends_the_session_with_its_name(
    session: Session, subject: Subject, wrong: Crash
) -> None:
    kernel, argument = wrong
    with pytest.raises(DeviceError) as error:
        run(session, subject, kernel, *([] if argument is None else [Scalar(argument)]))
    assert error.value.status == "crashed"
    assert error.value.message.startswith(subject.kind.crashes[wrong])


@with_each("code", "exits")
def test_a_kernel_that_exits_has_crashed(session: Session, subject: Subject, code: int) -> None:
    with pytest.raises(DeviceError, match=f"exit code {code}") as error:
        run(session, subject, "leave", Scalar(code))
    assert error.value.status == "crashed"
    assert "about to leave" in error.value.stderr


def test_a_hanging_kernel_times_out(subject: Subject) -> None:
    with subject.device.open() as session:
        hang = Call(load(session, subject, "hang"), ())
        with pytest.raises(DeviceError, match=r"KernelLaunch within 0\.3 s") as error:
            session.launch([hang], LaunchSettings(timeout=0.3))
        assert error.value.status == "timeout"
        with pytest.raises(DeviceError, match="has ended: no answer") as error:
            session.allocate(10)
        assert (error.value.status, error.value.code) == ("timeout", "ended")


def test_the_device_goes_on_after_a_crash_and_a_hang(subject: Subject) -> None:
    with subject.device.open() as session:
        crash(session, subject)
    with subject.device.open() as session, pytest.raises(DeviceError):
        hang = Call(load(session, subject, "hang"), ())
        session.launch([hang], LaunchSettings(timeout=0.1))
    with subject.device.open() as session:
        counter = session.allocate(8)
        session.fill(counter, 0)
        run(session, subject, "count", counter)
        assert number(session, counter) == 1


def test_an_ended_session_says_why_and_closes(session: Session, subject: Subject) -> None:
    buffer = session.allocate(10)
    why = crash(session, subject)
    for use in (
        lambda: session.allocate(10),
        lambda: session.read(buffer),
        lambda: session.free(buffer),
        lambda: load(session, subject, "count"),
    ):
        with pytest.raises(DeviceError) as error:
            use()
        assert error.value.message.startswith(f"the session has ended: {why}")
        assert (error.value.status, error.value.code) == ("crashed", "ended")
    session.close()


def test_a_session_closes_in_any_state_and_more_than_once(subject: Subject) -> None:
    unused = subject.device.open()
    unused.close()
    unused.close()
    with pytest.raises(DeviceError, match="closed"):
        unused.allocate(1)
    holding = subject.device.open()
    holding.fill(holding.allocate(1 << 20), 1)
    load(holding, subject, "count")
    holding.close()
    with pytest.raises(DeviceError, match="closed"):
        load(holding, subject, "count")
    with pytest.raises(KeyError), subject.device.open() as session:
        session.allocate(10)
        raise KeyError


def children() -> set[str]:
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {pid for task in tasks for pid in task.read_text().split()}


def test_a_session_closes_in_the_middle_of_a_launch_and_leaves_nothing(subject: Subject) -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    others = children()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt), subject.device.open() as session:
            hang = Call(load(session, subject, "hang"), ())
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            session.launch([hang])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert children() <= others
    with pytest.raises(DeviceError, match="closed"):
        session.allocate(1)


def test_sessions_are_independent_of_each_other(subject: Subject) -> None:
    device = subject.device
    with device.open() as first, device.open() as second:
        mine, theirs = first.allocate(1000), second.allocate(1000)
        first.fill(mine, 1)
        second.fill(theirs, 2)
        crash(first, subject)
        assert second.read(theirs) == b"\x02" * 1000


def test_threads_use_sessions_of_their_own(subject: Subject) -> None:
    def work(seed: int) -> bool:
        with subject.device.open() as session:
            data = np.random.default_rng(seed).bytes(100_000)
            buffer = session.allocate(len(data))
            session.write(buffer, data)
            return session.read(buffer) == data

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(12)))


def test_every_failure_has_a_status_of_a_trial(session: Session) -> None:
    with pytest.raises(DeviceError) as error:
        session.allocate(0)
    assert error.value.status in STATUSES


def test_a_talkative_kernel_is_cut_off(session: Session, subject: Subject) -> None:
    run(session, subject, "chatter", Scalar(subject.kind.lines))
    session.allocate(10)
