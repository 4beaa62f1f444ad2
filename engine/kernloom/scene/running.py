"""Runs picked cases: planned together, built once, verified, compared with committed results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernloom.base.errors import ConfigError, KernloomError, UnavailableError, UsageError
from kernloom.base.gauges import VIRTUAL_TIME
from kernloom.base.temporary import own_folder
from kernloom.config.compose import NO_RUNTIME
from kernloom.config.overrides import Override, Overrides
from kernloom.fleet.local import Local, LocalSettings
from kernloom.measure.trial import SCENE, Trial
from kernloom.plan.planned import Planned
from kernloom.run.assembly import Assembly
from kernloom.run.checking import plan_checks
from kernloom.run.execution import BuildSummary, Execution
from kernloom.run.planning import with_data
from kernloom.run.progress import NoProgress, Progress
from kernloom.run.refused import refused_trial
from kernloom.scene import committed
from kernloom.scene.choosing import Choice, Pick, picks_of
from kernloom.scene.committed import Committed, Recorded
from kernloom.scene.data import data_of
from kernloom.scene.overrides import overrides_of
from kernloom.scene.reading import FOLDER
from kernloom.scene.timeline import Timeline, timeline_of

NOT_COMPARED = "the virtual time is not compared with the committed one: overrides change it"
NO_TRACE = "its timeline was not recorded: run the case alone, without a sweep"
HARMLESS = (
    *("toolchain", "build", "timeout", "memory_limit"),
    *("output", "rerun", "recipe", "fleet", "store"),
)
"""Root keys that cannot change virtual time."""
HARMLESS_KEYS = ("target.variant", "target.options.threads")


@dataclass(frozen=True)
class Ended:
    """A case that was run."""

    pick: Pick
    trial: Trial
    """Its `case` is that of the scene; its `point` has the scene, the runtime and swept keys."""

    @property
    def good(self) -> bool:
        return self.trial.good

    @property
    def text(self) -> str:
        """Status and message, for a failure."""
        trial = self.trial
        stage = f" in stage {trial.stage}" if trial.stage else ""
        parts = [f"{self.pick.name}: {trial.status}{stage}", trial.message, trial.stderr]
        return "\n".join(part.rstrip() for part in parts if part)


@dataclass
class SceneResults:
    """The cases that were run."""

    ended: list[Ended] = field(default_factory=list)
    build: BuildSummary = field(default_factory=BuildSummary)
    interrupted: bool = False
    accepted: list[str] = field(default_factory=list)
    """A line for each case with new or changed committed results."""

    @property
    def trials(self) -> list[Trial]:
        return [one.trial for one in self.ended]


class SceneRunner:
    """Runs cases of scenes."""

    def __init__(
        self,
        assembly: Assembly,
        choice: Choice,
        progress: Progress | None = None,
        more: Overrides | None = None,
    ) -> None:
        """`more` are overrides of the command line; they win over those of a scene."""
        self._assembly = assembly
        self._choice = choice
        self._progress = progress or NoProgress()
        self._more = more or Overrides()
        self._fresh = False
        self._files: dict[Path, dict[committed.Key, Committed]] = {}

    def run(self, picks: Sequence[Pick], *, accept: bool = False) -> SceneResults:
        """Run the cases. With `accept`, their virtual times are committed from now on."""
        results = SceneResults()
        if accept:
            self._check_acceptable(picks)
        with own_folder(self._assembly.places.build / "tmp") as folder:
            plans: list[Planned] = []
            refused: dict[int, Trial] = {}
            traces: dict[int, Path] = {}
            for number, pick in enumerate(picks):
                if accept:
                    traces[number] = folder / f"{number}.json"
                try:
                    plans += self._plans(pick, number, traces.get(number))
                except (ConfigError, UnavailableError) as error:
                    refused[number] = refused_trial(
                        pick.scene.workload, pick.case.name, pick.target, error
                    )
            trials = self._execute(plans, results)
            for number, pick in enumerate(picks):
                for trial in trials.get(number, [refused[number]] if number in refused else []):
                    if not accept:
                        trial = self._compared(pick, trial, folder)
                    results.ended.append(Ended(pick, trial))
            if accept:
                self._accept(results, traces, picks)
        return results

    def _check_acceptable(self, picks: Sequence[Pick]) -> None:
        """Refuse to commit results without goldens, with overrides, or of installed scenes."""
        if self._choice.skip_golden:
            raise UsageError(
                "results that are not compared with their goldens cannot be accepted",
                hint="Leave --skip-golden away.",
            )
        for pick in picks:
            committed.file_to_write(pick.scene, self._assembly.places)
        for override in self._more:
            if override.swept or not _harmless(override):
                raise UsageError(
                    f"{override.text} changes the scenes, so their results cannot be accepted",
                    hint="Leave it away, or write it into the scene.",
                )

    def _plans(self, pick: Pick, number: int, trace: Path | None = None) -> list[Planned]:
        own = overrides_of(pick, self._assembly)
        replaced = {override.key for override in self._more}
        overrides = own.where(lambda override: override.key not in replaced).then(self._more)
        overrides = replace(overrides, multirun=self._more.multirun)
        if trace and self._in_virtual_time(pick):
            overrides = overrides.then(self._assembly.composer.choose({"trace": str(trace)}))
        plans = plan_checks(self._assembly, overrides, refresh=not self._fresh)
        self._fresh = True
        found = []
        for index, plan in enumerate(plans):
            data = data_of(pick, self._assembly.places.roots, skip_golden=self._skips(pick))
            data.name += f" {number}.{index}"
            # While it runs, a trial is known by the number of its pick.
            point = replace(plan.point, swept={**plan.point.swept, SCENE: number})
            found.append(with_data(replace(plan, point=point), data))
        return found

    def _in_virtual_time(self, pick: Pick) -> bool:
        return pick.runtime != NO_RUNTIME

    def _skips(self, pick: Pick) -> bool:
        return self._choice.skip_golden or bool(pick.case.skip_golden)

    def _execute(
        self, plans: Sequence[Planned], results: SceneResults
    ) -> Mapping[int, list[Trial]]:
        """Number of a pick -> its trials, each the worst of all rounds."""
        found: dict[tuple[int, str], Trial] = {}
        for round in range(1, self._choice.rounds + 1):
            if not plans or results.interrupted:
                break
            here = Local(self._assembly, self._progress, LocalSettings("local"), "verifying")
            done = Execution(self._assembly, None, self._progress, here).execute(plans)
            results.interrupted = done.interrupted
            results.build = done.build if round == 1 else results.build
            for trial in done.trials:
                swept = {key: value for key, value in trial.point.items() if key != SCENE}
                key = (int(trial.point[SCENE]), str(swept))
                trial = replace(trial, point=swept)
                before = found.get(key)
                found[key] = trial if before is None else _worse(before, trial, round)
        by_pick: dict[int, list[Trial]] = {}
        for (number, _), trial in found.items():
            by_pick.setdefault(number, []).append(trial)
        return by_pick

    def _compared(self, pick: Pick, trial: Trial, folder: Path) -> Trial:
        """The trial under the names of its scene; wrong if it is not as committed."""
        trial = _named(pick, trial)
        if not trial.good or VIRTUAL_TIME.name not in trial.metrics:
            return trial
        known = self._committed(pick).get(committed.key_of(pick))
        if known is None:
            return trial
        if not all(map(_harmless, self._more)):
            return replace(trial, warnings=(*trial.warnings, NOT_COMPARED))
        first = committed.divergence(known, trial)
        if not first:
            return trial
        recorded = self._recorded(pick, folder)
        why = committed.explain(known, trial, recorded) if recorded else [NO_TRACE]
        lines = [first, *why]
        lines.append(f"If that is intended: {_accepting(pick)}")
        return replace(
            trial, status="wrong", verified=False, stage="committed", message="\n  ".join(lines)
        )

    def _committed(self, pick: Pick) -> dict[committed.Key, Committed]:
        """The committed results of a pick's scene."""
        path = committed.file_of(pick.scene, self._assembly.places)
        if path not in self._files:
            self._files[path] = committed.read_committed(path)
        return self._files[path]

    def _recorded(self, pick: Pick, folder: Path) -> Recorded | None:
        """A second run of a case with a trace; None if it has no timeline."""
        file = folder / "traced.json"
        try:
            plans = self._plans(pick, 0, file)
            again = replace(self._choice, rounds=1)
            runner = SceneRunner(self._assembly, again, more=self._more)
            (trial,) = runner._execute(plans, SceneResults())[0]
            time = trial.metrics[VIRTUAL_TIME.name]
            return Recorded(str(time), timeline_of(file.read_bytes(), time))
        except (KernloomError, OSError, KeyError, ValueError):
            return None

    def _accept(
        self, results: SceneResults, traces: Mapping[int, Path], picks: Sequence[Pick]
    ) -> None:
        """Commit the results in virtual time; a case that failed keeps its committed results."""
        numbers = {id(pick): number for number, pick in enumerate(picks)}
        files: dict[Path, tuple[str, dict[committed.Key, Committed]]] = {}
        for index, one in enumerate(results.ended):
            pick, trial = one.pick, _named(one.pick, one.trial)
            results.ended[index] = Ended(pick, trial)
            metrics, trace = committed.exact_metrics(trial), traces[numbers[id(pick)]]
            if not trial.good or not metrics:
                continue
            timeline = Timeline()
            if trace.is_file():
                timeline = timeline_of(trace.read_bytes(), trial.metrics[VIRTUAL_TIME.name])
            key, now = committed.key_of(pick), Committed(metrics, timeline)
            path = committed.file_to_write(pick.scene, self._assembly.places)
            if path not in files:
                files[path] = (pick.scene.name, self._current(pick, results))
            _, kept = files[path]
            if changes := committed.changes(kept.get(key), now):
                results.accepted.append(f"{pick.name}: {changes}")
            kept[key] = now
        texts = {
            path: committed.text_of(name, kept)
            for path, (name, kept) in files.items()
            if kept != self._files.get(path)
        }
        for path, text in texts.items():
            committed.write_committed(path, text)
        self._files.clear()

    def _current(self, pick: Pick, results: SceneResults) -> dict[committed.Key, Committed]:
        """The committed results of the cases that the scene still has. A case that names no
        runtimes may have results of each."""
        composer = self._assembly.composer
        possible = picks_of(pick.scene, composer, composer.options("runtime"))
        still = {committed.key_of(one) for one in possible}
        kept = {}
        for key, one in self._committed(pick).items():
            if key in still:
                kept[key] = one
            else:
                results.accepted.append(f"{pick.scene.name}::{' '.join(key)}: removed")
        return kept


def _named(pick: Pick, trial: Trial) -> Trial:
    """A trial under the names of its scene."""
    named: dict[str, Any] = {SCENE: pick.scene.name}
    if pick.runtime != NO_RUNTIME:
        named["runtime"] = pick.runtime
    return replace(trial, case=pick.case.name, point={**named, **trial.point})


def _worse(before: Trial, now: Trial, round: int) -> Trial:
    """The failed trial of two rounds, or a failure if their virtual times differ."""
    if not before.good:
        return before
    name = VIRTUAL_TIME.name
    if now.good and before.metrics.get(name) != now.metrics.get(name):
        return replace(
            now,
            status="wrong",
            verified=False,
            stage="rounds",
            message=f"{name} is {now.metrics.get(name)} in round {round}, and "
            f"{before.metrics.get(name)} before: virtual time must be the same in every run",
        )
    return now if not now.good else before


def _harmless(override: Override) -> bool:
    return override.root in HARMLESS or override.key in HARMLESS_KEYS


def _accepting(pick: Pick) -> str:
    """The command that commits what a scene gives now."""
    if pick.scene.file.parent.name == FOLDER:
        return f"kernloom check target={pick.target} --scene {pick.scene.name} --accept"
    return f"python {pick.scene.file.name} --target {pick.target} --accept"
