"""C texts of an export: the header and the dispatchers."""

from __future__ import annotations

from collections.abc import Sequence

from kernloom.config.schema import Arch
from kernloom.plan.cpp import member
from kernloom.plan.schedule import BoundArgument
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


OWN = "k_"
"""Before the parameters of a dispatcher, which has variables of its own."""


def in_comment(text: str) -> str:
    """A text that cannot end the C comment it is in."""
    return text.replace("*/", "* /")


def in_string(text: str) -> str:
    """A text as a C string literal."""
    plain = (c if c.isascii() and c.isprintable() and c not in '"\\?' else None for c in text)
    parts = zip(text, plain, strict=True)
    return '"' + "".join(p or "".join(f"\\{b:03o}" for b in c.encode()) for c, p in parts) + '"'


def declaration(function: Function, prefix: str = "") -> str:
    """The head of a function; `prefix`: before each parameter."""
    parameters = [_parameter(argument, prefix) for argument in function.record.arguments]
    return f"void {function.name}({', '.join(parameters)})"


def _parameter(argument: BoundArgument, prefix: str) -> str:
    name = member(f"{prefix}{argument.name}")
    if argument.kind != "tensor":
        return f"{argument.ctype} {name}"
    const = "const " if argument.access == "read" else ""
    return f"{const}{argument.ctype} *{name}"


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
        f"(void *){OWN}{a.name}" if a.kind == "tensor" else f"(void *)&{OWN}{a.name}"
        for a in arguments
    )
    width = max(1, len(sizes))
    given = ", ".join(f"(long){OWN}{name}" for name in sizes) or "0"
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
        declaration(function, OWN),
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
