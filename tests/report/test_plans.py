"""Explanations and builds, as people read them."""

from __future__ import annotations

import io

import pytest

from kernloom.report.plans import (
    duration_text,
    estimate_text,
    print_builds,
    print_explanations,
)

LOOP = "kernel.c:4: 'for (;;) a; b;' -> 'for (;;) a; c;'"


def explained(**changes) -> str:
    item = {"name": "demo.scale", "key": "k" * 32, "state": "missing", "reason": LOOP}
    file = io.StringIO()
    print_explanations([item | {"details": [{"text": LOOP}]} | changes], file)
    return file.getvalue()


def test_a_line_of_c_is_not_cut_at_its_semicolons():
    assert explained() == f"demo.scale  kkkkkkkkkkkk  missing\n    {LOOP}\n"


def test_a_reason_without_details_is_told_whole():
    assert explained(reason="new; gone", details=[]).endswith("    new; gone\n")


def test_a_cached_artifact_says_when_and_why_it_was_built():
    because = {"text": "x; y", "details": [{"text": LOOP}, {"text": "y"}], "created": "today"}
    lines = explained(state="cached", details=[because]).splitlines()[1:]
    assert lines == [
        "    nothing that goes into it has changed",
        "    built today because:",
        f"        {LOOP}",
        "        y",
    ]


def built(**changes):
    return {
        "name": "runner",
        "key": "k" * 32,
        "toolchain": "gcc",
        "arch": "x86_64",
        "variant": "release",
        "runtime": "none",
        "state": "built",
        "path": "/p",
        "source": "/s",
        "message": "",
    } | changes


def printed(*artifacts) -> str:
    file = io.StringIO()
    build = {"built": 0, "cached": 0, "failed": 0}
    print_builds({"artifacts": artifacts, "build": build}, file)
    return file.getvalue()


def test_artifacts_of_one_name_are_told_apart():
    _, first, second, _ = printed(built(), built(toolchain="clang", variant="asan")).splitlines()
    assert first.split()[:4] == ["runner", "gcc", "x86_64", "release"]
    assert second.split()[:4] == ["runner", "clang", "x86_64", "asan"]


def test_one_message_of_the_compiler_is_told_once_with_the_first_source():
    failed = [
        built(state="failed", path="", source=f"/s/{n}", message=f"k.c:{n}: error: no")
        for n in range(3)
    ]
    text = printed(*failed)
    assert text.count("error: no") == 1
    assert "runner (3 artifacts, of which this is the first): k.c:0: error: no" in text
    assert text.count("source: ") == 1 and "source: /s/0\n" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "12.3 ms"), (12.34, "12.3 s"), (250, "4 min 10 s"), (12_000, "3 h 20 min")],
)
def test_durations_are_told_in_the_units_people_use(seconds, text):
    assert duration_text(seconds) == text


def estimated(build=(0.0, 0, 0), run=(0.0, 0, 0)):
    names = ("seconds", "from_earlier", "guessed")
    parts = [dict(zip(names, part, strict=True)) for part in (build, run)]
    return estimate_text(
        {"seconds": build[0] + run[0], "jobs": 1, "build": parts[0], "run": parts[1]}
    )


def test_an_estimate_says_what_it_goes_by():
    assert estimated() == "estimated time: none, for nothing is left to do"
    assert estimated(run=(9.0, 3, 0)) == (
        "estimated time: 9.00 s (running 9.00 s); by what was built and run before"
    )
    assert estimated(build=(1.0, 0, 2)) == (
        "estimated time: 1.00 s (building 1.00 s with 1 job); a guess: nothing like it is known"
    )
    assert estimated((1.0, 0, 2), (1.0, 5, 0)).endswith("run before, but for 2 guesses")
