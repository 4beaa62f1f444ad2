"""C texts of an export: the header, the dispatchers and the test program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernloom.config.schema import Arch
from kernloom.plan.schedule import BoundArgument, Schedule
from kernloom.tune.export.variants import Function, Library, Variant

X86_NAMES = {
    "ssse3": "ssse3",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
    "popcnt": "popcnt",
    "avx": "avx",
    "avx2": "avx2",
    "bmi1": "bmi",
    "bmi2": "bmi2",
    "fma": "fma",
    "avx512f": "avx512f",
    "avx512bw": "avx512bw",
    "avx512cd": "avx512cd",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
}
"""Feature of an arch -> its name for __builtin_cpu_supports."""


HWCAP_BITS = {("aarch64", "sve"): 22, ("riscv64", "v"): 21}
"""ISA and feature of an arch -> its bit in AT_HWCAP of Linux."""


def in_comment(text: str) -> str:
    """A text that cannot end the C comment it is in."""
    return text.replace("*/", "* /")


def declaration(function: Function) -> str:
    return f"void {function.name}({', '.join(map(_parameter, function.record.arguments))})"


def _parameter(argument: BoundArgument) -> str:
    if argument.kind != "tensor":
        return f"{argument.ctype} {argument.name}"
    const = "const " if argument.access == "read" else ""
    return f"{const}{argument.ctype} *{argument.name}"


def header(library: Library, name: str, about: str) -> str:
    guard = f"{name.upper()}_H"
    lines = [f"/* {in_comment(about)} */", f"#ifndef {guard}", f"#define {guard}", ""]
    lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
    for function in library.functions.values():
        number = len(library.variants[function.name])
        lines += [
            f"/* {in_comment(function.record.kernel.about or function.name)}",
            " * The variant for this CPU that was tuned for the nearest shape is called. */",
            f"{declaration(function)};",
            "/* For tests: the number of variants; whether this CPU can run one; to call only one",
            " * (-1: as usual). */",
            f"int {function.name}_variants(void); /* {number} */",
            f"int {function.name}_supported(int variant);",
            f"void {function.name}_force(int variant);",
            "",
        ]
    lines += ["#ifdef __cplusplus", "}", "#endif", "", "#endif", ""]
    return "\n".join(lines)


def supported(arch: Arch) -> str:
    """A C expression: whether this CPU has the features of an arch."""
    if arch.isa != "x86_64":
        bits = [HWCAP_BITS[arch.isa, f] for f in arch.features if (arch.isa, f) in HWCAP_BITS]
        return " && ".join(f"(getauxval(AT_HWCAP) >> {bit} & 1)" for bit in bits) or "1"
    names = [X86_NAMES[one] for one in arch.features if one in X86_NAMES]
    return " && ".join(f'__builtin_cpu_supports("{name}")' for name in names) or "1"


def dispatcher(function: Function, variants: Sequence[Variant], header_name: str) -> str:
    """The function itself: chooses a variant by ISA and shape, once for each shape."""
    sizes, arguments = function.sizes, function.record.arguments
    checks = [supported(variant.arch) for variant in variants]
    own = [f"{function.name}_{number}" for number, _ in enumerate(variants)]
    rows = [
        (number, [shape.get(name, 0) for name in sizes])
        for number, variant in enumerate(variants)
        for shape in variant.shapes
    ]
    passed = ", ".join(
        f"(void *){a.name}" if a.kind == "tensor" else f"(void *)&{a.name}" for a in arguments
    )
    width = max(1, len(sizes))
    given = ", ".join(f"(long){name}" for name in sizes) or "0"
    lines = [
        f'#include "{header_name}"',
        *(["#include <sys/auxv.h>"] if any("AT_HWCAP" in one for one in checks) else []),
        "",
        *(f"void {name}(void *const *args);" for name in own),
        "",
        f"#define VARIANTS {len(variants)}",
        f"#define SIZES {width}",
        "typedef void entry_function(void *const *args);",
        f"static entry_function *const entries[VARIANTS] = {{{', '.join(own)}}};",
        "/* Shapes that variants were tuned for, best ISA first. */",
        "static const struct {",
        "    int variant;",
        "    long sizes[SIZES];",
        "} shapes[] = {",
        *(f"    {{{number}, {{{', '.join(map(str, shape)) or '0'}}}}}," for number, shape in rows),
        "};",
        "/* Variants of one ISA have the same number; smaller is better. */",
        f"static const int ranks[VARIANTS] = {{{', '.join(_ranks(variants))}}};",
        "static int forced = -1;",
        "",
        f"int {function.name}_variants(void)",
        "{",
        "    return VARIANTS;",
        "}",
        "",
        f"void {function.name}_force(int variant)",
        "{",
        "    forced = variant;",
        "}",
        "",
        f"int {function.name}_supported(int variant)",
        "{",
        "    switch (variant) {",
    ]
    for number, check in enumerate(checks):
        lines += [f"    case {number}:", f"        return {check};"]
    lines += [
        "    }",
        "    return 0;",
        "}",
        "",
        "/* How many times larger one size is than another, as a number that grows with it. */",
        "static double apart(long one, long other)",
        "{",
        "    const double a = one > 0 ? one : 1, b = other > 0 ? other : 1;",
        "    const double ratio = a > b ? a / b : b / a;",
        "    double doublings = 0, rest = ratio;",
        "    for (; rest >= 2; rest /= 2)",
        "        doublings++;",
        "    return doublings + rest - 1;",
        "}",
        "",
        "static int chosen(const long *wanted)",
        "{",
        "    int best = -1;",
        "    double nearest = 0;",
        "    for (unsigned n = 0; n < sizeof shapes / sizeof *shapes; n++) {",
        "        const int variant = shapes[n].variant;",
        f"        if (!{function.name}_supported(variant))",
        "            continue;",
        "        double far = 0;",
        "        for (int size = 0; size < SIZES; size++)",
        "            far += apart(wanted[size], shapes[n].sizes[size]);",
        "        if (best < 0 || ranks[variant] < ranks[best] ||",
        "            (ranks[variant] == ranks[best] && far < nearest)) {",
        "            best = variant;",
        "            nearest = far;",
        "        }",
        "    }",
        "    return best;",
        "}",
        "",
        declaration(function),
        "{",
        "    static _Thread_local long last[SIZES];",
        "    static _Thread_local int variant = -1;",
        f"    const long wanted[SIZES] = {{{given}}};",
        "    int same = variant >= 0;",
        "    for (int size = 0; size < SIZES; size++)",
        "        same = same && last[size] == wanted[size];",
        "    if (!same) {",
        "        variant = chosen(wanted);",
        "        for (int size = 0; size < SIZES; size++)",
        "            last[size] = wanted[size];",
        "    }",
        "    const int number = forced >= 0 ? forced : variant;",
        "    if (number < 0)",
        "        __builtin_trap(); /* this CPU can run none of the variants */",
        f"    void *const args[] = {{{passed}}};",
        "    entries[number](args);",
        "}",
        "",
    ]
    return "\n".join(lines)


def _ranks(variants: Sequence[Variant]) -> list[str]:
    names = list(dict.fromkeys(variant.arch.name for variant in variants))
    return [str(names.index(variant.arch.name)) for variant in variants]


def test_program(
    library: Library,
    header_name: str,
    cases: Sequence[tuple[str, Schedule, Mapping[str, int], Mapping[str, tuple[float, float]]]],
    names: Mapping[str, str],
    inputs: Mapping[str, Sequence[str]],
    dtypes: Mapping[str, str],
) -> str:
    """A program that runs every variant on every case. `cases`: name, steps, bytes of each tensor,
    tolerances of each output. `names`: step -> function. `inputs`: case -> tensors in files."""
    lines = ['#include "check.h"', f'#include "{header_name}"', "", "static int failed;", ""]
    for case, steps, tensors, outputs in cases:
        lines += [f"static void case_{case}(const char *variant)", "{"]
        for tensor, size in tensors.items():
            ctype = dtypes[tensor]
            source = (
                f'from_file("{case}_{tensor}.bin", {size})'
                if tensor in inputs[case]
                else f"allocated({size})"
            )
            lines.append(f"    {ctype} *t_{tensor} = {source};")
        for record in steps:
            call = ", ".join(map(_bound, record.arguments))
            lines.append(f"    {names[record.name]}({call});")
        for tensor, (rtol, atol) in outputs.items():
            ctype = dtypes[tensor]
            count = f"{tensors[tensor]} / sizeof({ctype})"
            kind = "uint8" if ctype == "unsigned char" else ctype
            lines += [
                f'    double *e_{tensor} = from_file("{case}_{tensor}_expected.bin", '
                f"{count} * sizeof(double));",
                f'    const int bad_{tensor} = check_{kind}("{tensor}", t_{tensor}, e_{tensor}, '
                f"{count}, {rtol!r}, {atol!r});",
                f"    failed += bad_{tensor};",
                f'    printf("%-8s {case}: {tensor}, variant %s\\n", ',
                f'        bad_{tensor} ? "WRONG" : "ok", variant);',
                f"    free(e_{tensor});",
            ]
        lines += [f"    free(t_{tensor});" for tensor in tensors]
        lines += ["}", ""]
    lines += ["int main(int count, char **words)", "{", "    if (count > 1)"]
    lines += ["        folder = words[1];", "    char name[256];"]
    lines += [f'    case_{case}("as dispatched");' for case, *_ in cases]
    for function in library.functions.values():
        lines += [
            f"    for (int n = 0; n < {function.name}_variants(); n++) {{",
            f"        if (!{function.name}_supported(n)) {{",
            f'            printf("skipped  {function.name} %d: this CPU cannot run it\\n", n);',
            "            continue;",
            "        }",
            f"        {function.name}_force(n);",
            f'        snprintf(name, sizeof name, "{function.name} %d", n);',
            *(f"        case_{case}(name);" for case, *_ in cases),
            f"        {function.name}_force(-1);",
            "    }",
        ]
    lines += [
        '    printf(failed ? "%d wrong\\n" : "all right\\n", failed);',
        "    return failed != 0;",
        "}",
        "",
    ]
    return "\n".join(lines)


def _bound(argument: BoundArgument) -> str:
    if argument.kind == "tensor":
        return f"t_{argument.binding}"
    return repr(argument.binding)
