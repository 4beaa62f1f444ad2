"""Hazards on whole devices: 200 that are put into random graphs, and none in clean ones. Looks into
launches: traces, dependencies, tasks that run again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import attacks

sys.path.append(str(Path(__file__).resolve().parent))

from script_programs import run_scripts

SANITIZED = ("-O0", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
GRAPHS = 10_000 if attacks.whole() else 300


@pytest.mark.parametrize(
    ("flags", "graphs"), [(("-O1",), GRAPHS), (SANITIZED, GRAPHS // 10)], ids=["plain", "asan"]
)
def test_every_injected_hazard_is_found_and_none_in_clean_graphs(
    flags: tuple[str, ...], graphs: int, tmp_path: Path
) -> None:
    run_scripts(["hazards_test"], tmp_path, flags, HAZARDS=200, GRAPHS=graphs)


@pytest.mark.parametrize("flags", [("-O1",), SANITIZED], ids=["plain", "asan"])
def test_looks_into_launches(flags: tuple[str, ...], tmp_path: Path) -> None:
    whole = attacks.whole() and flags != SANITIZED
    traced, replays = (1000, 300) if whole else (2, 30)
    run_scripts(["looking_test"], tmp_path, flags, TRACED=traced, REPLAYS=replays)
