"""List all targets: available, or why not and which command installs the missing part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kernloom.base.errors import UsageError
from kernloom.base.places import find_places
from kernloom.cli.invocation import Invocation, without_output
from kernloom.run.targets import list_targets

USAGE = "[output=json]"


def _variants(target: Mapping[str, Any]) -> list[str]:
    """The variants, those in brackets that this machine cannot run."""
    lacking = target.get("unavailable_variants", {})
    return [f"({name})" if name in lacking else name for name in target["variants"]]


def run(invocation: Invocation) -> int:
    rest = without_output(invocation.words)
    if rest:
        raise UsageError(f"'targets' takes no '{rest[0]}'")
    listed = list_targets(find_places())
    if invocation.for_people:
        from kernloom.report.page import print_rows

        rows = [
            {
                "target": target["name"],
                "family": target["family"],
                "arch": target["arch"],
                "variants": ", ".join(_variants(target)),
                "available": "yes" if target["available"] else "no",
                "reason": target["reason"],
                "hint": target["hint"],
            }
            for target in listed
        ]
        print_rows(rows, invocation.stdout)
        for target in listed:
            if target.get("topology"):
                print(f"{target['name']}: {target['topology']}", file=invocation.stdout)
                for variant, why in target["unavailable_variants"].items():
                    said = f"{why['reason']}. {why['hint']}".rstrip()
                    print(f"  not {variant}: {said}", file=invocation.stdout)
        if any(target.get("topology") for target in listed):
            print("`kernloom doctor target=NAME` draws a topology.", file=invocation.stdout)
    else:
        print(json.dumps(listed), file=invocation.stdout)
    return 0
