"""Requests for trials that have been run: from the overrides of the run, or of each trial."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernloom.base.errors import ConfigError, KernloomError, UsageError
from kernloom.config.compose import Composer
from kernloom.config.overrides import Overrides
from kernloom.measure.trial import Trial
from kernloom.recipe.entries import plain
from kernloom.recipe.fields import LOCAL_KEYS
from kernloom.recipe.recipe import read_recipe
from kernloom.recipe.request import Request, new_request, overrides_of

_LOCAL = (*LOCAL_KEYS, "hydra")
"""Keys that belong to whoever runs a recipe, the search path of configs included."""
_OWN = ("about", "proxy", "variation", "claims")
"""Keys of a request that a run does not have: a person wrote them."""


def request_of_run(overrides: Overrides, trials: Sequence[Trial], composer: Composer) -> Request:
    """The request of a run with these overrides; its points must be those of the trials."""
    kept = overrides.without(*(key for key in _LOCAL if key != "sweep"))
    try:
        request = new_request(kept.text)
        points = points_of(request, composer)
    except KernloomError:
        points = []
    if points == [plain(trial.point) for trial in trials]:
        return request
    # Not all of its points were measured: some were screened out, or a program chose them.
    return request_of_trials(trials, composer)


def points_of(request: Request, composer: Composer) -> list[dict[str, Any]]:
    """The swept values of each point of a request."""
    points = composer.points(overrides_of(request, composer), refuse=_ignored)
    return [plain(point.swept) for point in points]


def _ignored(row: Any, error: ConfigError) -> None:
    """Points that cannot be composed have no trial."""


def request_of_trials(trials: Sequence[Trial], composer: Composer) -> Request:
    """A request whose points are these trials: what they have in common, and named points."""
    found = [
        composer.parse(trial.overrides, multirun=False).without(*_LOCAL).items for trial in trials
    ]
    common = [o for o in found[0] if all(o.text in {p.text for p in items} for items in found)]
    shared = {override.text for override in common}
    points: dict[str, dict[str, Any]] = {}
    for number, items in enumerate(found, 1):
        own = [override for override in items if override.text not in shared]
        if any(override.kind == "delete" for override in own):
            raise ConfigError(
                "these trials differ in deleted keys, which a sweep cannot say",
                hint="Save them one by one.",
            )
        points[f"point_{number}"] = {override.key: override.values[0] for override in own}
    words = [override.text for override in common]
    if len(trials) == 1:
        return new_request(words)
    return new_request(words, sweep={"points": plain(points)})


def with_own_parts(request: Request, path: Path) -> Request:
    """The request with the claims that a recipe at this path has already; one of another
    experiment is not overwritten."""
    if not path.exists():
        return request
    try:
        old = read_recipe(path)
    except ConfigError as error:
        raise UsageError(
            f"recipe: {path} exists and is no recipe: {error.message}",
            hint="Name another file, or remove it.",
        ) from None
    written = old.request.written
    own = {key: written[key] for key in _OWN if written.get(key)}
    if not own:
        return request
    if old.request.run != request.run or old.request.sweep != request.sweep:
        raise UsageError(
            f"recipe: {path} is a recipe of another experiment, with {', '.join(own)}",
            hint="Name another file, or remove it.",
        )
    more = {key: value for key, value in request.written.items() if key not in ("recipe", "run")}
    return new_request(request.run, **{**more, **own})
