"""Runs a command on a terminal of its own and draws what it printed as an SVG.

    cd PROJECT && python draw_terminal.py sweep.svg kernloom run -m toolchain=gcc,clang

Only the result (stdout) is drawn, not the progress (stderr). The picture refers to no other file.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, LINES = 140, 50
FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def output_of(command: list[str]) -> str:
    """Everything that the command wrote to a terminal, colours included."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    with subprocess.Popen(command, stdin=its, stdout=its, env=environment):
        os.close(its)
        written = b""
        try:
            while block := os.read(ours, 65536):
                written += block
        except OSError:  # Linux reports the end of a terminal this way
            pass
    os.close(ours)
    return written.decode().replace("\r\n", "\n")


def picture(command: list[str], output: str) -> str:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ " + shlex.join(command), style="bold"))
    console.print(Text.from_ansi(output), end="")
    drawing = FONT.sub("", console.export_svg(title="kernloom", unique_id="kernloom"))
    return re.sub(r"<!--.*?-->\s*", "", drawing).replace("Fira Code", "ui-monospace")


def main() -> None:
    target, command = Path(sys.argv[1]), sys.argv[2:]
    target.write_text(picture(command, output_of(command)), encoding="utf-8")


if __name__ == "__main__":
    main()
