"""Writes an export: sources, one header, CMake and plain build files, and a test with its data."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kernloom.base.places import share_folder
from kernloom.base.units import count
from kernloom.plan.source import ENTRY
from kernloom.tune.document import Outcome
from kernloom.tune.export import MANIFEST
from kernloom.tune.export.checks import write_test
from kernloom.tune.export.ctext import dispatcher, header, in_comment
from kernloom.tune.export.symbols import defined_names
from kernloom.tune.export.variants import Library, Variant, library_of
from kernloom.tune.racing import Leader
from kernloom.tune.winner import Make

SHIPPED = ("parallel.c", "check.h")


def write_library(
    outcome: Outcome, best: Leader, folder: Path, problem: Callable[[Make], str]
) -> str:
    """Write the library of a study's winner; returns what was written, for people. `problem`
    verifies parameters: variants that are wrong are left out."""
    library = library_of(outcome, best, problem)
    name = library_name(outcome.plan.experiment.workload.name)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as made:
        fresh = Path(made) / "export"
        number = _write(outcome, best, library, name, fresh)
        replace_export(folder, fresh)
    functions = count(len(library.functions), "function")
    said = f"library written: {folder} ({functions}, {count(number, 'variant')}); see README.md"
    return "".join([said, *(f"\n  left out: {one}" for one in library.left_out)])


def library_name(workload: str) -> str:
    """`matmul_kernels`: a C identifier, and no name of a header, a library or a target of CMake."""
    name = re.sub(r"\W", "_", workload, flags=re.ASCII)
    return f"{'_' if name[:1].isdigit() else ''}{name}_kernels"


def replace_export(folder: Path, fresh: Path) -> None:
    """Replace the files of an earlier export; others in its folder, such as programs that use it,
    are kept."""
    files = sorted(str(one.relative_to(fresh)) for one in fresh.rglob("*") if one.is_file())
    manifest = json.loads((fresh / MANIFEST).read_text(encoding="utf-8"))
    text = json.dumps({**manifest, "files": files}, indent=1) + "\n"
    (fresh / MANIFEST).write_text(text, encoding="utf-8")
    folder.mkdir(exist_ok=True)
    for name in _files_of(folder).difference(files):
        (folder / name).unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            (folder / name).parent.rmdir()
    for name in (MANIFEST, *files):
        if (fresh / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (fresh / name).replace(folder / name)


def _files_of(folder: Path) -> set[str]:
    """The files of an earlier export, by its manifest; none outside of the folder."""
    try:
        names = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        files = {name for name in names if (folder / name).is_file()}
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    inside = folder.resolve()
    return {name for name in files if (folder / name).parent.resolve().is_relative_to(inside)}


def _write(outcome: Outcome, best: Leader, library: Library, name: str, folder: Path) -> int:
    (folder / "data").mkdir(parents=True)
    files: list[tuple[str, tuple[str, ...]]] = []
    for function in library.functions.values():
        variants = library.variants[function.name]
        for number, variant in enumerate(variants):
            files.append(_write_variant(folder, f"{function.name}_{number}", variant))
        text = dispatcher(function, variants, f"{name}.h")
        (folder / f"{function.name}.c").write_text(text, encoding="utf-8")
        files.append((f"{function.name}.c", ("-O2",)))
    for shipped in SHIPPED:
        shutil.copyfile(share_folder() / "templates" / "export" / shipped, folder / shipped)
    files.append(("parallel.c", ("-O2",)))
    experiment = outcome.plan.experiment
    about = f"Kernels of workload '{experiment.workload.name}', tuned by Kernloom."
    (folder / f"{name}.h").write_text(header(library, name, about), encoding="utf-8")
    write_test(outcome, best, library, f"{name}.h", folder)
    texts = {
        "build.sh": build_script(name, files, _compiler(outcome)),
        "CMakeLists.txt": _cmake(name, files),
        "README.md": _readme(outcome, best, library, name),
        MANIFEST: json.dumps({"of": experiment.workload.name, "trial": best.trial.id}) + "\n",
    }
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
    (folder / "build.sh").chmod(0o755)
    return sum(map(len, library.variants.values()))


def _write_variant(folder: Path, name: str, variant: Variant) -> tuple[str, tuple[str, ...]]:
    """Write the files of a variant; returns the one to compile, with its flags."""
    files, main = variant.source.files, variant.source.main
    # Each variant has names of its own.
    symbols = sorted(set().union(*map(defined_names, files.values())) - {ENTRY})
    renamed = [(ENTRY, name), *((symbol, f"{name}_{symbol}") for symbol in symbols)]
    for file, text in files.items():
        path = folder / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if file == main:
            lines = [f"#define {symbol} {own}\n" for symbol, own in renamed]
            text = f"/* {in_comment(variant.about)} */\n{''.join(lines)}{text}"
        path.write_text(text, encoding="utf-8")
    return f"{name}/{main}", (*variant.flags, *variant.source.flags)


Files = Sequence[tuple[str, tuple[str, ...]]]


def build_script(name: str, files: Files, compiler: str) -> str:
    lines = [
        "#!/bin/sh",
        "# A plain build: one compiler call for each file. CC=COMPILER names another compiler.",
        "set -e",
        'cd "$(dirname "$0")"',
        f"CC=${{CC:-{shlex.quote(compiler)}}}",
    ]
    objects = []
    for file, flags in files:
        target = f"{file.removesuffix('.c').replace('/', '_')}.o"
        objects.append(target)
        lines.append(f"$CC {shlex.join(flags)} -fPIC -I. -c {file} -o {target}")
    lines += [
        f"$CC -O2 -I. test.c {' '.join(objects)} -o test -lm -pthread",
        f"ar rcs lib{name}.a {' '.join(objects)}",
        "",
    ]
    return "\n".join(lines)


def _cmake(name: str, files: Files) -> str:
    lines = [
        "cmake_minimum_required(VERSION 3.13)",
        f"project({name} C)",
        "find_package(Threads REQUIRED)",
        f"add_library({name} STATIC",
        *(f"  {file}" for file, _ in files),
        ")",
        f"target_include_directories({name} PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})",
        f"target_link_libraries({name} PUBLIC Threads::Threads m)",
        f"set_target_properties({name} PROPERTIES POSITION_INDEPENDENT_CODE ON)",
    ]
    for file, flags in files:
        text = ";".join(re.sub(r'([\\"$;])', r"\\\1", flag) for flag in flags)
        lines.append(f'set_source_files_properties({file} PROPERTIES COMPILE_OPTIONS "{text}")')
    lines += [
        f"add_executable({name}_test test.c)",
        f"target_link_libraries({name}_test {name})",
        "enable_testing()",
        f"add_test(NAME {name} COMMAND {name}_test ${{CMAKE_CURRENT_SOURCE_DIR}}/data)",
        "",
    ]
    return "\n".join(lines)


def _readme(outcome: Outcome, best: Leader, library: Library, name: str) -> str:
    experiment, compiler = outcome.plan.experiment, _compiler(outcome)
    cmake = "" if compiler == "gcc" else f" -DCMAKE_C_COMPILER={shlex.quote(compiler)}"
    lines = [
        f"# {experiment.workload.name}",
        "",
        f"{experiment.workload.about or 'Kernels'}: tuned by Kernloom on target "
        f"'{experiment.target.name}' ({experiment.arch.name}, {experiment.toolchain.name}); "
        f"the winner took {outcome.objectives[0].shown(best.trial)}.",
        "",
        "Nothing here needs Kernloom. Plain:",
        "",
        "    sh build.sh && ./test",
        f"    {shlex.quote(compiler)} your_program.c -I. lib{name}.a -lm -pthread",
        "",
        "or by CMake:",
        "",
        f"    cmake -B build .{cmake} && cmake --build build && ctest --test-dir build",
        "",
        f"`{name}.h` declares the functions. Each calls the variant for the best ISA that the CPU "
        "has, and among those the one that was tuned for the nearest shape:",
        "",
        "| function | variant | arch | tuned for | parameters from |",
        "|---|---|---|---|---|",
    ]
    for function, variants in library.variants.items():
        for number, one in enumerate(variants):
            shapes = "; ".join(_shape(shape) for shape in one.shapes)
            lines.append(f"| `{function}` | {number} | {one.arch.name} | {shapes} | {one.about} |")
    return "\n".join([*lines, ""])


def _compiler(outcome: Outcome) -> str:
    """The C compiler that the kernels were tuned with, as it is typed."""
    return outcome.plan.experiment.toolchain.tools["cc"]


def _shape(sizes: Mapping[str, int]) -> str:
    return " ".join(f"{name}={size}" for name, size in sizes.items())
