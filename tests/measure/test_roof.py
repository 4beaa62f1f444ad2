"""The roof of a run follows from a calibration: which limit holds, and how long that takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kernloom.config.schema import Arch, Caches
from kernloom.measure.calibration import Library, chains_for, probes_of, windows_for
from kernloom.measure.roof import (
    COLD,
    MEMORY,
    Bandwidth,
    Calibration,
    Peak,
    Vectors,
    calibration_file,
    level_of,
    load_calibration,
    roof_of,
    save_calibration,
)

KIB = 1024
MACHINE = {"cpu": "made up", "cores": 4}
SPEEDS = {"L1": 200.0, "L2": 100.0, "L3": 50.0, COLD: 30.0, MEMORY: 20.0}
PATTERN_SPEEDS = {"read": 1.0, "update": 1.2, "copy": 0.9, "write": 0.8}


def made_up() -> Calibration:
    """4 cores, which share the last cache and memory, twice as fast as one of them."""
    scale = {"L1": 4, "L2": 4, "L3": 4, COLD: 2, MEMORY: 2}
    return Calibration(
        created="2026-01-01T00:00:00+00:00",
        kernloom="0",
        toolchain="gcc 12",
        machine=MACHINE,
        levels={"L1": 32 * KIB, "L2": 1024 * KIB, "L3": 32768 * KIB},
        arches={"wide": Vectors(64, True), "old": Vectors(16, False)},
        peaks=(
            Peak("wide", "float32", 1, 100.0, (99.0, 100.0)),
            Peak("wide", "float32", 4, 360.0),
            Peak("wide", "float64", 1, 50.0),
            Peak("old", "float32", 1, 20.0),
        ),
        bandwidths=tuple(
            Bandwidth("wide", level, pattern, threads, speed * factor * times)
            for level, speed in SPEEDS.items()
            for pattern, factor in PATTERN_SPEEDS.items()
            for threads, times in ((1, 1), (4, scale[level]))
        ),
        windows={"L1": 16 * KIB},
    )


def arch(name: str = "wide", nbytes: int = 64, *features: str) -> Arch:
    caches = Caches(l1=0, l2=0)
    return Arch(name, "x86_64", {}, nbytes, 32, caches, features=features or ("fma",))


def test_whatever_takes_longer_is_the_roof():
    compute = roof_of(made_up(), arch(), "float32", 1e6, 1000, 1)
    assert compute and compute.limit == "float32 FMA peak"
    assert compute.ns == pytest.approx(1e6 / 100)
    memory = roof_of(made_up(), arch(), "float32", 1000, 512 * KIB, 1, written=0)
    assert memory and memory.limit == "L2 bandwidth"
    assert memory.ns == pytest.approx(512 * KIB / 100)


def test_an_arch_without_fma_has_a_peak_of_multiplications_and_additions():
    roof = roof_of(made_up(), arch("old", 16, "sse4_2"), "float32", 1e6, 0)
    assert roof and (roof.limit, roof.ns) == ("float32 multiply-add peak", pytest.approx(5e4))


def test_the_level_is_the_one_that_holds_the_tensors_and_not_all_that_is_moved():
    moved = 48 * KIB
    near = roof_of(made_up(), arch(), "float32", 0, moved, footprint=32 * KIB, written=0)
    far = roof_of(made_up(), arch(), "float32", 0, moved, written=0)
    assert near and near.limit == "L1 bandwidth"
    assert far and far.limit == "L2 bandwidth"
    assert level_of(made_up(), 1e12, 1) == MEMORY


@pytest.mark.parametrize(
    ("share", "pattern"), [(0.0, "read"), (1 / 3, "update"), (0.5, "copy"), (1.0, "write")]
)
def test_the_share_that_is_written_tells_how_memory_is_used(share: float, pattern: str):
    nbytes = 16 * KIB
    roof = roof_of(made_up(), arch(), "float32", 0, nbytes, written=share * nbytes)
    assert roof
    assert roof.ns == pytest.approx(nbytes / (200 * PATTERN_SPEEDS[pattern]))


def test_tensors_that_the_nearer_cache_holds_in_part_have_a_roof_between_both():
    made = replace(made_up(), windows={"L2": 96 * KIB})

    def ns(footprint: float) -> float:
        found = roof_of(made, arch(), "float32", 0, 1e6, footprint=footprint, written=0)
        assert found and found.limit == "L2 bandwidth"
        return found.ns

    assert ns(32 * KIB + 4) == pytest.approx(1e6 / 200, rel=1e-3)
    assert ns(64 * KIB) == pytest.approx((1e6 / 200 + 1e6 / 100) / 2)
    assert ns(96 * KIB) == ns(500 * KIB) == pytest.approx(1e6 / 100)


def test_without_knowing_what_is_written_the_fastest_pattern_is_the_roof():
    roof = roof_of(made_up(), arch(), "float32", 0, 16 * KIB)
    assert roof and roof.ns == pytest.approx(16 * KIB / (200 * 1.2))


def test_cold_caches_hold_nothing():
    cold = roof_of(made_up(), arch(), "float32", 0, 16 * KIB, written=0, cold=True)
    assert cold and cold.limit == "cold memory bandwidth"
    huge = roof_of(made_up(), arch(), "float32", 0, 1e9, written=0, cold=True)
    assert huge and huge.limit == "memory bandwidth"


@pytest.mark.parametrize(("threads", "gflops"), [(1, 100), (2, 200), (4, 360), (64, 360)])
def test_threads_raise_the_peak_as_far_as_there_are_cores(threads: int, gflops: float):
    roof = roof_of(made_up(), arch(), "float32", 1e6, 0, threads)
    assert roof and roof.ns == pytest.approx(1e6 / gflops)


def test_every_thread_brings_caches_of_its_own_but_shares_memory():
    assert level_of(made_up(), 100 * KIB, 1) == "L2"
    assert level_of(made_up(), 100 * KIB, 4) == "L1"
    assert level_of(made_up(), 33000 * KIB, 4) == MEMORY
    two = roof_of(made_up(), arch(), "float32", 0, 1e9, 3, written=0)
    assert two and two.ns == pytest.approx(1e9 / 40)


def test_an_arch_of_another_name_is_held_against_one_with_the_same_vectors():
    same = roof_of(made_up(), arch("mine"), "float32", 1e6, 0)
    assert same == roof_of(made_up(), arch(), "float32", 1e6, 0)
    assert roof_of(made_up(), arch("mine", 32), "float32", 1e6, 0) is None


def test_what_was_not_measured_has_no_roof():
    assert roof_of(made_up(), arch(), "uint8", 1e6, 1000) is None
    assert roof_of(made_up(), arch(), "float32", 0, 0) is None
    bare = replace(made_up(), bandwidths=())
    assert roof_of(bare, arch(), "float32", 1, 1000) is None


def test_a_calibration_is_kept_for_its_class_of_machine(tmp_path: Path):
    path = save_calibration(made_up(), tmp_path)
    assert path == calibration_file(tmp_path, MACHINE)
    assert load_calibration(tmp_path, MACHINE) == made_up()
    assert load_calibration(tmp_path, {**MACHINE, "cores": 8}) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 99}', '{"format": 1}'])
def test_a_damaged_calibration_counts_as_none(tmp_path: Path, text: str):
    calibration_file(tmp_path, MACHINE).write_text(text)
    assert load_calibration(tmp_path, MACHINE) is None


def test_windows_lie_inside_their_level_and_beyond_the_one_before():
    levels = {"L1": 32 * KIB, "L2": 1024 * KIB, "L3": 32768 * KIB}
    windows = windows_for(levels, 2**36, flushes=True)
    assert windows["L1"] < 32 * KIB < windows["L2"] < 1024 * KIB < windows["L3"] < 32768 * KIB
    assert windows[MEMORY] >= 2 * 32768 * KIB
    assert COLD in windows and COLD not in windows_for(levels, 2**36)
    assert windows_for(levels, 2**28)[MEMORY] <= 2**28 // 4


def test_every_core_goes_over_a_window_of_its_own_in_whole_vectors():
    library = Library("wide", "float32", Path("kernel.so"), 16, chains_for(32))
    levels = {"L1": 48 * KIB, "L2": 2000 * KIB, "L3": 30 * 1024 * KIB}
    for probe in probes_of([library], windows_for(levels, 2**36, flushes=True), 6):
        if isinstance(probe.finds, Bandwidth):
            assert probe.count % (probe.finds.threads * 8 * 16) == 0
            assert probe.count * 4 <= probe.nbytes
    assert max(chains_for(16)) + 2 <= 16
