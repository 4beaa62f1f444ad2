"""Tasks of an accelerator: programs, launches, runtimes, virtual time."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accelerator_bench import Bench
from building import ACCELERATOR, CORE_KERNELS, KERNELS, LIBRARY, compiled
from subjects import Subject

from kernloom.base.errors import DeviceError
from kernloom.base.gauges import VIRTUAL_TIME
from kernloom.device.accelerator import AcceleratorDevice
from kernloom.device.accelerator.session import SRAM_BASE
from kernloom.device.contract import Buffer, Call, LaunchResult, LaunchSettings, Scalar
from kernloom.device.messages import Addressee, KernelLaunch

SRAM = int(ACCELERATOR["sram.bytes"])
FIRST = Addressee(0, 0, 0)


def virtual(result: LaunchResult) -> float:
    (ns,) = result.per_run(VIRTUAL_TIME)
    return ns


def test_a_library_is_uploaded_once_and_freed_with_its_last_function(
    opened: Callable[..., Any],
) -> None:
    with opened(trace=1) as bench:

        def uploads() -> int:
            return int(bench.session.trace().count(b'"host to pe 0.0.0"'))

        first = bench.load("count")
        after_one = uploads()
        assert after_one > 0
        kernels = [bench.load(name) for name in ("twice", "kl_entry", "count")]
        assert uploads() == after_one
        assert len({kernel.handle for kernel in (first, *kernels)}) == 4
        counter = bench.session.allocate(8, "n")
        bench.session.fill(counter, 1)
        for kernel in (first, *kernels):
            bench.session.launch([Call(kernel, (counter,))])
        assert bench.session.read(counter, 1) == b"\x06"
        for kernel in kernels:
            bench.session.unload(kernel)
        bench.session.launch([Call(first, (counter,))])
        for kernel in kernels:
            with pytest.raises(DeviceError, match="no kernel has handle"):
                bench.session.launch([Call(kernel, (counter,))])
        bench.session.unload(first)
        with pytest.raises(DeviceError, match="no kernel has handle"):
            bench.session.unload(first)
        again = bench.load("count")
        bench.session.launch([Call(again, (counter,))])
        assert bench.session.read(counter, 1) == b"\x08"


def test_code_is_checked_by_address_and_size_and_content(bench: Bench) -> None:
    counter = bench.session.allocate(8, "n")
    kernel = bench.load("count")
    # The library is at the last page, but for one that stays unmapped.
    code = SRAM_BASE - 2 * int(ACCELERATOR["mmu.page"])
    sound = bench.session.read(Buffer(code, 64))
    for at, why in ((0, "no program blob of that size"), (8, "no program blob of that size")):
        bench.session.write(Buffer(code, 64), b"\x77", offset=at)
        with pytest.raises(DeviceError, match=f"has no code at {code:#x}.*{why}"):
            bench.session.launch([Call(kernel, (counter,))])
        bench.session.write(Buffer(code, 64), sound)
    bench.session.write(Buffer(code, 1 << 16), b"\x77", offset=5000)
    with pytest.raises(DeviceError, match="image has changed since it was uploaded"):
        bench.session.launch([Call(kernel, (counter,))])
    bench.session.free(Buffer(code, 1))
    with pytest.raises(DeviceError, match="it is not mapped"):
        bench.session.launch([Call(kernel, (counter,))])


def test_a_launch_never_carries_code() -> None:
    assert {field for field in KernelLaunch.__dataclass_fields__ if field != "KIND"} == {
        "warmup",
        "samples",
        "inner",
        "min_sample_ns",
        "clock",
        "conditions",
        "calls",
        "arguments",
        "orchestration",
    }


def test_a_library_of_host_kernels_is_refused_with_the_reason(bench: Bench, tmp_path: Path) -> None:
    library = compiled(tmp_path / "host.so", [KERNELS], *LIBRARY)
    with pytest.raises(DeviceError, match=r"host kernels \(kl_entry\) only.*kl_core_entry"):
        bench.session.load(library, 1)
    source = tmp_path / "other.c"
    source.write_text("int answer(void);\nint answer(void) { return 42; }\n")
    with pytest.raises(DeviceError, match="neither kl_core_type"):
        bench.session.load(compiled(tmp_path / "other.so", [source], *LIBRARY), 1)
    text = tmp_path / "text.so"
    text.write_bytes(b"\x7fELF" + bytes(100))
    with pytest.raises(DeviceError, match="no shared library"):
        bench.session.load(text, 1)


def test_a_kernel_for_pes_that_are_missing_is_refused(
    opened: Callable[..., Any],
) -> None:
    with (
        opened(topology__pes__vector=0) as bench,
        pytest.raises(DeviceError, match=r"for vector PEs.*arch\.topology\.pes\.vector"),
    ):
        bench.load("count")


def test_tasks_go_to_the_first_pe_of_their_core_type(bench: Bench, tmp_path: Path) -> None:
    place = bench.session.allocate(6, "place")
    bench.run("where", place)
    assert np.frombuffer(bench.session.read(place), "uint16").tolist() == [0, 0, 1]
    library = compiled(tmp_path / "matrix.so", [CORE_KERNELS], "-DCORE_TYPE=0", *LIBRARY)
    matrix = bench.session.load(library, ["buffer"], entry="where")
    bench.session.launch([Call(matrix, (place,))])
    assert np.frombuffer(bench.session.read(place), "uint16").tolist() == [0, 0, 0]


def test_a_library_with_an_undefined_symbol_fails_by_name(bench: Bench, tmp_path: Path) -> None:
    source = tmp_path / "undefined.c"
    source.write_text(
        '#include "kernloom/core.h"\nconst uint32_t kl_core_type = 1;\nvoid nowhere(void);\n'
        "void kl_core_entry(struct kl_core *c, const uint64_t *a) "
        "{ (void)c, (void)a, nowhere(); }\n"
    )
    kernel = bench.session.load(compiled(tmp_path / "undefined.so", [source], *LIBRARY), 0)
    with pytest.raises(DeviceError, match="undefined symbol: nowhere") as error:
        bench.session.launch([Call(kernel, ())])
    assert error.value.status == "build_failed"


def test_built_in_timing_models_need_no_code(bench: Bench) -> None:
    x, y = bench.session.allocate(1 << 20, "x"), bench.session.allocate(1 << 20, "y")
    data = np.random.default_rng(1).bytes(1 << 20)
    bench.session.write(x, data)
    copy, spin = bench.builtin("copy", 3), bench.builtin("spin", 1)
    bench.session.launch([Call(copy, (y, x, Scalar(1 << 20)))])
    assert bench.session.read(y) == data
    bench.session.launch([Call(bench.builtin("read", 2), (y, Scalar(100)))])
    few, many = (bench.session.launch([Call(spin, (Scalar(n),))]) for n in (1000, 3000))
    assert virtual(many) - virtual(few) == 1000
    with pytest.raises(DeviceError, match="are copy, read and spin"):
        bench.builtin("teleport", 1)
    with pytest.raises(DeviceError, match="'copy' takes 3 arguments, not 1"):
        bench.builtin("copy", 1)


def test_a_dma_probe_is_below_the_equivalent_launch_and_grows_with_its_bytes(
    bench: Bench,
) -> None:
    x, y = bench.session.allocate(1 << 20, "x"), bench.session.allocate(1 << 20, "y")
    bench.session.write(x, bytes(range(256)) * 4096)
    copy = bench.builtin("copy", 3)
    sizes = (64, 4096, 65536, 1 << 20)
    took = []
    bench.session.dma_probe(x.address, y.address, 1 << 20, [FIRST])
    for nbytes in sizes:
        (answer,) = bench.session.dma_probe(x.address, y.address, nbytes, [FIRST])
        launched = virtual(bench.session.launch([Call(copy, (y, x, Scalar(nbytes)))]))
        assert answer.response.value < answer.response.virtual_ps < launched * 1000
        took.append(answer.response.value)
    assert took == sorted(set(took))
    assert bench.session.read(y) == bytes(range(256)) * 4096


def test_a_dma_probe_reads_and_writes_alone_from_and_to_sram(bench: Bench) -> None:
    x = bench.session.allocate(SRAM, "x")
    (read,) = bench.session.dma_probe(x.address, SRAM_BASE, 4096, [FIRST])
    (write,) = bench.session.dma_probe(SRAM_BASE + 64, x.address, 4096, [FIRST])
    assert read.response.value > 0
    assert write.response.value > 0
    for source, destination, nbytes in (
        (SRAM_BASE, SRAM_BASE, 8),
        (x.address, SRAM_BASE + 1, SRAM),
        (4096, x.address, 8),
        (x.address + SRAM - 4, SRAM_BASE, 8),
    ):
        with pytest.raises(DeviceError):
            bench.session.dma_probe(source, destination, nbytes, [FIRST])
        # An access outside a tensor ends a launch's session, and no probe's.
        bench.session.fill(x, 0)


def test_a_tile_larger_than_sram_is_refused_with_both_numbers_and_the_key(bench: Bench) -> None:
    bench.run("take_sram", Scalar(SRAM))
    with pytest.raises(DeviceError) as error:
        bench.run("take_sram", Scalar(SRAM + 1))
    assert f"needs {SRAM + 1} bytes of SRAM on top of 0, and a PE has {SRAM}" in str(error.value)
    assert "(arch.sram.bytes)" in str(error.value)
    assert error.value.status == "out_of_memory"


@pytest.mark.parametrize(
    ("kernel", "args", "why"),
    [
        (
            "compute",
            (0, 0, 10),
            r"matrix unit on float32.*compute\.vector\.matrix\.float32",
        ),
        (
            "compute",
            (1, 1, 10),
            r"vector unit on float64.*compute\.vector\.vector\.float64",
        ),
        ("compute", (9, 9, 10), "unknown unit on unknown"),
        ("compute_cycles", (0, 10), r"matrix unit.*\(arch\.compute\.vector\.matrix\)"),
        ("wait_for", (7,), "waits for tag 7, which is no copy's"),
        ("give_up", (), "failed: the tiles do not divide the rows"),
    ],
)
def test_what_a_pe_cannot_do_fails_the_task_by_name(
    bench: Bench, kernel: str, args: tuple[int, ...], why: str
) -> None:
    with pytest.raises(DeviceError, match=rf"PE 0\.0\.1: task 1 '{kernel}' .*{why}") as error:
        bench.run(kernel, *map(Scalar, args))
    assert error.value.status == "refused"
    # The device goes on.
    bench.run("spin", Scalar(1))


def test_memory_that_is_not_sram_cannot_be_loaded_to(bench: Bench) -> None:
    with pytest.raises(DeviceError, match="outside the SRAM that it has allocated"):
        bench.run("load_elsewhere", bench.session.allocate(8))


def test_rectangles_are_copied_row_by_row(bench: Bench) -> None:
    given = np.arange(64, dtype="uint8").reshape(8, 8)
    source, packed = bench.session.allocate(64, "source"), bench.session.allocate(12, "packed")
    bench.session.write(source, given)
    bench.run("gather", Scalar(4), Scalar(3), Scalar(16), source, packed)
    assert bench.session.read(packed) == given[::2, :3].tobytes()


def test_charges_are_converted_by_the_rates_of_the_core_type(bench: Bench) -> None:
    def cycles(kernel: str, *args: int) -> float:
        # Two cycles are a nanosecond.
        return round(virtual(bench.run(kernel, *map(Scalar, args))) * 2, 6)

    none = cycles("compute", 1, 0, 0)
    assert cycles("compute", 1, 0, 1280) - none == 10
    assert cycles("compute", 1, 0, 1281) - none == 11
    assert cycles("compute", 2, 3, 100) - none == 100 + 1 - 16
    alone = cycles("compute_cycles", 2, 0)
    assert cycles("compute_cycles", 2, 1000) - alone == 1000
    assert cycles("compute_cycles", 1, 1000) - alone == 1000


def chain(bench: Bench, length: int) -> tuple[float, int]:
    """Virtual time and result of alternating tasks that depend on each other."""
    counter = bench.session.allocate(8, "n")
    bench.session.fill(counter, 0)
    count, twice = bench.load("count"), bench.load("twice")
    calls = [Call(kernel, (counter,)) for _ in range(length) for kernel in (count, twice)]
    took = virtual(bench.session.launch(calls, LaunchSettings(warmup=1)))
    return took, int.from_bytes(bench.session.read(counter), "little")


def test_both_runtimes_give_the_results_of_a_sequential_execution(
    opened: Callable[..., Any], runtime: str
) -> None:
    expected = 0
    for _ in range(2 * 10):
        expected = 2 * (expected + 1)
    with opened(runtime) as bench:
        assert chain(bench, 10)[1] == expected


def test_ringmap_submits_while_earlier_tasks_execute_and_a_full_ring_holds_it_up(
    opened: Callable[..., Any],
) -> None:
    with opened("hostgraph") as bench:
        graph, _ = chain(bench, 10)
    took = {}
    for slots in (1, 2, 64):
        with opened("ringmap", ring__slots=slots) as bench:
            took[slots], _ = chain(bench, 10)
    assert took[64] < took[1]
    assert took[64] < graph
    assert took[64] <= took[2] < took[1]
    with (
        opened("ringmap", ring__slots=0) as bench,
        pytest.raises(DeviceError, match=r"\(runtime\.ring\.slots\)"),
    ):
        bench.run("spin", Scalar(1))


def test_a_graph_that_does_not_fit_is_refused_with_both_numbers_and_what_works(
    opened: Callable[..., Any],
) -> None:
    with opened("hostgraph", graph__tasks=3) as bench:
        spin = Call(bench.builtin("spin", 1), (Scalar(1),))
        bench.session.launch([spin] * 3)
        with pytest.raises(DeviceError, match=r"4 tasks.* room for 3 \(runtime.graph.tasks"):
            bench.session.launch([spin] * 4)


def test_costs_of_tasks_are_those_of_the_arch(opened: Callable[..., Any], runtime: str) -> None:
    def took(**costs: int) -> float:
        with opened(runtime, **{f"control__{key}": value for key, value in costs.items()}) as bench:
            spin = Call(bench.builtin("spin", 1), (Scalar(100),))
            return virtual(bench.session.launch([spin] * 2, LaunchSettings(warmup=1)))

    usual = took()
    assert took(dispatch_ns=141) - usual == 2
    assert took(switch_ns=801) - usual == 2
    assert took(complete_ns=601) - usual == 2
    assert took(register_store_ns=6) - usual == 2
    assert took(register_load_ns=101) - usual == 2
    # A ring hides all but the first submission.
    assert took(submit_ns=751) - usual == (2 if runtime == "hostgraph" else 1)


def test_virtual_time_and_trace_are_the_same_in_every_run_and_on_any_number_of_threads(
    opened: Callable[..., Any], runtime: str
) -> None:
    def traced(threads: int) -> tuple[float, bytes, bytes]:
        with opened(runtime, threads=threads, trace=1) as bench:
            x = bench.session.allocate(1 << 16, "x")
            y = bench.session.allocate(1 << 16, "y")
            bench.session.write(x, np.arange(1 << 14, dtype="float32"))
            bench.session.fill(y, 0)
            args = (Scalar(1 << 14), Scalar(2.0, "float32"), x, y)
            result = bench.session.launch([Call(bench.load("axpy"), args)] * 3)
            return virtual(result), bench.session.trace(), bytes(bench.session.read(y))

    first = traced(1)
    assert first[1].startswith(b"{")
    assert [traced(threads) == first for threads in (1, 2, 2, 8)] == [True] * 4


def test_thousands_of_tasks_are_recorded_by_the_threads_of_the_device(
    opened: Callable[..., Any],
) -> None:
    tasks = 2000
    with opened("ringmap", threads=2) as bench:
        out = bench.session.allocate(8 * tasks, "threads")
        kernel = bench.load("thread_at")
        for _ in range(2):
            bench.session.fill(out, 0)
            bench.session.launch([Call(kernel, (Scalar(i), out)) for i in range(tasks)])
            found = set(np.frombuffer(bench.session.read(out), dtype="int64").tolist())
            assert 0 not in found and len(found) <= 2


@pytest.mark.parametrize("threads", [1, 2])
def test_a_crash_is_not_blamed_on_a_shortage_of_memory_in_an_earlier_task(
    opened: Callable[..., Any], threads: int
) -> None:
    with opened(threads=threads) as bench:
        kernel = bench.load("allocate_or_crash")
        with pytest.raises(DeviceError, match="SIGSEGV") as error:
            bench.session.launch([Call(kernel, (Scalar(1),)), Call(kernel, (Scalar(0),))])
        assert error.value.status == "crashed"


def test_rows_without_bytes_are_copied_at_once_however_many(bench: Bench) -> None:
    buffer = bench.session.allocate(64, "x")
    bench.session.fill(buffer, 7)
    bench.run("move_nothing", Scalar(1 << 60), buffer)
    assert bytes(bench.session.read(buffer)) == b"\x07" * 64


def test_a_launch_reports_what_the_platform_says(bench: Bench) -> None:
    result = bench.run("spin", Scalar(1000))
    assert result.report["tasks"] == "1"
    assert "limiter" in result.report
    assert (result.wall_ns, result.cpu_ns) == ((), ())


def test_a_launch_may_name_its_pe_and_no_more_than_one(bench: Bench) -> None:
    kernel = bench.load("count")
    launch = bench.session._launch([Call(kernel, (bench.session.allocate(8),))], LaunchSettings())
    with pytest.raises(DeviceError, match=r"is for vector PEs, and PE 0\.1\.0 is a matrix PE"):
        bench.session.exchange_each(launch, [Addressee(0, 1, 0)], 1)
    with pytest.raises(DeviceError, match="to one PE, not to 2"):
        bench.session.exchange_each(launch, [Addressee(0, 1, 1), Addressee(0, 1, 2)], 2)
    place = bench.session.allocate(6, "place")
    launch = bench.session._launch([Call(bench.load("where"), (place,))], LaunchSettings())
    bench.session.exchange_each(launch, [Addressee(0, 1, 2)], 1)
    assert np.frombuffer(bench.session.read(place), "uint16").tolist() == [0, 1, 2]


def test_a_device_that_makes_no_sense_is_refused_when_it_is_opened(
    opened: Callable[..., Any],
) -> None:
    for key, value, why in (
        ("topology__cubes", 0, r"topology\.cubes: must be above 0"),
        ("links__noc__bandwidth", 0, r"links\.noc\.bandwidth: must be above 0"),
        ("hbm__bytes", "many", r"hbm\.bytes: is no whole number"),
    ):
        with pytest.raises(DeviceError, match=why) as error, opened(**{key: value}):
            pass
        assert error.value.status == "refused"
    with (
        pytest.raises(DeviceError, match=r"topology\.pes"),
        opened(topology__pes__matrix=0, topology__pes__vector=0),
    ):
        pass


def test_a_runner_with_some_of_the_libraries_only_is_refused(subject: Subject) -> None:
    assert isinstance(subject.device, AcceleratorDevice)
    paths = subject.device.paths
    command = [str(paths["runner"]), "--channel=0", "--window=0", "--window-bytes=1"]
    ended = subprocess.run(
        [*command, f"--accelerator-host={paths['accelerator_host']}"],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert ended.returncode != 0
