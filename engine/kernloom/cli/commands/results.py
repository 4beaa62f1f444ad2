"""Query the store. Filters are key=value on columns, params, metrics or config keys.

Other comparisons (!= < <= > >=) must be quoted, because the shell would interpret them. The store
is the project's, or the one set by store.path=FILE, or by store=postgres store.url=URL.

kernloom results
kernloom results workload=matmul status=ok --sort metrics.median_ns --limit 10
kernloom results mr=6 'median_ns<50000' 'status!=ok' --columns id,mr,median_ns,message
kernloom results --group workload,toolchain           # number, best and median time of each group
kernloom results --group workload --all-sources       # also earlier versions of kernels, separately
kernloom results status=ok,wrong N=64,128             # either value
kernloom results workload=softmax --pivot N toolchain,case gflops
kernloom results output=csv > trials.csv
kernloom results output=parquet --to trials.parquet   # output=t4: for other autotuners
kernloom results baseline save main workload=matmul   # for kernloom compare --baseline main
kernloom results baseline list                        # also: show NAME, remove NAME
kernloom results stability workload=matmul            # attempts of each trial over time
kernloom results repair                               # recovers a damaged store
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from kernloom.base.errors import ConfigError, UsageError, nearest
from kernloom.base.files import replacing
from kernloom.base.units import count
from kernloom.cli.hydra_flags import places_of
from kernloom.cli.invocation import Flag, Invocation, destination, without_output
from kernloom.cli.stores import split_store
from kernloom.measure.trial import Trial
from kernloom.report import questions
from kernloom.report.documents import to_json
from kernloom.report.format import ResultsReport
from kernloom.report.formats import format_for, formats_with_rows
from kernloom.report.results import explain_empty, parse_filters, streamed
from kernloom.report.source_versions import NEWEST, SourceVersions
from kernloom.report.streaming import written_when_complete
from kernloom.store.keys import SOURCE, Filter, Key, parse_key
from kernloom.store.store import Store, open_store

USAGE = (
    "[baseline save|list|show|remove | stability | repair] [key=value ...] [--sort KEY] "
    "[--limit N] [--columns KEYS | --group KEYS | --pivot ROWS COLUMNS [METRIC]] [--history] "
    "[--all-sources] [--to FILE]"
)
READS_CONFIGS = True
REPORT = "results"
FLAGS = {
    "sort": Flag("sort by a key; -KEY for the largest first", "KEY"),
    "limit": Flag("at most this many trials, or rows", "N"),
    "columns": Flag("show these keys, separated by commas", "KEYS"),
    "group": Flag("trials with the same values together: count, best, median", "KEYS"),
    "pivot": Flag(
        "a table of a metric: --pivot ROWS COLUMNS [METRIC]; ROWS, COLUMNS: KEYS", "ROWS"
    ),
    "metric": Flag("what --group, --pivot and output=t4 are about; else what is ranked by", "KEY"),
    "all-sources": Flag("rank and group earlier versions of a kernel's source, too, apart"),
    "history": Flag("every attempt of a trial, not only the newest"),
    "to": Flag("write to a file", "FILE"),
    "csv": Flag("the same as output=csv"),
}
SHAPES = ("columns", "group", "pivot")
ACTIONS = {
    "baseline": "save, list, show and remove baselines, for compare --baseline",
    "stability": "the attempts of each trial over time, and whether they agree",
    "repair": "recover a damaged store",
}
"""First words that are not filters."""


def run(invocation: Invocation) -> int:
    flags = invocation.flags
    limit = flags.get("limit", "")
    if "limit" in flags and not (limit.isascii() and limit.isdigit()):
        raise UsageError(f"--limit {limit} is not allowed", hint="Allowed: 0, 1, 2, ...")
    if "csv" in flags:
        invocation = replace(invocation, output="csv")
    places = places_of(invocation)
    place, words = split_store(without_output(invocation.words), places)
    if words and words[0] == "repair":
        return _repair(place, words[1:], invocation)
    if isinstance(place, Path) and place != places.store and not place.exists():
        raise ConfigError(
            f"there is no store {place}",
            key="store.path",
            hint="Name the file that `kernloom run store.path=FILE` wrote.",
        )
    if words and words[0] == "baseline":
        from kernloom.cli import saved_baselines

        with open_store(place) as store:
            return saved_baselines.run(words[1:], places, store, invocation)
    if words and words[0] == "stability":
        from kernloom.cli import stability

        with open_store(place) as store:
            return stability.run(words[1:], store, invocation)
    shown_as = _ResultsOutput(
        invocation, destination(flags["to"], "--to") if "to" in flags else None
    )
    shape = _shape(shown_as)
    axes: list[str] = []
    if shape == "pivot":
        plain = [word for word in words if not any(sign in word for sign in "=<>")]
        axes = [flags["pivot"], *plain] if plain else flags["pivot"].split(",")
        words = tuple(word for word in words if word not in plain)
    if words and not any(sign in words[0] for sign in "=<>"):
        raise UsageError(
            f"results has no command '{words[0]}', and a filter is key=value or 'key<value'",
            hint=nearest(words[0], ACTIONS),
        )
    filters = parse_filters(words)
    with open_store(place) as store:
        if shape in ("group", "pivot"):
            _answer(store, filters, axes, shown_as)
            return 0
        trials = _trials(store, filters, shown_as)
        if shape:
            keys = questions.parse_keys(flags["columns"], "columns")
            answer = questions.columns(trials, keys)
            store.check_keys(answer.empty(keys))
            shown = len(answer.rows)
            shown_as.rows(answer)
        else:
            shown = shown_as.trials(trials, store)
        if not shown and limit != "0":
            shown_as.say_why_nothing(store, filters)
    return 0


class _ResultsOutput:
    """The answer in the requested format, on stdout or in a file."""

    def __init__(self, invocation: Invocation, file: Path | None) -> None:
        self.invocation = invocation
        self.file = file
        self.form = format_for(invocation.output, REPORT)

    def say(self, note: str) -> None:
        print(f"note: {note}", file=self.invocation.stderr)

    def say_why_nothing(self, store: Store, filters: Sequence[Filter]) -> None:
        if self.form.for_people:
            for note in explain_empty(store, filters):
                self.say(note)

    def rows(self, answer: questions.Answer) -> None:
        """Show rows of chosen keys."""
        if self.form.rows:
            with self._output() as out:
                self.form.rows(answer, out)
        self._say_written(len(answer.rows), "row")

    def trials(self, trials: Iterable[Trial], store: Store) -> int:
        """Show the trials; returns their number."""
        metric = self.invocation.flags.get("metric", "")
        report = ResultsReport(trials, store, metric, self.say)
        number = 0
        if self.form.results_file and self.file:
            number = self.form.results_file(report, self.file)
        elif self.form.results:
            with self._output() as out:
                number = self.form.results(report, out)
        self._say_written(number, "trial")
        return number

    @contextmanager
    def _output(self) -> Iterator[TextIO]:
        """The output of an answer: the file, or stdout once the answer is complete."""
        if self.file:
            with replacing(self.file) as out:
                yield out
        elif self.form.for_people:
            yield self.invocation.stdout
        else:
            with written_when_complete(self.invocation.data_out) as out:
                yield out

    def _say_written(self, number: int, what: str) -> None:
        if self.file:
            print(f"{count(number, what)} written: {self.file}", file=self.invocation.stderr)


def _trials(store: Store, filters: Sequence[Filter], shown: _ResultsOutput) -> Iterator[Trial]:
    """The trials to list; if they are ranked, only those of the newest sources."""
    flags = shown.invocation.flags
    sort, history = flags.get("sort", ""), "history" in flags
    limit = int(flags["limit"]) if "limit" in flags else None
    versions = SourceVersions.of(store)
    ranks = shown.form.ranks or (sort and parse_key(sort.removeprefix("-")).is_metric)
    if not ranks or "all-sources" in flags:
        return versions.labelled(streamed(store, filters, sort=sort, limit=limit, history=history))
    trials = versions.labelled(streamed(store, filters, sort=sort, history=history))
    return _of_newest_sources(trials, shown, limit)


def _of_newest_sources(
    trials: Iterable[Trial], shown: _ResultsOutput, limit: int | None = None
) -> Iterator[Trial]:
    """Leave out trials of earlier sources, and report their number at the end."""
    kept = left_out = 0
    for trial in trials:
        if trial.source != NEWEST:
            left_out += 1
        elif limit is None or kept < limit:
            kept += 1
            yield trial
    if left_out:
        shown.say(
            f"{count(left_out, 'trial')} of older kernel sources left out; "
            "--all-sources shows them apart"
        )


def _shape(shown: _ResultsOutput) -> str:
    """The flag that shapes the answer, if one was given."""
    output = shown.invocation.output
    given = [name for name in SHAPES if name in shown.invocation.flags]
    if len(given) > 1:
        raise UsageError(f"--{given[0]} and --{given[1]} do not go together")
    if given and not shown.form.rows:
        raise UsageError(
            f"output={output} has trials, not --{given[0]}",
            hint=f"Allowed: output={', '.join(formats_with_rows())}.",
        )
    if shown.form.results_file and shown.file is None:
        raise UsageError(
            f"output={output} goes to a file", hint=f"Name it: output={output} --to trials.{output}"
        )
    return given[0] if given else ""


def _answer(
    store: Store, filters: Sequence[Filter], axes: Sequence[str], shown: _ResultsOutput
) -> None:
    """Groups or a pivot table of all trials that match the filters."""
    flags = shown.invocation.flags
    down: list[Key] = []
    if "pivot" in flags:
        if len(axes) not in (2, 3):
            raise UsageError(
                "--pivot needs a key for the rows and one for the columns",
                hint="For instance: --pivot workload.sizes.N toolchain gflops",
            )
        down, across = (questions.parse_keys(axis, "pivot") for axis in axes[:2])
        keys = [*down, *across]
        asked = axes[2] if len(axes) == 3 else flags.get("metric", "")
    else:
        keys = questions.parse_keys(flags["group"], "group")
        asked = flags.get("metric", "")
    if "all-sources" in flags and not any(key.text == SOURCE for key in keys):
        keys = [*keys, parse_key(SOURCE)]
        down = [*down, parse_key(SOURCE)]
    found = streamed(store, filters, history="history" in flags)
    trials = SourceVersions.of(store).labelled(found)
    if not any(key.text == SOURCE for key in keys):
        trials = _of_newest_sources(trials, shown)
    metric = parse_key(asked) if asked else None
    summary = questions.Summary(trials, keys, metric, only_verified="pivot" in flags)
    store.check_keys(summary.unknown_keys())
    if not summary.trials:
        shown.say_why_nothing(store, filters)
    if note := summary.missing_metric_reason():
        shown.say(note)
    pivots = "pivot" in flags
    answer = questions.pivot(summary, len(down)) if pivots else questions.groups(summary)
    for remark in answer.remarks:
        shown.say(remark)
    answer = questions.ordered(answer, flags.get("sort", ""))
    limit = flags.get("limit")
    shown.rows(questions.first_rows(answer, int(limit)) if limit else answer)


def _repair(place: Path | str, words: Sequence[str], invocation: Invocation) -> int:
    if words:
        raise UsageError(f"results repair takes no '{words[0]}'", hint="Only store.path=FILE.")
    if not isinstance(place, Path):
        raise UsageError(
            "only a SQLite file can be repaired here",
            hint="PostgreSQL has its own means: restore a backup, or see pg_amcheck.",
        )
    from kernloom.store.repair import repair

    done = repair(place)
    if not invocation.for_people:
        document = {
            "saved": done.saved,
            "lost": done.lost,
            "more_may_be_lost": done.more,
            "incomplete": done.incomplete,
            "from_backup": done.restored,
            "damaged": str(done.kept) if done.kept else None,
        }
        print(to_json(document), file=invocation.stdout)
        return 0
    if done.kept is None:
        print(
            f"nothing to repair: {count(done.saved, 'trial')}, all readable", file=invocation.stdout
        )
        return 0
    lost = f"at least {count(done.lost, 'trial')} lost" if done.lost else "none known to be lost"
    if done.more:
        lost += "; an unknown number may be lost: a part of the file is missing or cannot be read"
    print(f"{count(done.saved, 'trial')} saved, {lost}", file=invocation.stdout)
    if done.restored:
        print(f"{count(done.restored, 'saved trial')} from the backup", file=invocation.stdout)
    if done.incomplete:
        print(
            f"{count(done.incomplete, 'saved trial')} without a part of the config, the machine or "
            "the samples",
            file=invocation.stdout,
        )
    print(f"the damaged file is kept: {done.kept}", file=invocation.stdout)
    if done.lost or done.more:
        print(
            "what is lost is measured again by the command that measured it",
            file=invocation.stderr,
        )
    return 0
