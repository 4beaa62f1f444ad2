"""Core kernels from the command line's words to artifacts: flags, header, key."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernloom.base.errors import ConfigError
from kernloom.base.places import Places, share_folder
from kernloom.plan.artifact import Artifact
from kernloom.run.assembly import Assembly
from kernloom.run.planning import plan_each
from parsed import points_of


@pytest.fixture(scope="module")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    folder: Path = tmp_path_factory.mktemp("cores")
    return Assembly(Places(share_folder(), None, folder / "build", folder / "store.db"))


def kernel(assembly: Assembly, *words: str) -> Artifact:
    points = list(points_of(assembly.composer, ["target=a5", *words], multirun=False))
    (plan,) = plan_each(assembly, points, alone=True)
    assert not plan.refusal, plan.refusal
    (step,) = plan.steps
    return step.artifact


def test_results_do_not_depend_on_the_compilers_contractions(assembly: Assembly) -> None:
    argv = kernel(assembly).argv
    last = max(i for i, word in enumerate(argv) if word.startswith("-ffp-contract"))
    assert argv[last] == "-ffp-contract=off"
    assert "-ffp-contract=fast" in argv[:last], "the toolchain's own"
    later = kernel(assembly, "toolchain.extra_flags=['-ffp-contract=on']").argv
    assert [w for w in later if w.startswith("-ffp-contract")][-1] == "-ffp-contract=off"


def test_the_header_is_one_of_the_hashed_files(assembly: Assembly) -> None:
    artifact = kernel(assembly)
    shipped = share_folder() / "native/include/kernloom/core.h"
    assert artifact.files["kernloom/core.h"] == shipped.read_text()
    assert '#include "kernloom/core.h"' in artifact.files[artifact.main]
    assert not any(word.startswith(("/", "-I/")) for word in artifact.argv)


def test_arch_data_is_in_the_key_by_the_chosen_parameters_only(assembly: Assembly) -> None:
    fixed = "select.fixed.tile={m: 64, n: 64, k: 64, buffers: 2}"
    same = [
        "arch.hbm.bandwidth=7",
        "arch.topology.cubes=3",
        "arch.compute.matrix.matrix.float32=99",
        "arch.sram.bytes=256KiB",
    ]
    key = kernel(assembly, fixed).key
    assert {kernel(assembly, fixed, word).key for word in same} == {key}
    assert kernel(assembly, fixed, "catch=off").key != key
    assert kernel(assembly, "arch.sram.bytes=16KiB").key != kernel(assembly).key, "other tiles"


def test_tiles_that_do_not_fit_are_refused_by_name(assembly: Assembly) -> None:
    with pytest.raises(ConfigError, match=r"arch.sram.bytes: .* 3200000 bytes .* has 524288"):
        kernel(assembly, "workload=softmax", "workload.sizes.N=400000")
    tile = [f"select.fixed.tile.{name}=256" for name in "mnk"]
    with pytest.raises(ConfigError, match=r"arch.sram.bytes: .* has 524288") as error:
        kernel(assembly, "workload=matmul", *tile)
    assert "Chosen: m=256, n=256, k=256. Choose smaller ones" in error.value.hint
