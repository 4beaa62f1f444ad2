"""The columns of tables: what each shows of a trial, and whether there is anything to show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernloom.measure.trial import Trial
from kernloom.report.page import Heading
from kernloom.report.units import measured_time, three_digits, time_text
from kernloom.store.keys import MISSING, lookup
from kernloom.store.rows import name_in

SHORT_ID = 12
FIXED = "select.fixed."
"""Swept keys that begin so choose parameters."""


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
    shows: str = ""
    """The key of the config that it shows, where that is not its header."""

    @property
    def heading(self) -> Heading:
        return Heading(self.header, self.number, self.folds, self.spare)


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
    if any(variant_of(trial) not in ("", "release") for trial in trials):
        made.append(Column("variant", variant_of, spare=2, shows="target.variant"))
    flags = Column(
        "extra_flags", extra_flags, always=False, folds=True, shows="toolchain.extra_flags"
    )
    message = Column("message", message_line, always=False, folds=True, spare=1)
    made.append(flags)
    columns = [*made, *_swept(trials, made), *_outcome(trials), message]
    return _with_something(trials, columns)


def variant_of(trial: Trial) -> str:
    return name_in(trial.config, "target", "variant")


def extra_flags(trial: Trial) -> str:
    flags = lookup(trial.config, ("toolchain", "extra_flags"))
    return "" if flags is MISSING else value_text(flags)


def message_line(trial: Trial) -> str:
    """The line of a failed trial's message that says most."""
    lines = trial.message.strip().splitlines()
    if trial.status == "ok" or not lines:
        return ""
    if trial.status == "build_failed":
        return next((line for line in lines if "error:" in line), lines[0])
    return lines[0]


def _with_something(trials: Sequence[Trial], columns: list[Column]) -> list[Column]:
    return [column for column in columns if column.always or any(column.cell(t) for t in trials)]


def _outcome(trials: Sequence[Trial]) -> list[Column]:
    fixed = [key for key in _keys(trials) if key.startswith(FIXED)]
    return [
        Column(
            "params",
            lambda trial: params_text(_without(trial.params, fixed)),
            always=False,
            folds=True,
            spare=3,
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


def _keys(trials: Sequence[Trial]) -> list[str]:
    return list(dict.fromkeys(key for trial in trials for key in trial.point))


def _swept(trials: Sequence[Trial], others: Sequence[Column]) -> list[Column]:
    """One column for each swept key that has none yet, under the shortest name that is its own."""
    shown = {name for column in others for name in (column.header, column.shows)}
    keys = [key for key in _keys(trials) if key not in shown]
    names = [key.rpartition(".")[2] for key in keys]
    headers = [
        name if names.count(name) == 1 else key for key, name in zip(keys, names, strict=True)
    ]
    return [_point(key, header) for key, header in zip(keys, headers, strict=True)]


def _point(key: str, header: str) -> Column:
    def cell(trial: Trial) -> str:
        if key in trial.point:
            return value_text(trial.point[key])
        if key.startswith(FIXED):
            found = {value_text(v) for path, v in leaves(trial.params) if _is_of(key, path)}
            return " ".join(sorted(found))
        value = lookup(trial.config, key.split("."))
        return "" if value is MISSING or isinstance(value, Mapping) else value_text(value)

    return Column(header, cell, folds=True)


def _is_of(key: str, path: str) -> bool:
    """Whether the swept `select.fixed.tile.mr` decides the parameter at `tile.multiply.mr`."""
    parts = path.split(".")
    return key.removeprefix(FIXED) in (path, f"{parts[0]}.{parts[-1]}")


def _without(params: Mapping[str, Any], keys: Sequence[str], prefix: str = "") -> dict[str, Any]:
    """The parameters that have no column of their own."""
    kept: dict[str, Any] = {}
    for name, inner in params.items():
        path = f"{prefix}{name}"
        if isinstance(inner, Mapping):
            kept[name] = _without(inner, keys, f"{path}.")
        elif not any(_is_of(key, path) for key in keys):
            kept[name] = inner
    return kept


def status_text(trial: Trial) -> str:
    return f"{trial.status} (stored)" if trial.reused else trial.status


def subjects_text(trials: Sequence[Trial]) -> str:
    """The trials in a few words: `matmul (large) on host, M=64; M=128`."""
    texts, before = [], ""
    for trial in trials:
        case = "" if trial.case == "default" else f" ({trial.case})"
        who = f"{trial.workload}{case} on {trial.target}"
        point = " ".join(
            f"{key.rpartition('.')[2]}={value_text(value)}"
            for key, value in trial.point.items()
            if key not in ("workload", "case", "target")
        )
        texts.append(point if point and who == before else ", ".join(filter(None, (who, point))))
        before = who
    return "; ".join(texts)


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
        between = " " if any(isinstance(inner, str) for inner in value) else "x"
        return between.join(value_text(inner) for inner in value)
    return str(value)


def leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path and value of everything that is not a mapping."""
    for name, inner in value.items():
        path = f"{prefix}{name}"
        if isinstance(inner, Mapping):
            yield from leaves(inner, f"{path}.")
        else:
            yield path, inner
