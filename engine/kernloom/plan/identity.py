"""A trial's id: the hash of the facts that can change its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from kernloom.base.digest import DigestCache
from kernloom.base.errors import ConfigError
from kernloom.base.files import canonical_json, file_stamp, sha256_file, sha256_text
from kernloom.base.places import confined
from kernloom.config.schema import Experiment
from kernloom.plan.facts import facts_anywhere
from kernloom.plan.planned import Facts, Planned

ID_LENGTH = 16


def identity(facts: Facts) -> str:
    """A trial's id. The text of shared facts is made once."""
    shared = facts.shared.derive(canonical_json)
    return sha256_text(f"{shared}\n{canonical_json(facts.own)}")[:ID_LENGTH]


def identity_anywhere(
    plan: Planned, arch_as_asked: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> str:
    """Hash of the facts that are equal on every machine: `identity` without the facts of this
    machine, and with the arch as requested."""
    peers: dict[str, Any] = {
        name: [identity_anywhere(peer.plan, arch_as_asked), *peer.made_of]
        if peer.plan
        else peer.identity
        for name, peer in plan.peers.items()
    }
    arch = arch_as_asked(plan.point.data["arch"])
    return identity(facts_anywhere(plan.facts, arch, peers))


def data_files(experiment: Experiment, folders: list[Path], cache: DigestCache) -> dict[str, str]:
    """Hashes of the files that fill tensors."""
    found = {}
    for name, tensor in experiment.workload.tensors.items():
        if tensor.fill.kind == "file":
            key = f"workload.tensors.{name}.fill.path"
            path = confined(str(tensor.fill.path), folders, key=key, what="data file")
            try:
                # Cached by stamp: the points of a sweep share it.
                found[name] = cache.by_key(
                    (sha256_file, path, *file_stamp(path)), partial(sha256_file, path)
                )
            except OSError as error:
                raise ConfigError(
                    f"data file '{tensor.fill.path}' cannot be read: {error.strerror}", key=key
                ) from None
    return found
