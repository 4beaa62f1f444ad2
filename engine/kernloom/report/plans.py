"""Plans, builds and explanations as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from kernloom.report.columns import params_text
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
            "point": " ".join(f"{key}={value}" for key, value in trial["point"].items()),
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
            "key": artifact["key"][:SHORT_KEY],
            "state": artifact["state"],
            "path": artifact["path"] or artifact["source"],
        }
        for artifact in document["artifacts"]
    ]
    print_rows(rows, file)
    for artifact in document["artifacts"]:
        if artifact["state"] == "failed":
            print(f"\n{artifact['name']}: {artifact['message'].strip()}", file=file)
            print(f"source: {artifact['source']}", file=file)
    build = document["build"]
    print(f"built {build['built']}, cached {build['cached']}, failed {build['failed']}", file=file)


def print_explanations(explanations: Sequence[Mapping[str, Any]], file: TextIO) -> None:
    for item in explanations:
        print(f"{item['name']}  {item['key'][:SHORT_KEY]}  {item['state']}", file=file)
        for line in item["reason"].split("; "):
            print(f"    {line}", file=file)
