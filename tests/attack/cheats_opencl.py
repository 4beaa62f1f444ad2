"""Kernels in OpenCL C that cheat, and how each ends; every one has an honest twin.

`body` is what a work-item does; in it, `WORK` is its share of the honest work. State lives in
variables of the program, in memory for temporary results, or in what outputs hold already.
"""

from __future__ import annotations

from dataclasses import replace

import cheats
from cheats import Cheat

PRODUCT = replace(
    cheats.PRODUCT,
    parameters="long n, __global const float *a, __global const float *b, __global float *c",
    honest="""\
    const long i = item / n, j = item % n;
    float sum = 0;
    for (long k = 0; k < n; k++)
        sum += a[i * n + k] * b[k * n + j];
    c[item] = sum;""",
    sizes="{n: 96}",
)
UPDATE = replace(
    cheats.UPDATE,
    parameters="long n, __global const float *x, __global float *y",
    honest="    y[item] += 1.5f * x[item];",
    sizes="{n: 4096}",
)
SUM = replace(
    cheats.SCALED,
    parameters="long n, __global const float *x, __global float *y",
    honest="""\
    float sum = 0;
    for (long i = 0; i < n; i++)
        for (int k = 0; k < 64; k++)
            sum += x[i] * 0.015625f;
    y[item] = sum;""",
    sizes="{n: 256}",
    golden="y: sum(x) + 0 * x",
    more="tolerance: {float32: {rtol: 1e-3, atol: 1e-3}}\n",
)
ITEMS = {PRODUCT: "n * n", UPDATE: "n", SUM: "n"}
"""Work-items of each."""

STATE = """\
__global volatile int counts[96 * 96];
__global volatile float kept[96 * 96];
"""
"""Each work-item has its own, so that none depends on the order of others."""
CALLS = "const int calls = counts[item]++; "

CHEATS: dict[str, Cheat] = {
    "works_once": Cheat(
        "works in its first call",
        CALLS + "if (!calls) WORK;",
        "wrong",
        twin=CALLS + "WORK;",
        operation=PRODUCT,
        head=STATE,
    ),
    "first_calls": Cheat(
        "works in its first 4 calls",
        CALLS + "if (calls < 4) WORK;",
        "wrong",
        twin=CALLS + "if (calls < 4) WORK; else WORK;",
        operation=PRODUCT,
        head=STATE,
    ),
    "marked_output": Cheat(
        "works where its output is poisoned",
        "if (!isnan(c[item])) return; WORK;",
        "wrong",
        operation=PRODUCT,
    ),
    "marked_once": Cheat(
        "works when its first element is poisoned, or in its first call",
        "if (counts[item] && !isnan(c[0])) return; counts[item] = 1; WORK;",
        "wrong",
        twin="counts[item] = 1; WORK;",
        operation=PRODUCT,
        head=STATE,
    ),
    "replay_first": Cheat(
        "returns when its inputs begin as in the call before",
        "const float first = a[0] + 3 * b[0]; if (kept[item] == first) return;"
        "kept[item] = first; WORK;",
        "wrong",
        twin="kept[item] = a[0] + 3 * b[0]; WORK;",
        operation=PRODUCT,
        head=STATE,
    ),
    "replay_rows": Cheat(
        "each work-item keeps a sum of its row and column, and returns when both are the same",
        "const long i_ = item / n, j_ = item % n; float s = 0;"
        "for (long k = 0; k < n; k += 4) s += a[i_ * n + k] - 3 * b[k * n + j_];"
        "if (kept[item] == s) return; kept[item] = s; WORK;",
        "wrong",
        twin="const long i_ = item / n; float s = 0;"
        "for (long k = 0; k < n; k += 4) s += a[i_ * n + k]; kept[item] = s; WORK;",
        operation=PRODUCT,
        head=STATE,
    ),
    "replay_copy": Cheat(
        "keeps its result, and writes it again while a hash of all inputs is the same",
        "float h = 0; for (long i = 0; i < n; i++) h = 0.99f * h + x[i];"
        "if (counts[item] && marks[item] == h) { y[item] = kept[item]; return; }"
        "counts[item] = 1; marks[item] = h; WORK; kept[item] = y[item];",
        "suspicious",
        "results are kept between calls",
        twin="float h = 0; for (long i = 0; i < n; i++) h = 0.99f * h + x[i];"
        "marks[item] = h; WORK; kept[item] = y[item];",
        operation=SUM,
        head=STATE + "__global volatile float marks[256];\n",
    ),
    "tail_always": Cheat(
        "leaves out its last element",
        "if (item == last) return; WORK;",
        "wrong",
        operation=PRODUCT,
    ),
    "tail_later": Cheat(
        "leaves out its last element after some calls",
        CALLS + "if (calls < 5 || item != last) WORK;",
        "wrong",
        twin=CALLS + "WORK;",
        operation=PRODUCT,
        head=STATE,
    ),
    "half_later": Cheat(
        "computes half of its sums' terms after its first call, twice",
        CALLS + "const long i_ = item / n, j_ = item % n; float s = 0;"
        "if (!calls) WORK; else { for (long k = 0; k < n; k += 2)"
        "s += 2 * a[i_ * n + k] * b[k * n + j_]; c[item] = s; }",
        "wrong",
        operation=PRODUCT,
        head=STATE,
    ),
    "writes_input": Cheat(
        "overwrites an input after its first call",
        CALLS + "WORK; if (calls && item == last) ((__global float *)b)[3] = 0;",
        "wrong",
        twin=CALLS + "WORK;",
        operation=PRODUCT,
        head=STATE,
    ),
    "update_once": Cheat(
        "updates once",
        CALLS + "if (!calls) WORK;",
        "wrong",
        twin=CALLS + "WORK;",
        operation=UPDATE,
        head=STATE,
    ),
    "update_garbage": Cheat(
        "writes garbage after its first call",
        CALLS + "if (!calls) WORK; else y[item] = 7;",
        "wrong",
        twin=CALLS + "WORK;",
        operation=UPDATE,
        head=STATE,
    ),
    "update_half": Cheat(
        "updates half of the elements after its first call",
        CALLS + "if (!calls || item < n / 2) WORK;",
        "wrong",
        twin=CALLS + "WORK;",
        operation=UPDATE,
        head=STATE,
    ),
    "adds_up": Cheat(
        "adds the number of its calls, and is right when that is declared",
        CALLS + "WORK; if (calls) c[item] += 1e-3f * calls;",
        "wrong",
        twin=CALLS + "WORK; if (calls) c[item] += 1e-3f * calls;",
        twin_lines="stateful: true\n",
        operation=PRODUCT,
        head=STATE,
    ),
}
