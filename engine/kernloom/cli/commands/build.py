"""Build an experiment's artifacts without running them.

kernloom build workload=matmul toolchain=clang build.keep=true
kernloom build --all      # every runtime whose toolchain is present
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from kernloom.base.errors import UsageError
from kernloom.build.builder import Builder, Outcome
from kernloom.cli.invocation import Flag, Invocation, without_output
from kernloom.cli.progress import Progress
from kernloom.config.search_path import split_search_path, with_search_path
from kernloom.plan.artifact import Artifact
from kernloom.report.plans import print_builds
from kernloom.report.similar import group_similar
from kernloom.run.assembly import Assembly
from kernloom.run.planning import plan_points

SWEEPS = True
FLAGS = {"all": Flag("every runtime whose toolchain is present")}


def run(invocation: Invocation) -> int:
    assembly = Assembly()
    if "all" in invocation.flags:
        return _build_all(assembly, invocation)
    overrides = assembly.composer.parse(invocation.words, multirun=invocation.multirun)
    plans = plan_points(assembly, overrides)
    refused = [plan.refusal for plan in plans if plan.refusal]
    for same in group_similar(refused, lambda one: one.status, lambda one: str(one.error)):
        more = f" ({same.count} points, of which this is the first)" if same.count > 1 else ""
        print(f"{same.first[0].status}{more}: {same.message}", file=invocation.stderr)
    artifacts = [artifact for plan in plans for _, artifact in plan.named_artifacts]
    code = _build(assembly.builder(plans[0].experiment), artifacts, invocation)
    unavailable = bool(refused) and all(item.status == "unavailable" for item in refused)
    return code or (3 if unavailable else 1 if refused else 0)


def _build_all(assembly: Assembly, invocation: Invocation) -> int:
    from kernloom.build.runtimes import all_runtimes

    added, rest = split_search_path(without_output(invocation.words))
    if rest:
        raise UsageError("--all builds every runtime; it takes no overrides")
    runtimes = all_runtimes(with_search_path(assembly.places, added))
    for error in runtimes.unavailable:
        print(f"left out: {error}", file=invocation.stderr)
    # Objects that are linked with kernels are built with these.
    programs = [artifact for artifact in runtimes.artifacts if artifact.kind != "object"]
    return _build(assembly.builder(), programs, invocation)


def _build(builder: Builder, artifacts: Iterable[Artifact], invocation: Invocation) -> int:
    wanted = list(artifacts)
    progress = Progress(invocation.stderr)
    outcomes = builder.build(wanted, lambda done, total: progress.update("building", done, total))
    progress.clear()
    document = {
        "artifacts": [_document(outcome) for outcome in outcomes.values()],
        "build": {
            "built": sum(o.ok and not o.cached for o in outcomes.values()),
            "cached": sum(o.cached for o in outcomes.values()),
            "failed": sum(not o.ok for o in outcomes.values()),
        },
    }
    if invocation.for_people:
        print_builds(document, invocation.stdout)
    else:
        print(json.dumps(document), file=invocation.stdout)
    return 0 if all(outcome.ok for outcome in outcomes.values()) else 1


def _document(outcome: Outcome) -> dict[str, object]:
    artifact = outcome.artifact
    # One runner serves all arches of an isa.
    isa = artifact.identity.triple.partition("-")[0]
    return {
        "name": artifact.name,
        "key": artifact.key,
        "toolchain": artifact.identity.toolchain,
        "arch": artifact.arch if artifact.kind == "kernel" else isa,
        "variant": artifact.variant,
        "runtime": artifact.runtime,
        "state": "failed" if not outcome.ok else "cached" if outcome.cached else "built",
        "path": str(outcome.path) if outcome.ok else "",
        "seconds": outcome.seconds,
        "reason": outcome.explanation.text,
        "message": outcome.message,
        "source": str(outcome.source),
    }
