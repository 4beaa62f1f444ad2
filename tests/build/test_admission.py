"""What a kernel's library may contain, by libraries that compilers really make."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from kernloom.build import elf
from kernloom.build.admission import refusals
from kernloom.build.elf import Library

COMPILERS = ("gcc", "clang", "aarch64-linux-gnu-gcc", "riscv64-linux-gnu-gcc")
FLAGS = ("-O2", "-shared", "-fPIC", "-fno-builtin", "-Wno-all")
SECTIONS_AT, SECTION_COUNTS_AT = 40, 58
"""Places in the header of an ELF file."""
ENTRY = "void kl_entry(void *const *args) { (void)args; %s }\n"
HONEST = {
    "memory": (
        "#include <stdlib.h>\n#include <string.h>",
        "void *p = malloc(9); memset(p, 1, 9); free(p);",
    ),
    "math": (
        "#include <math.h>",
        "volatile double x = 1; x = sin(x) + fmaf(x, x, x) + lgamma(x) + cbrtl(x);",
    ),
    "complex": ("#include <complex.h>", "volatile double complex z = 1; z = z * z / cexp(z);"),
    "assert": ("#include <assert.h>", "assert(args);"),
    "errno": ("#include <errno.h>", "errno = 0;"),
    "thread local": ("static _Thread_local int calls;", "calls++;"),
    "atomics": ("static _Atomic long calls;", "calls++;"),
    "half floats": ("", "volatile _Float16 x = 1; volatile float y = x; x = y;"),
    "wide numbers": ("", "volatile __int128 x = 7; x = x * x / (x + 1);"),
    "quad floats": ("", "volatile long double x = 7; x = x * x / (x + 1);"),
    "text": ("#include <stdio.h>", 'char t[9]; snprintf(t, 9, "%d", 1);'),
    "own pool": (
        "#include <stdint.h>\nvoid kl_parallel(int64_t, int64_t, void *, void *);",
        "kl_parallel(1, 1, 0, 0);",
    ),
    "rounding": ("#include <fenv.h>", "fesetround(FE_UPWARD); fesetround(FE_TONEAREST);"),
    "exported helper": ("float helper(float x) { return x; }", "helper(1);"),
}
CHEATS = {
    "clock": ("#include <time.h>", "struct timespec t; clock_gettime(0, &t);", "'clock_gettime'"),
    "fork": ("#include <unistd.h>", "fork();", "'fork'"),
    "thread": ("#include <pthread.h>", "pthread_t t; pthread_create(&t, 0, 0, 0);", "[threads]"),
    "loader": ("#include <dlfcn.h>", 'dlopen("libm.so.6", 1);', "'dlopen'"),
    "exit": ("#include <stdlib.h>", "exit(0);", "'exit'"),
    "system call": ("#include <unistd.h>", "syscall(39);", "'syscall'"),
    "constructor": (
        "__attribute__((constructor)) static void early(void) { ran = 1; }",
        "",
        "constructor 'early'",
    ),
    "exported constructor": (
        "__attribute__((constructor)) void soon(void) { ran = 1; }",
        "",
        "constructor 'soon'",
    ),
    "constructor in disguise": (
        "__attribute__((constructor)) static void frame_dummy(void) { ran = 1; }",
        "",
        "constructor 'frame_dummy'",
    ),
    "constructor in another disguise": (
        "__attribute__((constructor)) static void __do_global_dtors_aux(void) { ran = 1; }",
        "",
        "constructor '__do_global_dtors_aux'",
    ),
    "destructor in disguise": (
        "__attribute__((destructor)) static void frame_dummy(void) { ran = 1; }",
        "",
        "destructor 'frame_dummy'",
    ),
    "destructor in another disguise": (
        "__attribute__((destructor)) static void __do_global_dtors_aux(void) { ran = 1; }",
        "",
        "destructor '__do_global_dtors_aux'",
    ),
    "disguise without a size": (
        '__asm__(".text\\n.type frame_dummy, %function\\nframe_dummy: nop\\n"\n'
        '    ".section .init_array,\\"aw\\"\\n.balign 8\\n.quad frame_dummy\\n.text");',
        "",
        "constructor 'frame_dummy'",
    ),
    "fast mathematics in disguise": (
        "__attribute__((constructor)) static void set_fast_math(void) { volatile int x = 1; x++; }",
        "",
        "constructor 'set_fast_math'",
    ),
    "sanitizer in disguise": (
        "__attribute__((constructor)) static void _sub_I_00099_1(void) { ran = 1; }",
        "",
        "constructor '_sub_I",
    ),
    "destructor": (
        "__attribute__((destructor)) static void late(void) { ran = 1; }",
        "",
        "destructor 'late'",
    ),
    "array": (
        "static void early(void) { ran = 1; }\n"
        '__attribute__((used, section(".init_array"))) static void (*const at)(void) = early;',
        "",
        "constructor 'early'",
    ),
    "shadowed clock": ("int clock_gettime(void) { return 0; }", "", "defines 'clock_gettime'"),
    "shadowed pool": ("void kl_parallel(void) {}", "", "defines 'kl_parallel'"),
    "shadowed copy": ("void *memcpy(void) { return 0; }", "", "defines 'memcpy'"),
    "name of the C library": (
        "#include <time.h>\n__attribute__((weak, noinline)) int timespec_get(struct timespec *t,"
        ' int base) { __asm__ volatile(""); return 0; }',
        "struct timespec t; timespec_get(&t, 1);",
        "defines 'timespec_get', but calls the C library's",
    ),
    "shadowed data": ("double y1;", "", "defines 'y1'"),
    "code that is data": (
        '__asm__(".section .wx,\\"awx\\",%progbits; .zero 64; .text");',
        "",
        "'.wx'",
    ),
    "executable stack": (
        '__asm__(".section .note.GNU-stack,\\"x\\",%progbits\\n.text");',
        "",
        "stack executable",
    ),
}
IFUNC = (
    "static void one(void) {}\nstatic void *choose(void) { return one; }\n"
    'void chosen(void) __attribute__((ifunc("choose")));'
)


@pytest.fixture(params=COMPILERS)
def compiler(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if not shutil.which(name):
        pytest.skip(f"no {name}")
    return name


def library(compiler: str, folder: Path, head: str, body: str, *flags: str) -> bytes:
    source, made = folder / "kernel.c", folder / "kernel.so"
    source.write_text(f"static volatile int ran;\n{head}\n{ENTRY % body}")
    done = subprocess.run(
        [compiler, *FLAGS, "-o", made, source, *flags, "-lm"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return made.read_bytes()


def test_honest_kernels_are_admitted(compiler: str, tmp_path: Path) -> None:
    for name, (head, body) in HONEST.items():
        if name == "half floats" and ("riscv" in compiler or compiler == "clang"):
            continue
        assert refusals(library(compiler, tmp_path, head, body)) == [], name


@pytest.mark.parametrize("flags", [("-ffast-math",), ("-O3", "-flto"), ("-g", "-O0"), ("-s",)])
def test_flags_of_honest_kernels_change_nothing(
    compiler: str, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    if compiler == "clang" and "-flto" in flags:
        pytest.skip("needs a linker of its own")
    head, body = HONEST["math"]
    found = refusals(library(compiler, tmp_path, head, body, *flags))
    if flags == ("-s",):
        # Without symbols the compiler's constructors have no names.
        assert all("structor '0x" in reason for reason in found)
    else:
        assert found == []


@pytest.mark.parametrize(
    "flag", ["-fsanitize=address", "-fsanitize=undefined", "-fsanitize=thread"]
)
def test_sanitizers_are_admitted_where_they_are_meant(flag: str, tmp_path: Path) -> None:
    for compiler in ("gcc", "clang"):
        data = library(compiler, tmp_path, *HONEST["memory"], flag)
        assert refusals(data, sanitized=True) == []
        cheat = library(compiler, tmp_path, *CHEATS["constructor"][:2], flag)
        assert any("'early'" in reason for reason in refusals(cheat, sanitized=True))


def test_cheats_are_refused_by_name(compiler: str, tmp_path: Path) -> None:
    for name, (head, body, says) in CHEATS.items():
        found = refusals(library(compiler, tmp_path, head, body))
        assert any(says in reason for reason in found), (name, found)


IMITATION = """
__asm__(".text\\n.type deregister_tm_clones, %function\\nderegister_tm_clones: nop\\n"
        ".type register_tm_clones, %function\\nregister_tm_clones: nop\\n"
        ".type __do_global_dtors_aux, %function\\n__do_global_dtors_aux: nop\\n"
        ".type frame_dummy, %function\\nframe_dummy: nop\\n"
        ".section .init_array,\\"aw\\"\\n.balign 8\\n.quad frame_dummy\\n.text");
"""


def test_an_imitated_start_file_is_refused(compiler: str, tmp_path: Path) -> None:
    found = refusals(library(compiler, tmp_path, IMITATION, ""))
    assert any("constructor 'frame_dummy'" in reason for reason in found)
    alone = library(compiler, tmp_path, IMITATION, "", "-nostartfiles")
    assert refusals(alone, start_files=False) == ["has the constructor 'frame_dummy'"]
    honest = library(compiler, tmp_path, "", "", "-nostartfiles")
    assert refusals(honest, start_files=False) == []
    early = ("void early(void) { ran = 1; }", "", "-nostartfiles", "-Wl,-init,early")
    found = refusals(library(compiler, tmp_path, *early), start_files=False)
    assert found == ["has code of its own in the section '.init'"]


def test_functions_that_are_chosen_while_loading_are_refused(tmp_path: Path) -> None:
    for compiler in ("gcc", "clang"):
        found = refusals(library(compiler, tmp_path, IFUNC, "chosen();"))
        assert any("ifunc" in reason for reason in found)
        hidden = IFUNC.replace("void chosen", '__attribute__((visibility("hidden"))) void chosen')
        assert any(
            "ifunc" in reason
            for reason in refusals(library(compiler, tmp_path, hidden, "chosen();"))
        )


def test_code_in_the_start_files_section_is_refused(tmp_path: Path) -> None:
    code = '__asm__(".section .init,\\"ax\\",@progbits; call cheat; .text");\nvoid cheat(void) {}'
    found = refusals(library("gcc", tmp_path, code, ""))
    assert found == ["has code of its own in the section '.init'"]


def test_a_library_of_another_project_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "libother.so"
    other.write_bytes(library("gcc", tmp_path, "void other(void) {}", ""))
    data = library("gcc", tmp_path, "void other(void);", "other();", f"-L{tmp_path}", "-lother")
    found = refusals(data)
    assert any("needs the library" in reason for reason in found)
    assert any("'other'" in reason for reason in found)


def test_a_workload_allows_names_and_groups(tmp_path: Path) -> None:
    data = library("gcc", tmp_path, "#include <stdio.h>", 'printf("x"); puts("y");')
    assert {reason.split("'")[1] for reason in refusals(data)} == {"printf", "puts"}
    assert all("workload.allow=[output]" in reason for reason in refusals(data))
    assert len(refusals(data, ["printf"])) == 1
    assert refusals(data, ["output"]) == []
    thread = library("gcc", tmp_path, *CHEATS["thread"][:2])
    assert refusals(thread, ["everything"]) == []
    cheat = library("gcc", tmp_path, *CHEATS["constructor"][:2])
    assert refusals(cheat, ["everything"]), "no function, but code that runs by itself"


def test_other_files_are_none_of_its_business(tmp_path: Path) -> None:
    assert refusals(b"") == ()
    assert refusals(b"__kernel void k() {}") == ()
    program = tmp_path / "program"
    (tmp_path / "main.c").write_text("int main(void) { return 0; }")
    subprocess.run(["gcc", "-no-pie", "-o", program, tmp_path / "main.c"], check=True)
    assert refusals(program.read_bytes()) == ()


def test_a_library_whose_headers_lie_is_refused(tmp_path: Path) -> None:
    data = library("gcc", tmp_path, *CHEATS["fork"][:2], "-Wl,-z,noseparate-code")
    read = Library.read(data)
    assert read
    (dynamic,) = (one for one in read.segments if one.type == elf.DYNAMIC)
    (names,) = (one for one in read.sections if one.name == ".dynstr")
    segments = [
        (at, struct.unpack_from("<I", data, at)[0])
        for at in range(64, 64 + 56 * len(read.segments), 56)
    ]
    stack = next(at for at, kind in segments if kind == elf.STACK)
    loads = [at for at, kind in segments if kind == elf.LOAD]
    at_dynamic = next(at for at, kind in segments if kind == elf.DYNAMIC)
    at_names = read.data.rindex(struct.pack("<QQ", names.address, names.offset))
    spare = next(at for at in range(dynamic.offset, len(data), 16) if not any(data[at : at + 16]))
    lies = {
        "no section headers": (60, bytes(4), "section with the symbols"),
        "other names": (
            at_names + 8,
            struct.pack("<Q", names.offset + 1),
            "section with the names",
        ),
        "a second dynamic section": (stack, struct.pack("<I", elf.DYNAMIC), "one dynamic"),
        "no dynamic section": (at_dynamic, bytes(4), "one dynamic"),
        "a tag twice": (spare, struct.pack("<QQ", elf.STRTAB, 64), "tag 0x5 "),
        "segments over each other": (loads[1] + 16, bytes(8), "over each other"),
        "a hidden dynamic section": (at_dynamic + 8, struct.pack("<Q", 64), "imports 'fork'"),
        "a dynamic section cut short": (at_dynamic + 32, struct.pack("<Q", 16), "imports 'fork'"),
    }
    for name, (at, changed, says) in lies.items():
        found = refusals(data[:at] + changed + data[at + len(changed) :])
        assert any(says in reason for reason in found), (name, found)


def test_a_dependency_by_path_is_no_known_one(tmp_path: Path) -> None:
    named = "-Wl,-soname,ld-linux/../../evil.so.1"
    (tmp_path / "libother.so").write_bytes(
        library("gcc", tmp_path, "int other;", "other++;", named)
    )
    data = library("gcc", tmp_path, "", "", f"-L{tmp_path}", "-Wl,--no-as-needed", "-lother")
    assert any("needs the library 'ld-linux/" in reason for reason in refusals(data))


def test_a_damaged_library_is_refused_without_a_traceback(tmp_path: Path) -> None:
    data = library("gcc", tmp_path, *HONEST["math"])
    for length in range(6, len(data), 977):
        (reason,) = refusals(data[:length])
        assert reason.startswith("is damaged: ")
    sections = struct.unpack_from("<Q", data, SECTIONS_AT)[0]
    for place in (*range(16, sections, 491), *range(sections, len(data), 4)):
        refusals(data[:place] + b"\xff\xff\xff\xff" + data[place + 4 :])
    chosen = random.Random(1)
    for _ in range(500):
        damaged = bytearray(data)
        for _ in range(chosen.choice((1, 2, 8))):
            place = chosen.choice((chosen.randrange(1024), chosen.randrange(len(data) - 8)))
            damaged[place : place + 4] = chosen.choice((bytes(4), b"\xff" * 4, b"\x7f\0\x80\0"))
        refusals(bytes(damaged))


def test_a_library_without_section_headers_is_refused(tmp_path: Path) -> None:
    """The loader needs none, but its symbols could not be looked at."""
    data = bytearray(library("gcc", tmp_path, *CHEATS["clock"][:2], "-nostartfiles"))
    struct.pack_into("<Q", data, SECTIONS_AT, 0)
    struct.pack_into("<HHH", data, SECTION_COUNTS_AT, 0, 0, 0)
    assert refusals(bytes(data)) == ["has no section with the symbols that the loader uses"]
