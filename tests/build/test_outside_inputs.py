"""What flags let into an artifact from outside is in its key, or the flag is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from demo_kernel import KERNEL, make_source, shipped

from kernloom.base.errors import ConfigError
from kernloom.base.places import Places
from kernloom.build import linked, listing, probe, toolchains
from kernloom.build.builder import Builder
from kernloom.build.compile import kernel_artifact
from kernloom.build.stage import Compilers
from kernloom.build.toolchains import detect
from kernloom.config.schema import Arch, Toolchain
from kernloom.plan.artifact import Artifact
from kernloom.run.assembly import Assembly
from parts import needs

Kernel = Callable[..., Artifact]
EMPTY = "void kl_entry(void *const *args) { (void)args; }\n"


def archive(path: Path, value: int) -> None:
    source = path.with_suffix(".c")
    source.write_text(f"int outside(void) {{ return {value}; }}\n")
    subprocess.run(["gcc", "-c", "-fPIC", source, "-o", path.with_suffix(".o")], check=True)
    path.unlink(missing_ok=True)
    subprocess.run(["ar", "rcsD", path, path.with_suffix(".o")], check=True)


def test_a_header_that_a_flag_includes_is_in_the_key(
    kernel: Kernel, any_toolchain: Toolchain, places: Places, tmp_path: Path
) -> None:
    header = tmp_path / "x.h"
    keys, contents = set(), set()
    for value in ("1.0f", "2.0f"):
        header.write_text(f"#define SCALE {value}\n")
        artifact = kernel(
            toolchain=any_toolchain,
            flags=("-include", str(header)),
            text=KERNEL.replace("2.0f", "SCALE"),
        )
        outcome = Builder(places).build([artifact])[artifact.key]
        assert outcome.ok, outcome.message
        keys.add(artifact.key)
        contents.add(outcome.path.read_bytes())
    assert len(keys) == len(contents) == 2


@pytest.mark.parametrize("flag", ["-I", "-isystem", "-iquote", "-idirafter"])
def test_a_header_that_appears_earlier_on_the_path_is_noticed(
    kernel: Kernel, any_toolchain: Toolchain, tmp_path: Path, flag: str
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "two/found.h").write_text("#define N 2\n")
    flags = (flag + str(tmp_path / "one"), flag, str(tmp_path / "two"))
    text = '#include "found.h"\n' + EMPTY
    before = kernel(toolchain=any_toolchain, flags=flags, text=text)
    assert "found.h" in before.headers
    (tmp_path / "one/found.h").write_text("#define N 1\n")
    assert kernel(toolchain=any_toolchain, flags=flags, text=text).key != before.key


def test_a_header_that_comes_to_shadow_one_of_the_system_is_noticed(
    gcc: Toolchain, arch: Arch, tmp_path: Path, wrapped: Callable[..., Toolchain]
) -> None:
    """A compiler that looks in a folder of its own first, as most do in /usr/local/include."""
    toolchain = wrapped(f'exec gcc "$@" -isystem {tmp_path}/local')
    source = make_source("#include <stddef.h>\n" + EMPTY)

    def key() -> str:
        return kernel_artifact(source, toolchain, arch, "release", detect(toolchain, tmp_path)).key

    before = key()
    assert key() == before
    (tmp_path / "local").mkdir()
    assert key() == before
    (tmp_path / "local/stddef.h").write_text("#include_next <stddef.h>\n#define MINE 1\n")
    assert key() != before


def test_headers_of_one_name_that_change_places_are_noticed(kernel: Kernel, tmp_path: Path) -> None:
    text = '#include "a/config.h"\n#include "b/config.h"\n' + EMPTY
    keys = set()
    for a, b in (("1", "2"), ("2", "1")):
        for folder, value in (("a", a), ("b", b)):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / "config.h").write_text(f"#undef N\n#define N {value}\n")
        keys.add(kernel(text=text, flags=(f"-I{tmp_path}",)).key)
    assert len(keys) == 2


def test_a_header_that_is_only_asked_for_is_noticed(kernel: Kernel, tmp_path: Path) -> None:
    text = f"#if __has_include(<asked.h>)\nint there;\n#endif\n{EMPTY}"
    before = kernel(text=text, flags=(f"-I{tmp_path}",))
    (tmp_path / "asked.h").write_text("")
    assert kernel(text=text, flags=(f"-I{tmp_path}",)).key != before.key


def test_a_staged_name_does_not_hide_a_header_elsewhere(kernel: Kernel, tmp_path: Path) -> None:
    header = tmp_path / "scale.h"
    keys = set()
    for count in (64, 65):
        header.write_text(f"#define COUNT {count}\n")
        keys.add(kernel(text=KERNEL.replace('"scale.h"', f'"{header}"')).key)
    assert len(keys) == 2


def test_a_precompiled_header_is_refused(kernel: Kernel, tmp_path: Path) -> None:
    (tmp_path / "x.h").write_text("\n")
    (tmp_path / "x.h.gch").write_text("\n")
    with pytest.raises(ConfigError, match=r"x\.h\.gch in place of the header"):
        kernel(flags=("-include", str(tmp_path / "x.h")))


def test_a_library_is_in_the_key(kernel: Kernel, any_toolchain: Toolchain, tmp_path: Path) -> None:
    keys = set()
    for value in (1, 2):
        archive(tmp_path / "libown.a", value)
        made = kernel(toolchain=any_toolchain, flags=(f"-L{tmp_path}", "-lown"))
        assert "libown.a" in made.linked
        keys.add(made.key)
    (tmp_path / "first").mkdir()
    archive(tmp_path / "first/libown.a", 3)
    keys.add(
        kernel(toolchain=any_toolchain, flags=(f"-L{tmp_path}/first", f"-L{tmp_path}", "-lown")).key
    )
    assert len(keys) == 3


def test_a_library_that_appears_earlier_on_the_path_is_noticed(
    kernel: Kernel, tmp_path: Path
) -> None:
    (tmp_path / "first").mkdir()
    archive(tmp_path / "libown.a", 1)
    flags = (f"-L{tmp_path}/first", f"-L{tmp_path}", "-lown")
    before = kernel(flags=flags)
    archive(tmp_path / "first/libown.a", 2)
    assert kernel(flags=flags).key != before.key


@pytest.mark.parametrize(
    "flag", ["{}", "-fprofile-use={}", "-Wl,--version-script={}", "-Wl,-T,{}", "-fsanitize-x=a,{}"]
)
def test_a_file_that_a_flag_names_is_in_the_key(kernel: Kernel, tmp_path: Path, flag: str) -> None:
    named = tmp_path / "named.o"
    keys = set()
    for text in ("one", "two"):
        named.write_text(text)
        keys.add(kernel(flags=(flag.format(named),)).key)
    assert len(keys) == 2


def test_files_of_one_name_are_told_apart(kernel: Kernel, tmp_path: Path) -> None:
    flags = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.o").write_text("one")
        flags.append(str(tmp_path / folder / "x.o"))
    before = kernel(flags=tuple(flags))
    (tmp_path / "a/x.o").write_text("two")
    assert kernel(flags=tuple(flags)).key != before.key


@pytest.mark.parametrize(
    "flags",
    [
        ("@more",),
        ("-B/tmp",),
        ("-specs=mine.specs",),
        ("--specs=mine.specs",),
        ("-fplugin=mine",),
        ("-fpass-plugin=mine.so",),
        ("-Xclang", "-load"),
        ("-Wl,-plugin,mine.so",),
        ("-Wl,@more",),
        ("-Wa,@more",),
        ("-Wp,-include,x.h",),
        ("-wrapper", "mine"),
        ("--config=mine.cfg",),
        ("-fprofile-use=/tmp",),
        ("-fprofile-use=../profile",),
        ("-I../elsewhere",),
        ("-I",),
        ("-MF", "x.d"),
        ("-o", "elsewhere"),
        ("more.c",),
        ("/nowhere/more.o",),
    ],
)
def test_a_flag_whose_reach_is_unknown_is_refused_by_name(
    kernel: Kernel, flags: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError) as caught:
        kernel(flags=flags)
    assert caught.value.key == "toolchain.extra_flags"
    assert flags[0] in str(caught.value)


@pytest.mark.parametrize(
    "flags",
    [
        ("-Itemplates",),
        ("-I", "templates"),
        ("-I.",),
        ("-isystem", "include"),
        ("-isysteminclude",),
        ("-iquote", "include"),
        ("-idirafter", "include"),
        ("-Llib",),
        ("-L", "lib"),
        ("--sysroot=root",),
        ("-Wl,-Llib",),
        ("-Wl,-L,lib",),
        ("-Wl,--library-path=lib",),
        ("-Xlinker", "-Llib"),
    ],
)
def test_a_relative_folder_is_refused(kernel: Kernel, flags: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        kernel(flags=flags)
    assert caught.value.key == "toolchain.extra_flags"
    assert f"the flag '{' '.join(flags)}' has a relative path" in caught.value.message
    assert caught.value.hint == "Use an absolute path."


@pytest.mark.parametrize(
    "flags",
    [
        ("-funroll-loops", "-g", "-DX=/a/b", "-D", "Y=2", "-Wno-unused", "-w"),
        ("--param", "max-unroll-times=4", "-mno-avx", "-pthread", "-s"),
        ("-ffile-prefix-map=/a=b", "-Wl,-rpath,/nowhere", "-Wl,-z,now", "-ffast-math"),
        ("-fopenmp",),
        ("-flto",),
    ],
)
def test_usual_flags_are_taken(kernel: Kernel, places: Places, flags: tuple[str, ...]) -> None:
    artifact = kernel(flags=flags)
    outcome = Builder(places).build([artifact])[artifact.key]
    assert outcome.ok, outcome.message


def test_code_for_this_very_processor_is_not_taken_for_anothers(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, plain = kernel(flags=("-march=native",)), kernel()
    monkeypatch.setattr(linked, "cpu_flags", lambda: frozenset({"another"}))
    assert kernel(flags=("-march=native",)).key != here.key
    assert kernel().key == plain.key


def test_a_file_read_by_the_assembler_is_refused(kernel: Kernel) -> None:
    with pytest.raises(ConfigError, match=r"kernel\.c reads a file by \.incbin"):
        kernel(text='__asm__(".incbin \\"/etc/hostname\\"");\n' + EMPTY)


@pytest.mark.parametrize("variant", ["release", "asan"])
def test_what_is_linked_is_in_the_key(
    kernel: Kernel, any_toolchain: Toolchain, variant: str
) -> None:
    artifact = kernel(toolchain=any_toolchain, variant=variant)
    assert {"crti.o", "libgcc.a", "libm.so"} <= artifact.linked.keys()
    implied = "stdc-predef.h" in artifact.linked
    assert implied == (any_toolchain.family == "gcc")  # which reads it before every source
    sanitizer = [name for name in artifact.linked if "asan" in name]
    assert bool(sanitizer) == (variant == "asan")
    for name in (*sanitizer, "libgcc.a"):
        other = replace(artifact, linked={**artifact.linked, name: "another"})
        assert other.key != artifact.key


def test_a_library_that_a_flag_brings_along_is_looked_after(
    arch: Arch, tmp_path: Path, wrapped: Callable[..., Toolchain]
) -> None:
    """A compiler that links a library unasked, as those do that sanitize."""
    archive(tmp_path / "libown.a", 1)
    toolchain = wrapped(f'exec gcc "$@" -L{tmp_path} -lown')

    def key() -> str:
        found = detect(toolchain, tmp_path / "cache")
        return kernel_artifact(make_source(), toolchain, arch, "release", found).key

    before = key()
    assert key() == before
    archive(tmp_path / "libown.a", 2)
    assert key() != before


def test_usual_flags_are_looked_into_once(
    gcc: Toolchain, arch: Arch, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_source("#include <stddef.h>\n" + EMPTY)
    first = kernel_artifact(source, gcc, arch, "release", detect(gcc, cache))
    monkeypatch.setattr(probe, "_run", lambda *_: pytest.fail("a compiler was started"))
    monkeypatch.setattr(listing, "sha256_file", lambda _: pytest.fail("a file was hashed"))
    assert kernel_artifact(source, gcc, arch, "release", detect(gcc, cache)) == first


def test_a_file_put_back_in_time_is_noticed(wrapped: Callable[..., Toolchain]) -> None:
    path = Path(wrapped().tools["cc"])
    status, before = path.stat(), toolchains.file_stamp(path)
    path.write_text(path.read_text().replace("gcc", "gcc"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_mtime_ns == status.st_mtime_ns
    assert toolchains.file_stamp(path) != before


def test_what_other_code_found_out_is_found_out_again(
    gcc: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    detect(gcc, tmp_path)
    monkeypatch.setattr(toolchains, "code_stamp", lambda *_: "newer code")
    examined: list[bool] = []
    examine = toolchains._examine
    monkeypatch.setattr(toolchains, "_examine", lambda *how: examined.append(True) or examine(*how))
    detect(gcc, tmp_path)
    assert examined


def test_an_arch_that_is_gone_lends_its_artifact_to_no_other(
    gcc: Toolchain, arch: Arch, cache: Path
) -> None:
    compilers, source = Compilers(cache), make_source()
    for number in range(40):
        flag = f"-march=x86-64-v{2 + number % 2}"
        other = replace(arch, flags={"gcc": (flag,)})
        assert flag in compilers.kernel(source, gcc, other, "release").argv
        del other


def test_a_header_that_was_missing_is_looked_for_again(
    arch: Arch, tmp_path: Path, wrapped: Callable[..., Toolchain]
) -> None:
    toolchain = wrapped(f'exec gcc "$@" -isystem {tmp_path}')
    source = make_source("#include <late.h>\n" + EMPTY)

    def made() -> Artifact:
        found = detect(toolchain, tmp_path / "cache")
        return kernel_artifact(source, toolchain, arch, "release", found)

    assert made().headers == {}
    (tmp_path / "late.h").write_text("#define LATE 1\n")
    assert "late.h" in made().headers


def test_a_library_that_was_missing_is_looked_for_again(
    arch: Arch, tmp_path: Path, wrapped: Callable[..., Toolchain]
) -> None:
    toolchain = wrapped(f'exec gcc "$@" -L{tmp_path} -lown')

    def made() -> Artifact:
        found = detect(toolchain, tmp_path / "cache")
        return kernel_artifact(make_source(), toolchain, arch, "release", found)

    assert made().linked == {}
    archive(tmp_path / "libown.a", 1)
    assert "libown.a" in made().linked


def test_another_linker_is_in_the_key(kernel: Kernel) -> None:
    if not shutil.which("ld.gold"):
        pytest.skip("gold is not installed")
    artifact = kernel(flags=("-fuse-ld=gold",))
    assert "ld.gold" in artifact.linked
    assert artifact.key != replace(artifact, linked=kernel().linked).key


def test_an_arch_that_is_gone_lends_its_runner_to_no_other(
    gcc: Toolchain, arch: Arch, places: Places
) -> None:
    assembly = Assembly(places)
    target = SimpleNamespace(variant="release", device="host", machines={})
    runtime = SimpleNamespace(name="none")
    for number in range(40):
        isa = ("x86_64", "another")[number % 2]
        named = {"toolchain": gcc, "arch": replace(arch, isa=isa), "target": target}
        build = SimpleNamespace(mode="auto")
        given: Any = SimpleNamespace(**named, runtime=runtime, build=build)
        assert ("-march=x86-64" in assembly.programs(given)["runner"].argv) == (isa == "x86_64")
        del given


def test_what_a_compiler_reads_for_another_target_is_listed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolchain = shipped(Toolchain, "toolchain", "clang_riscv64")
    needs(*toolchain.tools.values())
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(listing, "_SETTLED_NS", 0)
    asked: list[object] = []
    made = linked._listing
    monkeypatch.setattr(linked, "_listing", lambda *given: asked.append(given) or made(*given))
    arch = shipped(Arch, "arch", "riscv64")

    def link() -> Artifact:
        detected = detect(toolchain, tmp_path / "cache")
        return kernel_artifact(make_source(), toolchain, arch, "release", detected)

    first = link()
    assert link().key == first.key and len(asked) == 1
    assert {"ld.lld", "as", "ld"} <= first.linked.keys()
    # A program that comes to shadow one of these.
    (folder / "riscv64-linux-gnu-ld").symlink_to(shutil.which("ld") or "")
    assert link().key != first.key and len(asked) == 2
