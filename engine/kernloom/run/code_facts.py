"""Facts about the code that can change a trial's result: ours, numpy's and plug-ins'."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import kernloom
from kernloom import __version__
from kernloom.base.digest import DigestCache, Section, digest_of
from kernloom.base.files import files_below, sha256_file, sha256_json
from kernloom.base.places import share_folder
from kernloom.base.plugin_code import code_digest, is_ours
from kernloom.build.admission import IMPORTS
from kernloom.config.schema import Experiment
from kernloom.device.devices import DEVICES
from kernloom.measure.data import REFERENCE_FUNCTIONS
from kernloom.measure.fills import GENERATORS
from kernloom.measure.numpy_code import numpy_build
from kernloom.pipeline.graph import StageGraph
from kernloom.pipeline.stage import Stage
from kernloom.plan.facts import running_stages
from kernloom.plan.inspect import accesses_from, inputs_of


def code_facts(
    experiment: Experiment, graph: StageGraph, folder: Path, cache: DigestCache
) -> Section[str]:
    """Name -> version and hash of the code that verifies, runs and times kernels; slow hashes are
    cached in `folder`."""
    workload, types = experiment.workload, running_stages(graph).types
    parts = (workload.golden, workload.tensors, *accesses_from(workload))
    key = (code_facts, experiment.target.device, *types, *map(digest_of, parts))
    return cache.by_key(key, lambda: Section(_code_facts(experiment, types, folder)))


def _code_facts(
    experiment: Experiment, stages: Sequence[type[Stage]], folder: Path
) -> dict[str, str]:
    workload = experiment.workload
    inputs = inputs_of(workload)
    found = {"kernloom": f"{__version__} {engine_digest()[:16]}", "numpy": _numpy_build(folder)}
    for name, text in workload.golden.items():
        if text.isidentifier() and text not in inputs:
            reference = REFERENCE_FUNCTIONS.get(text, key=f"workload.golden.{name}")
            if not is_ours(reference):
                distribution = REFERENCE_FUNCTIONS.distribution(text)
                found[f"reference {text}"] = code_digest(reference, distribution)
    for name in inputs:
        fill = workload.tensors[name].fill
        if fill.kind == "generator":
            called = str(fill.generator)
            generator = GENERATORS.get(called, key=f"workload.tensors.{name}.fill.generator")
            if not is_ours(generator):
                distribution = GENERATORS.distribution(called)
                found[f"generator {called}"] = code_digest(generator, distribution)
    for stage in stages:
        if not is_ours(stage):
            found[f"stage {stage.__name__}"] = code_digest(stage, "")
    device = DEVICES.get(experiment.target.device, key="target.device")
    if not is_ours(device):
        name = experiment.target.device
        found[f"device {name}"] = code_digest(device, DEVICES.distribution(name))
    return found


@cache
def _numpy_build(folder: Path) -> str:
    """Once per process, because an imported module does not change."""
    return numpy_build(folder)


@cache
def engine_digest() -> str:
    """Hash of our code that admits, verifies, runs and times kernels: for OpenCL and bare metal the
    runner itself is Python, for the others Python starts the runner."""
    package = Path(kernloom.__file__).parent
    names = ("expressions", "arithmetic", "array_functions", "gauges")
    others = [package / f"base/{name}.py" for name in names]
    others += [package / f"build/{name}.py" for name in ("admission", "elf")]
    others.append(share_folder() / IMPORTS)
    ours = [
        path for part in ("measure", "device") for path in files_below(package / part, (".py",))
    ]
    return sha256_json([sha256_file(path) for path in [*sorted(ours), *others]])
