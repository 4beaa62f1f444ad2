"""Pipelines read, checked and ordered before anything runs; then carried out stage by stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernloom.config.convert import convert
from kernloom.errors import ConfigError, KernloomError, PipelineError, nearest
from kernloom.pipeline.stage import PHASES, Context, Phase, Stage
from kernloom.registry import Registry
from kernloom.remember import ById

ROOTS = {
    "workload": "workload",
    "target": "target",
    "arch": "arch",
    "toolchain": "toolchain",
    "measure": "measure",
    "case": "text",
    "seed": "number",
}
"""What a ref can name beside stages, with its type."""
ANY = "any"


@dataclass(frozen=True)
class Ref:
    """`{ref: stage.output.key...}`: a value known when the pipeline runs."""

    text: str
    source: str
    path: tuple[str, ...]


@dataclass(frozen=True)
class Node:
    """One stage, its inputs, and the stages it must follow."""

    stage: Stage
    inputs: Mapping[str, Any]
    after: tuple[str, ...]


@dataclass(frozen=True)
class Graph:
    """A checked pipeline, in an order that follows its refs."""

    nodes: Mapping[str, Node]

    def run(self, phase: Phase, context: Context, values: dict[str, Mapping[str, Any]]) -> None:
        """Carry out the stages of a phase, adding each one's outputs to `values`."""
        for name, node in self.nodes.items():
            if node.stage.phase != phase:
                continue
            try:
                inputs = {
                    key: self.value(given, context, values) if isinstance(given, Ref) else given
                    for key, given in node.inputs.items()
                }
                values[name] = node.stage.run(context, inputs)
            except KernloomError as error:
                if not hasattr(error, "stage"):
                    error.stage = name  # type: ignore[attr-defined]
                raise

    def value(self, ref: Ref, context: Context, values: Mapping[str, Mapping[str, Any]]) -> Any:
        """What a ref stands for."""
        if ref.source in ROOTS:
            node: Any = getattr(context.experiment, ref.source)
        else:
            node = values[ref.source]
        for part in ref.path:
            if isinstance(node, Mapping):
                if part not in node:
                    raise PipelineError(
                        f"'{ref.text}' refers to nothing: there is no '{part}'",
                        key="ref",
                        hint=nearest(part, node),
                    )
                node = node[part]
            elif hasattr(node, part) and not part.startswith("_"):
                node = getattr(node, part)
            else:
                raise PipelineError(f"'{ref.text}' refers to nothing: no '{part}'", key="ref")
        return node


_graphs: ById[Graph] = ById()


def read_graph(stages: Mapping[str, Mapping[str, Any]], types: Registry[type[Stage]]) -> Graph:
    """The checked graph; a pipeline that the points of a sweep share is read once."""
    return _graphs.get(_read, stages, types)


def _read(stages: Mapping[str, Mapping[str, Any]], types: Registry[type[Stage]]) -> Graph:
    if not stages:
        raise PipelineError("has no stages", key="pipeline.stages")
    nodes = {name: _node(name, data, types) for name, data in stages.items()}
    for name, node in nodes.items():
        _check_inputs(name, node, nodes)
    return Graph(_ordered(nodes))


def _node(name: str, data: Mapping[str, Any], types: Registry[type[Stage]]) -> Node:
    key = f"pipeline.stages.{name}"
    if not isinstance(data, Mapping) or not isinstance(data.get("use"), str):
        raise PipelineError("a stage needs `use: TYPE`", key=key, hint=nearest("", types.names()))
    if name in ROOTS:
        raise PipelineError(f"'{name}' is taken: refs to it mean the config's {name}", key=key)
    cls = types.get(data["use"], key=f"{key}.use")
    given = data.get("in") or {}
    after = data.get("after") or []
    if not isinstance(given, Mapping):
        raise PipelineError("expected inputs as keys and values", key=f"{key}.in")
    if not isinstance(after, (list, tuple)):
        raise PipelineError("expected a list of stages", key=f"{key}.after")
    rest = {option: value for option, value in data.items() if option not in ("use", "in", "after")}
    try:
        options = convert(cls.Options, rest, key)
    except ConfigError as error:
        raise PipelineError(error.message, hint=error.hint) from None
    inputs = {str(k): _ref_or_value(v, f"{key}.in.{k}") for k, v in given.items()}
    return Node(cls(name, options), inputs, tuple(map(str, after)))


def _ref_or_value(value: Any, key: str) -> Any:
    if not isinstance(value, Mapping) or "ref" not in value:
        return value
    text = value["ref"]
    if len(value) != 1 or not isinstance(text, str) or not text:
        raise PipelineError("a ref is written {ref: stage.output}", key=key)
    source, *path = text.split(".")
    return Ref(text, source, tuple(path))


def _check_inputs(name: str, node: Node, nodes: Mapping[str, Node]) -> None:
    key = f"pipeline.stages.{name}"
    stage = node.stage
    for given, value in node.inputs.items():
        if given not in stage.inputs:
            raise PipelineError(
                f"has no input '{given}'", key=f"{key}.in", hint=nearest(given, stage.inputs)
            )
        if isinstance(value, Ref):
            _check_ref(value, stage.inputs[given], stage, nodes, f"{key}.in.{given}")
    for wanted in stage.inputs:
        if wanted not in node.inputs:
            raise PipelineError(
                f"input '{wanted}' is missing",
                key=f"{key}.in",
                hint=f"Give it {wanted}: {{ref: stage.output}} of type {stage.inputs[wanted]}.",
            )
    for earlier in node.after:
        if earlier not in nodes:
            raise PipelineError(
                f"unknown stage '{earlier}'", key=f"{key}.after", hint=nearest(earlier, nodes)
            )


def _check_ref(
    ref: Ref, wanted: str, stage: Stage, nodes: Mapping[str, Node], key: str
) -> None:
    if ref.source in ROOTS:
        found = ROOTS[ref.source] if not ref.path else ANY
    elif ref.source not in nodes:
        raise PipelineError(
            f"'{ref.text}' names an unknown stage '{ref.source}'",
            key=key,
            hint=nearest(ref.source, [*nodes, *ROOTS]),
        )
    else:
        source = nodes[ref.source].stage
        if not ref.path or ref.path[0] not in source.outputs:
            output = ref.path[0] if ref.path else ""
            raise PipelineError(
                f"'{ref.text}': stage '{ref.source}' has no output '{output}'",
                key=key,
                hint=nearest(output, source.outputs),
            )
        if PHASES.index(source.phase) > PHASES.index(stage.phase):
            raise PipelineError(
                f"'{ref.text}' is known only in the {source.phase} phase, but '{stage.name}' belongs "
                f"to the {stage.phase} phase",
                key=key,
            )
        found = source.outputs[ref.path[0]] if len(ref.path) == 1 else ANY
    if ANY not in (found, wanted) and found != wanted:
        raise PipelineError(f"'{ref.text}' is of type {found}; expected {wanted}", key=key)


def _ordered(nodes: Mapping[str, Node]) -> dict[str, Node]:
    """Depth first along refs and `after`; a way back to a stage under way is a cycle."""
    ordered: dict[str, Node] = {}
    under_way: list[str] = []

    def visit(name: str) -> None:
        if name in ordered:
            return
        if name in under_way:
            circle = " -> ".join([*under_way[under_way.index(name) :], name])
            raise PipelineError(f"stages wait for each other: {circle}", key="pipeline.stages")
        under_way.append(name)
        for earlier in _needs(nodes[name]):
            visit(earlier)
        under_way.pop()
        ordered[name] = nodes[name]

    for name in nodes:
        visit(name)
    return ordered


def _needs(node: Node) -> Sequence[str]:
    refs = [ref.source for ref in node.inputs.values() if isinstance(ref, Ref)]
    return [*(source for source in refs if source not in ROOTS), *node.after]
