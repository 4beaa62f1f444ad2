"""Query the store. Filters are key=value on columns, params, metrics or config keys.

Other comparisons (!= < <= > >=) need quotes, or the shell takes them for its own. The store is the
project's, or what store.path=FILE, or store=postgres store.url=URL, say.

kernloom results
kernloom results workload=matmul status=ok --sort metrics.median_ns --limit 10
kernloom results mr=6 'median_ns<50000' 'status!=ok' --columns id,mr,median_ns,message
kernloom results --group workload,toolchain           # how many, best and median of the time
kernloom results --group workload --all-sources       # earlier versions of kernels, too, apart
kernloom results status=ok,wrong N=64,128             # either value
kernloom results workload=softmax --pivot N toolchain,case gflops
kernloom results output=csv > trials.csv
kernloom results output=parquet --to trials.parquet   # output=t4: for other autotuners
kernloom results baseline save main workload=matmul   # for kernloom compare --baseline main
kernloom results baseline list                        # also: show NAME, remove NAME
kernloom results repair                               # saves what can be read of a damaged store
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from kernloom.base.errors import ConfigError, UsageError, nearest
from kernloom.base.files import replacing
from kernloom.base.places import find_places
from kernloom.base.spool import Spool
from kernloom.cli.invocation import Flag, Invocation, destination, without_output
from kernloom.cli.stores import split_store
from kernloom.measure.ranking import RANKED_BY, is_sanitized, metric_of
from kernloom.measure.trial import Trial
from kernloom.report import questions
from kernloom.report.documents import stored_document, to_json
from kernloom.report.results import parse_filters, results, streamed, why_nothing
from kernloom.report.source_versions import NEWEST, SourceVersions
from kernloom.report.streaming import held_back, write_list
from kernloom.store.keys import SOURCE, Filter, Key, parse_key
from kernloom.store.lookups import CHUNK
from kernloom.store.store import Store, open_store

USAGE = (
    "[baseline save|list|show|remove | repair] [key=value ...] [--sort KEY] [--limit N] "
    "[--columns KEYS | --group KEYS | --pivot ROWS COLUMNS [METRIC]] [--history] "
    "[--all-sources] [--to FILE]"
)
OUTPUTS = ("table", "json", "jsonl", "csv", "parquet", "t4")
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
ACTIONS = ("baseline", "repair")
"""First words that are no filters."""


def run(invocation: Invocation) -> int:
    flags = invocation.flags
    limit = flags.get("limit", "")
    if "limit" in flags and not (limit.isascii() and limit.isdigit()):
        raise UsageError(f"--limit {limit} is not allowed", hint="Allowed: 0, 1, 2, ...")
    if "csv" in flags:
        invocation = replace(invocation, output="csv")
    places = find_places()
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
        from kernloom.cli import baseline_names

        with open_store(place) as store:
            return baseline_names.run(words[1:], places, store, invocation)
    file = destination(flags["to"], "--to") if "to" in flags else None
    shape = _shape(invocation, file)
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
            _answer(store, filters, axes, invocation, file)
            return 0
        trials = _trials(store, filters, invocation)
        if shape:
            keys = questions.parse_keys(flags["columns"], "columns")
            answer = questions.columns(trials, keys)
            store.check_keys(answer.empty(keys))
            shown = len(answer.rows)
            _show(answer, invocation, file)
        else:
            shown = _show_trials(trials, store, invocation, file)
        if not shown and limit != "0":
            _say_why(store, filters, invocation)
    return 0


def _trials(store: Store, filters: Sequence[Filter], invocation: Invocation) -> Iterator[Trial]:
    """The trials to list; where they are ranked, only those of the newest sources."""
    flags = invocation.flags
    sort, history = flags.get("sort", ""), "history" in flags
    limit = int(flags["limit"]) if "limit" in flags else None
    versions = SourceVersions.of(store)
    ranks = invocation.output == "t4" or (sort and parse_key(sort.removeprefix("-")).is_metric)
    if not ranks or "all-sources" in flags:
        return versions.labelled(streamed(store, filters, sort=sort, limit=limit, history=history))
    trials = versions.labelled(streamed(store, filters, sort=sort, history=history))
    return _of_newest_sources(trials, invocation, limit)


def _of_newest_sources(
    trials: Iterable[Trial], invocation: Invocation, limit: int | None = None
) -> Iterator[Trial]:
    """Leave out trials of earlier sources, and say at the end how many."""
    kept = left_out = 0
    for trial in trials:
        if trial.source != NEWEST:
            left_out += 1
        elif limit is None or kept < limit:
            kept += 1
            yield trial
    if left_out:
        from kernloom.base.units import count

        print(
            f"note: {count(left_out, 'trial')} of older kernel sources left out; "
            "--all-sources shows them apart",
            file=invocation.stderr,
        )


def _shape(invocation: Invocation, file: Path | None) -> str:
    """Which of the flags that shape the answer was given, if any."""
    given = [name for name in SHAPES if name in invocation.flags]
    if len(given) > 1:
        raise UsageError(f"--{given[0]} and --{given[1]} do not go together")
    if given and invocation.output in ("parquet", "t4"):
        raise UsageError(
            f"output={invocation.output} has trials, not --{given[0]}",
            hint="Allowed: output=table, json, jsonl or csv.",
        )
    if invocation.output == "parquet" and file is None:
        raise UsageError(
            "output=parquet goes to a file", hint="Name it: output=parquet --to trials.parquet"
        )
    return given[0] if given else ""


def _unseen(keys: Sequence[Key], trials: Sequence[Trial]) -> list[Key]:
    """The keys that none of these trials has."""
    return [key for key in keys if all(questions.value_of(trial, key) is None for trial in trials)]


def _say_why(store: Store, filters: Sequence[Filter], invocation: Invocation) -> None:
    if invocation.for_people:
        for note in why_nothing(store, filters):
            print(f"note: {note}", file=invocation.stderr)


def _say_lack(trials: Sequence[Trial], metric: Key | None, invocation: Invocation) -> None:
    """Say so where no trial has the metric that the answer is about."""
    if note := questions.lack_of(trials, metric):
        print(f"note: {note}", file=invocation.stderr)


def _answer(
    store: Store,
    filters: Sequence[Filter],
    axes: Sequence[str],
    invocation: Invocation,
    file: Path | None,
) -> None:
    """Groups or a pivot table of all trials that the filters leave."""
    flags = invocation.flags
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
    found = results(store, filters, history="history" in flags)
    trials = list(SourceVersions.of(store).labelled(found))
    if "all-sources" in flags:
        if not any(key.text == SOURCE for key in keys):
            keys = [*keys, parse_key(SOURCE)]
            down = [*down, parse_key(SOURCE)]
    elif not any(key.text == SOURCE for key in keys):
        trials = list(_of_newest_sources(trials, invocation))
    metric = parse_key(asked) if asked else None
    store.check_keys(_unseen([*keys, *([metric] if metric else [])], trials))
    if not trials:
        _say_why(store, filters, invocation)
    _say_lack(trials, metric, invocation)
    if "pivot" in flags:
        answer = questions.pivot(trials, down, across, metric)
    else:
        answer = questions.groups(trials, keys, metric)
    for remark in answer.remarks:
        print(f"note: {remark}", file=invocation.stderr)
    answer = questions.ordered(answer, flags.get("sort", ""))
    limit = flags.get("limit")
    _show(questions.limited(answer, int(limit)) if limit else answer, invocation, file)


def _show(answer: questions.Answer, invocation: Invocation, file: Path | None) -> None:
    """Rows of chosen keys, in the form that was asked for."""
    with _output(invocation, file) as out:
        if invocation.output == "csv":
            from kernloom.report.csv import write_answer

            write_answer(answer, out)
        elif invocation.output == "json":
            print(to_json({"rows": answer.documents()}), file=out)
        elif invocation.output == "jsonl":
            for row in answer.documents():
                print(to_json(row), file=out)
        else:
            from kernloom.report.tables import print_answer

            print_answer(answer, out)
    _say_written(file, invocation, len(answer.rows), "row")


def _show_trials(
    trials: Iterable[Trial], store: Store, invocation: Invocation, file: Path | None
) -> int:
    """The trials in the form that was asked for; how many. Only tables need all of them at once."""
    if invocation.output == "parquet" and file:
        from kernloom.report.exports import write_parquet

        number = write_parquet(trials, file)
    else:
        with _output(invocation, file) as out:
            number = _write_trials(trials, store, invocation, out)
    _say_written(file, invocation, number, "trial")
    return number


def _write_trials(
    trials: Iterable[Trial], store: Store, invocation: Invocation, out: TextIO
) -> int:
    if invocation.output == "t4":
        return _write_t4(Spool(_rankable(trials, invocation)), store, invocation, out)
    if invocation.output == "csv":
        from kernloom.report.csv import write_csv

        return write_csv(trials, out)
    if invocation.output == "json":
        return write_list("trials", map(to_json, map(stored_document, trials)), {}, out)
    if invocation.output == "jsonl":
        lines = (to_json(stored_document(trial)) for trial in trials)
        return sum(out.write(line + "\n") > 0 for line in lines)
    from kernloom.report.tables import print_results

    found = Spool(trials)
    print_results(found, out)
    return len(found)


def _write_t4(trials: Sequence[Trial], store: Store, invocation: Invocation, out: TextIO) -> int:
    from kernloom.report.exports import T4_REST, t4_result

    asked = invocation.flags.get("metric", "")
    metric = parse_key(asked) if asked else None
    store.check_keys(_unseen([metric], trials) if metric and trials else [])
    _say_lack(trials, metric, invocation)
    objective = _objectives(trials, asked, invocation)

    def results() -> Iterator[str]:
        for start in range(0, len(trials), CHUNK):
            some = trials[start : start + CHUNK]
            taken = store.samples_of(some)
            for trial in some:
                samples = taken.get((trial.id, trial.attempt), ())
                yield to_json(t4_result(trial, objective(trial), samples))

    return write_list("results", results(), T4_REST, out)


def _rankable(trials: Iterable[Trial], invocation: Invocation) -> Iterator[Trial]:
    """Leave out trials whose times mean nothing, and say at the end how many."""
    left_out = 0
    for trial in trials:
        if trial.good and is_sanitized(trial):
            left_out += 1
        else:
            yield trial
    if left_out:
        print(f"note: {questions.sanitized_remark(left_out)}", file=invocation.stderr)


def _objectives(
    trials: Sequence[Trial], asked: str, invocation: Invocation
) -> Callable[[Trial], str]:
    """What each trial is to be optimised for: what was asked for, or what it is ranked by; if it
    failed, what others on its target are ranked by."""
    if asked:
        return lambda trial: asked
    usual = questions.objectives(trials)

    def objective(trial: Trial) -> str:
        return (metric_of(trial) if trial.good else "") or usual.get(trial.target, RANKED_BY[-1])

    if len(several := sorted({objective(trial) for trial in trials})) > 1:
        print(
            f"note: the results have different objectives ({', '.join(several)}), for trials are "
            "ranked by different metrics; --metric chooses one, target=NAME keeps them apart",
            file=invocation.stderr,
        )
    return objective


@contextmanager
def _output(invocation: Invocation, file: Path | None) -> Iterator[TextIO]:
    """Where an answer is written: the file, or stdout once all of it is known."""
    if file:
        with replacing(file) as out:
            yield out
    elif invocation.for_people:
        yield invocation.stdout
    else:
        with held_back(invocation.data_out) as out:
            yield out


def _say_written(file: Path | None, invocation: Invocation, number: int, what: str) -> None:
    if file:
        from kernloom.base.units import count

        print(f"{count(number, what)} written: {file}", file=invocation.stderr)


def _repair(place: Path | str, words: Sequence[str], invocation: Invocation) -> int:
    from kernloom.base.units import count

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
