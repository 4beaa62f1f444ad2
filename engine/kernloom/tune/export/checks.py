"""The test program of an export: every variant on the cases of the workload, with their data."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kernloom.base.errors import KernloomError
from kernloom.config.schema import Experiment
from kernloom.measure.data import DataSets
from kernloom.measure.verify import tolerance_of
from kernloom.plan.inspect import tensors_of
from kernloom.plan.planned import Planned
from kernloom.plan.schedule import CTYPE, BoundArgument, Schedule
from kernloom.tune.document import Outcome
from kernloom.tune.export.ctext import in_string
from kernloom.tune.export.variants import Library, function_name
from kernloom.tune.racing import Leader

MAX_BYTES = 8 * 2**20
"""Cases with more data are not part of the test program."""


@dataclass(frozen=True)
class Output:
    """How an output is compared with its golden."""

    rtol: float
    atol: float
    region: bool
    """Whether only a part of it counts."""


@dataclass(frozen=True)
class Check:
    """A case of the workload in the test program."""

    name: str
    """A C identifier, which also begins the names of its files."""
    case: str
    steps: Schedule
    tensors: Mapping[str, int]
    """Tensor -> bytes."""
    ctypes: Mapping[str, str]
    inputs: Collection[str] = ()
    """The tensors with a file."""
    outputs: Mapping[str, Output] = field(default_factory=dict)


def write_test(outcome: Outcome, best: Leader, library: Library, header: str, folder: Path) -> None:
    """Write `test.c`, and its data to the folder `data`."""
    plan = outcome.plan
    data = DataSets(plan.assembly.places.roots)
    checks: list[Check] = []
    for case, study in plan.cases():
        try:
            planned = study.plan(best.point)
        except KernloomError:
            continue
        if all(function_name(item.step) in library.functions for item in planned.steps):
            name = _identifier(case, [one.name for one in checks])
            if check := _written(planned, data, case, name, folder / "data"):
                checks.append(check)
    (folder / "test.c").write_text(test_program(library, header, checks), encoding="utf-8")


def data_file(*parts: str) -> str:
    """A file name from a case, a tensor and the kind of content. The parts have no dots, so names
    are unique."""
    return f"{'.'.join(parts)}.bin"


def _identifier(case: str, taken: Container[str]) -> str:
    """The name of a case as a C identifier that no other case has."""
    name = re.sub(r"\W", "_", case, flags=re.ASCII)
    number = 2
    while name in taken:
        name, number = f"{name}_{number}", number + 1
    return name


def _written(plan: Planned, data: DataSets, case: str, name: str, folder: Path) -> Check | None:
    """Write inputs and expected outputs of a case; None if it has too much data."""
    experiment = plan.experiment
    specs = tensors_of(experiment.workload)
    steps = tuple(item.step for item in plan.steps)
    used = {a.binding for step in steps for a in step.arguments if a.kind == "tensor"}
    sizes = {tensor: spec.nbytes for tensor, spec in specs.items() if tensor in used}
    if sum(sizes.values()) > MAX_BYTES:
        return None
    ctypes = {tensor: CTYPE[spec.dtype] for tensor, spec in specs.items()}
    inputs = data.inputs(experiment.workload, experiment.seed)
    given = [tensor for tensor in inputs if tensor in used]
    for tensor in given:
        np.ascontiguousarray(inputs[tensor]).tofile(folder / data_file(name, tensor))
    outputs = _write_expected(experiment, data, name, folder)
    return Check(name, case, steps, sizes, ctypes, given, outputs)


def _write_expected(
    experiment: Experiment, data: DataSets, name: str, folder: Path
) -> dict[str, Output]:
    workload, seed = experiment.workload, experiment.seed
    specs, regions = tensors_of(workload), data.regions(workload, seed)
    outputs: dict[str, Output] = {}
    for tensor, values in data.goldens(workload, seed).items():
        values.astype(np.float64).tofile(folder / data_file(name, tensor, "expected"))
        if tensor in regions:
            mask = regions[tensor].astype(np.uint8)
            mask.tofile(folder / data_file(name, tensor, "region"))
        rtol, atol = tolerance_of(workload, specs[tensor].dtype)
        outputs[tensor] = Output(rtol, atol, tensor in regions)
    return outputs


def test_program(library: Library, header: str, checks: Sequence[Check]) -> str:
    """A program that runs every variant on every case."""
    names = {item.step.name: function_name(item.step) for item in library.plan.steps}
    lines = ['#include "check.h"', f'#include "{header}"', "", "static int failed;", ""]
    for check in checks:
        lines += _function_of(check, names)
    lines += ["int main(int count, char **words)", "{", "    if (count > 1)"]
    lines += ["        folder = words[1];", "    char name[256];"]
    lines += [f'    case_{check.name}("as dispatched");' for check in checks]
    for function in library.functions.values():
        lines += [
            f"    for (int n = 0; n < {function.name}_variants(); n++) {{",
            f"        if (!{function.name}_supported(n)) {{",
            f'            printf("skipped  {function.name} %d: this CPU cannot run it\\n", n);',
            "            continue;",
            "        }",
            f"        {function.name}_force(n);",
            f'        snprintf(name, sizeof name, "{function.name} %d", n);',
            *(f"        case_{check.name}(name);" for check in checks),
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


def _function_of(check: Check, names: Mapping[str, str]) -> list[str]:
    """The C function that runs a case. `names`: step -> function."""
    lines = [f"static void case_{check.name}(const char *variant)", "{"]
    for tensor, size in check.tensors.items():
        source = f"allocated({size})"
        if tensor in check.inputs:
            source = f'from_file("{data_file(check.name, tensor)}", {size})'
        lines.append(f"    {check.ctypes[tensor]} *t_{tensor} = {source};")
    for step in check.steps:
        lines.append(f"    {names[step.name]}({', '.join(map(_bound, step.arguments))});")
    for tensor, output in check.outputs.items():
        lines += _comparison(check, tensor, output)
    return [*lines, *(f"    free(t_{tensor});" for tensor in check.tensors), "}", ""]


def _comparison(check: Check, tensor: str, output: Output) -> list[str]:
    ctype = check.ctypes[tensor]
    kind = "uint8" if ctype == "unsigned char" else ctype
    count = f"{check.tensors[tensor]} / sizeof({ctype})"
    expected = data_file(check.name, tensor, "expected")
    region = "0"
    if output.region:
        region = f'from_file("{data_file(check.name, tensor, "region")}", {count})'
    return [
        f'    double *e_{tensor} = from_file("{expected}", {count} * sizeof(double));',
        f"    unsigned char *r_{tensor} = {region};",
        f'    const int bad_{tensor} = check_{kind}("{tensor}", t_{tensor}, e_{tensor}, '
        f"r_{tensor}, {count}, {output.rtol!r}, {output.atol!r});",
        f"    failed += bad_{tensor};",
        f'    printf("%-8s %s: {tensor}, variant %s\\n", bad_{tensor} ? "WRONG" : "ok",',
        f"        {in_string(check.case)}, variant);",
        f"    free(e_{tensor});",
        f"    free(r_{tensor});",
    ]


def _bound(argument: BoundArgument) -> str:
    if argument.kind == "tensor":
        return f"t_{argument.binding}"
    return repr(argument.binding)
