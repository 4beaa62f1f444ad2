"""Emulators are found, asked for their version once, and explained when they will not do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernloom.base.errors import UnavailableError
from kernloom.build import emulators
from kernloom.build.arches import missing_features, with_vector_bytes
from kernloom.build.emulators import find_emulator
from kernloom.config.schema import Arch, Caches, Emulator

INSTALL = {"debian": "apt-get install qemu-user"}
OPTIONS = "echo '-plugin file'"


def script(folder: Path, text: str) -> Emulator:
    path = folder / "qemu-test"
    path.write_text(f"#!/bin/sh\n{text}\n{OPTIONS}\n")
    path.chmod(0o755)
    return Emulator(str(path), minimum_version="7.2", install=INSTALL)


def test_a_version_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator = script(tmp_path, "echo 'qemu-test version 7.2.19 (Debian 1:7.2+dfsg-7)'")
    found = find_emulator(emulator, tmp_path)
    assert (found.version, found.path) == ("7.2.19", tmp_path / "qemu-test")
    monkeypatch.setattr(emulators, "query_tool", lambda *_: pytest.fail("the emulator was started"))
    assert find_emulator(emulator, tmp_path) == found


def test_an_updated_emulator_is_noticed(tmp_path: Path) -> None:
    assert find_emulator(script(tmp_path, "echo version 8.0.0"), tmp_path).version == "8.0.0"
    assert find_emulator(script(tmp_path, "echo version 8.10.1"), tmp_path).version == "8.10.1"


def test_an_emulator_that_is_replaced_by_one_of_the_same_size_and_time_is_noticed(
    tmp_path: Path,
) -> None:
    for version in ("8.0.0", "9.0.0"):
        emulator = script(tmp_path, f"echo version {version}")
        os.utime(tmp_path / "qemu-test", (1, 1))
        assert find_emulator(emulator, tmp_path).version == version


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("echo version 7.1.9", "is version 7.1.9, but 7.2 or newer is needed"),
        ("echo hello", "does not tell its version, but: hello"),
        ("exit 1", "does not work: exit code 1"),
    ],
)
def test_an_emulator_that_will_not_do_is_explained(tmp_path: Path, said: str, why: str) -> None:
    with pytest.raises(UnavailableError, match=why) as error:
        find_emulator(script(tmp_path, said), tmp_path)
    assert "qemu-user" in error.value.hint


def test_an_emulator_that_cannot_count_is_explained(tmp_path: Path) -> None:
    emulator = script(tmp_path, "echo version 10.0.2; exit")
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"version 10\.0\.2, takes no plugins") as error:
            find_emulator(emulator, tmp_path)
        assert "--enable-plugins" in error.value.hint


def test_newer_versions_will_do(tmp_path: Path) -> None:
    for version in ("8.2.2", "9.0.0", "10.0.2"):
        found = find_emulator(script(tmp_path, f"echo version {version}"), tmp_path)
        assert found.version == version


def test_a_missing_emulator_is_named_with_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="no emulator 'qemu-pdp11' on the PATH") as error:
        find_emulator(Emulator("qemu-pdp11", install=INSTALL), tmp_path)
    assert "apt-get install qemu-user" in error.value.hint


def test_what_an_emulator_lacks_is_told_by_patterns() -> None:
    emulator = Emulator("qemu-x86_64", isa="x86_64", lacks=("avx512*",))
    caches = Caches(32768, 262144)
    arch = Arch("wide", "x86_64", {}, 64, 32, caches, features=("avx2", "avx512f", "avx512bw"))
    assert missing_features(arch, emulator) == ["avx512f", "avx512bw"]
    assert missing_features(Arch("arm", "aarch64", {}, 16, 32, caches), emulator) == ["aarch64"]


def test_the_size_of_a_vector_follows_from_its_bits_unless_it_is_given() -> None:
    assert with_vector_bytes({"vector_bits": 512, "vector_bytes": None})["vector_bytes"] == 64
    assert with_vector_bytes({"vector_bits": 512, "vector_bytes": 16})["vector_bytes"] == 16
    assert with_vector_bytes({"vector_bits": None}) == {"vector_bits": None}
