"""Control characters in names and messages are shown to people, never sent to their terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from command_line import PATIENCE_S, Project, command, environment
from kernloom.base.visible_text import VisibleText, styled, visible, visible_line

TITLE = "\x1b]0;owned\x07"
ESCAPES = f"{TITLE}\x1b[2J\x9b31m\x7f\r\u202eevil"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\u009b31m\u007f\x0d\u202eevil"
OURS = re.compile(r"\x1b\[[0-9;]*m|\r\x1b\[\d+A\x1b\[J|\r\n")
"""Our own colours, the erasing of the live view, and the line ends of a terminal."""
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


NAMED = f"workload.name='good{ESCAPES}'"
"""A file has its own name; a word may give any other."""


def quoted(text: str) -> str:
    """A scalar in YAML's double quotes, which may stand for any character."""
    return json.dumps(text)


def on_terminal(project: Project, *words: str) -> str:
    """All that the command writes to a terminal it is run on."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command(*words),
        cwd=project.folder,
        env=environment(project.home, TERM="xterm", COLUMNS="200"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        pieces = []
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            if not piece:
                break
            pieces.append(piece)
        process.wait(timeout=PATIENCE_S)
    os.close(ours)
    return b"".join(pieces).decode("utf-8", "replace")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with escape sequences in every name and text that it has."""
    project = Project(tmp_path_factory.mktemp("hostile"))
    # The kernel writes them to stderr and crashes; a second one does not compile.
    body = f"fputs({json.dumps(TITLE)}, stderr); *(volatile int *)0 = 1;"
    project.add("bad", body.replace(r"\u00", r"\x"), head="#include <stdio.h>")
    project.add("broken", f"#error {TITLE}")
    project.add("good")
    for name in ("bad", "broken", "good"):
        file = project.folder / f"configs/workload/{name}.yaml"
        text = file.read_text(encoding="utf-8")
        file.write_text(
            f"{text}about: {quoted(ESCAPES)}\ncases: {{{quoted('c' + ESCAPES)}: {{}}}}\n",
            encoding="utf-8",
        )
    return project


def test_text_is_made_visible_and_stays_readable() -> None:
    assert visible(ESCAPES) == SHOWN
    assert visible("a\tb\nµ ± ×") == "a\tb\nµ ± ×"
    assert visible(visible(ESCAPES)) == SHOWN
    assert visible_line("a\nkernloom: error") == r"a\x0akernloom: error"


def test_json_that_passes_the_stream_stays_the_same_document() -> None:
    raw = io.BytesIO()
    stream = VisibleText(raw, encoding="utf-8")
    every = "".join(map(chr, range(0x2070)))
    print(json.dumps({"text": every}), json.dumps({every: 1}, ensure_ascii=False), file=stream)
    stream.flush()
    one, other = raw.getvalue().decode().strip().split("} ", 1)
    assert json.loads(one + "}") == {"text": every}
    assert json.loads(other) == {every: 1}


def test_styles_of_our_own_reach_the_stream() -> None:
    raw = io.BytesIO()
    stream = VisibleText(raw, encoding="utf-8")
    print("\x1b[31m", file=stream)
    print("\x1b[32m", file=styled(stream))
    stream.flush()
    assert raw.getvalue() == b"\\x1b[31m\n\x1b[32m\n"


@pytest.mark.parametrize(
    "words",
    [
        f"run -m workload=bad,broken,good measure=quick {NAMED}",
        f"plan workload=good {NAMED}",
        f"check workload=bad {NAMED}",
        "results",
        "run workload=good case=nothing",
        f"run workload=good 'case=a{ESCAPES}'",
        f"run{ESCAPES}",
        f"run --fl{ESCAPES}",
        f"recipe run {ESCAPES}",
        f"results 'workload=a{ESCAPES}'",
    ],
    ids=lambda words: visible(words)[:24],
)
def test_no_command_sends_them_to_a_terminal(hostile: Project, words: str) -> None:
    split = [word if word == NAMED else word.strip("'") for word in words.split(" ")]
    shown = on_terminal(hostile, *split)
    assert not CONTROL.search(OURS.sub("", shown)), ascii(shown)
    assert "Traceback" not in shown
    done = hostile.run(*split)
    assert not CONTROL.search(done.stdout + done.stderr)
    if "run -m" in words:
        assert r"good\x1b]0;owned" in done.stdout
        assert r"\x1b]0;owned" in done.stdout.partition("crashed")[2]


def test_programs_get_them_exactly(hostile: Project) -> None:
    workload = f"good{ESCAPES}"
    trial = hostile.json("run", "workload=good", "measure=quick", NAMED).trial
    assert trial["workload"] == workload
    listed = hostile.run("results", "output=csv", "workload.sizes.n=1000")
    # Reading text has turned the carriage return into a newline.
    assert workload.replace("\r", "\n") in listed.stdout


def test_junit_files_stay_xml(hostile: Project, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    hostile.run("check", "workload=bad", NAMED, "--junit", str(report))
    names = [case.get("classname", "") for case in ElementTree.parse(report).iter("testcase")]
    assert names
    assert all(SHOWN in name for name in names)
