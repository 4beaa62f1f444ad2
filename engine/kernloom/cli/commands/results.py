"""Query the store. Filters are key=value on columns, params, metrics or config keys.

Other comparisons (!= < <= > >=) need quotes, or the shell takes them for its own.

kernloom results
kernloom results workload=matmul status=ok --sort metrics.median_ns --limit 10
kernloom results mr=6 'median_ns<50000' 'status!=ok'
kernloom results output=csv > trials.csv
kernloom results baseline save main workload=matmul   # for kernloom compare --baseline main
kernloom results baseline list                        # also: show NAME, remove NAME
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kernloom.cli.invocation import Flag, Invocation, without_output
from kernloom.errors import UsageError
from kernloom.places import find_places
from kernloom.report.documents import results_document, stored_document, to_json
from kernloom.report.results import parse_filters, results, why_nothing
from kernloom.store.store import open_store

USAGE = "[baseline save|list|show|remove] [key=value ...] [--sort KEY] [--limit N] [--history]"
OUTPUTS = ("table", "json", "jsonl", "csv")
FLAGS = {
    "sort": Flag("sort by a key; -KEY for the largest first", "KEY"),
    "limit": Flag("at most this many trials", "N"),
    "history": Flag("every attempt of a trial, not only the newest"),
    "csv": Flag("the same as output=csv"),
}


def run(invocation: Invocation) -> int:
    limit = invocation.flags.get("limit", "")
    if "limit" in invocation.flags and not (limit.isascii() and limit.isdigit()):
        raise UsageError(f"--limit {limit} is not allowed", hint="Allowed: 0, 1, 2, ...")
    words = without_output(invocation.words)
    chosen = [word.partition("=")[2] for word in words if word.startswith("store.path=")]
    words = tuple(word for word in words if not word.startswith("store.path="))
    places = find_places()
    if chosen:
        places = replace(places, store=Path(chosen[-1]))
    if words and words[0] == "baseline":
        from kernloom.cli import baseline_names

        with open_store(places.store) as store:
            return baseline_names.run(words[1:], places, store, invocation)
    filters = parse_filters(words)
    with open_store(places.store) as store:
        trials = results(
            store,
            filters,
            sort=invocation.flags.get("sort", ""),
            limit=int(limit) if limit else None,
            history="history" in invocation.flags,
        )
        if invocation.for_people and filters and not trials and limit != "0":
            for note in why_nothing(store, filters):
                print(f"note: {note}", file=invocation.stderr)
    if invocation.output == "csv" or "csv" in invocation.flags:
        from kernloom.report.csv import write_csv

        write_csv(trials, invocation.stdout)
    elif invocation.output == "json":
        print(to_json(results_document(trials)), file=invocation.stdout)
    elif invocation.output == "jsonl":
        for trial in trials:
            print(to_json(stored_document(trial)), file=invocation.stdout)
    else:
        from kernloom.report.tables import print_results

        print_results(trials, invocation.stdout)
    return 0
