"""No kernel of the table ranks, and the honest twin of each does."""

from __future__ import annotations

import pytest
from cheat_trials import OPENCL, ends, verdict
from cheats import CHEATS, SMALL

from attacks import Attack, whole
from command_line import Project
from parts import needs_opencl

AT_ONCE = 12
"""Kernels of one sweep, each with its twin."""
SMALL_OPENCL = 4
"""Kernels of the normal run."""


@pytest.mark.parametrize("policy", ["quick", "standard", *(["rigorous"] if whole() else [])])
def test_attack_cheats(attack: Attack, project: Project, policy: str) -> None:
    known = [name for name, cheat in CHEATS.items() if policy != "quick" or cheat.policy == policy]
    names = list(attack.cases(known, small=SMALL[policy]))
    for start in range(0, len(names), AT_ONCE):
        some = names[start : start + AT_ONCE]
        trials = ends(project, some, policy)
        for name in some:
            if problem := verdict(name, trials):
                attack.failed(problem)
    attack.check()


def test_attack_cheats_opencl(attack: Attack, project: Project) -> None:
    needs_opencl()
    names = list(attack.cases(list(OPENCL.cheats), small=SMALL_OPENCL))
    trials = ends(project, names, "quick", OPENCL)
    for name in names:
        if problem := verdict(name, trials, OPENCL):
            attack.failed(problem)
    attack.check()


def test_the_table_is_whole() -> None:
    assert len(CHEATS) >= 30
    for cheat in (*CHEATS.values(), *OPENCL.cheats.values()):
        assert cheat.about
        assert (cheat.body, cheat.lines) != (cheat.twin, cheat.lines + cheat.twin_lines)
