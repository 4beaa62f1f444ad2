"""What the actions of `kernloom recipe` share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernloom.base.errors import UsageError
from kernloom.cli.invocation import Invocation, without_output
from kernloom.run.assembly import Assembly


def files_of(invocation: Invocation, names: Sequence[str]) -> list[str]:
    """The arguments after the action: one for each name."""
    given = list(without_output(invocation.words))[1:]
    if len(given) != len(names):
        action = invocation.words[0]
        raise UsageError(f"say: kernloom recipe {action} {' '.join(names)}")
    return given


def local_config(assembly: Assembly, invocation: Invocation) -> Mapping[str, Any]:
    """A composed config for everything that recipes omit."""
    # Tasks of a cluster compose their points from overrides, which a recipe does not have.
    output = invocation.output if invocation.output in ("table", "json", "jsonl") else "table"
    here = assembly.composer.choose({"output": output, "fleet": "local"})
    return next(iter(assembly.composer.points(here))).data
