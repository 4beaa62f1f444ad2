"""Bare-metal parts: what runs on them, what is counted, and what comes back when it goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from firmware_parts import Part

from kernloom.device.contract import Buffer, Call, LaunchResult, LaunchSettings, Scalar, require
from kernloom.device.embedded import EmbeddedSession
from kernloom.errors import DeviceError


def call(session: EmbeddedSession, part: Part, name: str, *args: Buffer | Scalar) -> Call:
    return Call(session.load(part.image, len(args), entry=name), args)


def run(session: EmbeddedSession, part: Part, name: str, *args: Buffer | Scalar) -> LaunchResult:
    return session.launch([call(session, part, name, *args)])


def failure(session: EmbeddedSession, part: Part, name: str, *args: Buffer | Scalar) -> DeviceError:
    with pytest.raises(DeviceError) as error:
        run(session, part, name, *args)
    return error.value


def number(session: EmbeddedSession, buffer: Buffer) -> int:
    return int.from_bytes(session.read(buffer), "little")


def test_a_part_has_flash_and_counts_and_no_clock(part: Part) -> None:
    require(part.device, "memory", "launch", "guards", "instructions", "flash")
    with pytest.raises(DeviceError, match="has no 'wall_clock'"):
        require(part.device, "wall_clock")


def test_scalars_arrive_with_their_type(session: EmbeddedSession, part: Part) -> None:
    out = session.allocate(24)
    scalars = Scalar(-(2**40)), Scalar(0.25, "float32"), Scalar(1e300, "float64")
    run(session, part, "scalars", *scalars, out)
    assert np.frombuffer(session.read(out)).tolist() == [-(2.0**40), 0.25, 1e300]


def test_counts_are_exact_and_repeat(session: EmbeddedSession, part: Part) -> None:
    def count(rounds: int) -> int:
        return run(session, part, "spin", Scalar(rounds)).instructions[0]

    assert count(2000) - count(1000) == 3000
    assert count(1000) == count(1000)
    assert 3 * 1000 <= count(1000) < 3 * 1000 + 40


def test_every_sample_has_its_own_count_and_warm_up_has_none(
    session: EmbeddedSession, part: Part
) -> None:
    spin = call(session, part, "spin", Scalar(1000))
    once = session.launch([spin]).instructions
    result = session.launch([spin], LaunchSettings(warmup=5, inner=3, samples=2))
    assert result.instructions == (3 * once[0], 3 * once[0])
    assert result.wall_ns == ()


def test_calls_run_in_order_for_every_iteration(session: EmbeddedSession, part: Part) -> None:
    counter = session.allocate(8)
    session.fill(counter, 0)
    calls = [call(session, part, name, counter) for name in ("kl_entry", "twice")]
    session.launch(calls, LaunchSettings(warmup=1, inner=2, samples=2))
    expected = 0
    for _ in range(1 + 2 * 2):
        expected = (expected + 1) * 2
    assert number(session, counter) == expected


def test_memory_carries_over_from_one_image_to_the_next(
    session: EmbeddedSession, part: Part
) -> None:
    counter = session.allocate(8)
    session.fill(counter, 0)
    first = Call(session.load(part.image, 1), (counter,))
    second = Call(session.load(part.other, 1, entry="twice"), (counter,))
    assert session.flashed == part.other
    alone = [session.launch([one]).instructions[0] for one in (first, second)]
    session.fill(counter, 0)
    result = session.launch([first, second], LaunchSettings(warmup=1))
    assert number(session, counter) == 6
    assert result.instructions == (sum(alone),)


def test_tasks_run_one_after_the_other(session: EmbeddedSession, part: Part) -> None:
    out = session.allocate(8 * 7)
    session.fill(out, 0)
    run(session, part, "parallel", Scalar(7), Scalar(4), out)
    assert np.array_equal(np.frombuffer(session.read(out), "int64"), np.arange(1, 8))


def test_a_kernel_may_use_the_c_library(session: EmbeddedSession, part: Part) -> None:
    x = np.linspace(0, 9, 100)
    buffers = session.allocate(x.nbytes), session.allocate(x.nbytes)
    session.write(buffers[0], x)
    run(session, part, "library", Scalar(100), *buffers)
    assert np.allclose(np.frombuffer(session.read(buffers[1])), x + 1)


ARM_FAULTS = {
    ("write_to", 0): "MemManage (data access) for address 0x0 at instruction ",
    ("read_from", 0): "MemManage (data access) for address 0x0 at instruction ",
    ("write_to", 0x40000000): "MemManage (data access) for address 0x40000000",
    ("read_from", 0x20400000): "MemManage (data access) for address 0x20400000",
    ("jump_to", 0x30000001): "MemManage (instruction fetch) at instruction 0x30000000",
    ("write_program", None): "MemManage (data access) for address ",
    ("divide", 0): "UsageFault (divide by zero) at instruction ",
    ("illegal", None): "UsageFault (undefined instruction) at instruction ",
    ("overflow_stack", None): "MemManage (stack overflow) for address 0x1ff",
}
FAULTS = {
    "cortex_m4": ARM_FAULTS,
    "cortex_m7": ARM_FAULTS,
    "riscv_bare": {
        ("write_to", 0): "store access fault for address 0x0 at instruction 0x80",
        ("read_from", 0): "load access fault for address 0x0 at instruction 0x80",
        ("write_to", 0x10000000): "store access fault for address 0x10000000",
        ("jump_to", 0x30000000): "instruction access fault for address 0x30000000",
        ("write_program", None): "store access fault for address 0x80",
        ("illegal", None): "illegal instruction at instruction 0x80",
        ("overflow_stack", None): "store access fault (stack overflow) for address 0x803f",
    },
}


@pytest.mark.parametrize(
    ("name", "kernel", "argument"),
    [(name, *fault) for name, faults in FAULTS.items() for fault in faults],
)
def test_a_fault_is_a_crash_with_its_name_and_address(
    build_part: Callable[[str], Part], name: str, kernel: str, argument: int | None
) -> None:
    part = build_part(name)
    args = () if argument is None else (Scalar(argument),)
    with part.device.open() as session:
        error = failure(session, part, kernel, *args)
        assert error.status == "crashed"
        assert error.message.startswith(FAULTS[name][kernel, argument])
        with pytest.raises(DeviceError, match="has ended: ") as later:
            session.allocate(8)
        assert later.value.status == "crashed"


def test_a_hanging_kernel_times_out(part: Part) -> None:
    with part.device.open(timeout=1) as session:
        error = failure(session, part, "hang")
        assert (error.status, error.message) == (
            "timeout",
            "no answer to KernelLaunch within 1 s",
        )


def test_a_kernel_that_exits_or_aborts_has_crashed(part: Part) -> None:
    with part.device.open() as session:
        error = failure(session, part, "leave", Scalar(3))
        assert (error.status, error.message) == ("crashed", "exit code 3 during KernelLaunch")
        assert "about to leave" in error.stderr
    with part.device.open() as session:
        assert failure(session, part, "give_up").message.startswith("SIGABRT")


def test_a_talkative_kernel_is_cut_off(session: EmbeddedSession, part: Part) -> None:
    run(session, part, "chatter")


@pytest.mark.parametrize("nbytes", [1, 100, 4096])
@pytest.mark.parametrize("offset", ["before", "behind", "far behind"])
def test_a_write_outside_a_buffer_is_out_of_bounds_and_named(
    session: EmbeddedSession, part: Part, nbytes: int, offset: str
) -> None:
    at = {"before": -1, "behind": nbytes, "far behind": nbytes + 5000}[offset]
    victim = session.allocate(nbytes, "victim")
    error = failure(session, part, "write_at", Scalar(at), victim)
    assert error.status == "out_of_bounds"
    assert error.message == (
        f"the kernel reached outside buffer 'victim' of {nbytes} bytes, at byte offset {at}"
    )


def test_a_write_to_a_freed_buffer_names_it(session: EmbeddedSession, part: Part) -> None:
    stale = session.allocate(100, "stale")
    kept = session.allocate(100, "kept")
    session.free(stale)
    error = failure(session, part, "write_at", Scalar(stale.address - kept.address), kept)
    assert "freed buffer 'stale'" in error.message


def test_what_does_not_fit_is_refused_with_both_numbers(session: EmbeddedSession) -> None:
    session.allocate(1 << 20, "first")
    with pytest.raises(DeviceError) as error:
        session.allocate(4 << 20, "second")
    assert error.value.status == "out_of_memory"
    assert "'second' of 4.0 MiB" in error.value.message
    assert "3.5 MiB for tensors, 2.5 MiB of it free" in error.value.message
    session.allocate(1 << 20, "third")


def test_freed_memory_can_be_had_again(session: EmbeddedSession) -> None:
    first = session.allocate(3 << 20)
    for _ in range(5):
        session.free(first)
        with pytest.raises(DeviceError) as error:
            session.free(first)
        assert error.value.code == "double_free"
        first = session.allocate(3 << 20)
        session.fill(first, 1)


def refusal(session: EmbeddedSession, image: Path) -> str:
    with pytest.raises(DeviceError) as error:
        session.flash(image)
    assert (error.value.status, error.value.code) == ("refused", "load_failed")
    assert str(image) in error.value.message
    return error.value.message


def test_an_image_that_is_not_for_the_part_is_refused_by_name(
    session: EmbeddedSession, part: Part, build_part: Callable[[str], Part], tmp_path: Path
) -> None:
    assert "cannot be read: No such file" in refusal(session, tmp_path / "missing.elf")
    text = tmp_path / "text.elf"
    text.write_text("not an image", encoding="utf-8")
    assert "it is not an ELF file" in refusal(session, text)
    assert "it is for 64-bit x86-64, and the part is " in refusal(session, part.device.counter)
    broken = tmp_path / "broken.elf"
    broken.write_bytes(part.image.read_bytes()[:200])
    assert "it is a broken ELF file" in refusal(session, broken)
    stranger = {"cortex_m4": "cortex_m7", "cortex_m7": "riscv_bare", "riscv_bare": "cortex_m4"}
    why = refusal(session, build_part(stranger[part.name]).image)
    assert {
        "cortex_m4": "it was made for part 'cortex_m7'",
        "cortex_m7": "it is for 64-bit RISC-V, and the part is 32-bit Arm",
        "riscv_bare": "it is for 32-bit Arm, and the part is 64-bit RISC-V",
    }[part.name] in why
    session.flash(part.image)
    assert session.flashed == part.image


def test_an_unknown_function_is_refused(session: EmbeddedSession, part: Part) -> None:
    with pytest.raises(DeviceError, match="no function 'nothing_of_this_name'"):
        session.load(part.image, 0, entry="nothing_of_this_name")


def test_calibration_is_refused(session: EmbeddedSession, part: Part) -> None:
    with pytest.raises(DeviceError, match="does not calibrate"):
        session.launch([call(session, part, "spin", Scalar(1))], LaunchSettings(inner=0))


def test_sessions_are_independent_of_each_other(part: Part) -> None:
    with part.device.open() as first, part.device.open() as second:
        mine, theirs = first.allocate(8), second.allocate(8)
        first.fill(mine, 0)
        second.fill(theirs, 7)
        run(first, part, "kl_entry", mine)
        failure(first, part, "illegal")
        assert second.read(theirs) == b"\x07" * 8
