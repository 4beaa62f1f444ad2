"""What bare-metal parts promise beyond the contract: images in flash, and memory that is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from building import types
from subjects import Subject, having

from kernloom.base.errors import DeviceError
from kernloom.device.contract import Call, LaunchSettings, Scalar, require
from kernloom.device.embedded.device import EmbeddedDevice, EmbeddedSession

pytestmark = having("flash")


def test_a_part_has_flash_and_counts_and_no_clock(subject: Subject) -> None:
    require(subject.device, "memory", "launch", "guards", "instructions", "flash")
    with pytest.raises(DeviceError, match="has no 'wall_clock'"):
        require(subject.device, "wall_clock")


def test_memory_carries_over_from_one_image_to_the_next(
    session: EmbeddedSession, subject: Subject, tmp_path: Path
) -> None:
    other = tmp_path / "other.elf"
    other.write_bytes(subject.library.read_bytes())
    counter = session.allocate(8)
    session.fill(counter, 0)
    first = Call(session.load(subject.library, 1), (counter,))
    second = Call(session.load(other, 1, entry="twice"), (counter,))
    assert session.flashed == other
    alone = [session.launch([one]).instructions[0] for one in (first, second)]
    session.fill(counter, 0)
    result = session.launch([first, second], LaunchSettings(warmup=1))
    assert int.from_bytes(session.read(counter), "little") == 6
    assert result.instructions == (sum(alone),)


def test_a_kernel_may_use_the_c_library(session: EmbeddedSession, subject: Subject) -> None:
    x = np.linspace(0, 9, 100)
    buffers = session.allocate(x.nbytes), session.allocate(x.nbytes)
    session.write(buffers[0], x)
    library = session.load(subject.library, types("library"), entry="library")
    session.launch([Call(library, (Scalar(100), *buffers))])
    assert np.allclose(np.frombuffer(session.read(buffers[1])), x + 1)


def test_a_write_far_behind_the_last_buffer_is_out_of_bounds_and_named(
    session: EmbeddedSession, subject: Subject
) -> None:
    victim = session.allocate(100, "victim")
    write_at = session.load(subject.library, types("write_at"), entry="write_at")
    with pytest.raises(DeviceError) as error:
        session.launch([Call(write_at, (Scalar(5100), victim))])
    assert error.value.status == "out_of_bounds"
    assert error.value.message == (
        "the kernel reached outside buffer 'victim' of 100 bytes, at byte offset 5100"
    )


def test_what_does_not_fit_is_refused_with_both_numbers(session: EmbeddedSession) -> None:
    session.allocate(1 << 20, "first")
    with pytest.raises(DeviceError) as error:
        session.allocate(4 << 20, "second")
    assert error.value.status == "out_of_memory"
    assert "'second' of 4.0 MiB" in error.value.message
    assert "3.5 MiB for tensors, 2.5 MiB of it free" in error.value.message
    session.allocate(1 << 20, "third")


def test_a_freed_buffer_is_known_until_its_memory_is_used_again(session: EmbeddedSession) -> None:
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


STRANGERS = {
    "cortex_m4": ("cortex_m7", "it was made for part 'cortex_m7'"),
    "cortex_m7": ("riscv_bare", "it is for 64-bit RISC-V, and the part is 32-bit Arm"),
    "riscv_bare": ("cortex_m4", "it is for 32-bit Arm, and the part is 64-bit RISC-V"),
}
"""Part -> another, and why its images are not for the part."""


def test_an_image_that_is_not_for_the_part_is_refused_by_name(
    session: EmbeddedSession,
    subject: Subject,
    build_subject: Callable[[str], Subject],
    tmp_path: Path,
) -> None:
    assert "cannot be read: No such file" in refusal(session, tmp_path / "missing.elf")
    text = tmp_path / "text.elf"
    text.write_text("not an image", encoding="utf-8")
    assert "it is not an ELF file" in refusal(session, text)
    assert isinstance(subject.device, EmbeddedDevice)
    assert "it is for 64-bit x86-64, and the part is " in refusal(session, subject.device.counter)
    broken = tmp_path / "broken.elf"
    broken.write_bytes(subject.library.read_bytes()[:200])
    assert "it is a broken ELF file" in refusal(session, broken)
    stranger, why = STRANGERS[subject.kind.name]
    assert why in refusal(session, build_subject(stranger).library)
    session.flash(subject.library)
    assert session.flashed == subject.library
