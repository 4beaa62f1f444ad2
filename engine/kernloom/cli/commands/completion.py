"""Print a script that completes the words of `kernloom` in a shell.

It completes commands, flags, config groups and their options, keys of the config and values, in any
project. Source it where your shell starts:

  source <(kernloom completion bash)       # in ~/.bashrc
  source <(kernloom completion zsh)        # in ~/.zshrc
  kernloom completion fish | source        # in ~/.config/fish/config.fish
"""

from __future__ import annotations

import json
from pathlib import Path

from kernloom.base.errors import UsageError, nearest
from kernloom.cli.invocation import Invocation, without_output

USAGE = "bash|zsh|fish"
ACTIONS = {
    "bash": "source <(kernloom completion bash)",
    "zsh": "source <(kernloom completion zsh)",
    "fish": "kernloom completion fish | source",
}
"""Shell -> how its script is sourced."""
_SCRIPTS = Path(__file__).resolve().parents[1] / "completion" / "scripts"


def run(invocation: Invocation) -> int:
    words = without_output(invocation.words)
    if not words:
        # Not on stdout, where a shell may be reading a script.
        print(f"usage: kernloom completion {USAGE}\n\n{__doc__.strip()}", file=invocation.stderr)
        return 2
    shell, *rest = words
    if shell not in ACTIONS:
        raise UsageError(f"no completion for '{shell}'", hint=nearest(shell, ACTIONS))
    if rest:
        raise UsageError(f"'completion {shell}' takes no '{rest[0]}'")
    script = (_SCRIPTS / f"kernloom.{shell}").read_text(encoding="utf-8")
    if invocation.for_people:
        print(script, end="", file=invocation.stdout)
    else:
        print(json.dumps({"shell": shell, "script": script}), file=invocation.stdout)
    return 0
