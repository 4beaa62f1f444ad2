"""Starts SCons while a sweep or a study is still being planned, if its first point is not built."""

from __future__ import annotations

import contextlib
import os

from kernloom.plan.artifact import FOLDERS
from kernloom.plan.planned import Planned
from kernloom.run.assembly import Assembly
from kernloom.run.fleets import fleet_kind


class EarlyStart:
    """Looks at the first planned point that can be built. A wrong guess costs the start of a
    process on another core; what is built does not depend on it."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._decided = False

    def __call__(self, plan: Planned) -> None:
        if self._decided or plan.refusal or not plan.artifacts:
            return
        self._decided = True
        if fleet_kind(plan.experiment.fleet).on_this_machine and self._cold(plan):
            self._assembly.builder(plan.experiment).prepare()

    def _cold(self, plan: Planned) -> bool:
        build = self._assembly.places.build
        if plan.experiment.screen.keep:
            # Screened kernels are built in batches, which are not known yet.
            with contextlib.suppress(OSError):
                return not os.listdir(build / FOLDERS["batch"])  # noqa: PTH208 (no list of paths)
            return True
        return not all(artifact.path(build).exists() for artifact in plan.artifacts)
