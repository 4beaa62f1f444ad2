"""The provider `tuned`: a study inside of a pipeline, on demand."""

from __future__ import annotations

from contextlib import closing

from kernloom.base.errors import ConfigError, UsageError
from kernloom.base.files import sha256_json
from kernloom.base.places import Places
from kernloom.config.compose import Point
from kernloom.config.overrides import Overrides
from kernloom.plan.select import Answer, Request
from kernloom.run.assembly import Assembly
from kernloom.run.fleets import fleet_kind
from kernloom.run.progress import NoProgress, Progress
from kernloom.tune.document import Outcome
from kernloom.tune.running import run_study

NOT_OF_A_STUDY = (
    *("measure", "output", "recipe", "rerun", "screen", "show", "sweep"),
    *("trace", "trace_level", "deps", "replay", "whatif", "select"),
)
"""Root keys of a run that say nothing about its studies."""
KEY = "select.providers"


class Tuner:
    """Runs the study of a workload when one of its steps asks for parameters; once for all steps.

    What is stored is not measured again, so a study that was finished before takes no time.
    """

    def __init__(self, places: Places, progress: Progress | None = None) -> None:
        self._places = places
        self._progress = progress or NoProgress()
        self._outcomes: dict[str, Outcome] = {}

    def __call__(self, request: Request) -> Answer:
        if request.experiment is None or request.point is None:
            raise ConfigError("'tuned' needs an experiment to tune", key=KEY)
        fleet = request.experiment.fleet
        if not fleet_kind(fleet).on_this_machine:
            raise UsageError(
                f"'tuned' measures while it plans, on this machine, but fleet={fleet.get('name')} "
                "plans its points elsewhere",
                hint="Tune first (kernloom tune ... export=FILE.yaml), then use select.file=FILE.",
            )
        outcome = self._outcome(request.point)
        best = outcome.race.best
        if best is None:
            raise ConfigError("the study found no good point", key=KEY)
        record = request.record
        values = {
            axis.name: best.point[axis.key]
            for axis in outcome.plan.study.tunables
            if axis.step == record.name
        }
        points = len(outcome.history.all)
        source = f"winner of a study of {points} points, trial {best.trial.id}"
        return Answer({**values, **request.decided}, source)

    def _outcome(self, point: Point) -> Outcome:
        overrides = _overrides_of(point)
        key = sha256_json(list(overrides.text))
        if key not in self._outcomes:
            self._progress.say(f"tuning {point.data['workload']['name']} first (provider tuned)")
            # An assembly of its own: that of the run is in the middle of planning.
            assembly = Assembly(self._places)
            with closing(assembly.ahead):
                outcome = run_study(assembly, overrides, self._progress)
            if outcome.interrupted:
                raise KeyboardInterrupt
            if outcome.failure:
                raise outcome.failure
            self._outcomes[key] = outcome
        return self._outcomes[key]


def _overrides_of(point: Point) -> Overrides:
    """The overrides of a run as those of its study: with the tunables that are fixed."""
    fixed = point.overrides.where(lambda one: one.key.startswith("select.fixed."))
    rest = point.overrides.without(*NOT_OF_A_STUDY)
    return Overrides((*rest.items, *fixed.items))
