"""Memory of an accelerator: PEs, mappings, tensors by policy, allocators."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from accelerator_bench import Bench
from building import ACCELERATOR

from kernloom.base.errors import DeviceError
from kernloom.device.accelerator.session import EVERYWHERE, SRAM_BASE, VIRTUAL_BASE
from kernloom.device.contract import Buffer, Scalar
from kernloom.device.messages import EVERY, Addressee, Mapping, Policy

HBM = int(ACCELERATOR["hbm.bytes"])
SRAM = int(ACCELERATOR["sram.bytes"])
FAR = VIRTUAL_BASE + (1 << 50)
"""Virtual addresses that no tensor has."""
FIRST, SECOND, OTHER = Addressee(0, 0, 0), Addressee(0, 0, 1), Addressee(0, 1, 2)
PES = 6


@contextmanager
def refused(code: str, text: str | None = None) -> Iterator[None]:
    with pytest.raises(DeviceError, match=text) as error:
        yield
    assert error.value.code == code


def test_equal_physical_addresses_on_two_pes_are_distinct(bench: Bench) -> None:
    for number, pe in enumerate(bench.session.pes):
        bench.session.write_on(pe, 4096, bytes([number]) * 100)
    for number, pe in enumerate(bench.session.pes):
        assert bench.session.read_on(pe, 4096, 100) == bytes([number]) * 100


def test_before_a_mapping_is_delivered_an_access_faults_and_after_it_translates(
    bench: Bench,
) -> None:
    with refused("unknown_address", "PE 0.0.1 cannot read from 0x.* not mapped"):
        bench.session.read_on(SECOND, FAR, 64)
    bench.session.write_on(FIRST, 8192, b"abc" * 10)
    bench.session.mmu_map([Mapping(FAR, 8192, 4096, 0, 0, 0)], [SECOND])
    assert bench.session.read_on(SECOND, FAR, 30) == b"abc" * 10
    # Who was not addressed has seen nothing.
    with refused("unknown_address", "not mapped"):
        bench.session.read_on(OTHER, FAR, 64)
    bench.session.mmu_unmap(FAR, 4096, [SECOND])
    with refused("unknown_address", "not mapped"):
        bench.session.write_on(SECOND, FAR, b"x")


def test_an_overlapping_map_is_refused_whole(bench: Bench) -> None:
    bench.session.mmu_map([Mapping(FAR + 4096, 0, 4096, 0, 0, 0)], [FIRST])
    wanted = [Mapping(FAR, 0, 4096, 0, 0, 0), Mapping(FAR + 8000, 0, 4096, 0, 0, 0)]
    with refused("invalid", "overlaps"):
        bench.session.mmu_map(wanted, [FIRST])
    for address in (FAR, FAR + 8192):
        with refused("unknown_address", "not mapped"):
            bench.session.read_on(FIRST, address, 8)
    among_themselves = [Mapping(FAR + (1 << 30), 0, 64), Mapping(FAR + (1 << 30) + 63, 0, 64)]
    with refused("invalid", "overlaps"):
        bench.session.mmu_map(among_themselves, [FIRST])


def test_an_access_across_entries_splits(bench: Bench) -> None:
    data = bytes(range(200))
    entries = [Mapping(FAR, 1 << 20, 100, 0, 0, 0), Mapping(FAR + 100, 64, 100, 0, 1, 2)]
    bench.session.mmu_map(entries, [SECOND])
    bench.session.write_on(SECOND, FAR, data)
    assert bench.session.read_on(FIRST, 1 << 20, 100) == data[:100]
    assert bench.session.read_on(OTHER, 64, 100) == data[100:]
    assert bench.session.read_on(SECOND, FAR + 50, 100) == data[50:150]
    bench.session.fill_on(SECOND, FAR + 90, 20, 7)
    assert bench.session.read_on(OTHER, 64, 11) == b"\x07" * 10 + data[110:111]


def test_a_broadcast_of_n_yields_n_responses_and_excluded_parts_see_nothing(bench: Bench) -> None:
    answers = bench.session.mmu_map([Mapping(FAR, 0, 4096)], [EVERYWHERE])
    assert [answer.responder for answer in answers] == bench.session.pes
    assert len(answers) == PES
    some = [Addressee(0, 1, EVERY), FIRST, Addressee(0, 1, 1)]
    answers = bench.session.mmu_unmap(FAR, 4096, some)
    assert [str(answer.responder) for answer in answers] == ["0.1.0", "0.1.1", "0.1.2", "0.0.0"]
    assert bench.session.read_on(SECOND, FAR, 8) == bytes(8)
    with refused("unknown_address"):
        bench.session.read_on(OTHER, FAR, 8)


def test_one_failure_fails_the_operation_the_others_are_reported_and_undone(bench: Bench) -> None:
    bench.session.mmu_map([Mapping(FAR, 0, 64)], [OTHER])
    with pytest.raises(DeviceError, match=r"PE 0\.1\.2 .*1 of 6 parts failed: 0\.1\.2; 5 succee"):
        bench.session.mmu_map([Mapping(FAR, 0, 4096)])
    for pe in bench.session.pes[:-1]:
        with refused("unknown_address", "not mapped"):
            bench.session.read_on(pe, FAR, 8)
    assert bench.session.read_on(OTHER, FAR, 8) == bytes(8)


def test_an_address_of_no_pe_is_refused_by_name(bench: Bench) -> None:
    for nowhere in (Addressee(1, 0, 0), Addressee(0, 2, 0), Addressee(0, 0, 3)):
        with refused("unknown_address", f"there is no PE {nowhere}: .*1 sips of 2 cubes of 3 PEs"):
            bench.session.read_on(nowhere, 0, 8)
        with refused("unknown_address", f"leads to PE {nowhere}, which does not exist"):
            mapping = Mapping(FAR, 0, 8, nowhere.sip, nowhere.cube, nowhere.pe)
            bench.session.mmu_map([mapping], [FIRST])
    # One of several: nothing is carried out.
    with pytest.raises(DeviceError, match=r"2 of 2 parts failed"):
        bench.session.mmu_map([Mapping(FAR, 0, 8)], [FIRST, Addressee(9, 9, 9)])
    with refused("unknown_address"):
        bench.session.read_on(FIRST, FAR, 8)


def test_mappings_that_make_no_sense_are_refused(bench: Bench) -> None:
    for mapping, code in (
        (Mapping(FAR, 0, 0), "invalid"),
        (Mapping(4096, 0, 64), "invalid"),
        (Mapping(SRAM_BASE, 0, 64), "invalid"),
        (Mapping(SRAM_BASE - 8, 0, 64), "invalid"),
        (Mapping(FAR, HBM, 64), "unknown_address"),
        (Mapping(FAR, HBM - 63, 64), "unknown_address"),
        (Mapping(FAR, 0, (1 << 64) - 1), "invalid"),
    ):
        with refused(code):
            bench.session.mmu_map([mapping], [FIRST])
    with refused("unknown_address", f"has {HBM} "):
        bench.session.read_on(FIRST, HBM - 4, 8)


def test_a_mapping_of_a_freed_tensor_is_refused_by_name(bench: Bench) -> None:
    with bench.session.place(4096, label="gone") as tensor:
        address = tensor.buffer.address
    with refused("use_after_free", "tensor 'gone', which is freed"):
        bench.session.mmu_map([Mapping(address, 0, 4096)], [FIRST])


def test_an_owned_tensor_is_one_memory_for_every_pe(bench: Bench) -> None:
    with bench.session.place(1000, Policy.OWNER, pes=[OTHER], label="x") as tensor:
        address = tensor.buffer.address
        bench.session.write(tensor.buffer, bytes(range(250)) * 4)
        for pe in bench.session.pes:
            assert bench.session.read_on(pe, address, 1000) == bytes(range(250)) * 4
        bench.session.write_on(FIRST, address + 10, b"xyz")
        assert bench.session.read(tensor.buffer, 3, 10) == b"xyz"


def test_a_replicated_tensor_is_a_copy_for_each_of_its_pes(bench: Bench) -> None:
    both = [FIRST, OTHER]
    with bench.session.place(100, Policy.REPLICATE, pes=both, label="w") as tensor:
        address = tensor.buffer.address
        bench.session.write(tensor.buffer, b"ab" * 50)
        assert all(bench.session.read_on(pe, address, 100) == b"ab" * 50 for pe in both)
        bench.session.write_on(OTHER, address, b"mine")
        assert bench.session.read_on(OTHER, address, 5) == b"minea"
        assert bench.session.read_on(FIRST, address, 5) == b"ababa"
        with refused("unknown_address", "not mapped.*'w' of 100 bytes"):
            bench.session.read_on(SECOND, address, 1)
        bench.session.fill(tensor.buffer, 3)
        assert all(bench.session.read_on(pe, address, 100) == b"\x03" * 100 for pe in both)


@pytest.mark.parametrize(("nbytes", "unit"), [(1000, 64), (1000, 1), (6, 0), (1001, 0), (64, 64)])
def test_shards_tile_the_tensor_without_gap_or_overlap(
    bench: Bench, nbytes: int, unit: int
) -> None:
    data = random.Random(nbytes).randbytes(nbytes)
    with bench.session.place(nbytes, Policy.SHARD, unit, label="s") as tensor:
        bench.session.write(tensor.buffer, data)
        assert bench.session.read(tensor.buffer) == data
        for pe in bench.session.pes:
            assert bench.session.read_on(pe, tensor.buffer.address, nbytes) == data
        part = bench.session.read(tensor.buffer, nbytes // 2, nbytes // 4)
        assert part == data[nbytes // 4 : nbytes // 4 + nbytes // 2]
        with refused("unknown_address", "not mapped"):
            bench.session.read_on(FIRST, tensor.buffer.address + nbytes, 1)


def test_a_shard_is_in_the_memory_of_its_owner(bench: Bench) -> None:
    with bench.session.place(300, Policy.SHARD, 100, [SECOND, OTHER], "s") as tensor:
        bench.session.write(tensor.buffer, b"a" * 100 + b"b" * 100 + b"c" * 100)
        # The first allocation of these PEs; units of one PE are side by side.
        assert bench.session.read_on(SECOND, 0, 200) == b"a" * 100 + b"c" * 100
        assert bench.session.read_on(OTHER, 0, 100) == b"b" * 100


def test_a_tensor_of_more_shards_than_can_be_mapped_is_refused(bench: Bench) -> None:
    with refused("invalid", "1000000 shards of 1 bytes, and may have 65536"):
        bench.session.place(1_000_000, Policy.SHARD, 1)


def test_a_tensor_larger_than_hbm_is_refused_with_both_numbers_and_the_key(bench: Bench) -> None:
    with refused("out_of_memory", rf"'big' of {HBM + 1} bytes: .* {HBM} \(arch\.hbm\.bytes\)"):
        bench.session.allocate(HBM + 1, "big")
    with refused("out_of_memory", rf"needs {HBM} bytes on PE 0.0.0.* {HBM - 1} of them free"):
        bench.session.allocate(1)
        bench.session.place(HBM, pes=[FIRST], label="whole")
    # In shards it fits.
    with bench.session.place(2 * HBM, Policy.SHARD, label="big") as tensor:
        bench.session.write(tensor.buffer, b"end", offset=2 * HBM - 3)
        assert bench.session.read(tensor.buffer, 3, 2 * HBM - 3) == b"end"


def test_a_tensor_that_does_not_fit_everywhere_is_nowhere(bench: Bench) -> None:
    with bench.session.place(HBM - 4096, pes=[OTHER], label="full"):
        with refused("out_of_memory", r"'copies' .* on PE 0\.1\.2"):
            bench.session.place(8192, Policy.REPLICATE, label="copies")
        with bench.session.place(HBM, pes=[FIRST], label="all of it"):
            pass


@pytest.mark.parametrize("seed", range(3))
def test_memory_is_whole_again_whatever_the_order_of_frees(bench: Bench, seed: int) -> None:
    numbers = random.Random(seed)
    buffers = [bench.session.allocate(numbers.randrange(1, 1 << 20), f"b{i}") for i in range(60)]
    numbers.shuffle(buffers)
    for buffer in buffers:
        bench.session.free(buffer)
    bench.session.place(HBM, pes=[FIRST], label="whole")


def test_tensors_go_to_the_first_pe_with_room_for_them(bench: Bench) -> None:
    buffers = [bench.session.allocate(HBM - 4096, f"b{i}") for i in range(PES)]
    for number, (buffer, pe) in enumerate(zip(buffers, bench.session.pes, strict=True)):
        bench.session.write(buffer, bytes([number + 1]))
        assert bench.session.read_on(pe, 0, 1) == bytes([number + 1])
    with refused("out_of_memory", r"'more' .* on PE 0\.0\.0"):
        bench.session.allocate(8192, "more")


def test_a_tensor_is_unmapped_exactly_once_by_context_manager_close_or_collection(
    opened: Callable[..., Any],
) -> None:
    with opened(trace=1) as bench:

        def unmaps() -> int:
            # Of each broadcast every PE gets one message.
            return int(bench.session.trace().count(b'"host to pe 0.1.2"'))

        before = unmaps()
        tensor = bench.session.place(100, label="a")
        hops = unmaps() - before
        assert hops > 0
        with tensor:
            pass
        assert tensor.closed
        assert unmaps() - before == 2 * hops
        tensor.close()
        tensor.close()
        assert unmaps() - before == 2 * hops
        address = tensor.buffer.address
        del tensor
        assert unmaps() - before == 2 * hops
        lost = bench.session.place(100, label="b")
        buffer = lost.buffer
        del lost
        assert unmaps() - before == 4 * hops
        for gone in (address, buffer.address):
            with refused("use_after_free"):
                bench.session.fill(Buffer(gone, 1), 0)
        survivor = bench.session.place(100, label="c")
    # The session has ended, and has freed it.
    survivor.close()


def test_a_kernel_that_leaves_a_tensor_names_pe_address_task_and_tensor(bench: Bench) -> None:
    buffer = bench.session.allocate(100, "x")
    with pytest.raises(DeviceError) as error:
        bench.run("read_at", Scalar(105), buffer)
    text = error.value.message
    assert error.value.status == "out_of_bounds"
    assert "PE 0.0.1: task 1 'read_at' loads from address" in text
    assert f"{buffer.address + 105:#x}" in text
    assert "'x' of 100 bytes, at byte offset 105" in text


def test_a_far_address_is_related_to_no_tensor(bench: Bench) -> None:
    buffer = bench.session.allocate(100, "x")
    with refused("unknown_address", "it is an address that no tensor is near"):
        bench.session.read_on(Addressee(0, 0, 0), buffer.address + (1 << 40), 8)
    with pytest.raises(DeviceError, match="reached an address that no tensor is near") as error:
        bench.run("read_at", Scalar(1 << 40), buffer)
    assert error.value.status == "out_of_bounds"
    assert "'x'" not in error.value.message


def test_a_kernel_cannot_reach_physical_memory(bench: Bench) -> None:
    buffer = bench.session.allocate(100, "x")
    with pytest.raises(DeviceError, match="0x40, which is no virtual address") as error:
        bench.run("read_at", Scalar(64 - buffer.address), buffer)
    assert error.value.status == "out_of_bounds"


def test_a_kernel_that_does_not_wait_gets_a_wrong_result(bench: Bench) -> None:
    """Copies are done when they are waited for, as late as on a device; SRAM starts undefined."""
    number, out = bench.session.allocate(8, "number"), bench.session.allocate(40, "out")
    bench.session.write(number, (1234).to_bytes(8, "little"))
    bench.run("impatient", number, out)
    assert list(memoryview(bytes(bench.session.read(out))).cast("q")) == [-1, -1, 5, 5, -1]


def test_a_limit_of_memory_counts_every_copy(opened: Callable[..., Any]) -> None:
    with opened(memory__limit=1 << 20) as bench:
        with refused(
            "out_of_memory", r"6 copies on top of 0 bytes .* limit of 1048576 \(memory_limit\)"
        ):
            bench.session.place(1 << 18, Policy.REPLICATE, label="w")
        bench.session.place(1 << 17, Policy.REPLICATE, label="w").close()
        bench.session.allocate(1 << 20)
