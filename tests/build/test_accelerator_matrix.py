"""The build matrix of accelerators: arch, variant and runtime, each program built once and linked
wherever it is the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from small_tree import ACCELERATOR, LIBRARY, ONE, RUNTIMES, places_in, small_tree

from example_package import install
from kernloom.base.errors import UnavailableError
from kernloom.base.places import Places, share_folder
from kernloom.build.builder import Builder
from kernloom.build.runtimes import Runtimes, all_runtimes
from parts import needs

ARCHES = ("a2a3", "a5", "mppa")
PACKAGE = """\
from pathlib import Path
from kernloom.config.platforms import Platform

PLATFORM = Platform("forwarding", Path(__file__).parent / "share", "vendor_gcc")
"""
PROJECT = """\
[project]
name = "vendor-platform"
version = "1.0"
[project.entry-points."kernloom.platforms"]
ascend = "vendor_platform:PLATFORM"
"""


@pytest.fixture
def share(tmp_path: Path, compiler_facts: Path) -> Path:
    """A source tree with small programs, and the shipped configs."""
    return small_tree(tmp_path / "share", ACCELERATOR, compiler_facts)


@pytest.fixture
def places(share: Path) -> Places:
    return places_in(share)


def stable(runtimes: Runtimes, places: Places) -> dict[str, str]:
    """Path below lib/ -> key."""
    found = {}
    for artifact in runtimes.artifacts:
        if link := artifact.link(places.build):
            found[link.relative_to(places.build / "lib").as_posix()] = artifact.key
    return found


def test_every_arch_variant_and_runtime_has_all_programs(places: Places) -> None:
    needs("gcc", "g++", "riscv64-linux-gnu-g++", "qemu-riscv64")
    found = stable(all_runtimes(places), places)
    names = ("host.so", "control.so", "core.so", "platform_sim.so", "runner")
    for arch in ARCHES:
        for variant in ("sim", "sim-asan", "sim-tsan", "qemu"):
            for runtime in RUNTIMES:
                for name in names:
                    assert f"{arch}/{variant}/{runtime}/{name}" in found


def test_what_is_equal_is_one_artifact(places: Places) -> None:
    needs("gcc", "g++")
    found = stable(all_runtimes(places), places)

    def keys(pattern: str) -> set[str]:
        arch, variant, runtime, name = pattern.split("/")
        return {
            key
            for path, key in found.items()
            if all(
                wanted in ("*", part)
                for wanted, part in zip(
                    (arch, variant, runtime, name), path.split("/"), strict=True
                )
            )
            and path.split("/")[0] in ARCHES
        }

    assert len(keys("*/sim/*/host.so")) == 1
    assert len(keys("*/sim/*/control.so")) == len(RUNTIMES)
    assert len(keys("*/sim/hostgraph/control.so")) == 1
    assert keys("*/sim/*/host.so").isdisjoint(keys("*/sim-asan/*/host.so"))


def test_cpus_and_accelerators_do_not_share_variants(places: Places) -> None:
    found = stable(all_runtimes(places), places)
    pairs = {tuple(path.split("/")[:2]) for path in found}
    for arch, variant in pairs:
        assert (arch in ARCHES) == (variant in ("sim", "sim-asan", "sim-tsan", "qemu", "onboard"))
    assert ("x86_64_v3", "release") in pairs
    cpus = {path for path in found if path.split("/")[0] not in ARCHES}
    assert {path.split("/")[-1] for path in cpus} == {"runner"}


def test_what_is_left_out_is_said_with_the_reason(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    said = [str(error) for error in all_runtimes(places).unavailable]
    (ascend,) = [text for text in said if "ccec" in text]
    assert ascend.startswith("a2a3/onboard, a5/onboard: toolchain 'ccec': no program 'ccec'")
    assert "ASCEND_HOME_PATH is not set" in ascend and "Install it: the Ascend CANN" in ascend
    assert any(text.startswith("mppa/onboard: toolchain 'kalray'") for text in said)


def test_a_vendors_compiler_is_found_through_its_variable(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the package with the platform is what is missing."""
    needs("clang", "clang++")
    home = tmp_path / "ascend"
    folder = home / "compiler/ccec_compiler/bin"
    folder.mkdir(parents=True)
    clang = shutil.which("clang")
    assert clang is not None
    (folder / "ccec").symlink_to(clang)
    monkeypatch.setenv("ASCEND_HOME_PATH", str(home))
    said = [str(error) for error in all_runtimes(places).unavailable]
    (ascend,) = [text for text in said if "ascend" in text]
    assert ascend.startswith("a2a3/onboard, a5/onboard: no package on this machine adds the")
    assert "kernloom.platforms" in ascend


def test_a_broken_target_is_left_out_and_hides_no_other(places: Places, share: Path) -> None:
    path = share / "configs/target/a2a3.yaml"
    path.write_text(path.read_text().replace("gcc_riscv64", "nothing"))
    runtimes = all_runtimes(places)
    found = stable(runtimes, places)
    assert "a2a3/sim/hostgraph/host.so" in found and "a5/sim/hostgraph/host.so" in found
    assert any("unknown toolchain 'nothing'" in str(error) for error in runtimes.unavailable)


def scons(share: Path, *options: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "SCons", "-Q", *options],
        cwd=share,
        capture_output=True,
        text=True,
        timeout=300,
        env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_scons_builds_one_file_of_the_matrix_with_its_manifest(share: Path) -> None:
    needs("gcc", "g++")
    scons(share, "build/lib/a5/sim/hostgraph/host.so")
    folder = share / "build/lib/a5/sim/hostgraph"
    assert {path.name for path in folder.iterdir()} == {"host.so", "manifest.json"}
    manifest = json.loads((folder / "manifest.json").read_text())
    assert [manifest[key] for key in ("arch", "variant", "runtime")] == ["a5", "sim", "hostgraph"]
    listed = manifest["files"]["host.so"]
    assert listed["program"] == "accelerator_host" and listed["toolchain"] == "gcc"
    assert (folder / listed["path"]).resolve() == (folder / "host.so").resolve()
    assert "Nothing to be done" in scons(share, "build/lib/a5/sim/hostgraph/host.so")


@pytest.mark.slow
def test_an_arch_is_an_alias_and_cleaning_removes_its_links(share: Path) -> None:
    needs("gcc", "g++")
    text = scons(share, "mppa")
    assert text.count("-o host.so ") <= len(("sim", "sim-asan", "sim-tsan", "qemu"))
    for runtime in RUNTIMES:
        assert (share / f"build/lib/mppa/sim-tsan/{runtime}/control.so").exists()
    assert not (share / "build/lib/a5").exists()
    scons(share, "-c")
    assert not (share / "build/lib").exists()


def test_help_names_the_arches_and_what_is_left_out(share: Path) -> None:
    text = scons(share, "-h", ASCEND_HOME_PATH="")
    assert "a2a3, a5" in text.replace("\n", " ") and "mppa" in text
    assert "a2a3/onboard, a5/onboard: toolchain 'ccec'" in text


def vendor(folder: Path) -> Path:
    """A vendor's package with a platform and a toolchain."""
    package = folder / "vendor"
    package.mkdir()
    (package / "pyproject.toml").write_text(PROJECT)
    (package / "vendor_platform.py").write_text(PACKAGE)
    native = package / "share/native/forwarding"
    native.mkdir(parents=True)
    text = LIBRARY.format(
        name="x", output="platform_forwarding.so", sources=["f.cpp"], varies=["isa", "variant"]
    )
    (native / "program.yaml").write_text(text.replace("accelerator_x", "forwarding"))
    (native / "f.cpp").write_text(ONE.format(name="forwarding"))
    toolchain = yaml.safe_load((share_folder() / "configs/toolchain/gcc.yaml").read_text())
    toolchain |= {"name": "vendor_gcc", "variants": {"onboard": []}}
    (package / "share/configs/toolchain").mkdir(parents=True)
    (package / "share/configs/toolchain/vendor_gcc.yaml").write_text(yaml.safe_dump(toolchain))
    return install(package)


def test_a_vendor_adds_a_platform_by_entry_point(share: Path, tmp_path: Path) -> None:
    needs("gcc", "g++")
    package = vendor(tmp_path)
    link = "build/lib/a5/onboard/hostgraph"
    files = (f"{link}/platform_forwarding.so", f"{link}/host.so")
    scons(share, *files, PYTHONPATH=str(package))
    manifest = json.loads((share / link / "manifest.json").read_text())
    assert manifest["files"]["platform_forwarding.so"]["toolchain"] == "vendor_gcc"
    assert manifest["files"]["host.so"]["toolchain"] == "vendor_gcc"


def test_nothing_is_built_where_that_is_forbidden(places: Places) -> None:
    needs("gcc", "g++")
    (host,) = [
        artifact
        for artifact in all_runtimes(places).artifacts
        if artifact.link(places.build) == places.build / "lib/a5/sim/hostgraph/host.so"
    ]
    with pytest.raises(UnavailableError) as caught:
        Builder(places, never=True).build([host])
    assert str(host.path(places.build)) in caught.value.message
    assert str(places.build / "lib/a5/sim/hostgraph/host.so") in caught.value.message
    assert "scons build/lib/a5/sim/hostgraph/host.so" in caught.value.hint
    assert not places.build.joinpath("runtimes").exists()
    Builder(places).build([host])
    assert Builder(places, never=True).build([host])[host.key].cached
