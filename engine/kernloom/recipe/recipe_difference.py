"""What differs between two recipes: request, config, sources, toolchains, machine, results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kernloom.base.files import canonical_json
from kernloom.base.gauges import GAUGES
from kernloom.recipe.difference import NOTHING, Difference, comparable, differing
from kernloom.recipe.lock import Lock, LockedPoint
from kernloom.recipe.recipe import Recipe

MAX_SHOWN = 40
"""Limit of differences that each part lists."""


@dataclass(frozen=True)
class Part:
    """One part of two recipes, with its differences."""

    name: str
    differences: tuple[Difference, ...]


def compared(a: Recipe, b: Recipe) -> Iterator[Part]:
    """Every part of two recipes."""
    yield _part("request", differing(dict(a.request.written), dict(b.request.written)))
    old, new = _configs(a), _configs(b)
    yield _part("points", differing(dict.fromkeys(old, "present"), dict.fromkeys(new, "present")))
    yield _part("config", _config_differences(old, new))
    if a.lock is None or b.lock is None:
        if a.lock is not b.lock:
            state = ("locked" if recipe.lock else "not locked" for recipe in (a, b))
            yield _part("lock", iter([Difference("lock", *state)]))
        return
    yield _part("parameters", _parameters(a.lock, b.lock))
    yield _part("sources", differing(a.lock.sources, b.lock.sources))
    yield _part("git", differing(dict(a.lock.git), dict(b.lock.git)))
    yield _part("toolchains", differing(_chains(a.lock), _chains(b.lock)))
    yield _part("machine", differing(dict(a.lock.host), dict(b.lock.host)))
    yield _part("results", _results(a.lock, b.lock))


def _part(name: str, differences: Iterator[Difference]) -> Part:
    found = tuple(differences)
    if len(found) > MAX_SHOWN:
        rest = Difference("(more)", NOTHING, f"{len(found) - MAX_SHOWN} further differences")
        found = (*found[:MAX_SHOWN], rest)
    return Part(name, found)


def _configs(recipe: Recipe) -> dict[str, Mapping[str, Any]]:
    """Point as text -> its config."""
    if recipe.older is not None:
        trials = recipe.older.get("trials") or ()
        return {_name(one.get("point") or {}): one.get("config") or {} for one in trials}
    points = recipe.lock.points if recipe.lock else ()
    return {_name(point.point): point.config for point in points}


def _name(point: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in point.items()) or "(one point)"


def _config_differences(
    old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]
) -> Iterator[Difference]:
    """Differences of the configs of common points; one that several points share is said once."""
    pairs = [(old[name], new[name]) for name in old if name in new]
    if not pairs and len(old) == len(new) == 1:
        pairs = [(next(iter(old.values())), next(iter(new.values())))]
    seen: set[str] = set()
    for a, b in pairs:
        for difference in differing(comparable(a), comparable(b)):
            text = canonical_json(difference.document())
            if text not in seen:
                seen.add(text)
                yield difference


def _by_point(lock: Lock) -> dict[str, LockedPoint]:
    return {_name(point.point): point for point in lock.points}


def _parameters(a: Lock, b: Lock) -> Iterator[Difference]:
    old, new = _by_point(a), _by_point(b)
    for name in old.keys() & new.keys():
        yield from differing(old[name].params, new[name].params, name if name[0] != "(" else "")


def _chains(lock: Lock) -> dict[str, Any]:
    """Toolchains by name and target, so that versions of one are compared with each other."""
    return {f"{one.get('name')} for {one.get('target')}": one for one in lock.toolchains.values()}


def _results(a: Lock, b: Lock) -> Iterator[Difference]:
    gauges = {gauge.name for gauge in GAUGES.all()}
    old, new = _by_point(a), _by_point(b)
    for name, point in old.items():
        other = new.get(name)
        if other is None:
            continue
        for what in ("status", "data"):
            yield from differing(getattr(point, what), getattr(other, what), f"{name}: {what}")
        then = {key: value for key, value in point.metrics.items() if key in gauges}
        now = {key: value for key, value in other.metrics.items() if key in gauges}
        yield from differing(then, now, name)
