"""The columns of tables: what each shows of a trial, and whether there is anything to show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernloom.measure.trial import Trial
from kernloom.report.units import measured_time, three_digits, time_text
from kernloom.store.rows import name_in

SHORT_ID = 12


@dataclass(frozen=True)
class Column:
    """A header and the text below it for each trial."""

    header: str
    cell: Callable[[Trial], str]
    number: bool = False
    always: bool = True
    """Shown even when every cell is empty."""
    folds: bool = False
    """May take several lines where the terminal is narrow."""
    spare: int = 0
    """Left out of a terminal that is too narrow, the largest first; 0: never."""


SUBJECT = (
    Column("workload", lambda trial: trial.workload),
    Column("case", lambda trial: trial.case, spare=5),
    Column("target", lambda trial: trial.target),
)


def run_columns(trials: Sequence[Trial]) -> list[Column]:
    """What a run or sweep shows; columns without a single value are left out."""
    return _with_something(trials, [*SUBJECT, *_swept(trials, SUBJECT), *_outcome(trials)])


def results_columns(trials: Sequence[Trial]) -> list[Column]:
    """What the store shows: the same, and when and how each trial was made."""
    made = [
        Column("id", lambda trial: trial.id[:SHORT_ID]),
        Column("created", lambda trial: trial.created[:19].replace("T", " "), spare=6),
        *SUBJECT,
        Column("arch", lambda trial: name_in(trial.config, "arch"), always=False, spare=7),
        Column("toolchain", lambda t: name_in(t.config, "toolchain"), always=False, spare=8),
    ]
    return _with_something(trials, [*made, *_swept(trials, made), *_outcome(trials)])


def _with_something(trials: Sequence[Trial], columns: list[Column]) -> list[Column]:
    return [column for column in columns if column.always or any(column.cell(t) for t in trials)]


def _outcome(trials: Sequence[Trial]) -> list[Column]:
    return [
        Column(
            "params", lambda trial: params_text(trial.params), always=False, folds=True, spare=3
        ),
        Column("status", status_text),
        Column("time", lambda trial: measured_time(trial.metrics), number=True, always=False),
        _metric("virtual", "virtual_ns", time_text),
        _metric("instructions", "instructions", lambda value: f"{value:,.0f}"),
        _metric("GFLOP/s", "gflops", three_digits),
        _metric("GB/s", "gbytes_per_s", three_digits, spare=4),
        *(_baseline(name) for name in _baselines(trials)),
        Column("provider", lambda trial: trial.provider, always=False, spare=9),
    ]


def _metric(header: str, name: str, text: Callable[[float], str], spare: int = 0) -> Column:
    def cell(trial: Trial) -> str:
        value = trial.metrics.get(name)
        return "" if value is None else text(value)

    return Column(header, cell, number=True, always=False, spare=spare)


def _baselines(trials: Sequence[Trial]) -> list[str]:
    names = (
        path.removeprefix("baselines.").removesuffix(".ratio")
        for trial in trials
        for path, _ in leaves(trial.metrics)
        if path.startswith("baselines.") and path.endswith(".ratio")
    )
    return list(dict.fromkeys(names))


def _baseline(name: str) -> Column:
    def cell(trial: Trial) -> str:
        ratio = dict(leaves(trial.metrics)).get(f"baselines.{name}.ratio")
        return "" if ratio is None else f"{ratio:.2f}×"

    return Column(f"vs {name}", cell, number=True, always=False, spare=2)


def _swept(trials: Sequence[Trial], others: Sequence[Column]) -> list[Column]:
    """One column for each swept key that has none yet, under the shortest name that is its own."""
    keys = list(dict.fromkeys(key for trial in trials for key in trial.point))
    shown = {column.header for column in others}
    keys = [key for key in keys if key not in shown]
    names = [key.rpartition(".")[2] for key in keys]
    headers = [
        name if names.count(name) == 1 else key for key, name in zip(keys, names, strict=True)
    ]
    return [_point(key, header) for key, header in zip(keys, headers, strict=True)]


def _point(key: str, header: str) -> Column:
    return Column(header, lambda trial: value_text(trial.point.get(key, "")), folds=True)


def status_text(trial: Trial) -> str:
    return f"{trial.status} (stored)" if trial.reused else trial.status


def subject_text(trial: Trial) -> str:
    """The trial in a few words: `matmul (large) on host, M=64`."""
    swept = {
        key.rpartition(".")[2]: value
        for key, value in trial.point.items()
        if key not in ("workload", "case", "target")
    }
    point = " ".join(f"{name}={value_text(value)}" for name, value in swept.items())
    case = "" if trial.case == "default" else f" ({trial.case})"
    return f"{trial.workload}{case} on {trial.target}" + (f", {point}" if point else "")


def params_text(params: Mapping[str, Any]) -> str:
    """The chosen parameters; of several steps, those that agree together: `fc1, fc2: mr=6 nv=4`."""
    chosen: dict[str, list[tuple[str, str, Any]]] = {}
    for transform, steps in params.items():
        for path, value in leaves(steps) if isinstance(steps, Mapping) else [("", steps)]:
            step, _, tunable = path.rpartition(".")
            chosen.setdefault(step, []).append((transform, tunable or transform, value))
    groups: dict[str, list[str]] = {}
    for step, entries in chosen.items():
        names = [tunable for _, tunable, _ in entries]
        text = " ".join(
            f"{tunable if names.count(tunable) == 1 else f'{transform}.{tunable}'}="
            f"{value_text(value)}"
            for transform, tunable, value in entries
        )
        groups.setdefault(text, []).append(step)
    return "; ".join(
        f"{', '.join(steps)}: {text}" if len(chosen) > 1 and all(steps) else text
        for text, steps in groups.items()
    )


def value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "x".join(value_text(inner) for inner in value)
    return str(value)


def leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path and value of everything that is not a mapping."""
    for name, inner in value.items():
        path = f"{prefix}{name}"
        if isinstance(inner, Mapping):
            yield from leaves(inner, f"{path}.")
        else:
            yield path, inner
