"""Build, verify and measure one experiment, or with -m every point of a sweep.

Stored trials are reused (rerun=all runs them again), and only missing artifacts are built. Exit
code 0 only if everything verified.

  kernloom run
  kernloom run workload=softmax workload.sizes.N=1000 toolchain=clang measure=standard
  kernloom run -m workload=softmax workload.sizes.N=64,128,256 toolchain=gcc,clang
  kernloom run workload=mlp recipe=mlp.yaml     # also writes a recipe that replays this run

--objective FILE is for optimisers: JSON with the metric that the trial is ranked by and its value,
null if the point is wrong or refused. If nothing is known about the point, no file is written.

Keys beside those of configs/ (workload, case, target, arch, toolchain, pipeline, select, measure):

  rerun=none|failed|all             whether stored trials are run again
  timeout=60, memory_limit=4GiB     limits of a trial
  sweep=NAME, sweep.where=...       zips, constraints, samples, named points
  screen.keep=10                    screen every point, measure only the best in full
  fleet=slurm, fleet.overlap=true   where trials run; measure while others are built
  store=postgres, store.path=FILE   where trials are stored
  recipe=FILE, seed=0, build.jobs=N
  trace=FILE                        one run on an accelerator, in virtual time, for Perfetto
  trace_level=0..4                  how much of it: tasks, why they wait, transfers, messages
  deps=FILE                         why tasks of one run wait for each other, as JSON
  replay=TASK                       a task of one run again, alone, from a dump of its arguments
  show=why, show=pes                where the virtual time went: critical path, every PE
  whatif=all, whatif=hbm            virtual time if a resource of an accelerator cost nothing
  build.mode=never                  what is not built is an error
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TextIO

from kernloom.base.errors import ConfigError, StoreLostError, UsageError
from kernloom.base.units import count
from kernloom.cli.invocation import Flag, Invocation, destination
from kernloom.cli.progress import Progress
from kernloom.config.overrides import Overrides
from kernloom.config.schema import OBSERVATIONS
from kernloom.measure.looking import lines_about
from kernloom.measure.trial import Samples, Trial
from kernloom.measure.why import Insight
from kernloom.plan.planned import Planned
from kernloom.report.format import Format, RunReport, TrialText
from kernloom.report.formats import format_for
from kernloom.run.assembly import Assembly
from kernloom.run.early import EarlyStart
from kernloom.run.execution import Execution, Results, exit_code
from kernloom.run.fleet import SCREENING, FleetSetup
from kernloom.run.fleets import check_on_this_machine, create_fleet
from kernloom.run.insight import (
    PES,
    asked,
    check_insight,
    check_values,
    find_insight,
    has_virtual_time,
)
from kernloom.run.plan_conditions import origin_lines
from kernloom.run.planning import Unplanned, plan_points
from kernloom.run.screening import Screening, screen
from kernloom.run.stores import store_of

SWEEPS = True
FLAGS = {"objective": Flag("also write the number that the trial is ranked by", "FILE")}
REPORT = "run"


def run(invocation: Invocation) -> int:
    assembly = Assembly()
    multirun = invocation.multirun
    overrides = assembly.composer.parse(invocation.words, multirun=multirun, to_hydra=True)
    if overrides.for_hydra:
        from kernloom.cli.hydra_app import run_by_hydra

        assembly.composer.check_for_hydra(overrides)
        return run_by_hydra(assembly.places, overrides, invocation.output, invocation.data_out)
    if "tuned" in (name for value in overrides.values("select.providers") for name in value or ()):
        from kernloom.tune.provider import Tuner

        assembly.tuner = Tuner(assembly.places, Progress(invocation.stderr))
    with closing(assembly.ahead):
        return _run(assembly, overrides, invocation)


def _run(assembly: Assembly, overrides: Overrides, invocation: Invocation) -> int:
    file, unplanned = _objective_file(invocation), list[Unplanned]()
    seen = EarlyStart(assembly) if invocation.multirun else lambda plan: None
    try:
        plans = plan_points(assembly, overrides, unplanned=unplanned, seen=seen)
    except ConfigError as error:
        if file and error.stage:
            # The overrides are valid, but a stage of the pipeline refuses this point.
            from kernloom.run.objectives import write_refused

            write_refused(file)
        raise
    refused = [_refused(assembly, overrides, point) for point in unplanned]
    results = execute_and_report(assembly, plans, invocation, refused, overrides=overrides)
    if file and not results.interrupted and not results.failure:
        from kernloom.run.objectives import write_objective

        write_objective(file, results.trials)
    screened = results.screening.trials if results.screening else ()
    return exit_code(
        chain(results.trials, screened),
        interrupted=results.interrupted,
        failed=results.failure is not None,
    )


def _refused(assembly: Assembly, overrides: Overrides, point: Unplanned) -> Trial:
    """The trial of a point without a config; it is shown, but not stored."""
    swept, composer = point.swept, assembly.composer
    case = next(iter(overrides.values("case")), "default")
    return Trial(
        id="",
        workload=str(swept.get("workload", composer.chosen(overrides, "workload")[0])),
        case=str(swept.get("case", case)),
        target=str(swept.get("target", composer.chosen(overrides, "target")[0])),
        status="refused",
        verified=False,
        point=swept,
        stage="plan",
        message=str(point.error),
    )


def _objective_file(invocation: Invocation) -> Path | None:
    file = invocation.flags.get("objective")
    if file is None:
        return None
    if invocation.multirun:
        raise UsageError(
            "--objective is about one trial, but this is a sweep",
            hint="Leave -m away, or let an optimiser sweep: run -m hydra/sweeper=...",
        )
    return destination(file, "--objective")


def execute_and_report(
    assembly: Assembly,
    plans: list[Planned],
    invocation: Invocation,
    refused: Sequence[Trial] = (),
    overrides: Overrides | None = None,
) -> Results:
    """Run the trials, write the recipe if requested, and print them, followed by those that were
    refused without a plan. `overrides` are those of the command."""
    experiment = plans[0].experiment
    recipe = destination(experiment.recipe, "recipe") if experiment.recipe else None
    for key in OBSERVATIONS:
        if value := getattr(experiment, key):
            if key != "replay":
                destination(value, key)
            check_on_this_machine(experiment.fleet, key)
    form = format_for(invocation.output, REPORT)
    if asked(experiment):
        _check_insight(plans, form, invocation.output)
    progress = Progress(invocation.stderr)
    print_ended = _line_printer(invocation, form.trial_line)
    with closing(assembly.ahead), store_of(assembly, experiment) as store:
        screening = None
        setup = FleetSetup(assembly, store, progress)
        if experiment.screen.keep and len(plans) > 1:
            screened = _line_printer(invocation, form.screened_line)
            check_on_this_machine(experiment.fleet, "screen.keep")
            here = create_fleet(experiment.fleet, replace(setup, phase=SCREENING))
            screening = screen(assembly, plans, store, here, progress, screened)
            plans = [plan for plan in plans if plan.id in screening.kept]
        fleet = create_fleet(experiment.fleet, setup)
        execution = Execution(assembly, store, progress, fleet, print_ended)
        results = execution.execute(plans)
        results.screening = screening
        results.interrupted |= screening is not None and screening.interrupted
        if recipe and not results.interrupted and not results.failure:
            from kernloom.cli.recipe.saving import save_run

            # Before the report: if it fails, stdout shows only the error.
            save_run(recipe, overrides or Overrides(), plans, results.trials, assembly, invocation)
        if refused:
            results.trials = [*results.trials, *refused]
            for trial in refused:
                print_ended(trial)

        def samples_of(trial: Trial) -> tuple[Samples, ...]:
            return trial.samples or (() if results.failure else store.samples(trial.id))

        insight = None
        if asked(experiment) and not results.interrupted and not results.failure:
            insight = find_insight(assembly, plans, results.trials)
        report(results, form, invocation, samples_of, insight)
        for trial in results.trials:
            for line in (
                *origin_lines(trial.conditions),
                *lines_about(trial.conditions, experiment),
            ):
                print(line, file=invocation.stderr)
    return results


def _check_insight(plans: Sequence[Planned], form: Format, output: str) -> None:
    if not form.tells_insight:
        raise UsageError(
            f"output={output} has no room for show and whatif", hint="Use output=table or json."
        )
    experiment = plans[0].experiment
    if experiment.whatif or experiment.show == PES:
        check_on_this_machine(experiment.fleet, "whatif" if experiment.whatif else "show")
    planned = [plan.experiment for plan in plans if plan.refusal is None]
    # Points without virtual time are not explained; but some must have it.
    for experiment in planned:
        check_values(experiment)
    if planned and not any(map(has_virtual_time, planned)):
        check_insight(planned[0])


def _line_printer(invocation: Invocation, text: TrialText | None) -> Callable[[Trial], None]:
    """Prints a trial's line at once, if the format has one."""

    def print_line(trial: Trial) -> None:
        if text:
            print(text(trial), file=invocation.stdout, flush=True)

    return print_line


def report(
    results: Results,
    form: Format,
    invocation: Invocation,
    samples_of: Callable[[Trial], tuple[Samples, ...]],
    insight: Insight | None = None,
) -> None:
    """Print the trials on stdout, in the requested format."""
    screening, failure = results.screening, results.failure
    document = RunReport(
        results.trials,
        vars(results.build),
        samples_of,
        interrupted=results.interrupted,
        error=failure.document(exit_code=1) if failure else None,
        screened=screening.trials if screening else None,
        screening=screening.text if screening else "",
        insight=insight,
    )
    form.write(document, invocation.out_for(form))
    if screening and not form.tells_screening:
        _print_screening(screening, invocation.stderr)
    if results.interrupted:
        print(f"kernloom: interrupted; {_interrupted_message(results)}", file=invocation.stderr)
    if results.failure:
        print(f"kernloom: error: {results.failure}", file=invocation.stderr)
        print(f"kernloom: ended early; {_interrupted_message(results)}", file=invocation.stderr)
    for note in results.notes:
        print(f"kernloom: {note}", file=invocation.stderr)


def _print_screening(screening: Screening, file: TextIO) -> None:
    """Print the failures of the screening, and one line about all of it."""
    from kernloom.report.tables import print_failures

    print_failures(screening.trials, file)
    print(screening.text, file=file)


def _interrupted_message(results: Results) -> str:
    """The message about what an interrupted run has stored."""
    if results.trials:
        number = len(results.trials)
        if isinstance(results.failure, StoreLostError):
            return f"{count(number, 'trial')} had finished"
        return f"{count(number, 'finished trial')} {'is' if number == 1 else 'are'} kept"
    if results.screening and results.screening.trials:
        return f"what came of {len(results.screening.trials)} screened points is kept"
    return "nothing was finished"
