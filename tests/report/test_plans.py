"""Explanations and builds, as people read them."""

from __future__ import annotations

import io

from kernloom.report.plans import print_builds, print_explanations

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
