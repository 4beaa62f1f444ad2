"""Compilers are found, told apart by what they are, and explained when they are not there."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kernloom.base.errors import UnavailableError
from kernloom.build import toolchains
from kernloom.build.probe import tool_environment
from kernloom.build.toolchains import accepts, detect
from kernloom.config.schema import Toolchain


def test_a_compiler_is_identified(any_toolchain: Toolchain, tmp_path: Path) -> None:
    found = detect(any_toolchain, tmp_path)
    assert found.tools["cc"].is_absolute()
    assert int(found.version.split(".")[0]) >= 12
    assert found.triple.count("-") >= 2
    proper = {"gcc": "cc1", "clang": "libLLVM"}[any_toolchain.family]
    assert any(part.startswith(proper) for part in found.parts)
    assert {"cc", "ld"} <= found.parts.keys()


def test_the_second_look_asks_no_compiler(
    gcc: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = detect(gcc, tmp_path)
    monkeypatch.setattr(toolchains, "query_tool", lambda *_: pytest.fail("a compiler was started"))
    monkeypatch.setattr(toolchains, "sha256_file", lambda _: pytest.fail("a file was hashed"))
    assert detect(gcc, tmp_path) == first


def test_a_changed_compiler_is_noticed(wrapped: Callable[..., Toolchain], tmp_path: Path) -> None:
    before = detect(wrapped(), tmp_path)
    after = detect(wrapped('exec gcc "$@" # updated'), tmp_path)
    assert before.digest != after.digest


def test_a_compiler_without_its_c_library_is_unavailable(
    wrapped: Callable[..., Toolchain], tmp_path: Path
) -> None:
    with pytest.raises(UnavailableError, match=r"its C library is missing: .*stdlib\.h") as error:
        detect(wrapped('exec gcc -nostdinc "$@"'), tmp_path)
    assert "libc6-dev" in error.value.hint


def test_a_c_library_that_is_gone_is_noticed(
    wrapped: Callable[..., Toolchain], tmp_path: Path
) -> None:
    header = tmp_path / "include" / "stdlib.h"
    header.parent.mkdir()
    header.touch()
    toolchain = wrapped(f'exec gcc -nostdinc -I{header.parent} "$@"')
    detect(toolchain, tmp_path)
    header.unlink()
    with pytest.raises(UnavailableError, match="its C library is missing"):
        detect(toolchain, tmp_path)


def test_a_copy_elsewhere_is_the_same_compiler(
    wrapped: Callable[..., Toolchain], tmp_path: Path
) -> None:
    one = detect(wrapped(name="one"), tmp_path)
    two = detect(wrapped(name="two"), tmp_path)
    assert one.digest == two.digest
    assert one.tools != two.tools


def test_a_damaged_cache_is_only_slower(gcc: Toolchain, tmp_path: Path) -> None:
    first = detect(gcc, tmp_path)
    for text in ("", "[]", '{"x": 1}', "{"):
        (tmp_path / "toolchains.json").write_text(text)
        assert detect(gcc, tmp_path) == first


def test_a_cache_that_cannot_be_written_is_only_slower(gcc: Toolchain) -> None:
    assert detect(gcc, Path("/proc/nowhere")).version


def test_a_missing_tool_is_named_with_how_to_get_it(
    gcc: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchains, "_systems", lambda: ["ubuntu", "debian"])
    absent = replace(gcc, tools={"cc": "gcc-99"})
    with pytest.raises(UnavailableError) as caught:
        detect(absent, tmp_path)
    assert "no program 'gcc-99' on the PATH (toolchain.tools.cc=gcc-99)" in str(caught.value)
    assert "apt-get install gcc" in str(caught.value)
    assert caught.value.exit_code == 3


def test_a_tool_that_does_not_work_is_unavailable(
    wrapped: Callable[..., Toolchain], tmp_path: Path
) -> None:
    with pytest.raises(UnavailableError, match="does not work: no licence"):
        detect(wrapped("echo no licence >&2; exit 1"), tmp_path)


def test_a_tool_that_is_too_old_is_unavailable(gcc: Toolchain, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"is version .*, but 99 or newer is needed"):
        detect(replace(gcc, minimum_version="99"), tmp_path)


def test_only_flags_that_the_compiler_knows_are_accepted(
    any_toolchain: Toolchain, tmp_path: Path
) -> None:
    found = detect(any_toolchain, tmp_path)
    assert accepts(found, ["-march=x86-64-v3"])
    assert not accepts(found, ["-march=x86-64-v99"])


def test_the_users_environment_does_not_reach_the_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CPATH", "/somewhere")
    assert "CPATH" not in tool_environment(os.curdir)
