"""Show what would be built and run, what is cached, and why the rest is not. Changes nothing.

kernloom plan workload=mlp
kernloom plan -m workload.sizes.N=64,128      # points, artifacts and the time it would take
kernloom plan -m sweep=tiles
kernloom plan show=choice.params        # an output of a stage
kernloom plan show=source               # the rendered source
"""

from __future__ import annotations

import json
from typing import Any

from kernloom.base.errors import UsageError, nearest
from kernloom.build.builder import State
from kernloom.cli.invocation import Invocation
from kernloom.plan.artifact import Artifact
from kernloom.plan.planned import Planned, StepArtifact
from kernloom.plan.render import StepSource
from kernloom.plan.schedule import StepRecord, TensorSpec, describe
from kernloom.plan.select import Answer, Request, model
from kernloom.report.documents import plain
from kernloom.report.plans import print_plan
from kernloom.run.assembly import Assembly
from kernloom.run.estimating import estimate
from kernloom.run.execution import once_each, reusable, stored_trials
from kernloom.run.fleet import FleetSetup
from kernloom.run.fleets import create_fleet
from kernloom.run.plan_conditions import origins_of
from kernloom.run.planning import plan_points
from kernloom.run.progress import NoProgress
from kernloom.run.reasons import Reason, reasons_for
from kernloom.run.stores import store_of

SWEEPS = True


def run(invocation: Invocation) -> int:
    assembly = Assembly()
    assembly.tuner = _unresolved
    overrides = assembly.composer.parse(invocation.words, multirun=invocation.multirun)
    plans = plan_points(assembly, overrides)
    wanted = plans[0].experiment.show
    if wanted:
        _show(plans, wanted, invocation)
        return 0
    builder = assembly.builder(plans[0].experiment)
    artifacts = {artifact.key: artifact for plan in plans for _, artifact in plan.named_artifacts}
    sweep = invocation.multirun
    states = {key: builder.state(item, sweep=sweep) for key, item in artifacts.items()}
    with store_of(assembly, plans[0].experiment) as store:
        setup = FleetSetup(assembly, store, NoProgress())
        fleet = create_fleet(plans[0].experiment.fleet, setup)
        stored = {
            plan.id for plan, trial in stored_trials(store, fleet, plans) if reusable(trial, plan)
        }
        missing = [artifacts[key] for key, state in states.items() if not state.cached]
        own = once_each(plans)
        waiting = [p for p in own if p.id not in stored and not p.refusal]
        estimated = estimate(missing, waiting, builder, store)
        reasons = reasons_for(waiting, store)
    trials, seen = [], set[str]()
    for plan in plans:
        trials.append(_trial(plan, stored, reasons.get(plan.id), same=plan.id in seen))
        seen.add(plan.id)
    document = {
        "summary": {
            "points": len(plans),
            "artifacts": len(artifacts),
            "cached": len(artifacts) - len(missing),
            "to_build": len(missing),
            "stored": sum(plan.id in stored for plan in own),
            "to_run": len(waiting),
            "refused": sum(plan.refusal is not None for plan in plans),
            "same": sum(trial["same"] for trial in trials),
        },
        "estimate": estimated,
        "artifacts": [_artifact(artifacts[key], states[key]) for key in artifacts],
        "trials": trials,
    }
    if plans[0].experiment.screen.keep and len(plans) > 1:
        text = "kernloom: screen.keep: these are the numbers without screening"
        print(text, file=invocation.stderr)
    if invocation.for_people:
        print_plan(document, invocation.stdout)
    else:
        print(json.dumps(document), file=invocation.stdout)
    return 0


def _unresolved(request: Request) -> Answer:
    """The provider `tuned` measures, which planning never does."""
    source = "unresolved: a run would tune it first; this is the choice of the model"
    return Answer(model(request), source)


def _artifact(artifact: Artifact, state: State) -> dict[str, Any]:
    return {
        "name": artifact.name,
        "key": artifact.key,
        "state": state.status,
        "reason": state.explanation.text,
        "kind": state.explanation.kind,
    }


def _trial(plan: Planned, stored: set[str], reason: Reason | None, *, same: bool) -> dict[str, Any]:
    return {
        "id": plan.id,
        "workload": plan.brief.workload,
        "case": plan.brief.case,
        "target": plan.brief.target,
        "point": plain(plan.point.swept),
        "params": plan.params,
        "provider": plan.provider,
        "origins": origins_of(plan),
        "stored": plan.id in stored,
        "same": same and not plan.refusal,
        "artifacts": [artifact.key for _, artifact in plan.named_artifacts],
        "refused": str(plan.refusal.error) if plan.refusal else "",
        "reason": reason.text if reason else "",
        "differs": list(reason.labels) if reason else [],
        "nearest": reason.nearest if reason else "",
    }


def _show(plans: list[Planned], wanted: str, invocation: Invocation) -> None:
    values = [_shown(_output(plan, wanted)) for plan in plans]
    if invocation.for_people and all(isinstance(value, str) for value in values):
        print("\n".join(value.rstrip("\n") for value in values), file=invocation.data_out)
        return
    documents = values if len(values) > 1 else values[0]
    indent = 2 if invocation.for_people else None
    print(json.dumps(documents, indent=indent), file=invocation.stdout)


def _output(plan: Planned, wanted: str) -> Any:
    """`stage`, `stage.output` or deeper; a stage with a rendered text is shown as that text."""
    name, *path = wanted.split(".")
    if plan.refusal:
        raise plan.refusal.error
    if name not in plan.graph.nodes:
        raise UsageError(
            f"show={wanted}: there is no stage '{name}'", hint=nearest(name, plan.graph.nodes)
        )
    if name not in plan.outputs:
        phase = plan.graph.nodes[name].stage.phase
        raise UsageError(
            f"show={wanted}: '{name}' belongs to the {phase} phase, so planning does not know it",
            hint=nearest(name, plan.outputs),
        )
    value: Any = plan.outputs[name]
    if not path and "text" in value:
        return value["text"]
    for part in path:
        known = value if isinstance(value, dict) else {}
        if part not in known:
            raise UsageError(f"show={wanted}: there is no '{part}'", hint=nearest(part, known))
        value = known[part]
    return value


def _shown(value: Any) -> Any:
    """An output of a stage as plain data."""
    match value:
        case StepRecord():
            return describe((value,))[0]
        case TensorSpec():
            return {"shape": list(value.shape), "dtype": value.dtype, "bytes": value.nbytes}
        case StepSource():
            return {"step": value.step.name, "files": dict(value.source.files)}
        case StepArtifact():
            return {"step": value.step.name, "key": value.artifact.key, "argv": value.artifact.argv}
        case dict():
            return {name: _shown(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_shown(inner) for inner in value]
    return value
