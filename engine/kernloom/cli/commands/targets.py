"""List all targets: available, or why not and which command installs the missing part."""

from __future__ import annotations

import json

from kernloom.base.errors import UsageError
from kernloom.cli.hydra_flags import places_of
from kernloom.cli.invocation import Invocation, without_output
from kernloom.run.targets import list_targets

USAGE = "[output=json]"
READS_CONFIGS = True


def run(invocation: Invocation) -> int:
    rest = without_output(invocation.words)
    if rest:
        raise UsageError(f"'targets' takes no '{rest[0]}'")
    listed = list_targets(places_of(invocation))
    if invocation.for_people:
        from kernloom.report.page import print_rows

        rows = [
            {
                "target": target["name"],
                "family": target["family"],
                "arch": target["arch"],
                "variants": ", ".join(target["variants"]),
                "available": "yes" if target["available"] else "no",
                "reason": target["reason"],
                "hint": target["hint"],
            }
            for target in listed
        ]
        print_rows(rows, invocation.stdout)
    else:
        print(json.dumps(listed), file=invocation.stdout)
    return 0
