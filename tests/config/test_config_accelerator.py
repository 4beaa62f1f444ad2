"""Accelerators as data: every value can be set, senseless ones are refused by key, and each has a
provenance."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from test_config_validate import refused

from kernloom.base.places import share_folder
from kernloom.config.accelerator import (
    SECTIONS,
    provenance_counts,
    provenances,
    settings_of,
    summary,
)
from kernloom.config.compose import Composer, Point
from kernloom.config.schema import Arch
from kernloom.config.validate import experiment
from kernloom.run.provenance import overridden_keys
from parsed import points_of

Compose = Callable[..., dict[str, Any]]
ARCHES = ("a2a3", "a5", "mppa")


@pytest.fixture
def a5(composer: Composer) -> dict[str, Any]:
    """The data of an experiment on a5, to be changed."""
    (point,) = points_of(composer, ["target=a5", "workload=axpy"], multirun=False)
    return copy.deepcopy(point.data)


def arch_of(composer: Composer, *words: str) -> Arch:
    (point,) = points_of(composer, ["workload=axpy", *words], multirun=False)
    return experiment(point.data).arch


def put(data: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Set the value at a key below `arch`."""
    *above, name = key.split(".")
    node = data["arch"]
    for part in above:
        node = node[part]
    node[name] = value
    return data


@pytest.mark.parametrize("name", ARCHES)
def test_shipped_accelerators_are_complete(composer: Composer, name: str) -> None:
    arch = arch_of(composer, f"target={name}")
    assert all(getattr(arch, section) is not None for section in SECTIONS)
    assert set(provenances(arch).values()) <= {"published", "assumed"}


def test_the_platform_gets_plain_numbers(composer: Composer) -> None:
    settings = settings_of(arch_of(composer, "target=a5", "arch.clock.core_mhz=1500.5"))
    expected = {
        "topology.sips": "1",
        "topology.cubes": "36",
        "topology.pes.matrix": "1",
        "topology.pes.vector": "2",
        "clock.core_mhz": "1500.5",
        "hbm.bytes": "1073741824",
        "hbm.interleave": "4096",
        "mmu.page": "2097152",
        "links.noc.bandwidth": "128",
        "compute.matrix.vector.float32": "32",
        "compute.startup_cycles.matrix": "32",
        "control.submit_ns": "750",
    }
    assert {key: settings.get(key) for key in expected} == expected


def test_a_cpu_has_no_such_settings(composer: Composer) -> None:
    assert settings_of(arch_of(composer, "arch=x86_64_v2")) == {}


def test_sizes_can_be_numbers_or_text(composer: Composer) -> None:
    text = settings_of(arch_of(composer, "target=a5", "arch.sram.bytes=256KiB"))
    number = settings_of(arch_of(composer, "target=a5", "arch.sram.bytes=262144"))
    assert text == number


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("topology.pes", {"matrix": 0, "vector": 0}, "a cube has no PEs"),
        ("topology.pes", {}, "a cube has no PEs"),
        ("topology.pes", {"matrix": 60, "vector": 5}, "a cube has 65 PEs"),
        ("topology.pes", {"vectr": 2}, "unknown core type 'vectr'"),
        ("topology.pes.vector", -1, "-1 is too small"),
        ("topology.cubes", 0, "0 is too small"),
        ("hbm.bandwidth", 0, "is 0: no transfer would ever end"),
        ("links.sip.bandwidth", 0, "is 0: no transfer would ever end"),
        ("dma.bandwidth", 0, "is 0: no transfer would ever end"),
        ("clock.core_mhz", 0, "is 0: no cycle would ever end"),
        ("links.noc.latency_ns", -1, "-1.0 is too small"),
        ("mmu.page", 3000, "a page of 3000 bytes is not a power of two"),
        ("mmu.page", 0, "is 0 bytes"),
        ("sram.bytes", "lots", "'lots' is not a size"),
        ("compute.matrix.matrx", {"float32": 1}, "unknown unit 'matrx'"),
        ("compute.vector.vector.flaot32", 1, "unknown dtype 'flaot32'"),
        ("compute.vector.vector.float32", 0, "0.0 operations per cycle make no unit"),
        ("compute.vector", {}, "which could compute nothing"),
        ("compute.startup_cycles.matrx", 1, "unknown unit 'matrx'"),
        ("control", None, "is missing"),
        ("provenance.*", "guessed", "unknown provenance 'guessed'"),
    ],
)
def test_what_makes_no_device_is_refused_by_key(
    a5: dict[str, Any], key: str, value: Any, why: str
) -> None:
    error = refused(put(a5, key, value))
    assert why in error.message
    # A name that is wrong itself is found in the section above it.
    assert f"arch.{key}".startswith(error.key) and error.key.startswith("arch.")


def test_the_nearest_name_is_told(a5: dict[str, Any]) -> None:
    assert "Did you mean 'vector'?" in refused(put(a5, "topology.pes", {"vectr": 2})).hint


def test_the_first_pattern_that_fits_gives_the_provenance(composer: Composer) -> None:
    found = provenances(arch_of(composer, "target=a2a3"))
    assert found["control.submit_ns"] == found["topology.pes.matrix"] == "published"
    assert found["hbm.bandwidth"] == "assumed"


def test_costs_published_for_another_arch_are_assumed_here(composer: Composer) -> None:
    for name in ("a5", "mppa"):
        assert provenances(arch_of(composer, f"target={name}"))["control.submit_ns"] == "assumed"


def test_an_overridden_value_says_so(composer: Composer) -> None:
    words = ["workload=axpy", "target=a5", "arch.hbm.bandwidth=64,128", "arch.topology.cubes=8"]
    for point in points_of(composer, words, multirun=True):
        arch = experiment(point.data).arch
        found = provenances(arch, overridden_keys(arch, point.overrides))
        assert found["hbm.bandwidth"] == found["topology.cubes"] == "override"
        assert found["hbm.bytes"] == "assumed"
        assert provenance_counts(found)["override"] == 2


def test_a_section_set_as_a_whole_is_overridden_as_a_whole(composer: Composer) -> None:
    words = ["workload=axpy", "target=a5", "arch.clock={core_mhz: 1000}"]
    (point,) = points_of(composer, words, multirun=False)
    arch = experiment(point.data).arch
    found = provenances(arch, overridden_keys(arch, point.overrides))
    assert found["clock.core_mhz"] == "override"


def test_a_topology_in_one_line(composer: Composer) -> None:
    arch = arch_of(composer, "target=a5")
    assert summary(arch) == "1 sip of 36 cubes of 1 matrix and 2 vector PEs: 108 PEs"
    assert summary(arch_of(composer, "target=mppa")) == "1 sip of 5 cubes of 16 matrix PEs: 80 PEs"


# Machines of variants.


def test_a_variant_brings_its_toolchain_and_emulator(composer: Composer) -> None:
    words = ["target=a5", "workload=axpy", "target.variant=qemu"]
    (point,) = points_of(composer, words, multirun=False)
    assert point.data["toolchain"]["name"] == "gcc_riscv64"
    assert point.data["target"]["emulator"]["program"] == "qemu-riscv64"


def test_values_of_the_toolchain_apply_to_the_one_of_the_variant(composer: Composer) -> None:
    words = ["target=a5", "workload=axpy", "target.variant=qemu", "toolchain.extra_flags=[-DX]"]
    (point,) = points_of(composer, words, multirun=False)
    assert point.data["toolchain"]["name"] == "gcc_riscv64"
    assert point.data["toolchain"]["extra_flags"] == ["-DX"]


@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_a_chosen_toolchain_is_not_replaced_but_refused(composer: Composer, name: str) -> None:
    words = ["target=a5", "workload=axpy", "target.variant=qemu", f"toolchain={name}"]
    (point,) = points_of(composer, words, multirun=False)
    assert point.data["toolchain"]["name"] == name
    error = refused(dict(point.data))
    assert f"toolchain '{name}' cannot build variant 'qemu'" in error.message
    assert "the variant has its own, gcc_riscv64" in error.hint


def test_a_preset_with_a_toolchain_of_its_own_keeps_it(
    project: Callable[[dict[str, str]], Composer],
) -> None:
    preset = (
        "# @package _global_\ndefaults:\n  - override /target: a5\n  - override /toolchain: clang\n"
    )
    composer = project({"experiment/mine.yaml": preset})
    words = ["experiment=mine", "target.variant=qemu"]
    (point,) = points_of(composer, words, multirun=False)
    assert point.data["toolchain"]["name"] == "clang"


def test_an_arch_and_a_target_of_ones_own_extend_shipped_ones(
    project: Callable[[dict[str, str]], Composer],
) -> None:
    arch = "defaults: [a5, _self_]\nname: mine\ntopology: {cubes: 4}\nhbm: {bandwidth: 64}\n"
    target = "# @package _global_\ndefaults: [a5, {override /arch: mine}, _self_]\n"
    files = {"arch/mine.yaml": arch, "target/mine.yaml": f"{target}target: {{name: mine}}\n"}
    found = arch_of(project(files), "target=mine")
    assert summary(found) == "1 sip of 4 cubes of 1 matrix and 2 vector PEs: 12 PEs"
    values = settings_of(found)
    assert (values["hbm.bandwidth"], values["hbm.channels"]) == ("64", "4")


# Runtimes.


def named(points: list[Point]) -> list[tuple[Any, Any]]:
    return [(point.swept["target"], point.swept["runtime"]) for point in points]


def test_the_runtime_axis_collapses_for_targets_without_runtimes(composer: Composer) -> None:
    words = ["workload=axpy", "target=host,a5,riscv64", "runtime=hostgraph,ringmap"]
    points = list(points_of(composer, words, multirun=True))
    assert named(points) == [
        ("host", "none"),
        ("a5", "hostgraph"),
        ("a5", "ringmap"),
        ("riscv64", "none"),
    ]
    assert [point.data["runtime"]["name"] for point in points] == [
        *("none", "hostgraph", "ringmap", "none")
    ]


def test_the_axis_of_a_sweep_file_collapses_too(composer: Composer) -> None:
    words = [
        "workload=axpy",
        "sweep.axes={target: [host, a5], runtime: [hostgraph, ringmap], seed: [1, 2]}",
    ]
    points = list(points_of(composer, words, multirun=True))
    assert len(points) == 6


def test_a_runtime_with_rings_has_their_sizes(composer: Composer) -> None:
    words = ["workload=axpy", "target=a5", "runtime=ringmap", "runtime.ring.slots=16"]
    (point,) = points_of(composer, words, multirun=False)
    ring = experiment(point.data).runtime.ring
    assert ring is not None and ring.slots == 16


def test_every_shipped_accelerator_has_the_same_variants() -> None:
    texts = [
        (share_folder() / "configs" / "target" / f"{name}.yaml").read_text() for name in ARCHES
    ]
    variants = {line for text in texts for line in text.splitlines() if "variants: [" in line}
    assert variants == {"  variants: [sim, sim-asan, sim-tsan, qemu, onboard]"}


def test_a_size_of_a_queue_can_be_left_to_the_runtime(composer: Composer) -> None:
    words = ["target=a5", "workload=axpy", "runtime.queue=null"]
    (point,) = points_of(composer, words, multirun=False)
    assert experiment(point.data).runtime.queue is None
