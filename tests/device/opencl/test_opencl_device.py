"""What OpenCL adds to the contract: sub-buffers, sub-devices, transfers, the driver's compiler."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernloom.base.errors import DeviceError
from kernloom.device.contract import (
    Buffer,
    Call,
    LaunchSettings,
    Scalar,
    Session,
    Transfer,
    Variation,
    VariedPiece,
)
from kernloom.device.opencl.choice import Options
from kernloom.device.opencl.device import OpenClDevice
from kernloom.device.opencl.probe import devices
from parts import needs_opencl

ADD = """
__kernel void add(long n, float value, __global float *x)
{
    const long i = get_global_id(0);
    if (i < n)
        x[i] += value;
}
"""
ARGUMENTS = [
    {"name": "n", "kind": "size", "dtype": "int64"},
    {"name": "value", "kind": "scalar", "dtype": "float32"},
    {"name": "x", "kind": "tensor", "dtype": "float32"},
]
ENTRY: dict[str, Any] = {
    "function": "add",
    "arguments": ARGUMENTS,
    "tunables": {"width": 16},
    "items": ["round_up(n, width)"],
    "group": ["width"],
}


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> OpenClDevice:
    needs_opencl()
    return OpenClDevice(Options(), cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture
def session(device: OpenClDevice) -> Iterator[Session]:
    with device.open() as session:
        yield session


@pytest.fixture
def copying(device: OpenClDevice, tmp_path: Path) -> Iterator[Session]:
    """A session that copies what is on the host, wherever that is not needed, too."""
    with OpenClDevice(Options(host_memory="copy"), cache=tmp_path / "cache").open() as session:
        yield session


@pytest.fixture
def unified(device: OpenClDevice, session: Session) -> Session:
    """A session of a device that reads the host's memory in place."""
    if not devices()[0].unified:
        pytest.skip("the device has memory of its own")
    return session


def package(folder: Path, source: str = ADD, **changed: Any) -> Path:
    launch = {"options": ["-cl-std=CL1.2"], "entries": {"kl_entry": {**ENTRY, **changed}}}
    (folder / "launch.json").write_text(json.dumps(launch), encoding="utf-8")
    path = folder / "kernel.cl"
    path.write_text(source, encoding="utf-8")
    return path


def ones(session: Session, count: int = 100) -> Buffer:
    buffer = session.allocate(4 * count, "x")
    session.write(buffer, np.ones(count, "float32"))
    return buffer


def values(session: Session, buffer: Buffer) -> list[float]:
    return list(np.frombuffer(session.read(buffer), "float32"))


def test_work_sizes_follow_the_size_arguments_and_tunables(
    session: Session, tmp_path: Path
) -> None:
    kernel = session.load(package(tmp_path), 3)
    buffer = ones(session)
    session.launch([Call(kernel, (Scalar(77), Scalar(0.5, "float32"), buffer))])
    assert values(session, buffer) == [1.5] * 77 + [1.0] * 23


def test_a_kernel_gets_the_rest_of_a_buffer_from_an_aligned_address(
    session: Session, tmp_path: Path
) -> None:
    kernel = session.load(package(tmp_path), 3)
    buffer = ones(session, 1000)
    odd = Buffer(buffer.address + 4, 16)
    with pytest.raises(DeviceError, match=r"offset 4 of buffer 'x'.*multiples of") as error:
        session.launch([Call(kernel, (Scalar(4), Scalar(1, "float32"), odd))])
    found = re.search(r"multiples of (\d+) bytes", str(error.value))
    assert found
    # PoCL's is 128.
    alignment = int(found[1])
    part = Buffer(buffer.address + alignment, 16)
    session.launch([Call(kernel, (Scalar(4), Scalar(1, "float32"), part))])
    first = alignment // 4
    assert values(session, buffer) == [1.0] * first + [2.0] * 4 + [1.0] * (996 - first)
    part = Buffer(buffer.address + 2 * alignment, 16)
    session.launch([Call(kernel, (Scalar(4), Scalar(2, "float32"), part))])
    assert values(session, buffer)[2 * first : 2 * first + 5] == [3.0] * 4 + [1.0]


def test_transfers_are_calls_of_a_launch_and_timed_apart(copying: Session, tmp_path: Path) -> None:
    session = copying
    kernel = session.load(package(tmp_path), 3)
    buffer = ones(session)
    add = Call(kernel, (Scalar(100), Scalar(1, "float32"), buffer))
    result = session.launch(
        [Transfer(buffer, "in"), add, Transfer(buffer, "out")], LaunchSettings(inner=3, samples=4)
    )
    assert values(session, buffer) == [13.0] * 100
    for wall, transfer in zip(result.wall_ns, result.transfer_ns, strict=True):
        assert 0 < transfer < wall
    assert session.launch([add]).transfer_ns == (0,)


def test_what_is_not_copied_back_stays_as_the_host_has_it(copying: Session, tmp_path: Path) -> None:
    session = copying
    kernel = session.load(package(tmp_path), 3)
    buffer = ones(session)
    add = Call(kernel, (Scalar(100), Scalar(1, "float32"), buffer))
    session.launch([Transfer(buffer, "in"), add], LaunchSettings(inner=5))
    assert values(session, buffer) == [2.0] * 100


def test_memory_of_the_host_is_handed_over_and_not_copied(unified: Session, tmp_path: Path) -> None:
    session = unified
    kernel = session.load(package(tmp_path), 3)
    buffer = ones(session)
    add = Call(kernel, (Scalar(100), Scalar(1, "float32"), buffer))
    calls = [Transfer(buffer, "in"), add, Transfer(buffer, "out")]
    result = session.launch(calls, LaunchSettings(inner=3, samples=4))
    assert values(session, buffer) == [13.0] * 100
    assert all(0 < t < w for w, t in zip(result.wall_ns, result.transfer_ns, strict=True))
    # There is no other copy that it could be set back to.
    session.launch([Transfer(buffer, "in"), add], LaunchSettings(inner=5))
    assert values(session, buffer) == [18.0] * 100


def test_memory_of_the_host_keeps_the_whole_contract(unified: Session, tmp_path: Path) -> None:
    session = unified
    kernel = session.load(package(tmp_path), 3)
    buffer = ones(session, 1000)
    part = Buffer(buffer.address + 1024, 16)
    add = Call(kernel, (Scalar(4), Scalar(1, "float32"), part))
    session.launch([add, Transfer(buffer, "out"), add])
    assert values(session, buffer) == [1.0] * 256 + [3.0] * 4 + [1.0] * 740
    session.write(buffer, np.full(3, 7, "float32"), offset=4)
    assert values(session, buffer)[:5] == [1.0, 7.0, 7.0, 7.0, 1.0]
    session.fill(buffer, 0)
    assert values(session, buffer) == [0.0] * 1000
    session.free(buffer)
    with pytest.raises(DeviceError, match="'x' was freed"):
        session.read(buffer)


@pytest.mark.parametrize("offset", [-1, 100])
def test_a_write_beside_memory_of_the_host_is_found(
    unified: Session, tmp_path: Path, offset: int
) -> None:
    session = unified
    source = ADD.replace("x[i] += value;", f"if (i == 0) x[{offset}] = value;")
    kernel = session.load(package(tmp_path, source), 3)
    buffer = ones(session)
    call = Call(kernel, (Scalar(8), Scalar(1e30, "float32"), buffer))
    with pytest.raises(DeviceError, match="of 'x'") as error:
        session.launch([Transfer(buffer, "in"), call, Transfer(buffer, "out")])
    assert error.value.status == "out_of_bounds"


TWO_LEVELS = """
__kernel void add(long n, float value, __global float *x, __global float *scratch)
{
    scratch[get_group_id(0)] = value * (get_group_id(0) + 1);
}

__kernel void add_finish(long n, float value, __global float *x, __global float *scratch)
{
    for (int i = 0; i < n; i++)
        x[0] += scratch[i];
}
"""
FINISH: dict[str, Any] = {"function": "add_finish", "items": [1], "group": [1]}
SCRATCH: dict[str, Any] = {"elements": "n", "dtype": "float32"}


def two_levels(folder: Path, source: str = TWO_LEVELS, **changed: Any) -> Path:
    work: dict[str, Any] = {"items": ["n"], "group": [1], "finish": FINISH, "scratch": SCRATCH}
    return package(folder, source, **(work | changed))


def test_a_second_function_finishes_what_the_first_left_in_the_scratch(
    session: Session, tmp_path: Path
) -> None:
    kernel = session.load(two_levels(tmp_path), 3)
    buffer = ones(session)
    call = Call(kernel, (Scalar(10), Scalar(2, "float32"), buffer))
    session.launch([call, call], LaunchSettings(inner=2))
    assert values(session, buffer) == [1.0 + 4 * 110.0] + [1.0] * 99


def test_a_write_beside_the_scratch_is_found(session: Session, tmp_path: Path) -> None:
    source = TWO_LEVELS.replace("scratch[get_group_id(0)] =", "scratch[get_group_id(0) + 1] =")
    kernel = session.load(two_levels(tmp_path, source), 3)
    with pytest.raises(DeviceError, match="byte offset 40 of 'scratch of add'"):
        session.launch([Call(kernel, (Scalar(10), Scalar(2, "float32"), ones(session)))])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"finish": {**FINISH, "function": "end"}}, "no kernel 'end'"),
        ({"scratch": None}, "takes 4 arguments, but launch.json names 3"),
        ({"scratch": {**SCRATCH, "dtype": "float64"}}, r"'scratch'.*double\*"),
        ({"finish": {"function": "add_finish"}}, "damaged"),
    ],
)
def test_a_second_function_that_does_not_fit_is_refused(
    session: Session, tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(DeviceError, match=said) as error:
        session.load(two_levels(tmp_path, **changed), 3)
    assert error.value.code == "load_failed"


def test_the_compilers_log_comes_back(session: Session, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="undeclared_thing") as error:
        session.load(package(tmp_path, ADD.replace("value;", "undeclared_thing;")), 3)
    assert error.value.status == "build_failed"
    assert str(tmp_path / "kernel.cl") in str(error.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"arguments": ARGUMENTS[:2]}, "takes 2 arguments, not 3"),
        ({"function": "subtract"}, "no kernel 'subtract'"),
        ({"arguments": [*ARGUMENTS[:2], {**ARGUMENTS[2], "dtype": "float64"}]}, r"'x'.*double\*"),
        ({"arguments": [{**ARGUMENTS[0], "dtype": "int32"}, *ARGUMENTS[1:]]}, "'n'.*is long"),
        ({"arguments": "nonsense"}, "damaged"),
    ],
)
def test_a_description_that_does_not_fit_the_function_is_refused(
    session: Session, tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(DeviceError, match=said) as error:
        session.load(package(tmp_path, **changed), 3)
    assert error.value.code == "load_failed"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"items": [10], "group": [16]}, "do not divide"),
        ({"items": [1 << 20], "group": [1 << 20]}, "this device takes"),
        ({"items": ["n - n"], "group": [1]}, "not a number of items"),
        ({"items": ["unknown"], "group": [1]}, "unknown name"),
    ],
)
def test_work_sizes_that_cannot_be_are_refused(
    session: Session, tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    kernel = session.load(package(tmp_path, **changed), 3)
    with pytest.raises(DeviceError, match=said) as error:
        session.launch([Call(kernel, (Scalar(8), Scalar(1, "float32"), ones(session)))])
    assert error.value.status == "refused"


def test_an_argument_of_the_wrong_kind_is_refused(session: Session, tmp_path: Path) -> None:
    kernel = session.load(package(tmp_path), 3)
    buffer = ones(session)
    with pytest.raises(DeviceError, match="'x' of kernel 'add' is a tensor"):
        session.launch([Call(kernel, (Scalar(8), Scalar(1, "float32"), Scalar(0)))])
    with pytest.raises(DeviceError, match="'n' of kernel 'add' is a size"):
        session.launch([Call(kernel, (buffer, Scalar(1, "float32"), buffer))])


@pytest.mark.parametrize("offset", [-1, -1000, 100, 1000])
def test_a_write_beside_a_buffer_is_found_and_named(
    session: Session, tmp_path: Path, offset: int
) -> None:
    source = ADD.replace("x[i] += value;", f"if (i == 0) x[{offset}] = value;")
    kernel = session.load(package(tmp_path, source), 3)
    buffer = ones(session)
    nearest = 4 * offset + (3 if offset < 0 else 0)
    with pytest.raises(DeviceError, match=f"byte offset {nearest} of 'x'") as error:
        session.launch([Call(kernel, (Scalar(8), Scalar(1e30, "float32"), buffer))])
    assert error.value.status == "out_of_bounds"


def test_a_file_without_a_description_is_refused(session: Session, tmp_path: Path) -> None:
    path = package(tmp_path)
    (tmp_path / "launch.json").unlink()
    with pytest.raises(DeviceError, match=r"no launch\.json"):
        session.load(path, 3)


def test_sub_devices_are_devices_and_open_at_once(tmp_path: Path) -> None:
    needs_opencl()
    parts = devices(1)
    assert len(parts) == sum(item.units for item in devices())
    assert all(item.units == 1 for item in parts)
    count = min(2, len(parts))
    opened = [
        OpenClDevice(Options(index=index, compute_units=1), cache=tmp_path / "cache").open()
        for index in range(count)
    ]
    try:
        buffers = [session.allocate(10) for session in opened]
        for index, session in enumerate(opened):
            session.fill(buffers[index], index + 1)
        for index, session in enumerate(opened):
            assert session.read(buffers[index]) == bytes([index + 1]) * 10
    finally:
        for session in opened:
            session.close()


def test_several_devices_of_a_platform_are_open_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_opencl()
    if "PoCL" not in devices()[0].version:
        pytest.skip("only PoCL makes as many devices as it is asked for")
    monkeypatch.setenv("POCL_DEVICES", "basic basic pthread")
    names = [item.device.partition("-")[0] for item in devices()]
    assert names == ["basic", "basic", "pthread"]
    chosen = [Options(index=0), Options(index=1), Options(device="pthread")]
    with ExitStack() as stack:
        opened = [
            stack.enter_context(OpenClDevice(options, cache=tmp_path / "cache").open())
            for options in chosen
        ]
        path = package(tmp_path)
        kernels = [session.load(path, 3) for session in opened]
        buffers = [ones(session) for session in opened]
        for value, session in enumerate(opened):
            arguments = (Scalar(100), Scalar(value, "float32"), buffers[value])
            session.launch([Call(kernels[value], arguments)])
        for value, session in enumerate(opened):
            assert values(session, buffers[value]) == [1.0 + value] * 100


def test_a_device_that_is_gone_when_a_session_opens_is_said(tmp_path: Path) -> None:
    needs_opencl()
    device = OpenClDevice(Options(device="no such device"), cache=tmp_path)
    with device.open() as session, pytest.raises(DeviceError, match="no such device"):
        session.allocate(10)


def test_tensors_change_during_a_launch_and_runs_are_proven(
    session: Session, tmp_path: Path
) -> None:
    check_variation(session, tmp_path)


def test_tensors_of_the_host_change_where_transfers_take_them_from(
    copying: Session, tmp_path: Path
) -> None:
    check_variation(copying, tmp_path, transfers=True)


SHIFT = """
__kernel void shift(long n, __global const float *x, __global float *y, __global float *z)
{
    const long i = get_global_id(0);
    y[i] = x[i] + 1;
    z[i] += x[i];
}
"""


def check_variation(session: Session, folder: Path, *, transfers: bool = False) -> None:
    """x changes, y is poisoned and z is updated."""
    count, names = 64, ("x", "y", "z")
    tensors = [{"name": name, "kind": "tensor", "dtype": "float32"} for name in names]
    entry = {"function": "shift", "arguments": [ARGUMENTS[0], *tensors], "items": ["n"]}
    kernel = session.load(package(folder, SHIFT, **entry), 4)
    x, y, z = buffers = [ones(session, count) for _ in names]
    own, other = (np.full(count, value, "float32").tobytes() for value in (1, 5))
    variation = Variation(
        7,
        (
            VariedPiece(x, 64, 64, own[:64], other[:64]),
            VariedPiece(y, 0, 64),
            VariedPiece(z, 0, 64, own[:64]),
        ),
        poisoned=(y,),
        before=(x, z),
        after=(y, z),
    )
    calls: list[Call | Transfer] = [Call(kernel, (Scalar(count), *buffers))]
    if transfers:
        inwards, outwards = (
            [Transfer(b, "in") for b in (x, z)],
            [Transfer(b, "out") for b in (y, z)],
        )
        calls = [*inwards, *calls, *outwards]
    settings = LaunchSettings(warmup=2, inner=6, samples=9)
    result, views = session.launch_varied(calls, settings, variation, [x, y])
    end = [list(np.frombuffer(view, "float32")) for view in views.end]
    assert end == [[1.0] * count, [2.0] * count]
    before = [np.frombuffer(view, "float32") for view in views.before]
    after = [np.frombuffer(view, "float32") for view in views.after]
    assert list(before[0]) == [1.0] * count
    # The first bytes of z were restored, those where only x changed have sums of both.
    assert list(before[1][:16]) == [1.0] * 16
    assert before[1][16:32].max() > before[1][32] > 1
    assert list(after[0]) == [2.0] * count
    assert list(after[1]) == list(before[1] + 1)
    assert result.varied.count(None) in (1, 2)
    assert {True, False} < set(result.varied)
    assert int(result.report["stride"]) >= 1
    # Only that launch was varied.
    assert set(session.launch(calls).varied) == {False}


def test_a_variation_that_does_not_fit_is_refused_and_forgotten(
    session: Session, tmp_path: Path
) -> None:
    buffer = ones(session)
    kernel = session.load(package(tmp_path), 3)
    calls = [Call(kernel, (Scalar(1), Scalar(1, "float32"), buffer))]
    beyond = Variation(1, (VariedPiece(buffer, buffer.nbytes - 4, 64),))
    with pytest.raises(DeviceError, match="are not inside buffer 'x'"):
        session.launch_varied(calls, LaunchSettings(), beyond, [buffer])
    result = session.launch(calls, LaunchSettings(samples=3))
    assert result.varied == (False,) * 3
    assert "stride" not in result.report
