"""This machine's processor under a concrete name; processors that lack something, by what."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import archspec.cpu
import pytest
import yaml
from demo_kernel import shipped

from kernloom.base.places import share_folder
from kernloom.build import arches
from kernloom.build.arches import host_caches, is_native, missing_features, resolve_native
from kernloom.build.toolchains import Detected, accepts, check_compiles, detect
from kernloom.config.convert import convert
from kernloom.config.schema import Arch, Toolchain
from parts import needs


@pytest.fixture
def compilers(any_toolchain: Toolchain, cache: Path) -> dict[str, Detected]:
    return {any_toolchain.family: detect(any_toolchain, cache)}


def native() -> dict[str, object]:
    text = (share_folder() / "configs" / "arch" / "native.yaml").read_text()
    data: dict[str, object] = yaml.safe_load(text)
    return data


def test_native_is_concrete_and_fits_the_schema(
    compilers: dict[str, Detected], tmp_path: Path
) -> None:
    arch = convert(Arch, resolve_native(native(), compilers, tmp_path), "arch")
    assert arch.name != "native"
    assert missing_features(arch) == []
    assert arch.vector_bytes in (16, 32, 64) and arch.cores >= 1
    for family, found in compilers.items():
        assert arch.flags[family] and "-march=native" not in arch.flags[family]
        assert accepts(found, arch.flags[family])


def test_native_is_remembered(
    compilers: dict[str, Detected], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = resolve_native(native(), compilers, tmp_path)
    monkeypatch.setattr(arches, "_examine", lambda _: pytest.fail("looked again"))
    assert resolve_native(native(), compilers, tmp_path) == first


def test_what_the_user_sets_of_native_is_kept(
    compilers: dict[str, Detected], tmp_path: Path
) -> None:
    given = {**native(), "cores": 3, "caches": {"l1": "48KiB", "l2": None, "l3": None}}
    arch = resolve_native(given, compilers, tmp_path)
    assert arch["cores"] == 3
    assert arch["caches"]["l1"] == "48KiB"
    assert arch["caches"]["l2"] == host_caches()["l2"]


def test_an_arch_that_inherits_from_native_keeps_its_name(
    compilers: dict[str, Detected], tmp_path: Path
) -> None:
    given = {**native(), "name": "mine", "cores": 3}
    assert is_native(given) and is_native(native())
    arch = resolve_native(given, compilers, tmp_path)
    assert arch["name"] == "mine"
    assert arch | {"name": ""} == resolve_native({**native(), "cores": 3}, compilers, tmp_path) | {
        "name": ""
    }
    assert not is_native(arch)


def test_a_feature_the_host_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    v4 = shipped(Arch, "arch", "x86_64_v4")
    v3 = shipped(Arch, "arch", "x86_64_v3")
    monkeypatch.setattr(arches, "host_isa", lambda: "x86_64")
    monkeypatch.setattr(arches, "cpu_flags", lambda: frozenset(v3.features))
    assert missing_features(v3) == []
    assert missing_features(v4) == ["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]
    assert missing_features(replace(v3, isa="aarch64")) == ["aarch64"]


def test_caches_are_read_as_the_system_says(tmp_path: Path) -> None:
    for index, (level, kind, size) in enumerate(
        [("1", "Data", "48K"), ("1", "Instruction", "64K"), ("2", "Unified", "2048K")]
    ):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(text + "\n")
    assert host_caches(tmp_path) == {"l1": 48 << 10, "l2": 2 << 20, "l3": 0}
    assert host_caches(tmp_path / "none")["l1"] > 0


@pytest.mark.parametrize("name", ["x86_64_v2", "x86_64_v3", "x86_64_v4"])
def test_shipped_flags_are_accepted(name: str, compilers: dict[str, Detected]) -> None:
    arch = shipped(Arch, "arch", name)
    for family, found in compilers.items():
        assert accepts(found, arch.flags[family])


def test_what_other_code_found_out_about_native_is_found_out_again(
    compilers: dict[str, Detected], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_native(native(), compilers, tmp_path)
    monkeypatch.setattr(arches, "code_stamp", lambda *_, **__: "newer code")
    examined: list[bool] = []
    examine = arches._examine
    monkeypatch.setattr(arches, "_examine", lambda c: examined.append(True) or examine(c))
    resolve_native(native(), compilers, tmp_path)
    assert examined


@pytest.mark.parametrize(
    ("processor", "isa", "toolchain", "vectors"),
    [
        ("neoverse_n1", "aarch64", "gcc_aarch64", (16, 32)),
        ("aarch64", "aarch64", "gcc_aarch64", (16, 32)),
        ("u74mc", "riscv64", "gcc_riscv64", (4, 32)),
        ("riscv64", "riscv64", "gcc_riscv64", (4, 32)),
    ],
)
def test_native_is_concrete_on_other_processors_too(
    processor: str,
    isa: str,
    toolchain: str,
    vectors: tuple[int, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cross compiler plays the part of that machine's own."""
    compiler = shipped(Toolchain, "toolchain", toolchain)
    needs(compiler.tools["cc"])
    monkeypatch.setattr(archspec.cpu, "host", lambda: archspec.cpu.TARGETS[processor])
    monkeypatch.setattr(arches, "host_isa", lambda: isa)
    features = frozenset(map(str, archspec.cpu.TARGETS[processor].features))
    monkeypatch.setattr(arches, "cpu_flags", lambda: features)
    found = detect(compiler, tmp_path)
    arch = convert(Arch, resolve_native(native(), {"gcc": found}, tmp_path), "arch")
    assert (arch.name, arch.isa) == (processor, isa)
    assert (arch.vector_bytes, arch.registers) == vectors
    assert arch.flags["gcc"] and accepts(found, arch.flags["gcc"])
    assert missing_features(arch) == []
    check_compiles(found, arch)
