"""Explain why each artifact of an experiment has to be built, or why it was last built.

Names the template line, flag, header, compiler or parameter that changed.

  kernloom explain workload=softmax
"""

from __future__ import annotations

import json
from typing import Any

from kernloom.cli.invocation import Invocation
from kernloom.report.plans import print_explanations
from kernloom.run.assembly import Assembly
from kernloom.run.planning import plan_points

SWEEPS = True


def run(invocation: Invocation) -> int:
    assembly = Assembly()
    overrides = assembly.composer.parse(invocation.words, multirun=invocation.multirun)
    plans = plan_points(assembly, overrides)
    builder = assembly.builder(plans[0].experiment)
    artifacts = {artifact.key: artifact for plan in plans for _, artifact in plan.named_artifacts}
    explanations: list[dict[str, Any]] = []
    for artifact in artifacts.values():
        state = builder.state(artifact, sweep=invocation.multirun)
        explanations.append(
            {
                "name": artifact.name,
                "key": artifact.key,
                "state": state.status,
                "kind": state.explanation.kind,
                "reason": state.explanation.text,
                "details": [dict(detail) for detail in state.explanation.details],
            }
        )
    if invocation.for_people:
        print_explanations(explanations, invocation.stdout)
    else:
        print(json.dumps({"artifacts": explanations}), file=invocation.stdout)
    return 0
