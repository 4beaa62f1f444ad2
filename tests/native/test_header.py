"""messages.h says what device/messages.py defines."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from kernloom.device import messages
from kernloom.device.generate_header import header_text
from kernloom.device.messages import Header, KernelLaunch, Response, layout

TOP = Path(__file__).resolve().parents[2]
INCLUDE = TOP / "native" / "include"


def test_the_header_is_the_generated_one() -> None:
    assert (INCLUDE / "kernloom" / "messages.h").read_text() == header_text(), (
        "run: python -m kernloom.device.generate_header native/include/kernloom/messages.h"
    )


def test_the_generator_prints_and_writes_the_same(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kernloom.device.generate_header"]
    printed = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=TOP / "engine"
    ).stdout
    file = tmp_path / "messages.h"
    subprocess.run([*command, str(file)], check=True, cwd=TOP / "engine")
    assert printed == file.read_text() == header_text()


@pytest.mark.parametrize("language", ["c", "c++"])
def test_the_headers_stand_alone(compiler: str, language: str) -> None:
    for header in ("messages.h", "kernel.h"):
        command = [compiler, f"-x{language}", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        path = INCLUDE / "kernloom" / header
        # Compiled as a main file a header would warn about itself.
        subprocess.run(
            [*command, f"-I{INCLUDE}", "-"],
            input=f'#include "kernloom/{path.name}"\n',
            text=True,
            check=True,
        )


def test_c_and_python_agree_on_where_fields_are(compiler: str, tmp_path: Path) -> None:
    structs = {"kl_header": Header, "kl_kernel_launch": KernelLaunch, "kl_response": Response}
    expected = []
    lines = []
    for struct, cls in structs.items():
        offset = 0
        for member in layout(cls).members:
            suffix = "" if not member.in_tail else "_count" if member.record else "_bytes"
            lines.append(f'printf("%zu\\n", offsetof(struct {struct}, {member.name}{suffix}));')
            expected.append(offset)
            offset += {"U16": 2, "U64": 8}.get(member.wire, 4)
        assert len(layout(cls).members) == len(fields(cls))
    source = tmp_path / "offsets.c"
    source.write_text(
        '#include <stddef.h>\n#include <stdio.h>\n#include "kernloom/messages.h"\n'
        f"int main(void) {{ {''.join(lines)} return KL_VERSION != {messages.VERSION}; }}\n"
    )
    program = tmp_path / "offsets"
    subprocess.run([compiler, f"-I{INCLUDE}", str(source), "-o", str(program)], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert [int(line) for line in printed.split()] == expected
