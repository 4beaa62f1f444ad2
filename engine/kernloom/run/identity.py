"""A trial's id: the hash of the facts that can change its result."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernloom.base.errors import ConfigError
from kernloom.base.files import canonical_json, file_stamp, sha256_file, sha256_text
from kernloom.base.places import confined
from kernloom.base.remember import ById
from kernloom.config.schema import Experiment
from kernloom.run.assembly import Assembly
from kernloom.run.facts import Facts, facts_anywhere, facts_of

if TYPE_CHECKING:
    from kernloom.run.planning import Planned

ID_LENGTH = 16
_texts: ById[str] = ById()


def identity(plan: Planned) -> str:
    """A trial's id."""
    return digest_of(facts_of(plan))


def identity_anywhere(assembly: Assembly, plan: Planned) -> str:
    """Hash of what makes plans the same on whichever machine they are made: `identity` less what
    describes this one."""
    baselines: dict[str, Any] = {
        name: [identity_anywhere(assembly, baseline.plan), *baseline.made_of]
        if baseline.plan
        else baseline.identity
        for name, baseline in plan.baselines.items()
    }
    arch = assembly.arch_as_asked(plan.point.data["arch"])
    return digest_of(facts_anywhere(facts_of(plan), arch, baselines))


def digest_of(facts: Facts) -> str:
    """The hash of facts; the text of what points share is made once."""
    shared = _texts.get(canonical_json, facts.shared)
    return sha256_text(f"{shared}\n{canonical_json(facts.own)}")[:ID_LENGTH]


def data_files(assembly: Assembly, experiment: Experiment) -> dict[str, str]:
    """Hashes of the files that tensors are filled from."""
    found = {}
    for name, tensor in experiment.workload.tensors.items():
        if tensor.fill.kind == "file":
            key = f"workload.tensors.{name}.fill.path"
            path = confined(
                str(tensor.fill.path), list(assembly.places.roots), key=key, what="data file"
            )
            try:
                found[name] = _hash(path, *file_stamp(path))
            except OSError as error:
                raise ConfigError(
                    f"data file '{tensor.fill.path}' cannot be read: {error.strerror}", key=key
                ) from None
    return found


@cache
def _hash(path: Path, *stamp: int) -> str:
    """Of a file as it was at this stamp: the points of a sweep share it."""
    return sha256_file(path)
