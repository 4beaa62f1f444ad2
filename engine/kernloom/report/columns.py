"""Table columns: the cell text for each trial, and whether a column has any content."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kernloom.base.gauges import GAUGES, RATES, ROOF_FRACTION, Gauge, Metric
from kernloom.base.lookup import MISSING, lookup
from kernloom.base.units import contains_one, ratio_text
from kernloom.measure.launch_report import LIMITER
from kernloom.measure.ranking import FAULTS, Standing, is_sanitized
from kernloom.measure.trial import Samples, Trial
from kernloom.report.page import Heading
from kernloom.report.source_versions import NEWEST
from kernloom.report.sparkline import samples_line
from kernloom.store.keys import FIXED, value_text
from kernloom.store.rows import name_in

SHORT_ID = 12
SamplesOf = Callable[[Trial], Sequence[Samples]]
"""Returns a trial's samples, for example from the store."""

_STYLES = {
    "ok": "green",
    "unconverged": "yellow",
    "suspicious": "magenta",
    "unavailable": "yellow",
    "refused": "yellow",
}


def status_style(trial: Trial) -> str:
    return _STYLES.get(trial.status, "red")


def _unstyled(trial: Trial) -> str:
    return ""


@dataclass(frozen=True)
class Column:
    """A header and the text below it for each trial."""

    header: str
    cell: Callable[[Trial], str]
    number: bool = False
    always: bool = True
    """Shown even when every cell is empty."""
    folds: bool = False
    """Cells may wrap on a narrow terminal."""
    spare: int = 0
    """Priority for omission on a narrow terminal, the largest first; 0: never omitted."""
    shows: str = ""
    """The config key that it shows, if that is not its header."""
    style: Callable[[Trial], str] = _unstyled
    """Style of a cell on a terminal."""

    @property
    def heading(self) -> Heading:
        return Heading(self.header, self.number, self.folds, self.spare)


SUBJECT = (
    Column("workload", lambda trial: trial.workload),
    Column("case", lambda trial: trial.case, spare=5),
    Column("target", lambda trial: trial.target),
)


def run_columns(
    trials: Sequence[Trial],
    standing: Mapping[str, Standing],
    samples_of: SamplesOf | None = None,
) -> list[Column]:
    """The columns of a run or sweep; columns without any value are left out.

    Samples are drawn if `samples_of` is given.
    """
    compared = [*([_samples(samples_of)] if samples_of else []), _ratio(standing)]
    outcome = _outcome(trials, compared)
    return _with_something(trials, [*SUBJECT, *_swept(trials, SUBJECT), *outcome])


def results_columns(trials: Sequence[Trial]) -> list[Column]:
    """The columns of stored trials: the same, plus when and how each trial was made."""
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
    faults = Column("faults", lambda t: str(t.conditions.get(FAULTS, "")), always=False, folds=True)
    message = Column("message", message_line, always=False, folds=True, spare=1)
    made += [flags, faults]
    source = Column("source", _older, always=False, spare=5)
    times = Column("reused", lambda t: f"{t.reuses}×" if t.reuses else "", always=False, spare=9)
    made += [column for column in (_policy(trials), *_sizes(trials)) if column]
    columns = [*made, *_swept(trials, made), *_outcome(trials), source, times, message]
    return _with_something(trials, columns)


def _older(trial: Trial) -> str:
    """How much older a trial's source is than the newest; empty if it is the newest."""
    return "" if trial.source == NEWEST else trial.source


def _policy(trials: Sequence[Trial]) -> Column | None:
    """The measuring policy, if trials differ in it."""
    policies = {name_in(trial.config, "measure") for trial in trials}
    if len(policies) < 2:
        return None
    return Column("policy", lambda t: name_in(t.config, "measure"), spare=5, shows="measure")


def _sizes(trials: Sequence[Trial]) -> list[Column]:
    """The sizes in which trials of one workload differ."""
    seen: dict[tuple[str, str], set[str]] = {}
    for trial in trials:
        for name, value in _sizes_of(trial).items():
            seen.setdefault((trial.workload, name), set()).add(value_text(value))
    names = dict.fromkeys(name for (_, name), values in seen.items() if len(values) > 1)
    return [
        Column(name, partial(_size, name), spare=4, shows=f"workload.sizes.{name}")
        for name in names
    ]


def _sizes_of(trial: Trial) -> Mapping[str, Any]:
    sizes = lookup(trial.config, ("workload", "sizes"))
    return sizes if isinstance(sizes, Mapping) else {}


def _size(name: str, trial: Trial) -> str:
    value = _sizes_of(trial).get(name)
    return "" if value is None else value_text(value)


def variant_of(trial: Trial) -> str:
    return name_in(trial.config, "target", "variant")


def extra_flags(trial: Trial) -> str:
    flags = lookup(trial.config, ("toolchain", "extra_flags"))
    return "" if flags is MISSING else value_text(flags)


def message_line(trial: Trial) -> str:
    """The most informative line of a failed trial's message."""
    lines = trial.message.strip().splitlines()
    if trial.status == "ok" or not lines:
        return ""
    if trial.status == "build_failed":
        return next((line for line in lines if "error:" in line), lines[0])
    return lines[0]


def _with_something(trials: Sequence[Trial], columns: list[Column]) -> list[Column]:
    return [column for column in columns if column.always or any(column.cell(t) for t in trials)]


def _outcome(trials: Sequence[Trial], compared: Sequence[Column] = ()) -> list[Column]:
    """The outcome of each trial; `compared` columns follow the measurements."""
    fixed = [key for key in _keys(trials) if key.startswith(FIXED)]
    return [
        Column(
            "params",
            lambda trial: params_text(_without(trial.params, fixed)),
            always=False,
            folds=True,
            spare=3,
        ),
        Column("status", status_text, style=status_style),
        *(_gauge(gauge) for gauge in GAUGES.all(name for t in trials for name in t.metrics)),
        *compared,
        Column(
            "limiter", lambda trial: str(trial.conditions.get(LIMITER, "")), always=False, spare=3
        ),
        *(_metric(rate) for rate in RATES),
        Column(ROOF_FRACTION.heading, _roof, number=True, always=False, spare=ROOF_FRACTION.spare),
        *(_peer(name) for name in _peers(trials)),
        Column("provider", lambda trial: trial.provider, always=False, spare=9),
    ]


def _roof(trial: Trial) -> str:
    fraction = trial.metrics.get(ROOF_FRACTION.name)
    return "" if fraction is None or is_sanitized(trial) else f"{fraction:.0%}"


def _gauge(gauge: Gauge) -> Column:
    def cell(trial: Trial) -> str:
        return gauge.with_interval(trial.metrics)

    return Column(gauge.heading, cell, number=True, always=False, spare=gauge.spare)


def _metric(metric: Metric) -> Column:
    def cell(trial: Trial) -> str:
        value = trial.metrics.get(metric.name)
        return "" if value is None else metric.text(value)

    return Column(metric.heading, cell, number=True, always=False, spare=metric.spare)


def _peers(trials: Sequence[Trial]) -> list[str]:
    names = (
        path.removeprefix("peers.").removesuffix(".ratio")
        for trial in trials
        for path, _ in leaves(trial.metrics)
        if path.startswith("peers.") and path.endswith(".ratio")
    )
    return list(dict.fromkeys(names))


def _peer(name: str) -> Column:
    def found(trial: Trial) -> tuple[float, float, float] | None:
        numbers = dict(leaves(trial.metrics))
        ratio = numbers.get(f"peers.{name}.ratio")
        if ratio is None:
            return None
        low, high = (numbers.get(f"peers.{name}.{end}", ratio) for end in ("ci_low", "ci_high"))
        return ratio, low, high

    def cell(trial: Trial) -> str:
        ratio = found(trial)
        return ratio_text(*ratio) if ratio else ""

    def style(trial: Trial) -> str:
        ratio = found(trial)
        return "dim" if ratio and contains_one(*ratio[1:]) else ""

    return Column(f"vs {name}", cell, number=True, always=False, spare=1, style=style)


def _ratio(standing: Mapping[str, Standing]) -> Column:
    """The ratio to the best of those that did the same work."""

    def cell(trial: Trial) -> str:
        found = standing.get(trial.id)
        if found is None or found.best:
            return "best" if found else ""
        return ("" if found.certain else "~") + ratio_text(found.ratio, found.ratio, found.ratio)

    def style(trial: Trial) -> str:
        found = standing.get(trial.id)
        return "dim" if found and not found.best and not found.certain else ""

    return Column("ratio", cell, number=True, always=False, style=style)


def _samples(samples_of: SamplesOf) -> Column:
    def cell(trial: Trial) -> str:
        return samples_line(trial, samples_of(trial))

    return Column("samples", cell, always=False, spare=8)


def _keys(trials: Sequence[Trial]) -> list[str]:
    return list(dict.fromkeys(key for trial in trials for key in trial.point))


def _swept(trials: Sequence[Trial], others: Sequence[Column]) -> list[Column]:
    """One column for each swept key without one, under its shortest unique name."""
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
    """The parameters without a column of their own."""
    kept: dict[str, Any] = {}
    for name, inner in params.items():
        path = f"{prefix}{name}"
        if isinstance(inner, Mapping):
            kept[name] = _without(inner, keys, f"{path}.")
        elif not any(_is_of(key, path) for key in keys):
            kept[name] = inner
    return kept


def status_text(trial: Trial) -> str:
    if trial.same:
        return f"{trial.status} (same)"
    return f"{trial.status} (stored)" if trial.reused else trial.status


def subjects_text(trials: Sequence[Trial]) -> str:
    """A short description of the trials: `matmul (large) on host, M=64; M=128`."""
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
    """The chosen parameters; steps with equal parameters are grouped: `fc1, fc2: mr=6 nv=4`."""
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


def leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path and value of every value that is not a mapping."""
    for name, inner in value.items():
        path = f"{prefix}{name}"
        if isinstance(inner, Mapping):
            yield from leaves(inner, f"{path}.")
        else:
            yield path, inner
