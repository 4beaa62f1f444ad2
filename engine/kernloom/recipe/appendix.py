"""The artifact-evaluation appendix of a recipe, in Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from kernloom.recipe.claims import Claim
from kernloom.recipe.page import (
    cost_text,
    git_text,
    host_text,
    point_text,
    result_text,
    toolchain_text,
)
from kernloom.recipe.recipe import Recipe

MAX_ROWS = 50
_UNLOCKED = "unknown: the recipe is not locked (`kernloom recipe lock FILE`)"


def appendix(recipe: Recipe) -> Iterator[str]:
    """The lines of the appendix."""
    request, lock, name = recipe.request, recipe.lock, recipe.path.name
    yield f"# Artifact appendix: {recipe.path.stem}"
    yield ""
    yield request.about or "(no description)"
    yield ""
    yield "## Check-list"
    yield ""
    points = lock.points if lock else ()
    targets = {str(point.config["target"].get("name")) for point in points}
    yield f"- **Program:** Kernloom {lock.kernloom if lock else ''}".rstrip() + (
        f", {git_text(lock.git)}" if lock else ""
    )
    yield f"- **Run:** `kernloom run -m {' '.join(request.run)}`"
    yield f"- **Targets:** {', '.join(sorted(targets)) or _UNLOCKED}"
    yield f"- **Hardware:** {host_text(lock.host) if lock else _UNLOCKED}"
    chains = "; ".join(toolchain_text(chain) for chain in lock.toolchains.values()) if lock else ""
    yield f"- **Software:** {chains or _UNLOCKED}"
    yield f"- **Time and disk:** {cost_text(lock.cost) if lock else _UNLOCKED}"
    yield "- **Publicly available:** the recipe and its sources (`kernloom recipe pack`)"
    yield ""
    yield "## Steps"
    yield ""
    yield "1. Install Kernloom, the compilers and emulators above: `kernloom targets` says what is"
    yield "   missing and how to install it."
    yield f"2. A first look, a few minutes: `kernloom recipe verify {name} --proxy`"
    yield f"3. Everything: `kernloom recipe verify {name}`"
    yield ""
    yield "The last command reports the highest level reached: L1 the same config and points,"
    yield "L2 the same bytes of every built file, L3 outputs within tolerance and all claims."
    yield ""
    yield "## Claims"
    yield ""
    yield "| claim | allowed variation | holds on |"
    yield "|---|---|---|"
    for claim in request.claims:
        yield f"| `{_without_suffixes(claim)}` | {_variation(claim)} | {_where(claim)} |"
    if not request.claims:
        yield "| (none) | | |"
    yield ""
    yield "## Expected results"
    yield ""
    if lock is None:
        yield _UNLOCKED
        return
    yield f"Times may vary by ±{request.variation:.0%} on a machine of the same class; counts of"
    yield "instructions and virtual times are exact."
    yield ""
    yield "| point | result |"
    yield "|---|---|"
    for point in lock.points[:MAX_ROWS]:
        yield f"| {point_text(point)} | {result_text(point)} |"
    if len(lock.points) > MAX_ROWS:
        yield f"| and {len(lock.points) - MAX_ROWS} more | in the recipe |"


def _without_suffixes(claim: Claim) -> str:
    return claim.text.partition(" on ")[0].partition(" within ")[0]


def _variation(claim: Claim) -> str:
    return f"{claim.within * 100:g}%" if claim.within else "none"


def _where(claim: Claim) -> str:
    return " ".join(f"{key}={value}" for key, value in claim.on) or "every trial"
