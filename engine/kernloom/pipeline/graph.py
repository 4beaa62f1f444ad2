"""Stage graphs: a pipeline is parsed, checked and ordered first, then executed by phase."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from kernloom.base.digest import DigestCache, Digested, digest_of
from kernloom.base.errors import ConfigError, KernloomError, PipelineError, nearest
from kernloom.base.registry import Registry
from kernloom.config.convert import convert
from kernloom.pipeline.stage import PHASES, Context, Phase, Stage

ROOTS = {
    "workload": "workload",
    "target": "target",
    "arch": "arch",
    "toolchain": "toolchain",
    "measure": "measure",
    "case": "text",
    "seed": "number",
}
"""Inputs that a ref can name besides stages, with their types."""
ANY = "any"
_INSIDE = {"choices": "params", "params": "params", "provenance": ANY, "tensors": ANY}
"""Types with entries that a ref can name, and the type of these entries."""
_WHOLE = ("workload", "target", "arch", "toolchain", "measure")
_CLOSED = {
    *("schedule", "steps", "sources", "artifacts", "number", "text"),
    *("orchestration_source", "orchestration"),
}
"""Types that a ref can only use as a whole."""
_PLAIN: dict[str, tuple[type, ...]] = {
    "number": (int, float),
    "text": (str,),
    "params": (Mapping,),
    ANY: (object,),
}
"""Types whose values can be written as literals instead of refs."""


@dataclass(frozen=True)
class Ref:
    """`{ref: stage.output.key...}`: a value known when the pipeline runs."""

    text: str
    source: str
    path: tuple[str, ...]
    key: str
    """Config key of the ref."""


@dataclass(frozen=True)
class Node:
    """One stage with its inputs and the stages it depends on."""

    stage: Stage
    inputs: Mapping[str, Any]
    after: tuple[str, ...]


@dataclass(frozen=True)
class StageGraph(Digested):
    """A checked pipeline, in dependency order."""

    nodes: Mapping[str, Node]

    def run(self, phase: Phase, context: Context, values: dict[str, Mapping[str, Any]]) -> None:
        """Execute the stages of a phase, adding the outputs of each to `values`."""
        for _ in self.turns(phase, context, values):
            pass

    def turns(
        self, phase: Phase, context: Context, values: dict[str, Mapping[str, Any]]
    ) -> Iterator[float | None]:
        """The same as a generator that yields wherever a stage lets other trials take a turn, what
        the stage yields."""
        for name, node in self.nodes.items():
            if node.stage.phase != phase:
                continue
            try:
                inputs = {
                    key: self.value(given, context, values) if isinstance(given, Ref) else given
                    for key, given in node.inputs.items()
                }
                outputs = node.stage.run(context, inputs)
                values[name] = (yield from outputs) if isinstance(outputs, Generator) else outputs
            except Exception as error:
                _blame(error, name, node.stage)
                raise

    @cached_property
    def verifies(self) -> bool:
        """Whether a stage verifies results."""
        stages = [node.stage for node in self.nodes.values()]
        return any(s.phase == "run" and "verified" in s.outputs.values() for s in stages)

    def has(self, kind: str) -> bool:
        """Whether a stage has an output of this type."""
        return kind in self._outputs

    def of_type(self, kind: str, values: Mapping[str, Mapping[str, Any]]) -> list[Any]:
        """All known outputs of a type, in the order of the stages."""
        return [
            values[name][output]
            for name, output in self._outputs.get(kind, ())
            if output in values.get(name, {})
        ]

    @cached_property
    def _outputs(self) -> dict[str, list[tuple[str, str]]]:
        """Type -> stages and names of the outputs of that type."""
        found: dict[str, list[tuple[str, str]]] = {}
        for name, node in self.nodes.items():
            for output, kind in node.stage.outputs.items():
                found.setdefault(kind, []).append((name, output))
        return found

    def value(self, ref: Ref, context: Context, values: Mapping[str, Mapping[str, Any]]) -> Any:
        """The value of a ref."""
        if ref.source in ROOTS:
            node: Any = getattr(context.experiment, ref.source)
        else:
            node = values[ref.source]
        for part in ref.path:
            if type(node) is dict or isinstance(node, Mapping):
                if part not in node:
                    raise PipelineError(
                        f"'{ref.text}' refers to nothing: there is no '{part}'",
                        key=ref.key,
                        hint=nearest(part, node),
                    )
                node = node[part]
            elif hasattr(node, part) and not part.startswith("_"):
                node = getattr(node, part)
            else:
                raise PipelineError(f"'{ref.text}' refers to nothing: no '{part}'", key=ref.key)
        return node


def _blame(error: Exception, name: str, stage: Stage) -> None:
    """Record in the error which stage raised it."""
    if isinstance(error, KernloomError):
        error.stage = error.stage or name
    elif not type(stage).__module__.startswith("kernloom."):
        # A stage type of another package: its failure fails the trial, not the engine.
        failed = PipelineError(
            f"stage type {type(stage).__name__} failed: {type(error).__name__}: {error}",
            key=f"pipeline.stages.{name}",
        )
        failed.stage = name
        raise failed from error


def read_graph(
    stages: Mapping[str, Mapping[str, Any]],
    types: Registry[type[Stage]],
    cache: DigestCache | None = None,
) -> StageGraph:
    """The checked graph; pipelines and stages in the cache are not parsed again."""
    cache = DigestCache() if cache is None else cache
    digest = digest_of(stages)
    return cache.by_key(
        (StageGraph, types, digest), lambda: _read(stages, types, cache).with_digest(digest)
    )


def _read(
    stages: Mapping[str, Mapping[str, Any]], types: Registry[type[Stage]], cache: DigestCache
) -> StageGraph:
    if not stages:
        raise PipelineError("has no stages", key="pipeline.stages")
    nodes = {
        name: cache.by_key((Node, types, name, digest_of(data)), partial(_node, name, data, types))
        for name, data in stages.items()
    }
    # The points of a sweep share their stages, except for options.
    connections = tuple((name, _connections(node)) for name, node in nodes.items())
    order = cache.by_key((_checked_order, connections), lambda: _checked_order(nodes))
    return StageGraph({name: nodes[name] for name in order})


def _connections(node: Node) -> str:
    """Equal for nodes that are interchangeable in the graph."""
    stage = node.stage
    texts = {name: repr(given) for name, given in node.inputs.items()}
    return digest_of([stage.phase, stage.inputs, stage.outputs, texts, node.after])


def _checked_order(nodes: Mapping[str, Node]) -> tuple[str, ...]:
    for name, node in nodes.items():
        _check_inputs(name, node, nodes)
    return tuple(_ordered(nodes))


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
    inputs = _read_inputs(given, name)
    return Node(cls(name, options), inputs, tuple(map(str, after)))


def _read_inputs(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    key = f"pipeline.stages.{name}.in"
    return {str(k): _ref_or_value(v, f"{key}.{k}") for k, v in given.items()}


def _ref_or_value(value: Any, key: str) -> Any:
    if not isinstance(value, Mapping) or "ref" not in value:
        return value
    text = value["ref"]
    if len(value) != 1 or not isinstance(text, str) or not text:
        raise PipelineError("a ref is written {ref: stage.output}", key=key)
    source, *path = text.split(".")
    return Ref(text, source, tuple(path), key)


def _check_inputs(name: str, node: Node, nodes: Mapping[str, Node]) -> None:
    key = f"pipeline.stages.{name}"
    stage = node.stage
    for given, value in node.inputs.items():
        if given not in stage.inputs:
            raise PipelineError(
                f"has no input '{given}'", key=f"{key}.in", hint=nearest(given, stage.inputs)
            )
        wanted = stage.inputs[given]
        if isinstance(value, Ref):
            _check_ref(value, wanted, stage, nodes, f"{key}.in.{given}")
        elif not isinstance(value, _PLAIN.get(wanted, ())):
            raise PipelineError(
                f"{value!r} is not of type {wanted}",
                key=f"{key}.in.{given}",
                hint=f"Refer to an output of that type: {given}: {{ref: stage.output}}.",
            )
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
        phase = nodes[earlier].stage.phase
        if PHASES.index(phase) > PHASES.index(stage.phase):
            raise PipelineError(
                f"'{earlier}' belongs to the {phase} phase, which follows the {stage.phase} phase",
                key=f"{key}.after",
            )


def _check_ref(ref: Ref, wanted: str, stage: Stage, nodes: Mapping[str, Node], key: str) -> None:
    if ref.source in ROOTS:
        found = ROOTS[ref.source] if not ref.path else "config"
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
                f"'{ref.text}' is known only in the {source.phase} phase, but '{stage.name}' "
                f"belongs to the {stage.phase} phase",
                key=key,
            )
        found = source.outputs[ref.path[0]]
        if len(ref.path) > 1 and found in _CLOSED:
            raise PipelineError(f"'{ref.text}': there is nothing inside a {found}", key=key)
        if len(ref.path) > 1:
            found = _INSIDE.get(found, ANY)
    if found == "config":
        # Only numbers and text of the experiment's data have types that stages declare.
        fits = wanted not in (*_INSIDE, *_CLOSED - {"number", "text"}, *_WHOLE)
    else:
        fits = ANY in (found, wanted) or found == wanted
    if not fits:
        raise PipelineError(
            f"'{ref.text}' is of type {found}; expected {wanted}",
            key=key,
            hint=f"Refer to one of them: {ref.text}.NAME." if _INSIDE.get(found) == wanted else "",
        )


def _ordered(nodes: Mapping[str, Node]) -> dict[str, Node]:
    """Depth-first order along refs and `after`; a path back to an unfinished stage is a cycle."""
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
