"""T4, the format of the autotuning community.

Kernel Tuner and the benchmarks around it read and write it: one entry per configuration, with times
in milliseconds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TextIO

from kernloom.base.gauges import TIME, metric_named
from kernloom.base.spool import Spool
from kernloom.measure.ranking import metric_of, not_ranked, not_ranked_remark
from kernloom.measure.trial import Samples, Trial
from kernloom.report import questions
from kernloom.report.columns import leaves
from kernloom.report.documents import plain, to_json
from kernloom.report.format import Format, ResultsReport, StudyReport
from kernloom.report.streaming import write_list
from kernloom.store.keys import parse_key
from kernloom.store.lookups import CHUNK

VERSION = "1.0.0"
REST = {"schema_version": VERSION}
"""Fields of a document beside its results."""
INVALIDITY = {
    "ok": "correct",
    "unconverged": "correct",
    "wrong": "correctness",
    "out_of_bounds": "correctness",
    "timeout": "timeout",
    "build_failed": "compile",
    "refused": "constraints",
}
"""Status -> its name in T4; any other is `runtime`."""
_MS = 1e-6
FIXED = "select.fixed."


def write_results(report: ResultsReport, out: TextIO) -> int:
    trials = Spool(_rankable(report))
    metric = parse_key(report.metric) if report.metric else None
    summary = questions.Summary(trials, asked=metric)
    report.store.check_keys(summary.unknown_keys() if trials else [])
    if note := summary.missing_metric_reason():
        report.say(note)
    objective = _objectives(trials, report)

    def results() -> Iterator[str]:
        for start in range(0, len(trials), CHUNK):
            some = trials[start : start + CHUNK]
            taken = report.store.samples_of(some)
            for trial in some:
                samples = taken.get((trial.id, trial.attempt), ())
                yield to_json(t4_result(trial, objective(trial), samples))

    return write_list("results", results(), REST, out)


def write_study(report: StudyReport, out: TextIO) -> None:
    """The evaluated points of a study."""
    write_list(
        "results",
        (to_json(t4_result(t, report.objective, report.samples_of(t))) for t in report.trials),
        REST,
        out,
    )


def _rankable(report: ResultsReport) -> Iterable[Trial]:
    """Leave out trials that are not ranked, and report their number at the end."""
    left_out: Counter[str] = Counter()
    for trial in report.trials:
        if trial.good and (reason := not_ranked(trial)):
            left_out[reason] += 1
        else:
            yield trial
    for reason, number in left_out.items():
        report.say(not_ranked_remark(reason, number))


def _objectives(trials: Sequence[Trial], report: ResultsReport) -> Callable[[Trial], str]:
    """The metric to optimise for each trial: the requested one, or the one it is ranked by; for a
    failed trial, the one that others on its target are ranked by."""
    if report.metric:
        return lambda trial: report.metric
    usual = questions.objectives(trials)

    def objective(trial: Trial) -> str:
        return (metric_of(trial) if trial.good else "") or usual.get(trial.target, TIME.name)

    if len(several := sorted({objective(trial) for trial in trials})) > 1:
        report.say(
            f"the results have different objectives ({', '.join(several)}), for trials are ranked "
            "by different metrics; --metric chooses one, target=NAME keeps them apart"
        )
    return objective


def t4_result(trial: Trial, objective: str, samples: Sequence[Samples]) -> dict[str, Any]:
    runtimes = [wall * _MS for taken in samples for wall in taken.wall_ns]
    benchmark = math.fsum(wall * taken.inner * _MS for taken in samples for wall in taken.wall_ns)
    return {
        "timestamp": trial.created,
        "configuration": _configuration(trial),
        "objectives": [objective],
        "times": {
            # Artifacts are shared by trials and built before any of them; there is no search within
            # a trial, and verification is part of the rest.
            "compilation": 0.0,
            "benchmark": benchmark,
            "framework": max(0.0, trial.seconds * 1e3 - benchmark),
            "search_algorithm": 0.0,
            "validation": 0.0,
            "runtimes": runtimes,
        },
        "invalidity": INVALIDITY.get(trial.status, "runtime"),
        "correctness": int(trial.verified),
        "measurements": [
            {"name": name, "value": value, "unit": _unit(name)}
            for name, value in leaves(plain(trial.metrics))
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        ],
    }


def _configuration(trial: Trial) -> dict[str, Any]:
    """The configuration: workload, where it ran, swept keys and all parameters, each once."""
    chosen = {"workload": trial.workload, "case": trial.case, "target": trial.target}
    params = dict(leaves(plain(trial.params)))
    swept = {key: value for key, value in plain(trial.point).items() if not _is_told(key, params)}
    return {**chosen, **swept, **params}


def _is_told(key: str, params: Iterable[str]) -> bool:
    """Whether a swept key is a tunable (`select.fixed.tile.mr`, `select.fixed.tile.STEP.mr`) that
    the parameters (`tile.STEP.mr`) have as well."""
    if not key.startswith(FIXED):
        return False
    transform, *_, name = key.removeprefix(FIXED).split(".")
    return any(one.startswith(f"{transform}.") and one.endswith(f".{name}") for one in params)


def _unit(metric: str) -> str:
    known = metric_named(metric)
    return known.unit if known else ""


T4 = Format(
    "the T4 format (1.0.0) of autotuners", results=write_results, tune=write_study, ranks=True
)
