"""Recipes: a request that a person writes, with claims; and a lock, with which anybody can check
that they get the same config (L1), the same bytes (L2) and the same results (L3).

  kernloom run workload=mlp recipe=mlp.yaml       # writes request and lock of a run, also with -m
  kernloom recipe save 3f2a81c0 mlp.yaml          # of a stored trial; or of several: workload=mlp
  kernloom recipe lock mlp.yaml                   # runs a hand-written request and adds its lock
  kernloom recipe run mlp.yaml                    # runs the same configs and parameters again
  kernloom recipe verify mlp.yaml --require L2    # rebuilds, runs, and judges every claim
  kernloom recipe verify mlp.yaml --proxy         # a first look, in a few minutes
  kernloom recipe show mlp.yaml                   # a page about it
  kernloom recipe diff old.yaml new.yaml          # what differs, the machines included
  kernloom recipe pack mlp.yaml mlp.tar.gz        # with all sources, for another machine
  kernloom recipe unpack mlp.tar.gz folder        # shows what is in it, and unpacks it
  kernloom recipe appendix mlp.yaml               # for an artifact evaluation, in Markdown

A claim is a line: `vs openblas >= 1.05 within 3%`, `instructions == 133440 on target=aarch64`,
`median_ns(vectors=4) < median_ns(vectors=1)`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from kernloom.base.errors import UsageError, nearest
from kernloom.cli.invocation import Flag, Invocation

USAGE = "save | lock | run | verify | show | diff | pack | unpack | appendix  FILE ..."
READS_CONFIGS = True
REPORT = "run"
FLAGS = {
    "require": Flag("verify: exit code 1 unless this level is reached: L1, L2 or L3", "LEVEL"),
    "rounds": Flag("verify: rebuild this often, each time in a new folder", "N"),
    "proxy": Flag("verify: only a first look, with the overrides of `proxy`"),
    "beside": Flag("lock: write the lock to NAME.lock.yaml beside the recipe"),
    "baseline": Flag("save: the trials of a named baseline", "NAME"),
    "trust": Flag("unpack: the sources in it were looked at"),
}
ACTIONS = {
    "save": "write the recipe of stored trials",
    "lock": "run a request and add its lock",
    "run": "replay a recipe file",
    "verify": "check levels and claims",
    "show": "a page about a recipe",
    "diff": "what differs between two recipes",
    "pack": "an archive with all sources",
    "unpack": "show and unpack such an archive",
    "appendix": "Markdown for an artifact evaluation",
}
_MODULES = {
    "saving": ("save", "lock"),
    "replaying": ("run", "verify"),
    "reading": ("show", "diff", "appendix"),
    "packing": ("pack", "unpack"),
}
_FLAGS = {
    "verify": ("require", "rounds", "proxy"),
    "lock": ("beside",),
    "save": ("baseline",),
    "unpack": ("trust",),
}
"""Action -> its flags."""


def run(invocation: Invocation) -> int:
    action = invocation.words[0] if invocation.words else ""
    if action not in ACTIONS:
        raise UsageError(f"unknown recipe command '{action}'", hint=nearest(action, ACTIONS))
    for flag in invocation.flags:
        if flag in FLAGS and flag not in _FLAGS.get(action, ()):
            whose = next(name for name, flags in _FLAGS.items() if flag in flags)
            raise UsageError(f"--{flag} is a flag of `recipe {whose}`, not of `recipe {action}`")
    if action != "run" and invocation.output not in ("table", "json"):
        raise UsageError(
            f"'recipe {action}' has no output={invocation.output}", hint="Allowed: table, json."
        )
    module = next(name for name, actions in _MODULES.items() if action in actions)
    execute: Callable[[Invocation], int] = getattr(
        import_module(f"kernloom.cli.recipe.{module}"), action
    )
    return execute(invocation)
