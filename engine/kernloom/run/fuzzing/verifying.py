"""Verifies planned draws, one after the other in a session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kernloom.base.errors import DeviceError, KernloomError
from kernloom.measure.bench import LONGEST_S, Setup
from kernloom.plan.planned import Planned
from kernloom.run.fuzzing.draws import Draw
from kernloom.run.fuzzing.judging import FuzzData, judge
from kernloom.run.fuzzing.session import SharedSession
from kernloom.run.trials import Trials

DRAWS_PER_SESSION = 50
"""Draws that are planned and built together, and share a session; freed memory keeps its
addresses."""


@dataclass(frozen=True)
class Drawn:
    """A planned draw."""

    draw: Draw
    plan: Planned


class DrawVerifier:
    """Verifies planned draws in sessions that they share."""

    def __init__(self, trials: Trials, data: FuzzData) -> None:
        self._trials = trials
        self._data = data
        self._session: SharedSession | None = None
        self.before: list[Drawn] = []
        """Draws that ran in the open session."""

    def verify(self, item: Drawn) -> KernloomError | None:
        """What is wrong with a draw, in the shared session."""
        if self._session is None or len(self.before) >= DRAWS_PER_SESSION:
            self.close()
        try:
            self._trials.check_built(item.plan)
            if self._session is None:
                self._session = self._opened(item)
            self._launch(item, self._session)
            self.before.append(item)
        except KernloomError as error:
            self.close()
            return error
        except MemoryError:
            self.close()
            return DeviceError("the engine ran out of memory", status="out_of_memory")
        return None

    def verify_alone(self, *items: Drawn) -> KernloomError | None:
        """What is wrong with the last of some draws, in a session of their own."""
        self.close()
        for item in items:
            error = self.verify(item)
        self.close()
        return error

    def close(self) -> None:
        session, self._session = self._session, None
        self.before.clear()
        if session is not None:
            session.close()

    def _opened(self, item: Drawn) -> SharedSession:
        with self._trials.bench(item.plan) as bench:
            timeout = min(item.plan.experiment.timeout, LONGEST_S)
            return SharedSession(bench.device.open(timeout=timeout))

    def _launch(self, item: Drawn, session: SharedSession) -> None:
        with self._trials.bench(item.plan) as bench, _draw_of(session, item.draw):
            setup = Setup(bench, session, item.plan.steps, item.plan.experiment.seed)
            judge(bench, setup, self._data)


@contextmanager
def _draw_of(session: SharedSession, draw: Draw) -> Iterator[None]:
    session.begin(draw.offsets)
    yield
    session.end()
