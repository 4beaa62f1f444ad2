"""What a compiler really reads is what is in the key, or the result is thrown away."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from demo_kernel import KERNEL, make_source, shipped

from kernloom.base.places import Places
from kernloom.build.batch import batches
from kernloom.build.builder import Builder, Outcome
from kernloom.build.built_for import BuiltFor
from kernloom.build.compile import kernel_artifact
from kernloom.build.firmware import firmware_artifact
from kernloom.build.programs import Programs
from kernloom.build.toolchains import detect
from kernloom.config.schema import Arch, Toolchain
from kernloom.plan.artifact import Artifact

Kernel = Callable[..., Artifact]
SCALED = KERNEL.replace("2.0f", "SCALE")
EMPTY = "void kl_entry(void *const *args) { (void)args; }\n"
ONCE = """
here=$(dirname "$0")
case "$*" in *{output}*) if mkdir $here/once 2>/dev/null; then {change}; fi ;; esac
exec gcc "$@" """
"""A compiler that changes something the first time it compiles; it names no file by its path, for
that would be a part of the compiler."""


def built(places: Places, artifact: Artifact) -> Outcome:
    return Builder(places).build([artifact])[artifact.key]


def bytes_with(kernel: Kernel, places: Places, header: Path, holds: str, **how: object) -> bytes:
    """What a kernel is when nothing changes while it is built."""
    header.write_text(holds)
    outcome = built(places, kernel(**how))
    assert outcome.ok, outcome.message
    return outcome.path.read_bytes()


@pytest.mark.parametrize("how", ["in place", "back again"])
def test_a_header_that_changes_while_a_kernel_is_built_makes_no_wrong_artifact(
    kernel: Kernel,
    places: Places,
    tmp_path: Path,
    wrapped: Callable[..., Toolchain],
    how: str,
) -> None:
    header = tmp_path / "scale.inc"
    text = f'#include "{header}"\n{SCALED}'
    change = "echo '#define SCALE 3.0f' > $here/scale.inc"
    if how == "back again":
        change += "; gcc \"$@\"; code=$?; echo '#define SCALE 2.0f' > $here/scale.inc; exit $code"
    script = ONCE.format(output="kernel.so", change=change)
    toolchain = wrapped(script)
    header.write_text("#define SCALE 2.0f\n")
    planned = kernel(toolchain=toolchain, text=text)
    outcome = built(places, planned)
    assert outcome.ok, outcome.message
    assert (tmp_path / "once").is_dir()
    now = "3.0f" if how == "in place" else "2.0f"
    assert outcome.artifact.key == kernel(toolchain=toolchain, text=text).key
    assert (outcome.artifact.key == planned.key) == (how == "back again")
    assert Builder(places).state(planned).cached == (how == "back again")
    alone = Places(places.share, None, tmp_path / "alone", places.store)
    expected = bytes_with(kernel, alone, header, f"#define SCALE {now}\n", text=text)
    assert outcome.path.read_bytes() == expected


def test_a_header_that_appears_earlier_on_the_path_while_a_kernel_is_built_is_noticed(
    kernel: Kernel, places: Places, tmp_path: Path, wrapped: Callable[..., Toolchain]
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "two/found.h").write_text("#define SCALE 2.0f\n")
    change = "echo '#define SCALE 3.0f' > $here/one/found.h"
    script = ONCE.format(output="kernel.so", change=change)
    flags = (f"-I{tmp_path}/one", f"-I{tmp_path}/two")
    planned = kernel(toolchain=wrapped(script), flags=flags, text=f'#include "found.h"\n{SCALED}')
    outcome = built(places, planned)
    assert outcome.ok, outcome.message
    assert outcome.artifact.key != planned.key
    assert not Builder(places).state(planned).cached


def test_a_library_that_changes_while_a_kernel_is_built_is_noticed(
    kernel: Kernel, places: Places, tmp_path: Path, wrapped: Callable[..., Toolchain]
) -> None:
    for number in (1, 2):
        source = tmp_path / f"own{number}.c"
        source.write_text(f"int outside(void) {{ return {number}; }}\n")
        made = tmp_path / f"own{number}.o"
        subprocess.run(["gcc", "-c", "-fPIC", source, "-o", made], check=True)
        subprocess.run(["ar", "rcsD", tmp_path / f"own{number}.a", made], check=True)
    library = tmp_path / "libown.a"
    library.write_bytes((tmp_path / "own1.a").read_bytes())
    change = "cp $here/own2.a $here/libown.a"
    script = ONCE.format(output="kernel.so", change=change)
    text = "int outside(void);\nint kl_entry(void) { return outside(); }\n"
    planned = kernel(toolchain=wrapped(script), flags=(f"-L{tmp_path}", "-lown"), text=text)
    outcome = built(places, planned)
    assert outcome.ok, outcome.message
    assert outcome.artifact.linked["libown.a"] != planned.linked["libown.a"]


def test_a_compiler_that_is_replaced_while_it_compiles_is_noticed(
    kernel: Kernel, places: Places, tmp_path: Path, wrapped: Callable[..., Toolchain]
) -> None:
    other = tmp_path / "other"
    other.write_text('#!/bin/sh\nexec gcc -O0 "$@"\n')
    other.chmod(0o755)
    change = "cp $here/other $here/new && mv $here/new $here/wrapped"
    script = ONCE.format(output="kernel.so", change=change)
    planned = kernel(toolchain=wrapped(script))
    outcome = built(places, planned)
    assert outcome.ok, outcome.message
    assert outcome.artifact.identity.digest != planned.identity.digest


def test_a_header_that_never_rests_is_a_clear_error(
    kernel: Kernel, places: Places, tmp_path: Path, wrapped: Callable[..., Toolchain]
) -> None:
    header = tmp_path / "restless.h"
    header.write_text("#define SCALE 2.0f\n")
    script = """
case "$*" in *kernel.so*) echo "// again" >> $(dirname "$0")/restless.h ;; esac
exec gcc "$@" """
    planned = kernel(toolchain=wrapped(script), text=f'#include "{header}"\n{SCALED}')
    outcome = built(places, planned)
    assert not outcome.ok
    assert f"{header} changed while this was being built" in outcome.message
    assert not list((places.build / "kernels").glob("*/kernel.so"))


def test_a_batch_is_built_again_and_its_kernels_are_known_by_what_it_was_built_from(
    kernel: Kernel, places: Places, tmp_path: Path, wrapped: Callable[..., Toolchain]
) -> None:
    header = tmp_path / "scale.inc"
    header.write_text("#define SCALE 2.0f\n")
    change = "echo '#define SCALE 3.0f' > $here/scale.inc"
    script = ONCE.format(output="kernel.so", change=change)
    toolchain = wrapped(script)
    texts = [f'#include "{header}"\n{SCALED}// {number}\n' for number in range(2)]
    (batch,) = batches([kernel(toolchain=toolchain, text=text) for text in texts], 2)
    outcome = built(places, batch.artifact)
    assert outcome.ok, outcome.message
    now = kernel(toolchain=toolchain, text=texts[0])
    assert outcome.artifact.key != batch.artifact.key
    assert outcome.artifact.headers == now.headers


HIDDEN = {
    "a spliced line": '#inc\\\nlude "{header}"\n',
    "a splice with a space": '#inc\\ \nlude "{header}"\n',
    "a trigraph": '??=include "{header}"\n',
    "a spliced trigraph": '#inc??/\nlude "{header}"\n',
    "a digraph": '%:include "{header}"\n',
    "a comment of two lines": '#/* one\ntwo */include "{header}"\n',
    "a macro": '#define H "{header}"\n#include H\n',
}


@pytest.mark.parametrize("how", HIDDEN)
def test_an_include_cannot_hide(kernel: Kernel, places: Places, tmp_path: Path, how: str) -> None:
    header = tmp_path / "scale.inc"
    text = HIDDEN[how].format(header=header) + SCALED
    flags = ("-trigraphs",) if "trigraph" in how else ()
    keys, contents = set(), set()
    for value in ("2.0f", "3.0f"):
        header.write_text(f"#define SCALE {value}\n")
        outcome = built(places, kernel(text=text, flags=flags))
        assert outcome.ok, outcome.message
        assert "scale.inc" in outcome.artifact.headers
        keys.add(outcome.artifact.key)
        contents.add(outcome.path.read_bytes())
    assert len(keys) == len(contents) == 2


ASSEMBLY = {
    "pasted strings": '__asm__(".inc" "bin \\"{data}\\"");\n',
    "an escape": '__asm__(".inc\\x62in \\"{data}\\"");\n',
    "a stringified word": '#define S(x) #x\n__asm__("." S(incbin) " \\"{data}\\"");\n',
    "a pasted asm": '#define J(a, b) a##b\nJ(__as, m__)(".inc" "bin \\"{data}\\"");\n',
    "an include": '__asm__(".incl" "ude \\"{data}\\"");\n',
    "a macro of the assembler": (
        '__asm__(".macro m a\\n.inc\\\\a \\"{data}\\"\\n.endm\\nm b" "in\\n");\n'
    ),
    **{
        f"a macro of the assembler {after}": (
            f'__asm__(".macro m a b\\n{before}.\\\\a\\\\()\\\\b \\"{{data}}\\"\\n'
            '.endm\\nm inc" ", bin\\n");\n'
        )
        for after, before in {"after a comment": "/**/", "after labels": "1: 2: "}.items()
    },
    "a repetition": ('__asm__(".irp a,bin\\n/**/.inc\\\\a \\"{data}\\"\\n.endr\\n");\n'),
    "a macro between comments": (
        '__asm__("/* .endm */ .macro m a\\n# .endm\\n/**/.inc\\\\a \\"{data}\\"\\n.endm\\n'
        'm b" "in\\n");\n'
    ),
    "link-time optimization": (
        '__asm__(".macro m a\\n/**/.inc\\\\a \\"{data}\\"\\n.endm\\nm b" "in\\n");\n'
    ),
}


@pytest.mark.parametrize("how", ASSEMBLY)
def test_assembly_that_reads_a_file_is_refused_however_it_is_spelled(
    kernel: Kernel, any_toolchain: Toolchain, places: Places, tmp_path: Path, how: str
) -> None:
    data = tmp_path / "data"
    data.write_text("# nothing\n")
    text = ASSEMBLY[how].format(data=data) + EMPTY
    flags = ("-flto",) if how.startswith("link") else ()
    outcome = built(places, kernel(toolchain=any_toolchain, text=text, flags=flags))
    assert not outcome.ok
    assert re.search("reads? a file by", outcome.message)
    assert "go unnoticed" in outcome.message or "nothing would list" in outcome.message


OTHERS = {
    "gcc_aarch64": "aarch64",
    "gcc_riscv64": "riscv64",
    "gcc_arm_none_eabi": "cortex_m4",
    "gcc_riscv64_elf": "riscv_bare",
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_assemblers_say_what_they_read_too(
    name: str, places: Places, tmp_path: Path, cache: Path
) -> None:
    toolchain, arch = shipped(Toolchain, "toolchain", name), shipped(Arch, "arch", OTHERS[name])
    if not shutil.which(toolchain.tools["cc"]):
        pytest.skip(f"{name} is not installed")
    detected = detect(toolchain, cache)
    data = tmp_path / "data"
    data.write_text("data")
    hidden = ASSEMBLY["a macro of the assembler after labels"].format(data=data)
    for text, ok in ((hidden, False), ('__asm__(".macro m a\\n.byte \\\\a\\n.endm");\n', True)):
        source = make_source(text + EMPTY)
        if arch.memory:
            built_for = BuiltFor(toolchain, arch, "release", detected)
            made = firmware_artifact(source, built_for, Programs(places.roots))
        else:
            made = kernel_artifact(source, toolchain, arch, "release", detected)
        outcome = built(places, made)
        assert outcome.ok == ok, outcome.message
        assert ok or f"reads a file by assembly ({data})" in outcome.message


def test_macros_of_the_assembler_are_taken_where_it_says_what_it_reads(
    kernel: Kernel, any_toolchain: Toolchain, places: Places
) -> None:
    plain = '__asm__(".macro m\\n.byte 1\\n.endm");\nconst char *kl_text = "\\n";\n'
    outcome = built(places, kernel(toolchain=any_toolchain, text=plain + EMPTY))
    assert outcome.ok, outcome.message
    text = '__asm__(".macro m a\\n.byte \\\\a\\n.endm");\n' + EMPTY
    outcome = built(places, kernel(toolchain=any_toolchain, text=text))
    assert outcome.ok == (any_toolchain.family == "gcc"), outcome.message
    assert outcome.ok or "argument of an assembler macro" in outcome.message


def test_a_compiler_whose_assembler_says_nothing_is_searched(
    kernel: Kernel, places: Places, tmp_path: Path, wrapped: Callable[..., Toolchain]
) -> None:
    """As behind a cache of compilers, which may not start the assembler at all."""
    (tmp_path / "data").write_text("data")
    text = ASSEMBLY["a repetition"].format(data=tmp_path / "data") + EMPTY
    script = """
for word; do shift; case $word in -Wa,--MD*) ;; *) set -- "$@" "$word" ;; esac; done
exec gcc "$@" """
    outcome = built(places, kernel(toolchain=wrapped(script), text=text))
    assert not outcome.ok
    assert "argument of an assembler macro" in outcome.message


def test_a_name_in_a_line_marker_is_no_file_that_is_read(kernel: Kernel, places: Places) -> None:
    text = '#line 1 "elsewhere.c"\nvoid kl_entry(void *const *a) { (void)a; __asm__("nop"); }\n'
    outcome = built(places, kernel(text=text))
    assert outcome.ok, outcome.message


def test_plain_assembly_is_taken(kernel: Kernel, any_toolchain: Toolchain, places: Places) -> None:
    text = '#define J(a, b) a##b\nvoid kl_entry(void *const *a) { (void)a; __asm__("nop"); }\n'
    outcome = built(places, kernel(toolchain=any_toolchain, text=text))
    assert outcome.ok, outcome.message


def test_the_same_bytes_are_built_again_though_reading_is_watched(
    any_toolchain: Toolchain, arch: Arch, places: Places, tmp_path: Path
) -> None:
    """Also by compilers that note all of their flags in what they make."""
    toolchain = replace(any_toolchain, extra_flags=("-g", "-frecord-gcc-switches"))
    found = detect(toolchain, tmp_path / "cache")
    contents = set()
    for name in ("one", "two"):
        place = Places(places.share, None, tmp_path / name, places.store)
        others = [make_source(header=f"#define COUNT {n}\n") for n in range(len(contents) + 2)]
        made = [kernel_artifact(s, toolchain, arch, "release", found) for s in others]
        outcomes = Builder(place).build(made)
        assert all(outcome.ok for outcome in outcomes.values())
        contents.add(outcomes[made[1].key].path.read_bytes())
        kept = {path.name for path in outcomes[made[1].key].path.parent.iterdir()}
        assert not [name for name in kept if name.startswith("kernloom")]
    assert len(contents) == 1
