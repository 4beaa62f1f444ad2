"""Plain `scons` killed at random moments: the next run completes, and makes the same files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from random import Random

from attacks import Attack
from command_line import PATIENCE_S, working_in
from source_tree import copy_tree

TARGETS = ("build/lib/x86_64_v3/release/none/runner", "build/lib/a5/sim/hostgraph/core.so")


def scons(tree: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "SCons", "-Q", *TARGETS],
        cwd=tree,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def hashes(tree: Path) -> dict[str, str]:
    """Path below build/ -> hash, of objects and programs."""
    found = [*tree.glob("build/objects/*/*.o"), *tree.glob("build/runtimes/*/*")]
    return {
        str(path.relative_to(tree)): sha256(path.read_bytes()).hexdigest()
        for path in found
        if path.is_file() and path.name != "manifest.json"
    }


def test_attack_scons(attack: Attack, tmp_path: Path) -> None:
    tree = copy_tree(tmp_path).folder
    assert scons(tree).wait(PATIENCE_S) == 0
    wanted = hashes(tree)
    assert wanted
    for number in attack.cases(range(20), small=1):
        random = Random(number)
        # The cache of facts about compilers stays in half of the cases: then it is quicker.
        for path in (tree / "build").iterdir():
            if path.name != "cache" or number % 2:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for _ in range(random.randint(1, 3)):
            process = scons(tree)
            try:
                process.wait(random.uniform(0.3, 4))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE_S)
        if scons(tree).wait(PATIENCE_S):
            attack.failed(f"case {number}: the next run fails")
        if (found := hashes(tree)) != wanted:
            attack.failed(f"case {number}: {found.items() ^ wanted.items()}")
        if left := list((tree / "build" / "tmp").iterdir()):
            attack.failed(f"case {number}: files are left: {left}")
        if still := working_in(tree):
            attack.failed(f"case {number}: processes are left: {still}")
    attack.check()
