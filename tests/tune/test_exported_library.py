"""Exported libraries: what is written, replaced and kept."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kernloom.tune.export import MANIFEST
from kernloom.tune.export.ctext import in_comment, in_string, supported
from kernloom.tune.export.library import build_script, library_name, replace_export
from kernloom.tune.export.symbols import defined_names


def export(folder: Path, *files: str) -> Path:
    for name in (*files, MANIFEST):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}" if name == MANIFEST else f"{folder.name} {name}")
    return folder


def test_an_export_replaces_its_own_files_and_no_others(tmp_path: Path) -> None:
    place = tmp_path / "library"
    replace_export(place, export(tmp_path / "first", "a.c", "a_1/kernel.c", "data/x.bin"))
    (place / "mine.c").write_text("of a user")
    (tmp_path / "outside").write_text("of a user")
    manifest = json.loads((place / MANIFEST).read_text())
    manifest["files"] += ["../outside", str(tmp_path / "outside"), "missing"]
    (place / MANIFEST).write_text(json.dumps(manifest))
    replace_export(place, export(tmp_path / "second", "a.c", "data/y.bin"))
    found = {str(path.relative_to(place)) for path in place.rglob("*")}
    assert found == {"a.c", "data", "data/y.bin", "mine.c", MANIFEST}
    assert (place / "a.c").read_text() == "second a.c"
    assert (tmp_path / "outside").exists()


def test_an_export_can_be_a_link_to_a_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    replace_export(tmp_path / "link", export(tmp_path / "first", "a.c"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "a.c").exists()


def test_flags_reach_no_shell(tmp_path: Path) -> None:
    flag = "-DX=$(touch pwned)`touch pwned`;touch pwned"
    (tmp_path / "build.sh").write_text(build_script("lib", [("a.c", (flag, "-O2"))], flag))
    (tmp_path / "cc").write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
    (tmp_path / "cc").chmod(0o755)
    done = subprocess.run(
        [shutil.which("sh") or "sh", "build.sh"],
        cwd=tmp_path,
        env={"CC": "./cc", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert flag in done.stdout.splitlines()
    assert not (tmp_path / "pwned").exists()


def test_a_variant_runs_only_where_its_vectors_are() -> None:
    def arch(isa: str, *features: str) -> Any:
        return SimpleNamespace(isa=isa, features=features)

    assert supported(arch("x86_64", "avx2", "cx16")) == '__builtin_cpu_supports("avx2")'
    assert supported(arch("aarch64", "asimd", "fp")) == "1"
    assert supported(arch("aarch64", "fp", "sve")) == "(getauxval(AT_HWCAP) >> 22 & 1)"
    assert supported(arch("riscv64", "m", "v")) == "(getauxval(AT_HWCAP) >> 21 & 1)"


def test_no_text_ends_its_comment() -> None:
    assert "*/" not in in_comment("a */ int x; /* b")


def test_any_text_is_a_string_of_c(tmp_path: Path) -> None:
    texts = ["plain", 'a"b', "back\\slash", "??/", "größer", "line\nbreak", "%s 12"]
    prints = "".join(f"fputs({in_string(text)}, stdout); putchar(10);" for text in texts)
    (tmp_path / "a.c").write_text(f"#include <stdio.h>\nint main(void) {{ {prints} }}\n")
    subprocess.run(["gcc", "-trigraphs", "a.c"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "a.out"], capture_output=True)
    assert done.stdout.decode() == "".join(f"{text}\n" for text in texts)


def test_a_library_has_the_name_of_its_workload_in_letters_of_c() -> None:
    assert library_name("matmul") == "matmul_kernels"
    assert library_name("3d-blur.v2") == "_3d_blur_v2_kernels"
    assert re.fullmatch(r"\w+", library_name("größer"), re.ASCII)


def test_names_that_variants_would_share_are_found() -> None:
    text = """
    #include <math.h>
    #define UNUSED(name) int name() { return 0; }
    /* int commented(void) { } */
    double exp(double);                      // of a library
    extern int elsewhere;
    static int own(int x) { for (;;) if (x) while (x) return x; }
    static const float table[2] = {1, 2};
    typedef struct { int member; } pair;
    struct tagged { int member; };
    enum kind { RED, GREEN };
    float weights[9] = {1, 2, 3}, *more = weights, bias;
    __attribute__((aligned(64))) float buffer[100] __attribute__((unused));
    struct tagged one = {.member = '"'};
    static inline __attribute__((always_inline)) float inlined(float x) { return x; }
    __attribute__((noinline)) void helper(float *x, int (*f)(int)) { const char *s = "{("; }
    float *pointer(void) { float local = 1; return 0; }
    """
    found = {"weights", "more", "bias", "buffer", "one", "helper", "pointer"}
    assert defined_names(text) == found
    assert defined_names("}}} void f(") == set()
