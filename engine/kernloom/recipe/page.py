"""A recipe as a page for people: what it is about, its claims, what the lock says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kernloom.base.gauges import ranking_gauge
from kernloom.base.units import count
from kernloom.recipe.lock import Lock, LockedPoint
from kernloom.recipe.recipe import Recipe

MAX_POINTS = 20
"""Points that a page lists."""


def page(recipe: Recipe) -> Iterator[str]:
    """The lines of the page."""
    request, lock = recipe.request, recipe.lock
    yield f"{recipe.path}" + (f": {request.about}" if request.about else "")
    if recipe.older is not None:
        yield f"format 1: {count(len(recipe.older.get('trials') or ()), 'trial')}, no request"
        return
    yield ""
    yield f"run      kernloom run -m {' '.join(request.run)}"
    if request.sweep:
        yield f"sweep    {request.sweep}"
    if request.peers:
        yield f"beside   {', '.join(request.peers)}"
    yield f"proxy    {' '.join(request.proxy)}   (kernloom recipe verify FILE --proxy)"
    for number, claim in enumerate(request.claims):
        yield f"{'claims' if not number else '':8} {claim.text}"
    if not request.claims:
        yield "claims   none"
    yield ""
    if lock is None:
        yield "not locked: `kernloom recipe lock FILE` runs it and writes down what came of it"
        return
    yield from _lock_lines(lock)
    if recipe.edited:
        yield f"edited   {', '.join(recipe.edited)} changed since it was locked"


def _lock_lines(lock: Lock) -> Iterator[str]:
    yield f"locked   {lock.created} by Kernloom {lock.kernloom}, {git_text(lock.git)}"
    yield f"host     {host_text(lock.host)}"
    for number, chain in enumerate(lock.toolchains.values()):
        yield f"{'built by' if not number else '':8} {toolchain_text(chain)}"
    sources = lock.sources
    yield f"sources  {count(len(sources), 'file')}, {count(len(lock.artifacts), 'build step')}"
    yield f"cost     {cost_text(lock.cost)}"
    yield ""
    for point in lock.points[:MAX_POINTS]:
        yield f"  {point_text(point)}: {result_text(point)}"
    if len(lock.points) > MAX_POINTS:
        yield f"  and {len(lock.points) - MAX_POINTS} more points"


def point_text(point: LockedPoint) -> str:
    workload = (point.config.get("workload") or {}).get("name")
    target = (point.config.get("target") or {}).get("name")
    named = ("workload", "target")
    swept = [f"{key}={value}" for key, value in point.point.items() if key not in named]
    return " ".join([f"{workload} on {target}", *swept])


def result_text(point: LockedPoint) -> str:
    if not point.verified:
        return f"{point.status} {point.message}".strip()
    gauge = ranking_gauge(point.metrics)
    parts = [gauge.with_interval(point.metrics)] if gauge else []
    if gauge and gauge.label:
        parts = [f"{parts[0]} {gauge.label}"]
    for name, peer in (point.metrics.get("peers") or {}).items():
        parts.append(f"vs {name} {peer.get('ratio'):.3g}")
    return ", ".join([point.status, *parts])


def toolchain_text(chain: Mapping[str, Any]) -> str:
    if not chain.get("version"):
        return f"{chain.get('name')}: the device's own driver"
    name = f"{chain.get('name')} {chain.get('version')} ({chain.get('package')})"
    return " ".join([name, f"for {chain.get('target')}", *(chain.get("flags") or ())])


def host_text(host: Mapping[str, Any]) -> str:
    return (
        f"{host.get('cpu')}, {host.get('cores')} cores, microcode {host.get('microcode')}, "
        f"governor {host.get('governor')}, {host.get('distribution')}, kernel {host.get('kernel')}"
    )


def git_text(git: Mapping[str, Any]) -> str:
    commit = str(git.get("commit", "unknown"))
    if commit == "unknown":
        return "commit unknown"
    changed = git.get("changed")
    state = " with changes" if changed is True else "" if changed is False else ", state unknown"
    return f"commit {commit[:12]}{state}"


def cost_text(cost: Mapping[str, float]) -> str:
    """Time and disk of the whole."""
    seconds = cost.get("build_s", 0) + cost.get("run_s", 0)
    return f"about {minutes_text(seconds)}, {megabytes_text(cost.get('bytes', 0))} built"


def minutes_text(seconds: float) -> str:
    return f"{max(1, round(seconds / 60))} min" if seconds >= 90 else f"{max(1, round(seconds))} s"


def megabytes_text(number: float) -> str:
    return f"{number / 1e6:.1f} MB"
