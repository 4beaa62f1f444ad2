"""Plans, builds and explanations as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from kernloom.base.units import count, time_text
from kernloom.report.columns import params_text
from kernloom.report.page import print_rows
from kernloom.report.similar import group_similar
from kernloom.store.keys import value_text

SHORT_KEY = 12
REASONS = 8
"""Limit of reasons to run that are shown to people."""
SHOWN = 25
"""Limit of artifacts, and of trials, of a plan that are shown to people."""


def print_plan(document: Mapping[str, Any], file: TextIO) -> None:
    """Print the first artifacts and trials, and the totals."""
    artifacts, trials = document["artifacts"], document["trials"]
    _artifacts(artifacts[:SHOWN], file)
    _more(len(artifacts), "artifact", file)
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
        for trial in trials[:SHOWN]
    ]
    print_rows(rows, file)
    _more(len(trials), "trial", file)
    for trial in trials[:SHOWN]:
        for step, origin in trial.get("origins", {}).items():
            print(f"parameters of {step}: {origin}", file=file)
    for line in why_to_run(trials):
        print(line, file=file)
    total = document["summary"]
    rest = f", {total['refused']} refused" if total["refused"] else ""
    rest += f", {total['same']} the same as another point" if total["same"] else ""
    print(
        f"{count(total['artifacts'], 'artifact')}: {total['to_build']} to build, "
        f"{total['cached']} cached; {count(total['points'], 'trial')}: "
        f"{total['to_run']} to run, {total['stored']} stored{rest}",
        file=file,
    )
    print(estimate_text(document["estimate"]), file=file)


def why_to_run(trials: Sequence[Mapping[str, Any]]) -> list[str]:
    """`12 trials to run: measure.samples 30 -> 50`; trials with the same reason share a line."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for trial in trials:
        if trial["reason"] and not trial["same"]:
            groups.setdefault(tuple(trial["differs"]) or (trial["reason"],), []).append(trial)
    lines = []
    for labels, members in sorted(groups.items(), key=lambda pair: -len(pair[1])):
        texts = {trial["reason"] for trial in members}
        # Values that vary between trials are in the JSON document.
        reason = texts.pop() if len(texts) == 1 else "; ".join(labels)
        lines.append(f"{count(len(members), 'trial')} to run: {reason}")
    if len(lines) > REASONS:
        rest = f"... {count(len(lines) - REASONS, 'more reason')}; all of them with output=json"
        lines[REASONS:] = [rest]
    return lines


def _more(number: int, what: str, file: TextIO) -> None:
    if number > SHOWN:
        left = count(number - SHOWN, f"more {what}")
        print(f"... {left}; all of them with output=json", file=file)


def estimate_text(estimate: Mapping[str, Any]) -> str:
    """`estimated time: 12.3 s (building 3.1 s with 2 jobs, running 9.2 s), from earlier ones`."""
    if not estimate["seconds"]:
        return "estimated time: none, for nothing is left to do"
    build, run = estimate["build"], estimate["run"]
    words = []
    if build["seconds"]:
        words.append(
            f"building {duration_text(build['seconds'])} with {count(estimate['jobs'], 'job')}"
        )
    if run["seconds"]:
        words.append(f"running {duration_text(run['seconds'])}")
    known = build["from_earlier"] + run["from_earlier"]
    guessed = build["guessed"] + run["guessed"]
    basis = "by what was built and run before"
    if guessed:
        basis = (
            f"{basis}, but for {guessed} guesses" if known else "a guess: nothing like it is known"
        )
    return f"estimated time: {duration_text(estimate['seconds'])} ({', '.join(words)}); {basis}"


def duration_text(seconds: float) -> str:
    """`850 ms`, `12.3 s`, `4 min 10 s`, `3 h 20 min`."""
    if seconds < 99.5:
        return time_text(seconds * 1e9)
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    return f"{hours} h {minutes_left} min" if hours else f"{minutes} min {rest} s"


def _trial_state(trial: Mapping[str, Any]) -> str:
    if trial["refused"]:
        return f"refused: {trial['refused'].splitlines()[0]}"
    if trial["same"]:
        return "same as another point"
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
            "runtime": artifact["runtime"],
            "key": artifact["key"][:SHORT_KEY],
            "state": artifact["state"],
            "path": artifact["path"] or artifact["source"],
        }
        for artifact in document["artifacts"]
    ]
    print_rows(rows, file)
    failed = [artifact for artifact in document["artifacts"] if artifact["state"] == "failed"]
    for same in group_similar(
        failed, lambda one: str(one["name"]), lambda one: str(one["message"])
    ):
        first = same.first[0]
        more = f" ({same.count} artifacts, of which this is the first)" if same.count > 1 else ""
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
    """One line per difference; `text` if there was nothing to compare with."""
    for reason in [detail["text"] for detail in details] or [text]:
        print(f"{indent}{reason}", file=file)
