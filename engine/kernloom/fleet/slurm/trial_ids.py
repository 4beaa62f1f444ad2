"""Maps the points of this machine to trials measured on the nodes of a cluster.

A trial's identity includes the node that measured it, which the submitting machine cannot know. So
gathered trials are recorded: the plan's key, which is the same on every login node, and the trial's
id.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from kernloom.base.files import sha256_json
from kernloom.base.sealed import key_of, seal, unseal
from kernloom.fleet.slurm.settings import SlurmSettings
from kernloom.plan.identity import ID_LENGTH


def node_pool_of(fleet: SlurmSettings) -> str:
    """A name for the nodes that a fleet's tasks may run on: other nodes, other trials."""
    return sha256_json([fleet.kind, fleet.partition, dict(fleet.options)])[:8]


def unmeasured_id(plan: str, place: str) -> str:
    """The id of a trial that no node has run: it has no machine's identity and cannot collide with
    a measured trial."""
    return sha256_json([plan, place])[:ID_LENGTH]


class TrialIdLog:
    """Plan key -> trial id, in one file per sweep, which only one engine at a time writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def trials(self) -> dict[str, str]:
        found: dict[str, tuple[float, str]] = {}
        for path in self._folder.glob("*.jsonl"):
            with suppress(OSError):
                stamp = path.stat().st_mtime
                for line in path.read_bytes().splitlines():
                    # The last line may be torn; the point of a damaged line is measured again.
                    with suppress(ValueError):
                        plan, trial = _entry(line, key_of(path))
                        if found.get(plan, (0.0, ""))[0] <= stamp:
                            found[plan] = (stamp, trial)
        return {plan: trial for plan, (_, trial) in found.items()}

    def add(self, sweep: str, plan: str, trial: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{sweep}.jsonl"
        with path.open("a", encoding="utf-8") as file:
            file.write(seal({"plan": plan, "trial": trial}, key_of(path)) + "\n")


def _entry(line: bytes, key: str) -> tuple[str, str]:
    """Plan key and trial id of a line. Older Kernlooms wrote a list without a hash: a damaged one
    names a trial or plan that does not exist."""
    if line.startswith(b"["):
        plan, trial = json.loads(line)
        return str(plan), str(trial)
    data = unseal(line, key)
    return data["plan"], data["trial"]
