"""`tune space=FILE`: strategies on a recorded space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from kernloom.base.errors import UsageError, nearest
from kernloom.base.units import count, number_text, three_digits
from kernloom.cli.invocation import Invocation, without_output
from kernloom.report.documents import to_json
from kernloom.report.page import Heading, Page
from kernloom.tune.recorded import Recording, read_recording
from kernloom.tune.replay import Repeat, Replay, replay
from kernloom.tune.score import community_budget
from kernloom.tune.strategy import DEFAULT, STRATEGIES

OUTPUTS = ("table", "json")
_MAX_REPEATS = 10_000


@dataclass(frozen=True)
class ReplayRequest:
    """The keys of `tune space=FILE`."""

    space: Path
    strategy: tuple[str, ...] = (DEFAULT,)
    budget: int = 0
    """0: the budget of the recorded space."""
    repeats: int = 20
    seed: int = 0
    objective: str = ""


KEYS = tuple(field.name for field in fields(ReplayRequest))


def run(invocation: Invocation) -> int:
    request = _request(without_output(invocation.words))
    if invocation.output not in OUTPUTS:
        hint = nearest(invocation.output, OUTPUTS)
        raise UsageError(f"a replay has no output={invocation.output}", hint=hint)
    for name in request.strategy:
        STRATEGIES.get(name, key="strategy")
    recording = read_recording(request.space, request.objective)
    for note in recording.notes:
        print(f"note: {note}", file=invocation.stderr)
    budget = min(request.budget or community_budget(recording), recording.points)
    replays = [
        replay(recording, name, budget, request.repeats, request.seed) for name in request.strategy
    ]
    if invocation.output == "json":
        document = {"space": _space(recording, budget), "replays": [_document(r) for r in replays]}
        print(to_json(document), file=invocation.data_out)
    else:
        _print(recording, budget, replays, Page(invocation.stdout))
    return 0


def _request(words: Sequence[str]) -> ReplayRequest:
    given: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in KEYS:
            raise UsageError(f"a replay has no key '{key}'", hint=nearest(key, KEYS))
        if key == "strategy":
            given[key] = tuple(value.strip("[]").split(","))
        elif key == "space":
            if not value:
                raise UsageError("space: the name of a file is missing: space=FILE")
            given[key] = _home_path(value)
        elif key == "objective":
            given[key] = value
        else:
            given[key] = _whole(key, value, least=0 if key == "seed" else 1)
    if given.get("repeats", 1) > _MAX_REPEATS:
        raise UsageError(f"repeats={given['repeats']} is not allowed: at most {_MAX_REPEATS:,}")
    return ReplayRequest(**given)


def _home_path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # `~name/...` of nobody
        raise UsageError(f"space: '{text}' names no file: {error}") from None


def _whole(key: str, value: str, *, least: int) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 10 and int(value) >= least):
        raise UsageError(
            f"{key}={value} is not allowed", hint=f"Allowed: {least}, {least + 1}, {least + 2}, ..."
        )
    return int(value)


def _print(recording: Recording, budget: int, replays: Sequence[Replay], page: Page) -> None:
    failed = recording.points - len(recording.values)
    best = recording.shown(recording.ordered[0])
    page.line(
        f"{recording.name}: {recording.points:,} points of {len(recording.space.axes)} parameters, "
        f"{failed:,} failed; best {recording.objective} {number_text(float(best))}; "
        f"{count(budget, 'evaluation')}"
    )
    for one in replays:
        page.line("")
        page.line(f"{one.strategy}: {count(len(one.repeats), 'repeat')}")
        headings = [
            Heading("seed", number=True),
            Heading("score", number=True),
            Heading("best", number=True),
            Heading("of optimum", number=True),
            Heading("found at", number=True),
            Heading("failed", number=True, spare=1),
            Heading("parameters", folds=True, spare=2),
        ]
        page.table(headings, [_cells(repeat, recording) for repeat in one.repeats])
        page.line(
            f"score {one.score:+.3f} ± {one.error:.3f} (0 random search, 1 the best point at "
            f"once), {three_digits(one.ms_per_point)} ms of CPU time a suggestion"
        )


def _cells(repeat: Repeat, recording: Recording) -> list[str]:
    failed = sum(value is None for value in repeat.values)
    if repeat.best is None:
        return [str(repeat.seed), f"{repeat.score:+.3f}", "", "", "", str(failed), ""]
    value = repeat.values[repeat.best]
    assert value is not None
    varied = [axis for axis in recording.space.axes if axis.size > 1]
    point = repeat.points[repeat.best]
    names = [name for axis in varied for name in sorted(axis.keys)]
    return [
        str(repeat.seed),
        f"{repeat.score:+.3f}",
        number_text(float(recording.shown(value))),
        f"{_share(recording, value):.1%}",
        str(repeat.best + 1),
        str(failed),
        " ".join(f"{name}={point[name]}" for name in names),
    ]


def _share(recording: Recording, value: float) -> float:
    """How near a value is to the optimum; 1: as good."""
    best = float(recording.ordered[0])
    if value == best:
        return 1.0
    return best / value if recording.sign > 0 and value else value / best if best else 0.0


def _space(recording: Recording, budget: int) -> dict[str, Any]:
    return {
        "name": recording.name,
        "points": recording.points,
        "failed": recording.points - len(recording.values),
        "objective": recording.objective,
        "best": recording.shown(float(recording.ordered[0])),
        "budget": budget,
    }


def _document(one: Replay) -> dict[str, Any]:
    shown = one.recording.shown
    return {
        "strategy": one.strategy,
        "budget": one.budget,
        "score": one.score,
        "score_error": one.error,
        "ms_per_suggestion": one.ms_per_point,
        "repeats": [
            {
                "seed": repeat.seed,
                "score": repeat.score,
                "evaluations": len(repeat.points),
                "best": None if repeat.best is None else shown(repeat.values[repeat.best] or 0.0),
                "found_at": None if repeat.best is None else repeat.best + 1,
                "point": None if repeat.best is None else repeat.points[repeat.best],
                "history": [
                    {"point": point, "value": None if value is None else shown(value)}
                    for point, value in zip(repeat.points, repeat.values, strict=True)
                ],
            }
            for repeat in one.repeats
        ],
    }
