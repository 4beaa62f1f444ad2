"""Contenders of a comparison: overrides, recipes and stored trials, each planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernloom.base.errors import ConfigError, UnavailableError, UsageError
from kernloom.base.files import sha256_file
from kernloom.build.manifest import read_manifest
from kernloom.config.compose import Point
from kernloom.config.overrides import Overrides
from kernloom.config.schema import OBSERVATIONS
from kernloom.measure.trial import Trial
from kernloom.plan.artifact import Artifact, is_key
from kernloom.plan.planned import Planned
from kernloom.recipe.entries import pinned
from kernloom.recipe.fields import LOCAL_KEYS
from kernloom.recipe.recipe import read_recipe
from kernloom.run.assembly import Assembly
from kernloom.run.comparing import Contender
from kernloom.run.planning import MEASURING, plan_each
from kernloom.run.saved_baselines import kept_folder
from kernloom.store.keys import Filter
from kernloom.store.store import Store

DEFAULT_POLICY = "rigorous"
NOT_KEPT = (*LOCAL_KEYS, "measure")
"""Root keys that belong to the comparison, not to a contender."""


class Contenders:
    """Plans contenders; `common` are overrides for all of them."""

    def __init__(self, assembly: Assembly, store: Store, common: Overrides) -> None:
        self._assembly = assembly
        self._store = store
        self._common = assembly.composer.choose({"measure": DEFAULT_POLICY}).then(common)
        self._local = self._composed(Overrides()).data
        self.merged = ""
        """Which trials of a saved baseline are not compared, and why; empty if all are."""

    @property
    def overrides_not_applied(self) -> list[str]:
        """Common overrides that do not apply to stored trials and recipes, which are fixed."""
        return list(self._common.without(*NOT_KEPT).text)

    def composed(self, name: str, overrides: Overrides) -> Contender:
        """A contender composed from overrides."""
        contender = Contender(name)
        self._plan(contender, self._composed(overrides))
        return contender

    def stored(self, name: str, prefix: str) -> Contender:
        """The stored trial whose id has this prefix."""
        return self._stored(name, self._found(prefix))

    def from_baseline(
        self, baseline: str, filters: Sequence[Filter]
    ) -> list[tuple[Contender, Contender]]:
        """Trials of a saved baseline, each with what the same overrides give now.

        If several trials are the same today the newest is taken; `merged` says how many are left
        out, and why.
        """
        pairs: dict[str, tuple[Contender, Contender]] = {}
        taken: dict[str, Trial] = {}
        left_out: Counter[str] = Counter()
        trials = self._store.baseline(baseline, filters)
        for trial in trials:
            kept = self._kept(trial)
            label = _label(trial, kept)
            now = Contender(f"{label} now")
            try:
                self._plan(now, self._recomposed(trial, kept))
            except ConfigError as error:
                # The configs it was composed from no longer exist.
                now.problem = error
            key = now.plan.id if now.plan else trial.id
            if key in pairs:
                left_out[_difference(trial, taken[key])] += 1
            else:
                pairs[key] = (self._stored(f"{label} in {baseline}", trial), now)
                taken[key] = trial
        if left_out:
            why = ", ".join(f"{number} {reason}" for reason, number in left_out.items())
            self.merged = (
                f"{left_out.total()} of {len(trials)} trials of {baseline} left out, for a newer "
                f"one is compared with what they are now: {why}"
            )
        return list(pairs.values())

    def _kept(self, trial: Trial) -> Overrides:
        """The overrides of a stored trial that describe the experiment itself."""
        overrides = self._assembly.composer.parse(trial.overrides, multirun=False)
        return overrides.without(*NOT_KEPT)

    def _recomposed(self, trial: Trial, kept: Overrides) -> Point:
        """A stored trial composed again from today's configs."""
        point = self._composed(kept)
        now = (point.data["workload"]["name"], point.data["case"], point.data["target"]["name"])
        if now == (trial.workload, trial.case, trial.target):
            return point
        # Stored without overrides, by an older Kernloom or from a recipe.
        return Point({}, self._configured(trial))

    def _composed(self, overrides: Overrides) -> Point:
        return next(iter(self._assembly.composer.points(self._common.then(overrides))))

    def _plan(self, contender: Contender, point: Point) -> None:
        for key in OBSERVATIONS:
            if value := point.data.get(key):
                raise UsageError(
                    f"{key}={value} is about one run, but a comparison runs several in turns",
                    hint=f"Look into each of them by itself: kernloom run ... {key}={value}",
                )
        if whatif := point.data.get("whatif"):
            raise UsageError(
                f"whatif={whatif} repeats one run, but a comparison runs several in turns",
                hint="Ask for each of them by itself: kernloom run ... whatif=all",
            )
        try:
            [contender.plan] = plan_each(self._assembly, [point], alone=True, without=MEASURING)
        except (ConfigError, UnavailableError) as error:
            contender.problem = error

    def recipe(self, name: str, path: Path) -> list[Contender]:
        """The trials of a recipe."""
        made = []
        entries = read_recipe(path).entries(self._assembly.composer, self._local)
        for number, entry in enumerate(entries, 1):
            contender = Contender(name if len(entries) == 1 else f"{name}#{number}", fixed=True)
            contender.notes += entry.notes
            data = {**entry.point.data, "measure": self._local["measure"]}
            self._plan(contender, Point({}, data))
            if contender.plan:
                try:
                    contender.stored = self._substitute_artifacts(
                        name, entry.artifacts, contender.plan
                    )
                except UnavailableError as error:
                    contender.notes.append(f"{error.message}; it is compared as it is built now")
            made.append(contender)
        return made

    def _found(self, prefix: str) -> Trial:
        trials = {trial.id: trial for trial in self._store.starting_with(prefix)}
        if len(trials) == 1:
            return next(iter(trials.values()))
        if not trials:
            raise UsageError(
                f"no stored trial's id begins with '{prefix}'",
                hint="`kernloom results` lists them.",
            )
        raise UsageError(
            f"{len(trials)} stored trials begin with '{prefix}': {', '.join(sorted(trials))}"
        )

    def _configured(self, trial: Trial) -> dict[str, Any]:
        """The config of a stored trial with its parameters pinned, and this run's own settings."""
        local = {key: self._local[key] for key in NOT_KEPT if key in self._local}
        return {**pinned(trial.config, trial.params), **local}

    def _stored(self, name: str, trial: Trial) -> Contender:
        """A stored trial with the artifacts it was measured with."""
        contender = Contender(name, fixed=True)
        self._plan(contender, Point({}, self._configured(trial)))
        if contender.plan:
            try:
                keys = {str(item["name"]): str(item["key"]) for item in trial.artifacts}
                contender.stored = self._substitute_artifacts(
                    f"trial {trial.id}", keys, contender.plan
                )
            except UnavailableError as error:
                contender.plan, contender.problem = None, error
        return contender

    def _substitute_artifacts(
        self, who: str, keys: Mapping[str, str], plan: Planned
    ) -> dict[str, Path]:
        """Substitute the artifacts of these names and keys for those that the plan would build;
        returns their files."""
        files: dict[str, Path] = {}
        others: dict[str, Artifact] = {}
        for who_ran, now in _ran(plan):
            key = _recorded_key(now, keys, plan)
            if key == now.key:
                continue
            if key is None:
                raise UnavailableError(
                    f"{who}: which artifact its {who_ran} ran is not recorded",
                    hint="Compare with a newer trial.",
                )
            path = self._file(now, key)
            if path is None:
                raise UnavailableError(
                    f"{who}: its artifact {now.name} ({key[:12]}) is gone and cannot be rebuilt: "
                    f"from what is here now another one is made ({now.key[:12]})",
                    hint="Go back to the sources, flags and compiler it was made with, or compare "
                    "with a newer trial.",
                )
            others[now.key] = replace(now, identity=replace(now.identity, digest=key))
            files[others[now.key].key] = path
        plan.exchange(others)
        return files

    def _file(self, artifact: Artifact, key: str) -> Path | None:
        """The built file of a key, if it exists and is unchanged."""
        places = self._assembly.places
        if not is_key(key):
            return None  # could be any path, chosen by somebody else
        for folder in (places.build / "kernels" / key, kept_folder(self._store, places) / key):
            manifest = read_manifest(folder) or {}
            path = folder / artifact.output
            if manifest.get("key") != key or not path.is_file():
                continue
            if sha256_file(path) == manifest.get("output_sha256"):
                return path
        return None


def _ran(plan: Planned) -> Iterator[tuple[str, Artifact]]:
    """What runs on the device: an artifact for each step, and the orchestration's."""
    for item in plan.steps:
        yield f"step '{item.step.name}'", item.artifact
    if plan.orchestration:
        yield "orchestration", plan.orchestration.artifact


def _recorded_key(artifact: Artifact, keys: Mapping[str, str], plan: Planned) -> str | None:
    """The key that a trial recorded for an artifact.

    An artifact that several steps share is recorded once, under one step's name.
    """
    shared = [step.artifact.name for step in plan.steps if step.artifact.key == artifact.key]
    return next((keys[name] for name in (artifact.name, *shared) if name in keys), None)


def _difference(trial: Trial, newer: Trial) -> str:
    """How a trial differs from a newer one that is the same today."""
    if _keys(trial) != _keys(newer):
        return "with other artifacts (older sources, compiler or parameters)"
    if trial.config.get("measure") != newer.config.get("measure"):
        return "measured otherwise"
    return "with the same artifacts"


def _keys(trial: Trial) -> dict[str, str]:
    """The artifacts of a trial, without its peers'."""
    named = {str(item["name"]): str(item["key"]) for item in trial.artifacts}
    return {name: key for name, key in named.items() if "/" not in name}


def _label(trial: Trial, kept: Overrides) -> str:
    """A short, unique label for a stored trial."""
    others = kept.where(lambda override: override.key != "workload")
    return " ".join([trial.workload, *others.text, f"({trial.id[:8]})"])
