"""Searches over a fake engine: budgets, failures, interrupts, memory, other engines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kernloom.base.errors import ConfigError, KernloomError, UnavailableError
from kernloom.config.settings import SearchSettings
from kernloom.measure.trial import Trial
from kernloom.run.execution import Results
from kernloom.run.progress import NoProgress
from kernloom.space.axes import Axis
from kernloom.space.requirements import Requirement
from kernloom.space.space import Space
from kernloom.tune.known_points import KnownPoint, Similar
from kernloom.tune.objective import objectives_of
from kernloom.tune.strategies.random import RandomSearch
from kernloom.tune.strategy import STRATEGIES
from kernloom.tune.study import History, Study, StudyProgress
from kernloom.tune.tunables import Point

SPACE = Space(
    (
        Axis(("a",), ((1, 2, 4, 8),)),
        Axis(("b",), ((False, True),)),
        Axis(("toolchain",), (("gcc", "clang"),)),
        Axis(("c",), ((0, 1, 2),)),
    ),
    (Requirement("a * c < 16"),),
)
POINTS = list(SPACE)
UNCOMPILED = "does not compile"
FAST = ("random", "grid", "local", "genetic", "annealing")
Outcomes = Callable[[Point], Trial]


def key(point: Point) -> str:
    return repr(sorted(point.items()))


def timed(point: Point) -> Trial:
    """A cost that has one smallest value."""
    cost = 100 + 10 * abs(point["a"] - 4) + point["c"] + 5 * point["b"]
    cost += 3 * (point["toolchain"] == "clang")
    return Trial(
        key(point),
        "w",
        "default",
        "host",
        "ok",
        True,
        metrics={"median_ns": cost, "size": 9 - cost},
    )


def failing(statuses: Sequence[str], share: float, seed: int) -> Outcomes:
    """Some points fail, the same ones whenever they are tried."""

    def outcome(point: Point) -> Trial:
        random = Random(f"{seed} {key(point)}")
        if random.random() >= share:
            return timed(point)
        status = random.choice(list(statuses))
        return replace(timed(point), status=status, verified=False, metrics={}, message=status)

    return outcome


@dataclass
class World:
    """Trials that are stored, and what has happened."""

    outcome: Outcomes = timed
    stored: dict[str, tuple[Point, Trial]] = field(default_factory=dict)
    executed: list[str] = field(default_factory=list)
    interrupt_at: int = -1
    """Number of trials after which the run is interrupted."""
    gone_at: int = -1
    """Number of trials after which the store is gone."""
    others: Callable[[], Iterable[Point]] = lambda: ()
    """The points that another engine evaluates between two batches."""
    similar: Sequence[Point] = ()
    refused: Callable[[Point], bool] = lambda point: False
    """Points that cannot be planned."""
    uncompiled: Callable[[Point], bool] = lambda point: False
    """Points with one source, which the compiler refused in an earlier study."""

    # As an execution

    def execute(self, plans: Sequence[Any]) -> Results:
        results, trials = Results(), []
        for plan in plans:
            if len(self.executed) == self.interrupt_at:
                results.interrupted = True
                break
            if len(self.executed) == self.gone_at:
                results.failure = UnavailableError("the store is gone")
                break
            trial = self.outcome(plan.point)
            self.executed.append(plan.id)
            self.stored[plan.id] = plan.point, trial
            trials.append(trial)
        results.trials = trials
        return results

    # As what is known

    def of_this_work(self) -> Iterator[KnownPoint]:
        for point, trial in list(self.stored.values()):
            if trial.id not in self._told:
                self.seen(trial.id)
                yield KnownPoint(point, trial)

    def others_of(self) -> Iterator[KnownPoint]:
        for point in (one for one in self.others() if not self.refused(one)):
            self.stored.setdefault(key(point), (point, self.outcome(point)))
        return self.of_this_work()

    def seen(self, id: str) -> None:
        self._told.add(id)

    def study(self, strategy: str = "random", *, objective: Any = None, **settings: Any) -> Study:
        search = SearchSettings(strategy=strategy, **settings)
        self._told: set[str] = set()

        def planned(point: Point, more: Any) -> Any:
            if self.refused(point):
                raise ConfigError("this point is refused")
            id = UNCOMPILED if self.uncompiled(point) else key(point)
            return SimpleNamespace(id=id, point=point)

        def not_compiling(plans: Sequence[Any]) -> dict[str, Trial]:
            failed = Trial(UNCOMPILED, "w", "default", "host", "build_failed", False)
            return {plan.id: failed for plan in plans if plan.id == UNCOMPILED}

        plan: Any = SimpleNamespace(
            search=search,
            experiment=SimpleNamespace(timeout=60.0, build=SimpleNamespace(jobs=2), fleet={}),
            models=(POINTS[5],),
            given=(),
            study=SimpleNamespace(space=SPACE),
            plan=planned,
            refused=lambda point, error: Trial("", "w", "default", "host", "refused", False),
        )
        known: Any = SimpleNamespace(
            of_this_work=self.of_this_work,
            others=self.others_of,
            seen=self.seen,
            not_compiling=not_compiling,
            similar=lambda: (Similar(point, "a trial", 1.0) for point in self.similar),
        )
        progress = StudyProgress(NoProgress(), search.trials)
        return Study(plan, objectives_of(objective), self, known, progress)  # type: ignore[arg-type]

    def run(self, strategy: str = "random", **settings: Any) -> History:
        return self.study(strategy, **settings).run()


def check(history: History, world: World, settings: dict[str, Any]) -> None:
    """What holds of every search."""
    points = [key(one.point) for one in history.all]
    assert len(set(points)) == len(points), "a point is evaluated twice"
    assert all(SPACE.contains(one.point) for one in history.all)
    trials = settings.get("trials")
    own = sum(not one.known for one in history.all)
    assert trials is None or own <= trials
    assert len(set(world.executed)) == len(world.executed), "a stored point is measured again"
    for one in history.all:
        cost = one.trial.metrics.get("median_ns") if one.trial.good else None
        assert one.costs == (None if cost is None else (cost,))
    good = [one.costs[0] for one in history.all if one.costs]
    best = history.best()
    assert (best.costs[0] if best and best.costs else math.inf) == min(good, default=math.inf)
    assert history.ended
    if not history.interrupted and not history.failure:
        if history.ended.endswith("(search.trials)"):
            assert len(history.all) >= trials
        elif history.ended.endswith("(search.patience)"):
            last = next(n for n, one in enumerate(history.all, 1) if one.costs and one is best)
            assert len(history.all) - last >= settings["patience"]
        else:
            assert history.ended == "every point was tried"
            assert len(history.all) == len(POINTS)


@pytest.mark.parametrize("block", range(10))
def test_whatever_fails_every_point_is_tried_once_and_the_best_is_the_best(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        random = Random(seed)
        share = random.choice([0.0, 0.2, 0.8, 1.0])
        statuses = ("wrong", "crashed", "timeout", "build_failed", "suspicious", "refused")
        world = World(failing(statuses, share, seed))
        if random.random() < 0.3:
            world.refused = lambda point: point["c"] == 2 and point["b"]
        if random.random() < 0.3:
            world.others = lambda random=random: random.sample(POINTS, 2)  # type: ignore[misc]
        if random.random() < 0.3:
            world.similar = random.sample(POINTS, 3)
        settings = {
            "trials": random.choice([None, 1, 5, 20, 1000]),
            "patience": random.choice([None, 3, 10]),
            "batch": random.choice([0, 1, 3, 50]),
            "seed": seed,
        }
        strategy = "auto" if seed % 50 == 0 else random.choice(FAST)
        ends = random.choice([-1, -1, random.randrange(12)])
        world.interrupt_at, world.gone_at = random.sample([ends, -1], 2)
        try:
            history = world.run(strategy, **settings)
        except UnavailableError:
            assert world.gone_at == 0
            continue
        check(history, world, settings)
        # Again, and this time to its end: what is stored is not measured again.
        world.interrupt_at = world.gone_at = -1
        world.others = lambda: ()
        again = world.run(strategy, **settings)
        check(again, world, settings)
        assert {key(one.point) for one in history.all if one.trial.id} <= {
            key(one.point) for one in again.all
        }
        assert not again.interrupted
        assert again.failure is None


@pytest.mark.parametrize("strategy", ["auto", *FAST])
def test_engines_that_share_a_store_evaluate_each_point_once(strategy: str) -> None:
    world = World()
    other = World(stored=world.stored)

    def step() -> list[Point]:
        """Between two batches of the first engine, the second evaluates some of its own."""
        mine = [point for point in POINTS if key(point) not in world.stored][:3]
        for point in mine:
            other.executed.append(key(point))
        return mine

    world.others = step
    history = world.run(strategy, trials=None, batch=4)
    assert sorted(world.executed + other.executed) == sorted(map(key, POINTS))
    assert len(history.all) == len(POINTS)
    assert history.known == len(other.executed)


def test_points_that_the_compiler_refused_before_are_known_and_not_tried_again() -> None:
    world = World(uncompiled=lambda point: bool(point["b"]))
    history = world.run("random", trials=None, batch=50)
    assert history.ended == "every point was tried"
    assert sorted(key(one.point) for one in history.all) == sorted(map(key, POINTS))
    assert all(one.known == one.point["b"] for one in history.all)
    assert len(world.executed) == sum(not point["b"] for point in POINTS)


def test_seconds_end_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 2))
    monkeypatch.setattr("kernloom.tune.study.time.monotonic", lambda: float(next(clock)))
    history = World().run(trials=None, seconds=7, batch=1)
    assert history.ended == "7 s (search.seconds)"
    assert 1 < len(history.all) < 6


def test_all_points_fail() -> None:
    history = World(failing(["crashed"], 1.0, 0)).run("auto", trials=None, patience=2)
    assert history.best() is None
    assert len(history.all) == len(POINTS), "patience waits for a first good point"


def test_the_first_points_are_those_of_the_model_and_of_similar_work() -> None:
    world = World(similar=(POINTS[9], POINTS[3], POINTS[5]))
    history = world.run("auto", trials=4, batch=1)
    assert [one.point for one in history.all][:3] == [POINTS[5], POINTS[9], POINTS[3]]
    assert [one.origin for one in history.all] == ["model", "similar", "similar", "search"]
    assert World(similar=world.similar).run("auto", trials=4, memory=False).similar == ()


def test_several_objectives_are_searched_together() -> None:
    history = World().run("random", objective=["median_ns", "size"], trials=10)
    assert all(len(one.costs or ()) == 2 for one in history.all)
    assert len({key(one.point) for one in history.all}) == 10


class Broken(RandomSearch):
    name = "broken"
    about = "does what a test says"
    how = ""

    def ask(self, count: int) -> list[Point]:
        if not self.results or self.how == "tell":
            return super().ask(count)
        if self.how == "repeats":
            return [POINTS[5]]
        if self.how == "outside":
            return [{**POINTS[5], "a": 3}]
        if self.how == "invalid":
            return [{**POINTS[5], "a": 8, "c": 2}]
        if self.how == "no list":
            return None  # type: ignore[return-value]
        return [1 / 0]  # type: ignore[list-item]

    def tell(self, point: Point, value: float | None) -> None:
        if self.how == "tell":
            raise RuntimeError("told")
        super().tell(point, value)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raises", "strategy 'broken' failed in ask: ZeroDivisionError: division by zero"),
        ("tell", "strategy 'broken' failed in tell: RuntimeError: told"),
        ("repeats", "strategy 'broken' suggests the same points for ever"),
        ("outside", "which is not a valid point of the space"),
        ("invalid", "a constraint does not hold: "),
        ("no list", "strategy 'broken' gave None, not a list"),
    ],
)
def test_a_broken_strategy_ends_the_search_with_what_was_found(
    monkeypatch: pytest.MonkeyPatch, how: str, said: str
) -> None:
    monkeypatch.setattr(Broken, "how", how)
    monkeypatch.setitem(STRATEGIES._known, "broken", Broken)
    history = World().run("broken", batch=2)
    assert isinstance(history.failure, KernloomError)
    assert said in str(history.failure)
    assert len(history.all) == 2
    assert history.ended == "an error"
