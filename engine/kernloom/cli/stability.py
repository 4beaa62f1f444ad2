"""`kernloom results stability ...`: attempts of the same trials over time."""

from __future__ import annotations

from collections.abc import Sequence

from kernloom.base.errors import UsageError
from kernloom.cli.invocation import Invocation
from kernloom.report.documents import to_json
from kernloom.report.results import explain_empty, parse_filters
from kernloom.report.stability import print_stability, stabilities
from kernloom.store.store import Store


def run(words: Sequence[str], store: Store, invocation: Invocation) -> int:
    if invocation.flags:
        raise UsageError(
            f"results stability takes no --{next(iter(invocation.flags))}",
            hint="It takes filters: kernloom results stability workload=matmul",
        )
    filters = parse_filters(words)
    found = stabilities(store.query(filters, history=True))
    if not invocation.for_people:
        document = {"trials": [item.document() for item in found]}
        print(to_json(document), file=invocation.stdout)
    elif found:
        print_stability(found, invocation.stdout)
    else:
        for note in explain_empty(store, filters):
            print(f"note: {note}", file=invocation.stderr)
    return 0
