"""Compiler flags that a recipe may contain: those that only affect code generation."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from kernloom.base.errors import ConfigError

_WORD = r"[\w.,+-]+"
# A macro with a name as its value could redirect any call to another function. A value of -f may be
# a file name, so only these may have one.
_VALUED = (
    r"fp-contract|fp-model|fp-exception-behavior|excess-precision|denormal-fp-math"
    r"|vect-cost-model|simd-cost-model|veclib|inline-limit|inline-stringops|tree-parallelize-loops"
    r"|align-(?:functions|jumps|labels|loops)|max-unroll-times|unroll-count|stack-reuse|tls-model"
    r"|visibility|sanitize|no-sanitize|sanitize-recover|no-sanitize-recover|sanitize-trap"
    r"|cf-protection|zero-call-used-regs|trivial-auto-var-init|strict-flex-arrays|sched-[a-z-]+"
    r"|ira-[a-z-]+|lto|lto-partition|reorder-blocks-algorithm|prefetch-loop-arrays"
)
# These write files beside the output or when the kernel runs, read files, or start programs.
_REACHING = (
    r"[\w-]*(?:plugin|dump|profile|coverage|module|crash|compare-debug|save|record|report|trace"
    r"|opt-info|stack-usage|callgraph|instrument|xray|offload|openmp-|openacc|use-ld|embed|syntax"
    r"|prefix-map|diagnostics|branch-probabilities)"
)
_HARMLESS = re.compile(
    r"-(?:O\w*|g\d?|w|pipe|std=[\w+]+|U\w+|D\w+(?:=(?:\d[\w.]*)?)?"
    r"|-param=[a-z0-9-]+=\d+"
    r"|W[\w-]+(?:=[\w-]+)?"
    rf"|m(?!llvm|mlir)[\w.-]+(?:={_WORD})?"
    rf"|f(?!{_REACHING})(?:[a-z0-9-]+|(?:{_VALUED})={_WORD})"
    r"|cl-[a-z0-9-]+(?:=[\w.+]+)?)",
    re.ASCII,
)
"""GCC, Clang and OpenCL flags of code generation, warnings and macros, each in one word."""


def check_flags(flags: Any, ours: Any, key: str) -> None:
    """Refuse flags that could name programs or files, unless this machine's config has them."""
    if not isinstance(flags, (list, tuple)):
        raise ConfigError("expected a list of flags", key=key)
    known = list(ours) if isinstance(ours, (list, tuple)) else []
    if list(flags) == known:
        return
    # In another order, an argument in a word of its own would belong to another flag.
    single = {flag for flag in known if isinstance(flag, str) and re.match("-.*=", flag)}
    for flag in flags:
        _check_flag(flag, single, key)


def _check_flag(flag: Any, known: Collection[str], key: str) -> None:
    if not isinstance(flag, str) or not (_HARMLESS.fullmatch(flag) or flag in known):
        raise ConfigError(
            f"a recipe cannot use the flag {flag!r}",
            key=key,
            hint="Allowed: code generation flags (-O -f -m -D -W -std ...) that name no files, "
            "and those that this machine's toolchain has itself.",
        )
