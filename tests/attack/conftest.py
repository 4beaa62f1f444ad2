"""Attacks: many seeded cases of one kind of damage or hostility, counted and reported by kind."""

from __future__ import annotations

import random

import pytest

from attacks import Attack


@pytest.fixture
def attack(request: pytest.FixtureRequest) -> Attack:
    """The attack that a test carries out; its counts appear in the summary of the run."""
    kind = request.node.name.removeprefix("test_attack_").replace("_", " ")
    attack = Attack(kind, random.Random(kind), whole=request.config.getoption("--attack"))
    request.node.user_properties.append(("attack", attack.counts))
    return attack
