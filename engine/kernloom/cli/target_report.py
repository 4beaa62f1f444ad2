"""`doctor target=NAME`: a target's variants, its topology, and the latencies of its memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kernloom.base.errors import UnavailableError, UsageError
from kernloom.build.machines import AcceleratorVariant
from kernloom.cli.invocation import Invocation
from kernloom.config.accelerator import provenance_counts, provenances, settings_of, summary
from kernloom.config.schema import Experiment
from kernloom.config.validate import experiment as validated
from kernloom.report.topology import topology_lines
from kernloom.run.assembly import Assembly
from kernloom.run.provenance import overridden_keys
from kernloom.run.targets import unavailable_variants


def report_target(invocation: Invocation) -> int:
    assembly = Assembly()
    overrides = assembly.composer.parse(invocation.words, multirun=False)
    (point,) = assembly.composer.points(overrides)
    experiment = validated(point.data, assembly.results)
    problem = _problem(assembly, experiment)
    sources = provenances(experiment.arch, overridden_keys(experiment.arch, point.overrides))
    document: dict[str, Any] = {
        "target": experiment.target.name,
        "about": experiment.target.about,
        "arch": experiment.arch.name,
        "variant": experiment.target.variant,
        "available": problem is None,
        "reason": problem.message if problem else "",
        "hint": problem.hint if problem else "",
        "unavailable_variants": _unavailable(assembly, experiment),
        "topology": summary(experiment.arch),
        "values": {
            key: {"value": value, "provenance": sources[key]}
            for key, value in settings_of(experiment.arch).items()
        },
        "provenance": provenance_counts(sources),
    }
    if "probe" in invocation.flags:
        if experiment.arch.topology is None:
            raise UsageError(
                f"target '{experiment.target.name}' is no accelerator, so there is nothing to probe"
            )
        if problem:
            raise problem
        from kernloom.run.probing import probe

        document["probe"] = probe(assembly, experiment)
    if not invocation.for_people:
        print(json.dumps(document), file=invocation.stdout)
        return 0
    for line in _lines(document, experiment, sources):
        print(line, file=invocation.stdout)
    return 0


def _problem(assembly: Assembly, experiment: Experiment) -> UnavailableError | None:
    try:
        assembly.check_available(experiment)
    except UnavailableError as error:
        return error
    return None


def _unavailable(assembly: Assembly, experiment: Experiment) -> dict[str, dict[str, str]]:
    target = experiment.target
    if not target.machines:
        return {}
    return unavailable_variants(
        [
            AcceleratorVariant.of(target, name, experiment.arch, experiment.toolchain.name)
            for name in target.variants
        ],
        assembly.places,
    )


def _lines(document: dict[str, Any], experiment: Experiment, sources: Any) -> Sequence[str]:
    lacking = document["unavailable_variants"]
    variants = [f"({n})" if n in lacking else n for n in experiment.target.variants]
    lines = [
        f"{document['target']}: {document['about']}",
        f"variants: {', '.join(variants)}; {document['variant']} is chosen",
    ]
    lines += [
        f"  not {name}: {why['reason']}. {why['hint']}".rstrip() for name, why in lacking.items()
    ]
    if not document["available"]:
        lines.append(f"not available: {document['reason']}. {document['hint']}".rstrip())
    if experiment.arch.topology is not None:
        lines += ["", *topology_lines(experiment.arch, sources)]
    if "probe" in document:
        from kernloom.report.probes import probe_lines

        lines += ["", *probe_lines(document["probe"])]
    return lines
