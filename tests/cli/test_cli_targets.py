"""What is wrong with a target's emulator or images is said in one line, as an error or a status."""

from __future__ import annotations

import shutil

import pytest

from command_line import Project
from parts import needs

SPOILS = """\
#!/bin/sh
"{compiler}" "$@" || exit
for word; do
    case $word in *.elf) {spoil} ;; esac
done
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        ('echo hello >"$word"', "it is not an ELF file"),
        ('cp /bin/sh "$word"', "it is for 64-bit x86-64, and the part is 32-bit Arm"),
        ('truncate -s 60 "$word"', "it is a broken ELF file"),
    ],
)
def test_an_image_that_is_none_for_the_part_is_refused(
    project: Project, spoil: str, why: str
) -> None:
    needs("arm-none-eabi-gcc", "qemu-system-arm")
    text = SPOILS.format(compiler=shutil.which("arm-none-eabi-gcc"), spoil=spoil)
    compiler = project.write("spoiling-gcc", text)
    compiler.chmod(0o755)
    words = ["run", "workload=axpy", "case=small", "target=cortex_m7"]
    trial = project.json(*words, f"toolchain.tools.cc={compiler}").trial
    assert trial["status"] == "refused"
    assert f"cannot be put on part 'cortex_m7': {why}" in trial["message"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("board", "why"),
    [("nothing", "unsupported machine type"), ("mps2-an385", "qemu: fatal: Lockup")],
)
def test_a_board_that_does_not_fit_is_explained_in_the_emulators_own_words(
    project: Project, board: str, why: str
) -> None:
    """The second has a Cortex-M3, to which floating-point instructions mean nothing."""
    needs("arm-none-eabi-gcc", "qemu-system-arm")
    words = ["run", "workload=axpy", "case=small", "target=cortex_m7"]
    trial = project.json(*words, f"target.emulator.args=[-M,{board}]").trial
    assert trial["status"] == "crashed"
    assert why in trial["message"]
