"""Flags of scene files and of pytest. Data alone: pytest imports it in runs without scenes, too."""

from __future__ import annotations

from typing import Literal, get_args

Manual = Literal["exclude", "include", "only"]
MANUAL: tuple[Manual, ...] = get_args(Manual)
PREFIX = "kernloom-"
"""Prefix of the flags in pytest."""
VALUES = {
    "target": ("NAME,...", "run on these targets; default: every target of a case"),
    "case": ("NAME|SCENE::NAME", "run these cases, or those of this scene"),
    "runtime": ("NAME,...", "run with these task runtimes, where a target has them"),
    "rounds": ("N", "run each case so many times; virtual time must not vary"),
    "manual": ("MODE", "manual cases: exclude (default), include or only"),
}
"""Flag -> the form of its value, and its help."""
SWITCHES = {
    "skip-golden": "run without comparing with goldens",
}
ACCEPT = {"accept": "commit the virtual times from now on, and show what changed"}
"""Not a flag of pytest, which changes no files."""
