"""Inputs of a build that change, and compilers that are killed: no artifact is ever stale."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

import pytest
import yaml

from attacks import Attack
from kernloom.base.errors import UnavailableError
from kernloom.base.places import Places, share_folder
from kernloom.build.builder import Builder
from kernloom.build.compile import kernel_artifact
from kernloom.build.make import Job, execute
from kernloom.build.toolchains import accepts, detect
from kernloom.build.workspace import workspace
from kernloom.config.convert import convert
from kernloom.config.schema import Arch, Toolchain
from kernloom.plan.artifact import Artifact
from kernloom.plan.source import Source

KERNEL = "float kl_entry(float x) { return SCALE * x; }\n"
CALLS = "float scaled(float);\nfloat kl_entry(float x) { return scaled(x); }\n"
COMPILERS = tuple(name for name in ("gcc", "clang") if shutil.which(name))


def shipped(name: str) -> Toolchain:
    path = share_folder() / "configs" / "toolchain" / f"{name}.yaml"
    return convert(Toolchain, yaml.safe_load(path.read_text()), "toolchain")


ARCH = convert(
    Arch,
    yaml.safe_load((share_folder() / "configs/arch/x86_64_v2.yaml").read_text()),
    "arch",
)


@dataclass
class Bench:
    """A folder in which one kernel is declared and built again and again."""

    folder: Path
    compiler: str
    text: str = KERNEL
    flags: tuple[str, ...] = ()
    script: str = ""
    """What starts the compiler, if not the compiler itself."""
    value: str = ""
    """What the input holds now."""
    environment: dict[str, str] = field(default_factory=dict)
    known: Path | None = None
    """Where facts about compilers that nobody changes are remembered."""

    def __post_init__(self) -> None:
        self.folder.mkdir()

    @property
    def toolchain(self) -> Toolchain:
        given = replace(shipped(self.compiler), extra_flags=self.flags)
        if not self.script:
            return given
        path = self.folder / "compiler"
        text = f'#!/bin/sh\nhere=$(dirname "$0")\n{self.script}\n'
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            path.chmod(0o755)
        return replace(given, tools={"cc": str(path)})

    @property
    def places(self) -> Places:
        return Places(share_folder(), None, self.folder / "build", self.folder / "store.db")

    def declared(self) -> Artifact:
        """As a command that starts now would plan it."""
        toolchain = self.toolchain
        cache = self.places.cache if self.script or not self.known else self.known
        found = detect(toolchain, cache)
        source = Source("demo", {"kernel.c": self.text}, {}, {})
        return kernel_artifact(source, toolchain, ARCH, "release", found)

    def build(self, artifact: Artifact) -> bytes:
        """What is built, by no SCons; nothing if that fails or inputs change meanwhile."""
        build = self.places.build
        with workspace(build) as folder:
            result = execute(Job(artifact, {}), build, folder)
        return artifact.path(build).read_bytes() if result.ok else b""

    def write(self, path: str, text: str) -> Path:
        target = self.folder / path
        target.parent.mkdir(exist_ok=True)
        target.write_text(text)
        return target

    def library(self, path: str, value: str, *flags: str, text: str = "") -> None:
        """A shared or static library whose function scales by `value`."""
        target = self.folder / path
        target.parent.mkdir(exist_ok=True)
        plain = f"float scaled(float x) {{ return {value} * x; }}\n"
        source = self.write(f"{path}.c", text or plain)
        if path.endswith(".so"):
            how = ["gcc", "-shared", "-fPIC", source, "-o", target, *flags]
            subprocess.run(how, check=True)
            return
        made = target.with_suffix(".o")
        subprocess.run(["gcc", "-c", "-fPIC", source, "-o", made], check=True)
        if path.endswith(".a"):
            target.unlink(missing_ok=True)
            subprocess.run(["ar", "rcsD", target, made], check=True)


Kind = Callable[[Bench, str], None]
"""Puts a value, 2 or 3, into one kind of input of a kernel."""


def header(bench: Bench, value: str) -> None:
    bench.flags, bench.text = (f"-I{bench.folder}",), '#include "own.h"\n' + KERNEL
    bench.write("own.h", f"#define SCALE {value}\n")


def nested_header(bench: Bench, value: str) -> None:
    bench.flags, bench.text = (f"-isystem{bench.folder}",), "#include <own.h>\n" + KERNEL
    bench.write("own.h", "#include <inner/own.h>\n")
    bench.write("inner/own.h", f"#define SCALE {value}\n")


def header_by_macro(bench: Bench, value: str) -> None:
    bench.text = f'#define H "{bench.folder}/own.h"\n#include H\n{KERNEL}'
    bench.write("own.h", f"#define SCALE {value}\n")


def hidden_header(bench: Bench, value: str) -> None:
    bench.text = f'#inc\\\nlude "{bench.folder}/own.h"\n{KERNEL}'
    bench.write("own.h", f"#define SCALE {value}\n")


def header_by_flag(bench: Bench, value: str) -> None:
    bench.flags = ("-include", str(bench.write("own.h", f"#define SCALE {value}\n")))


def macros_by_flag(bench: Bench, value: str) -> None:
    bench.flags = ("-imacros", str(bench.write("own.h", f'#include "{bench.folder}/in.h"\n')))
    bench.write("in.h", f"#define SCALE {value}\n")


def shadowing_header(bench: Bench, value: str) -> None:
    bench.flags = (f"-I{bench.folder}/one", f"-I{bench.folder}/two")
    bench.text = '#include "own.h"\n' + KERNEL
    bench.write("two/own.h", "#define SCALE 2\n")
    shadow = bench.write("one/own.h", "#define SCALE 3\n")
    if value == "2":
        shadow.unlink()


def header_asked_for(bench: Bench, value: str) -> None:
    asks = "#if __has_include(<own.h>)\n#define SCALE 3\n#else\n#define SCALE 2\n#endif\n"
    bench.flags, bench.text = (f"-I{bench.folder}",), asks + KERNEL
    path = bench.write("own.h", "")
    if value == "2":
        path.unlink()


def source(bench: Bench, value: str) -> None:
    bench.text = f"#define SCALE {value}\n{KERNEL}"


def flag(bench: Bench, value: str) -> None:
    bench.flags = (f"-DSCALE={value}",)


def archive(bench: Bench, value: str) -> None:
    bench.flags, bench.text = (f"-L{bench.folder}", "-lown"), CALLS
    bench.library("libown.a", value)


def object_file(bench: Bench, value: str) -> None:
    bench.flags, bench.text = (f"{bench.folder}/own.o",), CALLS
    bench.library("own.o", value)


def shared_library(bench: Bench, value: str) -> None:
    bench.flags, bench.text = (f"-L{bench.folder}", "-lown", f"-Wl,-rpath,{bench.folder}"), CALLS
    bench.library("libown.so", value)


def librarys_library(bench: Bench, value: str) -> None:
    bench.flags, bench.text = (f"-L{bench.folder}", "-lown", f"-Wl,-rpath,{bench.folder}"), CALLS
    bench.library("libinner.so", value, text=f"float inner(void) {{ return {value}; }}\n")
    calls = "float inner(void);\nfloat scaled(float x) { return inner() * x; }\n"
    if not (bench.folder / "libown.so").exists():
        how = (f"-L{bench.folder}", "-linner", f"-Wl,-rpath,{bench.folder}")
        bench.library("libown.so", "", *how, text=calls)


def search_path(bench: Bench, value: str) -> None:
    bench.flags, bench.text = (f"-L{bench.folder}/2", "-lown"), CALLS
    for folder in ("2", "3"):
        if not (bench.folder / folder).exists():
            bench.library(f"{folder}/libown.so", folder)
    bench.environment = {"LD_LIBRARY_PATH": str(bench.folder / value)}


def linker_script(bench: Bench, value: str) -> None:
    text = {"2": "{ global: *; };\n", "3": "{ global: kl_entry; local: *; };\n"}[value]
    bench.flags = ("-DSCALE=2", f"-Wl,--version-script={bench.write('own.map', text)}")


def wrapper(bench: Bench, value: str) -> None:
    bench.script = f'exec {bench.compiler} "$@" -DSCALE={value}'


def file_of_wrapper(bench: Bench, value: str) -> None:
    path = bench.write("flags", f"-DSCALE={value}\n")
    bench.script = f'exec {bench.compiler} "$@" $(cat {path})'


def hidden_file_of_wrapper(bench: Bench, value: str) -> None:
    bench.write("flags", f"-DSCALE={value}\n")
    bench.script = f'exec {bench.compiler} "$@" $(cat $here/flags)'


def library_of_wrapper(bench: Bench, value: str) -> None:
    bench.text = CALLS
    bench.library("libown.a", value)
    bench.script = f'exec {bench.compiler} "$@" -L$here -lown'


def start_file_of_wrapper(bench: Bench, value: str) -> None:
    bench.flags = ("-DSCALE=2",)
    bench.library("start.o", value)
    bench.script = (
        f'case "$*" in *-shared*) set -- "$@" $here/start.o ;; esac\nexec {bench.compiler} "$@"'
    )


def specs_of_wrapper(bench: Bench, value: str) -> None:
    bench.compiler = "gcc"
    bench.write("own.specs", f"*cc1_options:\n+ -DSCALE={value}\n")
    bench.script = 'exec gcc -specs=$here/own.specs "$@"'


def step_of_wrapper(bench: Bench, value: str) -> None:
    """A program that the wrapper starts after the compiler."""
    bench.flags = ("-DSCALE=2",)
    bench.write(
        "after", {"2": "true\n", "3": "strip kernel.so nothing 2>/dev/null || true\n"}[value]
    )
    bench.script = f'{bench.compiler} "$@" || exit\n. $here/after'


CHANGES: tuple[Kind, ...] = (
    *(header, nested_header, header_by_macro, hidden_header, header_by_flag, macros_by_flag),
    *(shadowing_header, header_asked_for, source, flag, archive, object_file, shared_library),
    *(librarys_library, search_path, linker_script, wrapper, file_of_wrapper),
    *(hidden_file_of_wrapper, library_of_wrapper, start_file_of_wrapper, specs_of_wrapper),
    step_of_wrapper,
)
IN_PLACE = (header, nested_header, header_by_macro, hidden_header, header_by_flag, macros_by_flag)
"""Those that a compiler's wrapper can change while it compiles: what is in own.h, or inner."""
OTHER_BYTES = {header, nested_header, header_by_flag, archive, object_file, source, flag, wrapper}


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    yield monkeypatch


def test_attack_stale_by_kind(attack: Attack, tmp_path: Path, unset: pytest.MonkeyPatch) -> None:
    """After each change another artifact; after changing back the old one, which is still there."""
    cases = list(product(CHANGES, COMPILERS))
    for number, (kind, compiler) in enumerate(attack.cases(cases, small=5)):
        bench = Bench(tmp_path / str(number), compiler, known=tmp_path / "known")
        what = f"{kind.__name__} by {compiler}"
        keys, contents = [], []
        for value in ("2", "3", "2"):
            kind(bench, value)
            unset.setenv("LD_LIBRARY_PATH", bench.environment.get("LD_LIBRARY_PATH", ""))
            artifact = bench.declared()
            cached = Builder(bench.places).state(artifact).cached
            if cached != (len(keys) == 2):
                attack.failed(f"{what}: {'used again' if cached else 'not used again'}")
            keys.append(artifact.key)
            contents.append(b"" if cached else bench.build(artifact))
        if keys[0] == keys[1] or keys[0] != keys[2]:
            attack.failed(f"{what}: keys {keys}")
        if not all(contents[:2]) or (kind in OTHER_BYTES and contents[0] == contents[1]):
            attack.failed(f"{what}: not built, or the same bytes")
    attack.check()


def test_attack_changes_while_building(attack: Attack, tmp_path: Path) -> None:
    """A header that changes at any moment of a build: what is kept is what its key says."""
    cases = list(product(IN_PLACE, ("before", "after", "both"), range(3)))
    for number, (kind, when, _) in enumerate(attack.cases(cases, small=2)):
        bench = Bench(tmp_path / str(number), "gcc")
        kind(bench, "2")
        inner = next(
            p for n in ("inner/own.h", "in.h", "own.h") if (p := bench.folder / n).exists()
        )
        there = inner.relative_to(bench.folder)
        change = f"echo '#define SCALE {{}}' > $here/{there}"
        before = change.format(3) if when != "after" else "true"
        after = change.format({"before": 3, "after": 3, "both": 2}[when])
        bench.script = f"""
case "$*" in *kernel.so*) if mkdir $here/once 2>/dev/null; then
    {before}; gcc "$@"; code=$?; {after}; exit $code
fi ;; esac
exec gcc "$@" """
        planned = bench.declared()
        outcome = Builder(bench.places).build([planned])[planned.key]
        what = f"{kind.__name__} changed {when}"
        if not outcome.ok:
            attack.failed(f"{what}: {outcome.message}")
            continue
        clean = Bench(tmp_path / f"{number}-clean", "gcc", known=tmp_path / "known")
        value = inner.read_text().split()[-1]
        kind(clean, value)
        if outcome.path.read_bytes() != clean.build(clean.declared()):
            attack.failed(f"{what}: not built from what is there")
        if outcome.artifact.key != bench.declared().key:
            attack.failed(f"{what}: kept under another key")
        if (value == "3") == Builder(bench.places).state(planned).cached:
            attack.failed(f"{what}: the planned artifact is {'there' if value == '3' else 'gone'}")
    attack.check()


KILLER = """
here=$(cd $here && pwd)
strike() {{
    read -r victim turn delay < $here/kill
    [ "$victim" = "$1" ] || return 1
    turn=$((turn - 1))
    echo $victim $turn $delay > $here/kill
    [ $turn = 0 ] && touch $here/struck
}}
if [ "$1" = --part ]; then
    shift
    strike "$(basename "$1")" && kill -9 $$
    exec "$@"
fi
struck=; strike driver && struck=1
[ -n "$struck" ] && [ $delay = 0 ] && kill -9 $$
{compiler} {parts} "$@" & child=$!
if [ -n "$struck" ]; then sleep $delay; kill -9 $child 2>/dev/null; fi
wait $child"""
"""Kills the driver, or a program that it starts, in one of its turns. GCC starts its programs by
this very script; Clang compiles in the driver's own process."""
PARTS = {"gcc": "-wrapper $0,--part", "clang": ""}
VICTIMS = {
    "gcc": (("driver", 20), ("cc1", 4), ("as", 1), ("collect2", 1)),
    "clang": (("driver", 20),),
}
"""Programs, and in how many turns of each a kernel is declared."""
NEVER = "nobody 0 0\n"
INCLUDING = "#include <stddef.h>\n" + KERNEL


def killed_at(bench: Bench, victim: str, turn: int, delay: float = 0) -> None:
    bench.script = KILLER.format(compiler=bench.compiler, parts=PARTS[bench.compiler])
    bench.write("kill", f"{victim} {turn} {delay:.4g}\n")


def probed(bench: Bench) -> tuple[str, bool]:
    """All that compilers are asked: the key of a kernel, and whether a flag is known."""
    artifact = bench.declared()
    found = detect(bench.toolchain, bench.places.cache)
    return artifact.key, accepts(found, ["-march=x86-64-v2"])


def sound(bench: Bench, key: str, contents: bytes) -> str:
    """What is wrong with a bench in which no compiler is killed any more, if anything."""
    bench.write("kill", NEVER)
    artifact = bench.declared()
    if artifact.key != key:
        return "another id afterwards"
    if contents and bench.build(artifact) != contents:
        return "another artifact afterwards"
    places = (bench.places.build / "tmp", bench.places.cache / "tmp")
    left = [path for place in places if place.exists() for path in place.iterdir()]
    return f"left behind: {left}" if left else ""


def killing_bench(folder: Path, compiler: str) -> Bench:
    bench = Bench(folder, compiler, text=INCLUDING, flags=("-DSCALE=2",))
    killed_at(bench, "nobody", 0)
    return bench


def unharmed(tmp_path: Path, compiler: str) -> tuple[tuple[str, bool], bytes]:
    """What compilers answer, and the bytes of a kernel, when nothing is killed."""
    bench = killing_bench(tmp_path / f"unharmed-{compiler}", compiler)
    answers, contents = probed(bench), bench.build(bench.declared())
    assert contents
    return answers, contents


def test_attack_compilers_killed_while_probed(attack: Attack, tmp_path: Path) -> None:
    """A compiler, or a part of it, that is killed while it is asked: the same id or an error."""
    whole = {compiler: unharmed(tmp_path, compiler) for compiler in COMPILERS}
    cases = [
        (compiler, victim, turn + 1)
        for compiler in COMPILERS
        for victim, turns in VICTIMS[compiler]
        for turn in range(turns)
    ]
    for number, (compiler, victim, turn) in enumerate(attack.cases(cases, small=3)):
        bench = killing_bench(tmp_path / str(number), compiler)
        killed_at(bench, victim, turn)
        what = f"{compiler}, turn {turn} of {victim}"
        try:
            if probed(bench) != whole[compiler][0]:
                attack.failed(f"{what}: another id")
        except UnavailableError:
            pass
        if not (bench.folder / "struck").exists():
            attack.failed(f"{what}: nothing was killed")
        if wrong := sound(bench, whole[compiler][0][0], b""):
            attack.failed(f"{what}: {wrong}")
    attack.check()


def test_attack_compilers_killed_while_building(attack: Attack, tmp_path: Path) -> None:
    """A compiler that is killed while it builds leaves no artifact, or the right one."""
    whole = {compiler: unharmed(tmp_path, compiler) for compiler in COMPILERS}
    cases = [
        (compiler, victim, attempt)
        for compiler in COMPILERS
        for victim, _ in VICTIMS[compiler]
        for attempt in range(6)
    ]
    for number, (compiler, victim, attempt) in enumerate(attack.cases(cases, small=3)):
        bench = killing_bench(tmp_path / str(number), compiler)
        artifact = bench.declared()
        # Only the driver can be killed in the middle of its work.
        delay = attack.random.uniform(0, 0.05) if victim == "driver" and attempt else 0
        killed_at(bench, victim, 1, delay)
        what = f"{compiler}, {victim} after {delay:.3f} s"
        if (made := bench.build(artifact)) and made != whole[compiler][1]:
            attack.failed(f"{what}: another artifact")
        if not (bench.folder / "struck").exists():
            attack.failed(f"{what}: nothing was killed")
        if wrong := sound(bench, whole[compiler][0][0], whole[compiler][1]):
            attack.failed(f"{what}: {wrong}")
    attack.check()


ENVIRONMENT = {
    "TMPDIR": ("/nowhere", "/proc", "/dev/full", "full", "nearly full"),
    "CPATH": ("headers",),
    "C_INCLUDE_PATH": ("headers",),
    "LIBRARY_PATH": ("headers",),
    "COMPILER_PATH": ("headers",),
    "GCC_EXEC_PREFIX": ("headers",),
    "DEPENDENCIES_OUTPUT": ("file",),
    "SUNPRO_DEPENDENCIES": ("file",),
    "CCC_OVERRIDE_OPTIONS": ("#+-DSCALE=3",),
    "LD_RUN_PATH": ("headers",),
    "SOURCE_DATE_EPOCH": ("1234",),
    "LANG": ("de_DE.UTF-8",),
}


def test_attack_environment_of_compilers(
    attack: Attack, tmp_path: Path, unset: pytest.MonkeyPatch
) -> None:
    """What a user's environment says about compilers, or about a full disk, changes nothing."""
    # Python asks for a page before it takes a folder for temporary files: compilers need more.
    places = {"full": tmp_path / "full", "nearly full": tmp_path / "nearly"}
    mounted = []
    for place in places.values():
        place.mkdir()
        options = ["-t", "tmpfs", "-o", "size=4k", "tmpfs", str(place)]
        if subprocess.run(["mount", *options], capture_output=True).returncode == 0:
            mounted.append(place)
    headers = tmp_path / "headers"
    headers.mkdir()
    for name in ("math.h", "stddef.h"):
        (headers / name).write_text("#define SCALE 3\n")
    values = {name: str(place) for name, place in places.items()}
    values |= {"headers": str(headers), "file": str(tmp_path / "deps")}
    text = f"#include <math.h>\n#ifndef SCALE\n#define SCALE 2\n#endif\n{KERNEL}"
    plain: dict[str, tuple[str, bytes]] = {}
    try:
        if places["full"] in mounted:
            (places["full"] / "fill").write_bytes(bytes(4096))
        cases = [
            (compiler, name, value)
            for compiler in COMPILERS
            for name, given in ENVIRONMENT.items()
            for value in given
        ]
        for number, (compiler, name, value) in enumerate(attack.cases(cases, small=3)):
            found = []
            for when in ("plain", "set"):
                if when == "plain" and compiler in plain:
                    continue
                if when == "set":
                    unset.setenv(name, values.get(value, value))
                # Python remembers where temporary files go.
                unset.setattr(tempfile, "tempdir", None)
                bench = Bench(tmp_path / f"{number}-{when}", compiler, text=text)
                artifact = bench.declared()
                found.append((artifact.key, bench.build(artifact)))
                if when == "plain":
                    plain[compiler] = found[-1]
            unset.delenv(name)
            if found[-1] != plain[compiler]:
                attack.failed(f"{name}={value} changes what {compiler} makes")
    finally:
        for place in mounted:
            subprocess.run(["umount", str(place)], check=True)
    attack.check()
