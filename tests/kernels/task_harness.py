"""Runs planned orchestrations without a device: records their tasks and executes them in order.

A task sees the regions that it declares to read, and nothing else; it may change those that it
declares to write, and has to write all of them.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from core_harness import BASE, _pe
from harness import ROOT

from kernloom.base.places import Places, share_folder
from kernloom.config.schema import DTYPES
from kernloom.measure.data import DataSets
from kernloom.plan.artifact import Artifact
from kernloom.plan.cores import pes_of, sram_bytes
from kernloom.plan.coresource import ENTRY
from kernloom.plan.inspect import tensors_of
from kernloom.plan.orchestration import ENTRY as ORCHESTRATE
from kernloom.plan.planned import Planned
from kernloom.run.assembly import Assembly
from kernloom.run.planning import plan_each
from parsed import points_of

IN, OUT, WRITE, INOUT, NONE = range(5)
POISON = 0xFF
NO_KERNEL = 0xFFFFFFFF


def assembly_in(folder: Path, project: Path | None = None) -> Assembly:
    return Assembly(Places(share_folder(), project, folder / "build", folder / "store.db"))


def planned(assembly: Assembly, *words: str) -> Planned:
    points = list(points_of(assembly.composer, list(words), multirun=False))
    (plan,) = plan_each(assembly, points, alone=True)
    return plan


def compiled(artifact: Artifact, folder: Path) -> Path:
    """The artifact's file, made by its own command."""
    place = folder / artifact.key
    output = place / artifact.output
    if not output.exists():
        for name, text in artifact.files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text)
        command = [artifact.tools[artifact.argv[0]], *artifact.argv[1:], "-Werror"]
        made = subprocess.run(command, cwd=place, capture_output=True, text=True)
        assert made.returncode == 0, f"{place}\n{made.stderr}"
    return output


@cache
def _recorder(folder: Path) -> Any:
    output = folder / "recorder.so"
    flags = ["-std=gnu++20", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    source = ROOT / "tests/kernels/recorder.cpp"
    include = f"-I{ROOT / 'native/include'}"
    subprocess.run(["g++", *flags, include, "-o", str(output), str(source)], check=True)
    loaded = ctypes.CDLL(str(output))
    loaded.record.restype = ctypes.c_void_p
    return loaded


@dataclass
class Tasks:
    """What an orchestration submitted."""

    plan: Planned
    folder: Path
    events: list[dict[str, Any]] = field(default_factory=list)

    @property
    def tasks(self) -> list[dict[str, Any]]:
        return [event for event in self.events if "task" in event]

    @property
    def failure(self) -> str:
        said = [str(event.get("event", "")) for event in self.events]
        return next((text[6:] for text in said if text.startswith("fail: ")), "")

    def named(self, name: str) -> list[dict[str, Any]]:
        return [task for task in self.tasks if task["task"] == name]


def recorded(plan: Planned, folder: Path) -> Tasks:
    """The tasks of a plan, in the order of their submission."""
    assert plan.orchestration
    launch, arch = plan.orchestration.launch, plan.experiment.arch
    library = ctypes.CDLL(str(compiled(plan.orchestration.artifact, folder)))
    tensors = tensors_of(plan.experiment.workload)
    sizes = np.array([tensors[name].nbytes for name in launch.tensors], dtype=np.uint64)
    values = np.zeros(max(len(launch.values), 1), dtype=np.uint64)
    for i, one in enumerate(launch.values):
        given = np.array([one.value], dtype=one.dtype)
        values[i : i + 1].view(np.uint8)[: given.nbytes] = given.view(np.uint8)
    pes = (ctypes.c_uint32 * 2)(pes_of(arch, "matrix"), pes_of(arch, "vector"))
    recorder = _recorder(folder)
    assert arch.topology
    text = recorder.record(
        ctypes.cast(getattr(library, ORCHESTRATE), ctypes.c_void_p),
        *(sizes.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint32(len(sizes))),
        *(values.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint32(len(launch.values))),
        *(pes, ctypes.c_uint32(arch.topology.sips * arch.topology.cubes)),
        " ".join(launch.kernels).encode(),
    )
    lines = ctypes.string_at(text).decode().splitlines()
    recorder.release(ctypes.c_void_p(text))
    return Tasks(plan, folder, [json.loads(line) for line in lines])


def region_bytes(argument: dict[str, Any], start: int) -> np.ndarray:
    """Places in memory of the bytes of a region."""
    element = np.dtype(DTYPES[argument["dtype"]]).itemsize
    places = np.array([argument["offset"]], dtype=np.int64)
    for extent, stride in zip(argument["shape"], argument["strides"], strict=True):
        places = (places[:, None] + np.arange(extent) * stride).reshape(-1)
    return (start + places[:, None] * element + np.arange(element)).reshape(-1)


def executed(tasks: Tasks, seed: int = 0) -> dict[str, np.ndarray]:
    """The tensors of the launch after all tasks, executed in order."""
    plan, folder = tasks.plan, tasks.folder
    assert plan.orchestration and not tasks.failure, tasks.failure
    specs = tensors_of(plan.experiment.workload)
    inputs = DataSets([share_folder()]).inputs(plan.experiment.workload, seed)
    memory = _Memory()
    for name in plan.orchestration.launch.tensors:
        memory.add(specs[name].nbytes, inputs.get(name))
    for task in tasks.tasks:
        for argument in task["arguments"]:
            if argument.get("access") == OUT:
                memory.add(int(np.prod(argument["shape"])) * _element(argument), None)
    kernels = [ctypes.CDLL(str(compiled(item.artifact, folder))) for item in plan.steps]
    for task in tasks.tasks:
        if task["kernel"] != NO_KERNEL:
            _execute(task, kernels[task["kernel"]], memory, plan, folder)
    return {
        name: memory.tensor(i).view(specs[name].dtype).reshape(specs[name].shape)
        for i, name in enumerate(plan.orchestration.launch.tensors)
    }


def _element(argument: dict[str, Any]) -> int:
    return np.dtype(DTYPES[argument["dtype"]]).itemsize


class _Memory:
    """Tensors one after the other, with a gap between them."""

    def __init__(self) -> None:
        self.bytes = np.full(64, POISON, dtype=np.uint8)
        self.places: list[tuple[int, int]] = []

    def add(self, nbytes: int, content: np.ndarray | None) -> None:
        start = len(self.bytes)
        self.places.append((start, nbytes))
        padded = np.full(-(-nbytes // 64) * 64 + 64, POISON, dtype=np.uint8)
        if content is not None:
            padded[:nbytes] = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        self.bytes = np.concatenate([self.bytes, padded])

    def tensor(self, number: int) -> np.ndarray:
        start, nbytes = self.places[number]
        return self.bytes[start : start + nbytes]


def _execute(task: dict[str, Any], library: Any, memory: _Memory, plan: Planned, to: Path) -> None:
    words = np.zeros(len(task["arguments"]), dtype=np.uint64)
    reads, writes = [], []
    for i, argument in enumerate(task["arguments"]):
        if "value" in argument:
            words[i] = argument["value"]
            continue
        start, nbytes = memory.places[argument["tensor"]]
        words[i] = BASE + start + argument["origin"] * _element(argument)
        places = region_bytes(argument, start)
        if argument["access"] != NONE:
            assert places.max() < start + nbytes, f"{task['task']}: a region outside its tensor"
        reads += [places] if argument["access"] in (IN, INOUT) else []
        writes += [places] if argument["access"] in (OUT, WRITE, INOUT) else []
    seen = np.full(len(memory.bytes), POISON, dtype=np.uint8)
    for places in reads:
        seen[places] = memory.bytes[places]
    before = seen.copy()
    for block, blocks in _blocks(task):
        result, message = (ctypes.c_uint64 * 6)(), ctypes.create_string_buffer(300)
        _pe(to)(
            ctypes.cast(getattr(library, ENTRY), ctypes.c_void_p),
            words.ctypes.data_as(ctypes.c_void_p),
            seen.ctypes.data_as(ctypes.c_void_p),
            *(ctypes.c_uint64(seen.nbytes), ctypes.c_uint64(sram_bytes(plan.experiment.arch))),
            *(ctypes.c_uint32(block), ctypes.c_uint32(blocks), result, message),
        )
        assert not message.value, f"{task['task']}: {message.value.decode()}"
    allowed = np.zeros(len(seen), dtype=bool)
    for places in writes:
        allowed[places] = True
    assert (seen[~allowed] == before[~allowed]).all(), f"{task['task']} writes outside its regions"
    memory.bytes[allowed] = seen[allowed]


def _blocks(task: dict[str, Any]) -> Iterator[tuple[int, int]]:
    if task["blocks"] > 1:
        yield from ((block, task["blocks"]) for block in range(task["blocks"]))
    else:
        yield task["block"], max(task["of_blocks"], 1)


def written_once(tasks: list[dict[str, Any]], tensor: int, nbytes: int) -> bool:
    """Whether the tasks write every byte of a tensor exactly once."""
    count = np.zeros(nbytes, dtype=int)
    for task in tasks:
        for argument in task["arguments"]:
            if argument.get("tensor") == tensor and argument["access"] in (OUT, WRITE, INOUT):
                np.add.at(count, region_bytes(argument, 0), 1)
    return bool((count == 1).all())
