"""Why something is built again: the line, flag, header, compiler or parameter that changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from demo_kernel import KERNEL

from kernloom.base.places import Places
from kernloom.build.builder import Builder
from kernloom.build.explain import Explanation
from kernloom.config.schema import Toolchain
from kernloom.plan.artifact import Artifact

Kernel = Callable[..., Artifact]


def why(places: Places, old: Artifact, new: Artifact) -> Explanation:
    """The reason for building `new` where `old` was built before."""
    Builder(places).build([old])
    state = Builder(places).state(new)
    assert not state.cached
    return state.explanation


def test_the_first_build_is_new(kernel: Kernel, places: Places) -> None:
    assert Builder(places).state(kernel()).explanation.kind == "new"


def test_a_changed_template_line_is_named_with_what_it_was(kernel: Kernel, places: Places) -> None:
    changed = kernel(text=KERNEL.replace("2.0f", "3.0f"), template="x[i] *= 3;\n")
    said = why(places, kernel(), changed)
    assert said.kind == "source"
    assert "kernels/scale/host.c.j2:1: 'x[i] *= {{ factor }};' -> 'x[i] *= 3;'" in said.text
    assert "kernel.c:6: 'x[i] *= 2.0f;' -> 'x[i] *= 3.0f;'" in said.text
    assert said.details[0]["line"] == 1


def test_a_changed_source_line_without_template_is_named(kernel: Kernel, places: Places) -> None:
    said = why(places, kernel(), kernel(text=KERNEL.replace("2.0f", "3.0f")))
    assert said.kind == "source"
    assert said.text == "kernel.c:6: 'x[i] *= 2.0f;' -> 'x[i] *= 3.0f;'"


def test_a_template_edit_that_renders_the_same_rebuilds_nothing(
    kernel: Kernel, places: Places
) -> None:
    Builder(places).build([kernel()])
    assert Builder(places).state(kernel(template="{# a remark #}\n")).cached


def test_a_changed_header_line_is_named(kernel: Kernel, places: Places) -> None:
    said = why(places, kernel(), kernel(header="#define COUNT 32\n"))
    assert said.kind == "header"
    assert said.text == "scale.h:1: '#define COUNT 64' -> '#define COUNT 32'"


def test_a_changed_system_header_is_named(kernel: Kernel, places: Places, tmp_path: Path) -> None:
    header = tmp_path / "outside.h"
    text = f'#include "{header}"\n{KERNEL}'
    header.write_text("#define SIZE 1\n")
    Builder(places).build([kernel(text=text)])
    header.write_text("#define SIZE 1024\n")
    said = Builder(places).state(kernel(text=text)).explanation
    assert said.kind == "header" and "<outside.h>: changed" in said.text


@pytest.mark.parametrize("flag", ["-I", "-isystem"])
def test_ones_own_header_is_named_with_its_folder(
    kernel: Kernel, places: Places, tmp_path: Path, flag: str
) -> None:
    header = tmp_path / "mylib.h"
    text, flags = f"#include <mylib.h>\n{KERNEL}", (flag, str(tmp_path))
    header.write_text("#define SIZE 1\n")
    Builder(places).build([kernel(text=text, flags=flags)])
    header.write_text("#define SIZE 1024\n")
    said = Builder(places).state(kernel(text=text, flags=flags)).explanation
    assert said.text == f"header mylib.h in {tmp_path}: changed"


def test_a_header_that_is_asked_for_and_has_appeared_is_said(
    kernel: Kernel, places: Places, tmp_path: Path
) -> None:
    asks = f"#if __has_include(<asked.h>)\nint there;\n#endif\n{KERNEL}"
    flags = (f"-I{tmp_path}",)
    Builder(places).build([kernel(text=asks, flags=flags)])
    (tmp_path / "asked.h").write_text("")
    said = Builder(places).state(kernel(text=asks, flags=flags)).explanation
    assert said.text == "__has_include: a header that a source asks for has appeared or is gone"
    # What is left of the source is another one for other reasons, too.
    said = Builder(places).state(kernel(text=asks.replace("2.0f", "3.0f"), flags=flags)).explanation
    assert said.text == "kernel.c:9: 'x[i] *= 2.0f;' -> 'x[i] *= 3.0f;'"


def test_a_changed_flag_is_named(kernel: Kernel, places: Places) -> None:
    said = why(places, kernel(flags=("-O1",)), kernel(flags=("-O3",)))
    assert said.kind == "flag"
    assert said.details[0]["removed"] == ["-O1"] and said.details[0]["added"] == ["-O3"]


def test_a_flag_given_once_more_is_named(kernel: Kernel, places: Places) -> None:
    said = why(places, kernel(flags=("-g",)), kernel(flags=("-g", "-O2")))
    assert said.text == "flags: +[-O2]"


def test_a_header_of_a_plain_c_kernel_is_named_once(kernel: Kernel, places: Places) -> None:
    old, new = kernel(), kernel(header="#define COUNT 32\n")
    said = why(places, replace(old, origins=old.files), replace(new, origins=new.files))
    assert said.kind == "header"
    assert said.text == "scale.h:1: '#define COUNT 64' -> '#define COUNT 32'"


def test_a_plain_c_line_is_named_beside_a_changed_parameter(kernel: Kernel, places: Places) -> None:
    old = kernel()
    new = kernel(text=KERNEL.replace("2.0f", "3.0f"), params={"unroll": {"factor": 2}})
    said = why(places, replace(old, origins=old.files), replace(new, origins=new.files))
    assert [detail["kind"] for detail in said.details] == ["parameter", "source"]


def test_a_changed_dtype_is_named_as_such(kernel: Kernel, places: Places) -> None:
    old = kernel(params={"dtype": "float64"}, text=KERNEL.replace("float", "double"))
    said = why(places, old, kernel(params={"dtype": "float32"}))
    assert said.text == "dtype: float64 -> float32"


@pytest.mark.parametrize(
    "other",
    [
        {"params": {"dtype": "float64"}, "text": KERNEL.replace("float", "double")},
        {"flags": ("-O1", "-g")},
        {"variant": "asan"},
    ],
)
def test_a_changed_line_is_compared_with_the_build_of_the_same_dtype_and_flags(
    kernel: Kernel, places: Places, other: dict[str, Any]
) -> None:
    same: dict[str, Any] = {"params": {"dtype": "float32"}}
    Builder(places).build([kernel(**same)])
    said = why(
        places, kernel(**(same | other)), kernel(**same, text=KERNEL.replace("2.0f", "3.0f"))
    )
    assert said.text == "kernel.c:6: 'x[i] *= 2.0f;' -> 'x[i] *= 3.0f;'"


def test_a_build_by_the_same_version_of_a_compiler_is_nearest(
    kernel: Kernel, places: Places
) -> None:
    this = kernel()
    other = replace(this, identity=replace(this.identity, version="99.1", digest="another"))
    Builder(places).build([this])
    said = why(places, other, kernel(text=KERNEL.replace("2.0f", "3.0f")))
    assert said.kind == "source"


def test_an_index_without_flags_and_versions_is_still_read(kernel: Kernel, places: Places) -> None:
    Builder(places).build([kernel()])
    path = places.build / "index" / "demo.scale.jsonl"
    line = json.loads(path.read_text())
    path.write_text(
        json.dumps({k: line[k] for k in line if k not in ("argv", "version", "sha256")}) + "\n"
    )
    assert Builder(places).state(kernel(flags=("-O3",))).explanation.kind == "flag"


def test_a_changed_parameter_is_named_before_the_source_it_changed(
    kernel: Kernel, places: Places
) -> None:
    changed = kernel(text=KERNEL.replace("i++", "i += 2"), params={"unroll": {"factor": 2}})
    said = why(places, kernel(), changed)
    assert said.kind == "parameter"
    assert said.text == "parameter unroll.factor: 1 -> 2"


def test_a_replaced_compiler_is_named(
    kernel: Kernel, places: Places, wrapped: Callable[..., Toolchain]
) -> None:
    Builder(places).build([kernel(toolchain=wrapped())])
    updated = kernel(toolchain=wrapped('exec gcc "$@" # updated'))
    said = Builder(places).state(updated).explanation
    assert said.kind == "compiler"
    assert "gcc" in said.text and "cc changed" in said.text


def test_a_deleted_artifact_is_told_from_a_new_one(kernel: Kernel, places: Places) -> None:
    artifact = kernel()
    Builder(places).build([artifact])
    shutil.rmtree(places.build / "kernels" / artifact.key)
    assert Builder(places).state(artifact).explanation.kind == "deleted"


def test_the_most_similar_build_is_compared_not_the_newest(kernel: Kernel, places: Places) -> None:
    near = kernel(params={"unroll": {"factor": 1, "tail": 1}})
    far = kernel(text=KERNEL.replace("2.0f", "9.0f"), params={"unroll": {"factor": 9, "tail": 9}})
    Builder(places).build([near])
    said = why(
        places,
        far,
        kernel(text=KERNEL.replace("i++", "i += 2"), params={"unroll": {"factor": 2, "tail": 1}}),
    )
    assert said.text == "parameter unroll.factor: 1 -> 2"


def test_the_reason_is_kept_in_the_manifest_and_told_later(kernel: Kernel, places: Places) -> None:
    changed = kernel(flags=("-O3",))
    said = why(places, kernel(), changed)
    path = Builder(places).build([changed])[changed.key].path
    manifest = json.loads((path.parent / "manifest.json").read_text())
    assert manifest["because"]["text"] == said.text
    later = Builder(places).state(changed).explanation
    assert later.kind == "kept" and said.text in later.text
    assert later.details[0]["created"] == manifest["created"]
    assert later.details[0]["details"][0]["text"] == said.text


def test_a_torn_line_of_the_index_is_passed_over(kernel: Kernel, places: Places) -> None:
    Builder(places).build([kernel()])
    with (places.build / "index" / "demo.scale.jsonl").open("a") as file:
        file.write('{"key": "abc", "ar')
    assert Builder(places).state(kernel(flags=("-O3",))).explanation.kind == "flag"


def test_equal_kernels_of_two_names_each_know_their_predecessor(
    kernel: Kernel, places: Places
) -> None:
    Builder(places).build([kernel(), kernel(name="demo.twin")])
    said = Builder(places).state(kernel(name="demo.twin", flags=("-O3",))).explanation
    assert said.kind == "flag"


def test_a_change_is_compared_with_the_version_used_last_not_built_last(
    kernel: Kernel, places: Places
) -> None:
    one, two = kernel(), kernel(text=KERNEL.replace("2.0f", "3.0f"))
    for artifact in (one, two, one):
        Builder(places).build([artifact])
    said = Builder(places).state(kernel(text=KERNEL.replace("2.0f", "4.0f"))).explanation
    assert said.text == "kernel.c:6: 'x[i] *= 2.0f;' -> 'x[i] *= 4.0f;'"
    Builder(places).note_uses([two])
    said = Builder(places).state(kernel(text=KERNEL.replace("2.0f", "4.0f"))).explanation
    assert said.text == "kernel.c:6: 'x[i] *= 3.0f;' -> 'x[i] *= 4.0f;'"


def test_using_the_newest_version_again_notes_nothing(kernel: Kernel, places: Places) -> None:
    artifacts = [kernel(), kernel(text=KERNEL.replace("2.0f", "3.0f"))]
    for artifact in artifacts:
        Builder(places).build([artifact])
    path = places.build / "index" / "demo.scale.jsonl"
    before = path.read_text()
    Builder(places).build([artifacts[1]])
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        ({"params": {"unroll": {"factor": 8}}}, "not built before with unroll.factor=8"),
        ({"flags": ("-O3",)}, "not built before with flag -O3"),
        ({"variant": "asan"}, "not built before with variant=asan, "),
    ],
)
def test_in_a_sweep_a_point_that_was_never_built_is_new(
    kernel: Kernel, places: Places, point: dict[str, Any], reason: str
) -> None:
    Builder(places).build([kernel()])
    other = kernel(**point, text=KERNEL.replace("2.0f", "3.0f"))
    said = Builder(places).state(other, sweep=True).explanation
    assert said.kind == "new" and said.text.startswith(reason)


def test_in_a_sweep_a_point_that_was_built_before_tells_what_changed(
    kernel: Kernel, places: Places
) -> None:
    Builder(places).build([kernel(), kernel(flags=("-O3",))])
    changed = kernel(flags=("-O3",), text=KERNEL.replace("2.0f", "3.0f"))
    said = Builder(places).state(changed, sweep=True).explanation
    assert said.text == "kernel.c:6: 'x[i] *= 2.0f;' -> 'x[i] *= 3.0f;'"


def test_what_follows_from_another_compiler_is_not_told(kernel: Kernel, places: Places) -> None:
    text = "#include <stddef.h>\n" + KERNEL
    old = kernel(text=text)
    headers = {**old.headers, "other.h": "another"}
    identity = replace(old.identity, toolchain="other", digest="another")
    new = replace(old, identity=identity, headers=headers, linked={})
    said = why(places, old, new)
    assert [detail["kind"] for detail in said.details] == ["compiler"]
