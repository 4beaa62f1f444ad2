"""Plans, builds and explanations as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from kernloom.report.alike import alike
from kernloom.report.columns import params_text, value_text
from kernloom.report.tables import print_rows
from kernloom.report.units import count

SHORT_KEY = 12


def print_plan(document: Mapping[str, Any], file: TextIO) -> None:
    artifacts, trials = document["artifacts"], document["trials"]
    _artifacts(artifacts, file)
    print(file=file)
    rows = [
        {
            "workload": trial["workload"],
            "case": trial["case"],
            "target": trial["target"],
            "point": " ".join(
                f"{key}={value_text(value)}" for key, value in trial["point"].items()
            ),
            "params": params_text(trial["params"]),
            "provider": trial["provider"],
            "trial": _trial_state(trial),
        }
        for trial in trials
    ]
    print_rows(rows, file)
    missing = sum(artifact["state"] == "missing" for artifact in artifacts)
    stored = sum(trial["stored"] for trial in trials)
    print(
        f"{count(len(artifacts), 'artifact')}: {missing} to build, {len(artifacts) - missing} "
        f"cached; {count(len(trials), 'trial')}: {len(trials) - stored} to run, {stored} stored",
        file=file,
    )


def _trial_state(trial: Mapping[str, Any]) -> str:
    if trial["refused"]:
        return f"refused: {trial['refused'].splitlines()[0]}"
    return "stored" if trial["stored"] else "to run"


def _artifacts(artifacts: Sequence[Mapping[str, Any]], file: TextIO) -> None:
    rows = [
        {
            "artifact": artifact["name"],
            "key": artifact["key"][:SHORT_KEY],
            "state": artifact["state"],
            "reason": artifact["reason"] if artifact["state"] == "missing" else "",
        }
        for artifact in artifacts
    ]
    print_rows(rows, file)


def print_builds(document: Mapping[str, Any], file: TextIO) -> None:
    rows = [
        {
            "artifact": artifact["name"],
            "toolchain": artifact["toolchain"],
            "arch": artifact["arch"],
            "variant": artifact["variant"],
            "key": artifact["key"][:SHORT_KEY],
            "state": artifact["state"],
            "path": artifact["path"] or artifact["source"],
        }
        for artifact in document["artifacts"]
    ]
    print_rows(rows, file)
    failed = [artifact for artifact in document["artifacts"] if artifact["state"] == "failed"]
    for same in alike(failed, lambda one: str(one["name"]), lambda one: str(one["message"])):
        first = same[0]
        more = f" ({len(same)} artifacts, of which this is the first)" if len(same) > 1 else ""
        print(f"\n{first['name']}{more}: {first['message'].strip()}", file=file)
        print(f"source: {first['source']}", file=file)
    build = document["build"]
    print(f"built {build['built']}, cached {build['cached']}, failed {build['failed']}", file=file)


def print_explanations(explanations: Sequence[Mapping[str, Any]], file: TextIO) -> None:
    for item in explanations:
        print(f"{item['name']}  {item['key'][:SHORT_KEY]}  {item['state']}", file=file)
        if item["state"] != "cached":
            _reasons(item["reason"], item["details"], "    ", file)
            continue
        print("    nothing that goes into it has changed", file=file)
        for because in item["details"]:
            print(f"    built {because['created']} because:", file=file)
            _reasons(because["text"], because.get("details") or (), "        ", file)


def _reasons(text: str, details: Sequence[Mapping[str, Any]], indent: str, file: TextIO) -> None:
    """One line for each difference; `text` where there was nothing to compare with."""
    for reason in [detail["text"] for detail in details] or [text]:
        print(f"{indent}{reason}", file=file)
