"""The outcome of a study as tables for people; it comes as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from kernloom.base.units import count, ratio_text, time_text, whole_number
from kernloom.report.page import Heading, Page

_STYLES = {"best": "bold green", "equal": "green", "undecided": "yellow", "failed": "red"}
MAX_FAILURES = 5
"""Limit of reasons for failures that are listed."""
MAX_SOURCES = 2
MIN_SHARE = 0.005
"""Parameters that explain less of the variation are left out."""


def print_study(document: Mapping[str, Any], file: TextIO) -> None:
    """Print the leaders, the importance of the parameters, failures, and what it all means."""
    page = Page(file)
    _leaders(page, document)
    _importance(page, document["importance"])
    _failures(page, document["failures"])
    for line in (*_winner_lines(document), *_similar_lines(document["similar"])):
        page.line(line)
    for note in document["notes"]:
        page.line(f": {note}", mark="note", style="yellow")
    page.line(closing_line(document))


def _leaders(page: Page, document: Mapping[str, Any]) -> None:
    leaders = document["leaders"]
    if not leaders:
        return
    # Parameters on which the leaders agree are told once.
    keys = list(leaders[0]["point"])
    same = [k for k in keys if len({repr(one["point"][k]) for one in leaders}) == 1]
    own = [key for key in keys if key not in same] if len(leaders) > 1 else keys
    names = document["study"]["objective"]
    headings = [
        Heading("", number=True),
        *(Heading(name, number=True) for name in names),
        Heading("speedup", number=True),
        Heading("verdict"),
        Heading("roof", number=True, spare=2),
        *(Heading(key.rpartition(".")[2], number=True) for key in own),
        Heading("from", spare=1),
    ]
    rows = []
    for number, one in enumerate(leaders, 1):
        values = one["values"] or [""] * len(names)
        share = one["metrics"].get("roof_fraction")
        rows.append(
            [
                str(number),
                *values,
                _speedup(one["speedup"]),
                one["verdict"],
                f"{share:.0%}" if isinstance(share, (int, float)) else "",
                *(value_text(one["point"][key]) for key in own),
                one["origin"],
            ]
        )
    styles = [{"verdict": _STYLES.get(one["verdict"], "")} for one in leaders]
    shown = [n for n, _ in enumerate(headings) if n == 0 or any(row[n] for row in rows)]
    page.table([headings[n] for n in shown], [[row[n] for n in shown] for row in rows], styles)
    if len(leaders) > 1 and same:
        first = leaders[0]["point"]
        page.line(f"all: {', '.join(f'{key}={value_text(first[key])}' for key in same)}")


def _speedup(comparison: Mapping[str, Any] | None) -> str:
    if comparison is None:
        return ""
    return ratio_text(comparison["speedup"], comparison["ci_low"], comparison["ci_high"])


def value_text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(value_text, value))}]"
    words = {"True": "true", "False": "false", "None": "null"}
    return words.get(str(value), str(value))


def _importance(page: Page, found: Sequence[Mapping[str, Any]]) -> None:
    told = [
        f"{one['name']} {one['share']:.0%} (best {value_text(one['best'])})"
        for one in found
        if one["share"] >= MIN_SHARE
    ]
    if told:
        page.line(f"importance: {', '.join(told)}")


def _failures(page: Page, failures: Sequence[Mapping[str, Any]]) -> None:
    for one in failures[:MAX_FAILURES]:
        text = f": {count(one['points'], 'point')}: {one['reason']}"
        page.line(text.rstrip(": "), mark=one["status"], style="red")
    if len(failures) > MAX_FAILURES:
        page.line(f"  and {count(len(failures) - MAX_FAILURES, 'other reason')}")


def _winner_lines(document: Mapping[str, Any]) -> list[str]:
    winner, lines = document["winner"], []
    if winner is None:
        return ["no point is good"]
    if not document["race"]["complete"]:
        lines.append("the study ended early: these are the best so far")
    elif len(document["study"]["objective"]) > 1:
        number = sum(one["verdict"] == "best" for one in document["leaders"])
        lines.append(f"the Pareto front has {count(number, 'point')} of those measured in full")
    else:
        lines += _race_lines(document)
        lines += _model_lines(document["model"])
    lines += [
        f"not the winner: {one['message'].splitlines()[0]}"
        for one in document["leaders"]
        if one["verdict"] == "failed" and one["message"]
    ]
    cases = document["cases"]
    if cases:
        good = [one["case"] for one in cases if one["verified"]]
        rest = [f"{one['case']}: {one['status']}" for one in cases if not one["verified"]]
        trial = f", trial {winner['id']}," if winner["id"] else ""
        text = f"the winner{trial} is verified on {', '.join(good) or 'no case'}"
        lines.append(f"{text}; {', '.join(rest)}" if rest else text)
    return lines


def _race_lines(document: Mapping[str, Any]) -> list[str]:
    race, leaders = document["race"], document["leaders"]
    equal = sum(one["verdict"] == "equal" for one in leaders)
    open_ = sum(one["verdict"] == "undecided" for one in leaders)
    if not race["stages"]:
        return [f"{count(equal, 'other point')} equal to the best"] if equal else []
    said = [f"race: {count(race['stages'], 'stage')}, {count(race['rounds'], 'round')}"]
    if equal:
        said.append(f"{count(equal, 'point')} equal to the best")
    if open_:
        said.append(f"{count(open_, 'point')} not separated from it")
    if not equal and not open_ and len(leaders) > 1:
        said.append("the best is separated from the others")
    return ["; ".join(said)]


def _model_lines(model: Mapping[str, Any] | None) -> list[str]:
    if model is None:
        return []
    if model["verdict"] == "best":
        return ["the model's choice is the best point found"]
    if model["verdict"] == "equal":
        return ["the model's choice is as good as the best point found"]
    if model["ratio"] is None:
        return [f"the model's choice: {model['status'] or model['verdict']}"]
    return [
        f"the model's choice costs {model['ratio'] - 1:+.1%} more than the best".replace("+", "")
    ]


def _similar_lines(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """`started from 8 points of similar work; the nearest: trial ...`."""
    if not found:
        return []
    sources = list(dict.fromkeys(found[0]["source"].split("; ")))
    nearest = "; ".join(sources[:MAX_SOURCES]) + ("; ..." if len(sources) > MAX_SOURCES else "")
    return [f"started from {count(len(found), 'point')} of known work; the first: {nearest}"]


def closing_line(document: Mapping[str, Any]) -> str:
    """`60 of 5,400 points in 12.3 s (8 known, 2 failed): 60 points (search.trials)`."""
    study = document["study"]
    space = study["points"] if study["points"] is not None else study["combinations"]
    words = [f"{study[name]} {name}" for name in ("known", "failed") if study[name]]
    beside = f" ({', '.join(words)})" if words else ""
    return (
        f"{study['evaluated']} of {whole_number(space)} points in "
        f"{time_text(study['seconds'] * 1e9)}{beside}; ended: {study['ended']}"
    )
