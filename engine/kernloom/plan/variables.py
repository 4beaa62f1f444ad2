"""Variables of kernel templates: decisions and arch data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernloom.base.expressions import parse_size
from kernloom.config.distribution import SPLITS
from kernloom.config.distribution import TRANSFORM as DISTRIBUTE
from kernloom.config.schema import Arch, Scalar
from kernloom.plan.schedule import ELEMENT, StepRecord
from kernloom.plan.tiling import partial_results

TRANSFORMS = ("tile", "pack", "unroll", "vectorize", "parallelize", "fuse", "catch", "distribute")
"""Names defined in every template, decided or not."""


def template_variables(record: StepRecord, arch: Arch, function: str) -> dict[str, Any]:
    """Variables of a template: decisions and arch data, no sizes, so one library serves all."""
    compiled = compiled_decisions(record)
    decisions = {name: dict(compiled.get(name, {})) for name in TRANSFORMS}
    others = {name: dict(group) for name, group in compiled.items()}
    epilogue = record.epilogue and {
        "kernel": record.epilogue.kernel,
        "arguments": list(record.epilogue.arguments),
    }
    return {
        **others,
        **decisions,
        "function": function,
        "arguments": [
            {
                "name": argument.name,
                "kind": argument.kind,
                "access": argument.access,
                "ctype": argument.ctype,
                "dtype": argument.dtype,
            }
            for argument in record.arguments
        ],
        "dtype": record.dtype,
        "ctype": {"float32": "float", "float64": "double"}.get(record.dtype, record.dtype),
        "element": ELEMENT[record.dtype],
        "epilogue": epilogue,
        "arch": {
            "name": arch.name,
            "isa": arch.isa,
            "vector_bytes": arch.vector_bytes,
            "registers": arch.registers,
            "cores": arch.cores,
            "caches": {
                "l1": parse_size(arch.caches.l1),
                "l2": parse_size(arch.caches.l2),
                "l3": parse_size(arch.caches.l3),
            },
        },
    }


def compiled_decisions(record: StepRecord) -> dict[str, Mapping[str, Scalar]]:
    """The decisions that a kernel's source depends on: not how many tiles a task has."""
    found = {name: group for name, group in record.decisions.items() if name != DISTRIBUTE}
    splits = partial_results(record)
    return {**found, DISTRIBUTE: {SPLITS: splits}} if splits else found
