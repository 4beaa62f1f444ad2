"""A vendor's platform, added by entry point: here one that forwards to the simulator."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from command_line import ENGINE, Project
from example_package import install
from kernloom.base.places import share_folder
from parts import needs

PROJECT = """\
[project]
name = "forwarding-platform"
version = "1.0"
[project.entry-points."kernloom.platforms"]
ascend = "forwarding_platform:PLATFORM"
"""
MODULE = """\
from pathlib import Path

from kernloom.config.platforms import Platform

PLATFORM = Platform("forwarding", Path(__file__).parent / "share", "vendor_gcc")
"""
DECLARATION = """\
name: forwarding
about: A platform that has another one do the work.
kind: library
language: c++
family: accelerator
output: platform_forwarding.so
sources: [forwarding.cpp]
include: [../accelerator/include, ../include]
link: [-ldl]
varies_by: [isa, variant]
"""
SOURCE = r"""
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "kernloom/platform.h"

namespace {

kl_platform_library forwarded; // a copy of the other platform's table, with our own `open`
struct kl_platform *(*open_other)(const char *, char *, size_t);

// The setting `forward=PATH` names the other platform.
struct kl_platform *open(const char *settings, char *problem, size_t bytes) {
    const char *found = std::strstr(settings, "forward=");
    if (!found) {
        std::snprintf(problem, bytes, "forward: is missing");
        return nullptr;
    }
    found += std::strlen("forward=");
    const std::string path(found, std::strcspn(found, "\n"));
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        std::snprintf(problem, bytes, "forward: %s", dlerror());
        return nullptr;
    }
    const auto other = reinterpret_cast<kl_platform_function>(dlsym(library, "kl_platform"));
    const kl_platform_library *table = other();
    open_other = table->open;
    forwarded = *table;
    forwarded.open = open;
    return open_other(settings, problem, bytes);
}

} // namespace

extern "C" const struct kl_platform_library *kl_platform(void) {
    if (!forwarded.open) {
        forwarded.abi = KL_PLATFORM_ABI;
        forwarded.bytes = sizeof forwarded;
        forwarded.name = "forwarding";
        forwarded.open = open;
    }
    return &forwarded;
}
"""
ONBOARD = ("doctor", "target=a5", "target.variant=onboard", "--probe")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The vendor's package: a platform, and the toolchain that compiles it."""
    package = tmp_path / "package"
    toolchain = yaml.safe_load((share_folder() / "configs/toolchain/gcc.yaml").read_text())
    toolchain |= {"name": "vendor_gcc", "variants": {"onboard": ["-ffp-contract=off"]}}
    files = {
        "pyproject.toml": PROJECT,
        "forwarding_platform.py": MODULE,
        "share/native/forwarding/program.yaml": DECLARATION,
        "share/native/forwarding/forwarding.cpp": SOURCE,
        "share/configs/toolchain/vendor_gcc.yaml": yaml.safe_dump(toolchain),
    }
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    return install(package)


@pytest.mark.slow
def test_a_vendors_platform_runs_the_same_programs(fresh_project: Project, package: Path) -> None:
    needs("gcc", "g++")
    env = {"PYTHONPATH": f"{package}{os.pathsep}{ENGINE}"}
    expected = fresh_project.json("doctor", "target=a5", "--probe").document["probe"]
    library = fresh_project.build / "lib/a5/sim/hostgraph/platform_sim.so"
    assert library.exists()
    # The platform itself says what it lacks.
    done = fresh_project.run(*ONBOARD, env=env)
    assert done.code != 0 and "forward: is missing" in done.stderr
    document = fresh_project.json(*ONBOARD, f"+target.options.forward={library}", env=env).document
    assert document["available"] and document["variant"] == "onboard"
    assert "onboard" not in document["unavailable_variants"]
    assert document["probe"] == expected
    assert (fresh_project.build / "lib/a5/onboard/hostgraph/platform_forwarding.so").exists()


def test_without_the_package_the_variant_is_not_available(fresh_project: Project) -> None:
    done = fresh_project.run(*ONBOARD, "target.machines.onboard.toolchain=clang")
    assert done.code in (2, 3)
    done = fresh_project.run(*ONBOARD, env={"ASCEND_HOME_PATH": ""})
    assert done.code == 3 and "toolchain 'ccec': no program 'ccec'" in done.stderr
