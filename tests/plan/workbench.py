"""Plans experiments without building them: from words to the outputs of the plan stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernloom.base.errors import ConfigError
from kernloom.base.places import Places, share_folder
from kernloom.config.schema import Experiment
from kernloom.config.validate import experiment as validated
from kernloom.pipeline.graph import read_graph
from kernloom.pipeline.stage import Context
from kernloom.plan.schedule import Schedule
from kernloom.run.assembly import Assembly
from parsed import points_of

# A kernel of its own for tests: what ships may change, what is promised here does not.
TOY: Mapping[str, str] = {
    "kernloom.yaml": "",
    "configs/kernel/scale.yaml": """
name: scale
arguments:
  n: {kind: size}
  alpha: {kind: scalar}
  x: {kind: tensor, shape: [n]}
  y: {kind: tensor, access: write, shape: [n]}
sources:
  host: {template: kernels/scale.c.j2}
tunables:
  tile:
    block: {values: [64, 32, 16], off: 0}
  vectorize:
    lanes: {values: [4, 2, 1], off: 1}
    streaming: {values: [false, true], off: false}
constraints:
  - lanes <= lanes_max
  - block % lanes == 0
  - not streaming or lanes > 1
model: 1 / lanes + block / 1000 + streaming
""",
    "configs/workload/toy.yaml": """
defaults:
  - /kernel@kernels.scale: scale
  - _self_
name: toy
sizes: {n: 64, m: n * 2}
scalars: {alpha: 2.0}
tensors:
  x: {shape: [n]}
  t: {shape: [n]}
  y: {shape: [n]}
steps:
  first: {kernel: scale, args: {y: t}}
  second: {kernel: scale, args: {x: t}}
golden: {y: alpha * alpha * x}
tolerance: {float32: {rtol: 1e-6}, float64: {rtol: 1e-14}}
cost: {flops: 2 * n, bytes: 2 * n * element}
cases:
  small: {sizes: {n: 8}}
""",
    "templates/kernels/scale.c.j2": """
{% import 'kernels/shared.j2' as shared %}
static void {{ function }}(long n, {{ ctype }} alpha, const {{ ctype }} *x, {{ ctype }} *y)
{
    {{ shared.note(tile.block, vectorize.lanes) }}
    for (long i = 0; i < n; i++)
        y[i] = alpha * x[i];
}
""",
    "templates/kernels/shared.j2": """
{% macro note(block, lanes) %}/* {{ lanes }} lanes in blocks of {{ block }} */{% endmacro %}
""",
}


@dataclass(frozen=True)
class Plan:
    """What planning found out."""

    experiment: Experiment
    outputs: Mapping[str, Mapping[str, Any]]

    @property
    def params(self) -> dict[str, dict[str, dict[str, Any]]]:
        params: dict[str, dict[str, dict[str, Any]]] = self.outputs["choice"]["params"]
        return params

    def point(self, step: str) -> dict[str, Any]:
        """Tunable -> value of one step."""
        return {k: v for steps in self.params.values() for k, v in steps.get(step, {}).items()}

    @property
    def schedule(self) -> Schedule:
        schedule: Schedule = self.outputs["threads"]["schedule"]
        return schedule

    @property
    def text(self) -> str:
        return str(self.outputs["source"]["text"])


class Workbench:
    """Plans in a folder of its own."""

    def __init__(self, folder: Path, project: Path | None = None) -> None:
        self.places = Places(share_folder(), project, folder / "build", folder / "store.db")
        self.assembly = Assembly(self.places)

    def plan(self, *words: str) -> Plan:
        (point,) = points_of(self.assembly.composer, ["arch=x86_64_v2", *words], multirun=False)
        experiment = validated(point.data)
        graph = read_graph(experiment.pipeline.stages, self.assembly.stages)
        outputs: dict[str, Mapping[str, Any]] = {}
        graph.run("plan", Context(experiment, self.assembly.planning_services), outputs)
        return Plan(experiment, outputs)

    def refusal(self, *words: str) -> str:
        """What a person is told when these words are refused."""
        with pytest.raises(ConfigError) as caught:
            self.plan(*words)
        return str(caught.value)


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
