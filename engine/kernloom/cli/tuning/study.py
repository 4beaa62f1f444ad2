"""`tune` on a device: runs a study, prints its outcome and exports its winners."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from kernloom.base.errors import UsageError
from kernloom.cli.invocation import Invocation
from kernloom.cli.progress import Progress
from kernloom.cli.tuning.exports import Export
from kernloom.cli.tuning.words import take, with_long_names
from kernloom.measure.trial import Samples, Trial
from kernloom.report.format import StudyReport
from kernloom.report.formats import format_for
from kernloom.run.assembly import Assembly
from kernloom.run.stores import store_of
from kernloom.tune.document import Outcome, outcome_document
from kernloom.tune.planning import plan_study
from kernloom.tune.running import StudyRun

INTERRUPTED = 130


def run_study_command(invocation: Invocation) -> int:
    assembly = Assembly()
    exports, rest = take(invocation.words, "export")
    files = [Export.of(text) for text in exports]
    words = with_long_names(rest)
    overrides = assembly.composer.parse(words, multirun=True)
    if overrides.values("recipe"):
        raise UsageError(
            "recipe: a study has no recipe, but its winner has one",
            hint="Tune, then save the winner's trial: kernloom recipe save TRIAL FILE.",
        )
    form = format_for(invocation.output, "tune")
    progress = Progress(invocation.stderr)
    with closing(assembly.ahead):
        plan = plan_study(assembly, overrides)
        for one in files:
            one.check(plan)
        with store_of(assembly, plan.experiment) as store:
            study = StudyRun(assembly, plan, store, progress)
            outcome = study.run()
            progress.clear()
            failure = outcome.failure

            def samples_of(trial: Trial) -> Sequence[Samples]:
                return trial.samples or (() if failure or not trial.id else store.samples(trial.id))

            document = outcome_document(outcome)
            objective = document["study"]["objective"][0]
            report = StudyReport(document, _trials(outcome), samples_of, objective)
            form.write(report, invocation.out_for(form))
            if outcome.found:
                for one in files:
                    said = one.write(outcome, report, study.problem)
                    progress.clear()
                    print(f"kernloom: {said}", file=invocation.stderr)
    if failure:
        print(f"kernloom: error: {failure}", file=invocation.stderr)
        return failure.exit_code
    if outcome.interrupted:
        text = "interrupted; repeat the command to go on from what is stored"
        print(f"kernloom: {text}", file=invocation.stderr)
        return INTERRUPTED
    return int(not outcome.found)


def _trials(outcome: Outcome) -> list[Trial]:
    """The trials of search and race, each once."""
    found = [one.trial for one in outcome.history.all]
    raced = [one.trial for one in outcome.race.leaders]
    known = {trial.id for trial in found}
    return [*found, *(trial for trial in raced if trial.id not in known)]
