"""Search for the best parameters.

With space=FILE, strategies search a recorded space (a cache of Kernel Tuner or T4, plain or .gz)
without a device, several times with consecutive seeds. The score is 0 for random search and 1 for
the best point at once. budget=N is the number of evaluations; the default is the number after
which random search is expected to be 95% of the way from the median to the best.

  kernloom tune space=recorded.json.gz
  kernloom tune space=recorded.json strategy=auto,genetic budget=100 repeats=20 seed=0
  kernloom tune space=results.t4.json objective=median_ns output=json
"""

from __future__ import annotations

from kernloom.base.errors import UsageError
from kernloom.cli.invocation import Flag, Invocation

USAGE = (
    "space=FILE [strategy=NAME,...] [budget=N] [repeats=N] [seed=N] [objective=NAME] [output=json]"
)
FLAGS: dict[str, Flag] = {}


def run(invocation: Invocation) -> int:
    if any(word.startswith("space=") for word in invocation.words):
        from kernloom.cli import replays

        return replays.run(invocation)
    raise UsageError(
        "'tune' needs a recorded space: space=FILE",
        hint="`kernloom results output=t4 --to FILE` writes one of stored trials.",
    )
