"""Kernels compiled together: each keeps its names to itself, and what is declared keeps its own."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from demo_kernel import make_source, shipped

from kernloom.base.places import Places, find_places
from kernloom.build.batch import batches, file_scope_names
from kernloom.build.builder import Builder
from kernloom.build.compile import kernel_artifact
from kernloom.build.toolchains import detect
from kernloom.config.schema import Arch, Toolchain
from kernloom.plan.artifact import Artifact

MEMBER = """\
#ifndef UNIT
#define UNIT {number}
#endif
typedef float real __attribute__((vector_size(16)));
struct pair {{ float first, second; }};
enum kind {{ PLAIN, FANCY = 3 }};
static float table[4] __attribute__((aligned(64)));
int calls;
extern int shared_with_nobody;
void kl_parallel(int tasks);
static float unit(void) {{ return UNIT; }}
__attribute__((visibility("default"))) void kl_entry(void *const *args);
void kl_entry(void *const *args)
{{
    struct pair both = {{unit(), FANCY}};
    table[calls++ % 4] += both.first;
    *(float *)args[0] = table[0] + 10 * both.second;
}}
"""


def test_what_is_defined_at_file_scope_is_found_and_what_is_declared_is_not() -> None:
    found = file_scope_names(MEMBER.format(number=1))
    assert found == {
        *("real", "pair", "kind", "PLAIN", "FANCY", "table", "calls", "unit", "kl_entry")
    }


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("static int a = 1, b[2] = {1, 2}, *c;", {"a", "b", "c"}),
        ("int f(int x), g(void);", set()),
        ("static inline int f(int x) { int y = x; return y; } int z;", {"f", "z"}),
        ('/* int a; */ // int b;\nchar *s = "int c;";', {"s"}),
        ("#define f(x) \\\n  int x;\nint real;", {"real"}),
        ("typedef struct { int x; } point; static struct timespec t;", {"point", "t"}),
        ('_Static_assert(sizeof(int) == 4, "four"); float v;', {"v"}),
    ],
)
def test_declarations_of_many_kinds_are_read(text: str, names: set[str]) -> None:
    assert file_scope_names(text) == names


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return replace(find_places(), build=tmp_path / "build")


def artifacts_of(texts: Sequence[str], places: Places, header: str = "") -> list[Artifact]:
    toolchain, arch = shipped(Toolchain, "toolchain", "gcc"), shipped(Arch, "arch", "x86_64_v2")
    found = detect(toolchain, places.cache)
    return [
        kernel_artifact(make_source(text, header=header), toolchain, arch, "release", found)
        for text in texts
    ]


def test_kernels_that_share_all_their_names_stay_apart_in_one_library(places: Places) -> None:
    members = artifacts_of([MEMBER.format(number=n) for n in (1, 2, 5)], places)
    (batch,) = batches(members, 10)
    outcome = Builder(places).build([batch.artifact])[batch.artifact.key]
    assert outcome.ok, outcome.message
    library = ctypes.CDLL(str(outcome.path))
    results = []
    for member in members:
        value = ctypes.c_float()
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(value))
        library[batch.entries[member.key]](arguments)
        results.append(value.value)
    assert results == [31.0, 32.0, 35.0]


def test_a_batch_is_no_larger_than_asked_for_and_only_of_kernels_compiled_alike(
    places: Places,
) -> None:
    same = artifacts_of([MEMBER.format(number=n) for n in range(5)], places)
    (other,) = artifacts_of([MEMBER.format(number=9)], places, header="/* another */")
    (once,) = artifacts_of(["#pragma once\n" + MEMBER.format(number=7)], places)
    found = batches([*same, other, once], 3)
    assert sorted(len(batch.entries) for batch in found) == [2, 3]
    assert {key for batch in found for key in batch.entries} == {item.key for item in same}


def test_a_batch_lives_beside_the_kernels_and_is_never_taken_for_one(places: Places) -> None:
    members = artifacts_of([MEMBER.format(number=n) for n in (1, 2)], places)
    (batch,) = batches(members, 2)
    Builder(places).build([batch.artifact])
    assert [folder.name for folder in (places.build / "batches").iterdir()] == [batch.artifact.key]
    assert not (places.build / "kernels").exists()


def test_there_is_work_for_several_compilers(places: Places) -> None:
    members = artifacts_of([MEMBER.format(number=n) for n in range(7)], places)
    assert [len(batch.entries) for batch in batches(members, 25, jobs=3)] == [2, 2, 3]
    # One alone is no batch.
    assert [len(batch.entries) for batch in batches(members[:3], 25, jobs=8)] == [3]


@pytest.mark.parametrize(
    "pragma",
    [
        '#pragma GCC optimize("O0")',
        '_Pragma("GCC target(\\"avx2\\")")',
        "# pragma once",
        "#pragma pack(1)",
        "#pragma STDC FP_CONTRACT ON",
    ],
)
def test_a_pragma_that_would_hold_for_the_next_kernel_keeps_one_alone(
    places: Places, pragma: str
) -> None:
    loops = ["#pragma GCC unroll 4\n", '_Pragma("GCC ivdep")\n', "#pragma omp simd\n"]
    for loop in loops:
        body = f"static void turn(void) {{\n{loop}for (int i = 0; i < 4; i++) {{}} }}\n"
        pair = artifacts_of([body + MEMBER.format(number=n) for n in (1, 2)], places)
        assert len(batches(pair, 2)) == 1
    pair = artifacts_of([f"{pragma}\n{MEMBER.format(number=n)}" for n in (1, 2)], places)
    assert batches(pair, 2) == []


def test_kernels_with_another_entry_are_built_one_by_one(places: Places) -> None:
    for entry, joined in (("kl_entry", 1), ("kl_core_entry", 0)):
        texts = [MEMBER.format(number=n).replace("kl_entry", entry) for n in (1, 2)]
        assert len(batches(artifacts_of(texts, places), 2)) == joined
