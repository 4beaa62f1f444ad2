"""A small kernel to build, and the shipped configs to build it with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import yaml

from kernloom.base.places import share_folder
from kernloom.config.convert import convert
from kernloom.plan.source import Source

T = TypeVar("T")

KERNEL = """\
#include "scale.h"
void kl_entry(void *const *args)
{
    float *x = args[0];
    for (long i = 0; i < COUNT; i++)
        x[i] *= 2.0f;
}
"""
HEADER = "#define COUNT 64\n"
TEMPLATE = "x[i] *= {{ factor }};\n"


def shipped(cls: type[T], group: str, name: str) -> T:
    path = share_folder() / "configs" / group / f"{name}.yaml"
    return convert(cls, yaml.safe_load(path.read_text()), group)


def make_source(
    text: str = KERNEL,
    *,
    name: str = "demo.scale",
    header: str = HEADER,
    template: str = TEMPLATE,
    params: Mapping[str, Any] | None = None,
) -> Source:
    return Source(
        name=name,
        files={"kernel.c": text, "scale.h": header},
        origins={"kernels/scale/host.c.j2": template},
        params=params or {"unroll": {"factor": 1}},
    )
