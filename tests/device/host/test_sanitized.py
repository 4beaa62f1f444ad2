"""With AddressSanitizer the runner also sees what lands between a tensor and its guard."""

from __future__ import annotations

import pytest
from subjects import Subject

from kernloom.base.errors import DeviceError
from kernloom.device.contract import Call, Scalar


@pytest.mark.parametrize("count", [1, 3, 25, 1000, 1 << 20])
@pytest.mark.parametrize("beyond", [0, -1])
def test_reading_one_element_too_many_is_out_of_bounds(
    sanitized_host: Subject, count: int, beyond: int
) -> None:
    with sanitized_host.device.open() as session:
        buffer = session.allocate(4 * count, "x")
        kernel = session.load(sanitized_host.library, 2, entry="read_float_at")
        session.launch([Call(kernel, (Scalar(count - 1), buffer))])
        index = count if beyond == 0 else -1
        with pytest.raises(DeviceError, match=r"'x'.*AddressSanitizer: use-after-poison") as error:
            session.launch([Call(kernel, (Scalar(index), buffer))])
    assert error.value.status == "out_of_bounds"
    assert "read_float_at" in error.value.stderr


def test_overrunning_the_kernels_own_memory_is_out_of_bounds(sanitized_host: Subject) -> None:
    with sanitized_host.device.open() as session:
        kernel = session.load(sanitized_host.library, 0, entry="overflow_heap")
        with pytest.raises(DeviceError, match=r"^AddressSanitizer: heap-buffer-overflow") as error:
            session.launch([Call(kernel, ())])
    assert error.value.status == "out_of_bounds"
    assert "\n" not in error.value.message


def test_a_sanitized_kernel_in_a_plain_runner_is_explained(
    host: Subject, sanitized_host: Subject
) -> None:
    with host.device.open() as session, pytest.raises(DeviceError, match="during Load") as error:
        session.load(sanitized_host.library, 0, entry="count")
    assert "ASan runtime does not come first" in error.value.stderr
