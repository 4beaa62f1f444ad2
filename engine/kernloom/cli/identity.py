"""What makes trials the same: config, artifacts, runner, machine, data files, and our own code."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kernloom
from kernloom import __version__
from kernloom.cli.assembly import Assembly
from kernloom.config.schema import LIMITS, NOT_IDENTITY, Experiment
from kernloom.errors import ConfigError
from kernloom.files import canonical_json, file_stamp, sha256_file, sha256_json, sha256_text
from kernloom.machine import machine_class
from kernloom.places import confined
from kernloom.remember import Alike, ById

if TYPE_CHECKING:
    from kernloom.cli.planning import Planned

ID_LENGTH = 16
_NESTED = (dict, list)
_texts: ById[str] = ById()
_sections: Alike[str] = Alike()
_parts: defaultdict[str, Alike[str]] = defaultdict(Alike)


def identity(assembly: Assembly, plan: Planned) -> str:
    """A trial's id: the hash of all that."""
    baselines = [baseline.identity for baseline in plan.baselines.values()]
    machine = _texts.get(canonical_json, machine_class())
    return _digest(assembly, plan, plan.point.data, baselines, machine, tuple(plan.facts.items()))


def identity_anywhere(assembly: Assembly, plan: Planned) -> str:
    """Hash of what makes plans the same on whichever machine they are made: `identity` less what
    this one is."""
    data = {**plan.point.data, "arch": assembly.arch_as_asked(plan.point.data["arch"])}
    baselines = [
        [name, identity_anywhere(assembly, baseline.plan), *baseline.made_of]
        if baseline.plan
        else [name, baseline.identity]
        for name, baseline in plan.baselines.items()
    ]
    return _digest(assembly, plan, data, baselines)


def _digest(
    assembly: Assembly,
    plan: Planned,
    data: Mapping[str, Any],
    baselines: Sequence[Any],
    machine: str = "",
    device: tuple[tuple[str, str], ...] = (),
) -> str:
    texts = _sections.each(data, _section_text)
    # A sweep over a limit has a trial for each, though others of the same would do.
    left_out = [key for key in (*NOT_IDENTITY, *LIMITS) if key not in plan.point.swept]
    sections = [f"{key}:{texts[key]}" for key in sorted(data) if key not in left_out]
    rest = _rest_text(
        _engine_digest(),
        machine,
        tuple(plan.graph.nodes),
        tuple([step.artifact.key for step in plan.steps]),
        tuple([(role, program.key) for role, program in plan.programs.items()]),
        _emulator_version(assembly, plan),
        device,
        tuple(plan.files.items()),
        canonical_json(baselines) if baselines else "",
    )
    return sha256_text("\n".join([*sections, rest]))[:ID_LENGTH]


@lru_cache(maxsize=1024)
def _rest_text(
    engine: str,
    machine: str,
    stages: tuple[str, ...],
    artifacts: tuple[str, ...],
    programs: tuple[tuple[str, str], ...],
    emulator: str,
    device: tuple[tuple[str, str], ...],
    files: tuple[tuple[str, str], ...],
    baselines: str,
) -> str:
    """What makes trials the same beside their config, as text: most points share all of it."""
    rest: dict[str, Any] = {
        "kernloom": [__version__, engine],
        "stages": stages,
        "artifacts": artifacts,
        "programs": dict(programs),
        "machine": json.loads(machine) if machine else {},
        "emulator": emulator,
        "device": dict(device),
        "files": dict(files),
    }
    if baselines:
        rest["baselines"] = json.loads(baselines)
    return canonical_json(rest)


def _section_text(key: str, section: Any) -> str:
    """A section's canonical JSON, from that of its parts: most points share most of them."""
    if key in NOT_IDENTITY:
        return ""
    if not isinstance(section, dict) or not all(type(name) is str for name in section):
        return canonical_json(section)
    parts = _parts[key].each(section, _part_text)
    return f"{{{','.join([parts[name] for name in sorted(parts)])}}}"


def _part_text(name: str, value: Any) -> str:
    text = (
        _texts.get(canonical_json, value) if isinstance(value, _NESTED) else canonical_json(value)
    )
    return f"{canonical_json(name)}:{text}"


def _emulator_version(assembly: Assembly, plan: Planned) -> str:
    """Of the emulator that runs the trial; a refused one has perhaps none."""
    emulator = plan.experiment.target.emulator
    if emulator is None or plan.refusal:
        return ""
    return assembly.emulator(emulator).version


@cache
def _engine_digest() -> str:
    """Hash of our own code that decides what is right, runs kernels and times them: for OpenCL and
    bare metal the runner itself is Python, for the others it is what starts the runner."""
    package = Path(kernloom.__file__).parent
    others = [package / "expressions.py", package / "arithmetic.py"]
    ours = [*(package / "measure").glob("*.py"), *(package / "device").rglob("*.py")]
    return sha256_json([sha256_file(path) for path in [*sorted(ours), *others]])


def data_files(assembly: Assembly, experiment: Experiment) -> dict[str, str]:
    """Hashes of the files that tensors are filled from."""
    found = {}
    for name, tensor in experiment.workload.tensors.items():
        if tensor.fill.kind == "file":
            key = f"workload.tensors.{name}.fill.path"
            path = confined(
                str(tensor.fill.path), list(assembly.places.roots), key=key, what="data file"
            )
            try:
                found[name] = _hash(path, *file_stamp(path))
            except OSError as error:
                raise ConfigError(
                    f"data file '{tensor.fill.path}' cannot be read: {error.strerror}", key=key
                ) from None
    return found


@cache
def _hash(path: Path, *stamp: int) -> str:
    """Of a file as it was at this stamp: the points of a sweep share it."""
    return sha256_file(path)
