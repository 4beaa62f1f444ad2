"""Same inputs, same name, same bytes, in any folder; any other input, another name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from demo_kernel import make_source

from kernloom.base.errors import ConfigError
from kernloom.base.files import canonical_json
from kernloom.base.places import Places, share_folder
from kernloom.build.builder import Builder
from kernloom.build.compile import kernel_artifact
from kernloom.build.toolchains import detect
from kernloom.config.schema import Arch, Toolchain
from kernloom.plan.artifact import Artifact, from_plain, to_plain

Kernel = Callable[..., Artifact]


@pytest.mark.parametrize("variant", ["release", "asan"])
def test_same_key_and_bytes_in_any_folder(
    any_toolchain: Toolchain, arch: Arch, variant: str, tmp_path: Path
) -> None:
    keys, contents = set(), set()
    for folder in ("plain", "with space; and $dollar"):
        build = tmp_path / folder / "build"
        builder = Builder(Places(share_folder(), None, build, tmp_path / "store.db"))
        detected = detect(any_toolchain, build / "cache")
        artifact = kernel_artifact(make_source(), any_toolchain, arch, variant, detected)
        outcome = builder.build([artifact])[artifact.key]
        assert outcome.ok, outcome.message
        keys.add(artifact.key)
        contents.add(outcome.path.read_bytes())
    assert len(keys) == 1
    assert len(contents) == 1
    assert str(tmp_path).encode() not in contents.pop()


def test_debug_information_names_no_folder_of_this_machine(
    kernel: Kernel, places: Places, any_toolchain: Toolchain
) -> None:
    artifact = kernel(toolchain=any_toolchain, flags=("-g",))
    outcome = Builder(places).build([artifact])[artifact.key]
    assert outcome.ok, outcome.message
    assert str(places.build).encode() not in outcome.path.read_bytes()


def test_every_input_is_in_the_key(kernel: Kernel, wrapped: Callable[..., Toolchain]) -> None:
    variants = [
        kernel(),
        kernel(header="#define COUNT 65\n"),
        kernel(text="void kl_entry(void *const *args) { (void)args; }\n"),
        kernel(flags=("-funroll-loops",)),
        kernel(variant="asan"),
        kernel(toolchain=wrapped()),
    ]
    assert len({artifact.key for artifact in variants}) == len(variants)


def test_names_params_and_tool_paths_are_not_in_the_key(
    kernel: Kernel, wrapped: Callable[..., Toolchain]
) -> None:
    assert kernel(name="other", params={"tile": {"m": 4}}).key == kernel().key
    assert kernel(toolchain=wrapped(name="one")).key == kernel(toolchain=wrapped(name="two")).key


def test_a_system_header_that_changes_changes_the_key(kernel: Kernel, tmp_path: Path) -> None:
    header = tmp_path / "outside.h"
    text = f'#include "{header}"\nvoid kl_entry(void *const *args) {{ (void)args; }}\n'
    header.write_text("#define SIZE 1\n")
    before = kernel(text=text)
    header.write_text("#define SIZE 1024\n")
    assert before.headers
    assert kernel(text=text).key != before.key


def test_an_artifact_survives_json(kernel: Kernel) -> None:
    artifact = kernel(params={"tile": {"m": 4, "on": True}})
    assert from_plain(to_plain(artifact)) == artifact
    assert from_plain(to_plain(artifact)).key == artifact.key
    assert canonical_json(to_plain(artifact))


@pytest.mark.parametrize("path", ["/etc/passwd", "../kernel.c", "a/../../b.h"])
def test_a_file_outside_the_folder_is_refused(kernel: Kernel, path: str) -> None:
    with pytest.raises(ConfigError, match="not a relative path"):
        replace(kernel(), files={path: ""})


def test_an_unknown_variant_is_named(kernel: Kernel) -> None:
    with pytest.raises(ConfigError, match=r"variant 'asam'.*\n.*Did you mean 'asan'"):
        kernel(variant="asam")


def test_an_arch_without_flags_for_the_compiler_is_named(kernel: Kernel, gcc: Toolchain) -> None:
    with pytest.raises(ConfigError, match=r"arch 'x86_64_v2' has no flags for.*'icc'"):
        kernel(toolchain=replace(gcc, family="icc"))
