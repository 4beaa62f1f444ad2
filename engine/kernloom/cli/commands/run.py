"""Build, verify and measure one experiment, or with -m every point of a sweep.

Trials that are stored already are not carried out again (rerun=all does), and only what is missing
is built. Exit code 0 only if everything verified.

  kernloom run
  kernloom run workload=softmax workload.sizes.N=1000 toolchain=clang measure=standard
  kernloom run -m workload=softmax workload.sizes.N=64,128,256 toolchain=gcc,clang
  kernloom run workload=mlp recipe=mlp.yaml     # also writes a recipe that replays this run
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kernloom.cli.assembly import Assembly
from kernloom.cli.carry_out import Results, Workshop, exit_code
from kernloom.cli.invocation import Invocation, destination
from kernloom.cli.planning import Planned, plan_points
from kernloom.cli.progress import Progress
from kernloom.config.schema import Experiment
from kernloom.measure.trial import Samples, Trial
from kernloom.report.documents import run_document
from kernloom.store.store import Store, open_store

SWEEPS = True
OUTPUTS = ("table", "json", "jsonl", "csv")


def run(invocation: Invocation) -> int:
    assembly = Assembly()
    plans = plan_points(assembly, invocation.words, multirun=invocation.multirun)
    results = carry_out_and_report(assembly, plans, invocation)
    return exit_code(results.trials, interrupted=results.interrupted)


def carry_out_and_report(
    assembly: Assembly, plans: list[Planned], invocation: Invocation
) -> Results:
    """Carry the trials out, write the recipe if one is wanted, and print them."""
    experiment = plans[0].experiment
    recipe = destination(experiment.recipe, "recipe") if experiment.recipe else None
    progress = Progress(invocation.stderr, quiet=not invocation.for_people)
    with store_of(assembly, experiment) as store:
        results = Workshop(assembly, store, progress).carry_out(plans)
        if recipe and not results.interrupted:
            from kernloom.recipe.recipe import write_recipe

            # Before the report: if it fails, the error is all that stdout shows.
            write_recipe(recipe, results.trials)
            print(f"recipe written: {recipe}", file=invocation.stderr)
        report(results, invocation, lambda trial: trial.samples or store.samples(trial.id))
    return results


def store_of(assembly: Assembly, experiment: Experiment) -> Store:
    chosen = experiment.store.path
    return open_store(Path(chosen) if chosen else assembly.places.store)


def report(
    results: Results, invocation: Invocation, samples_of: Callable[[Trial], tuple[Samples, ...]]
) -> None:
    """The trials on stdout, in the form that was asked for."""
    import json

    build = vars(results.build)
    document = run_document(results.trials, build)
    if results.interrupted:
        document["interrupted"] = True
    if invocation.output == "json":
        print(json.dumps(document), file=invocation.stdout)
    elif invocation.output == "jsonl":
        for trial in document["trials"]:
            print(json.dumps(trial), file=invocation.stdout)
    elif invocation.output == "csv":
        from kernloom.report.csv import write_csv

        write_csv(results.trials, invocation.stdout)
    else:
        from kernloom.report.tables import print_run

        print_run(results.trials, build, invocation.stdout, samples_of)
    if results.interrupted:
        kept = (
            f"{len(results.trials)} finished trials are kept"
            if results.trials
            else "nothing was finished"
        )
        print(f"kernloom: interrupted; {kept}", file=invocation.stderr)
