"""Samples of sweeps: random ones and Latin hypercubes, as large as asked, within constraints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kernloom.base.errors import KernloomError
from kernloom.config.compose import Composer, Point
from parsed import points_of

Sweep = Callable[..., list[Point]]
Project = Callable[[Mapping[str, str]], Composer]

M, N, K = (f"workload.sizes.{name}" for name in "MNK")
MR = "select.fixed.tile.mr"


def test_a_sample_is_the_same_for_the_same_seed_and_has_no_point_twice(sweep: Sweep) -> None:
    axes = [f"{M}=range(1,21)", f"{N}=range(1,21)"]

    def sample(*words: str) -> list[dict[str, Any]]:
        return [point.swept for point in sweep(*axes, "sweep.sample.count=30", *words)]

    first = sample()
    assert sample() == first
    assert len({tuple(point.values()) for point in first}) == 30
    assert sample("sweep.sample.seed=1") != first
    assert all(point[M] < point[N] for point in sample("sweep.where=M < N"))
    assert len(sample("sweep.where=M < N")) == 30


def test_a_latin_hypercube_uses_every_value_equally_often(sweep: Sweep) -> None:
    points = sweep(
        f"{M}=range(0,10)",
        f"{N}=range(0,1000)",
        "toolchain=gcc,clang",
        "sweep.sample={count: 20, method: latin_hypercube}",
    )
    rows = [point.swept for point in points]
    assert sorted(row[M] for row in rows) == sorted([*range(10)] * 2)
    assert sorted(row[N] // 50 for row in rows) == list(range(20))
    assert [row["toolchain"] for row in rows].count("gcc") == 10


def test_a_latin_hypercube_keeps_to_constraints(sweep: Sweep) -> None:
    words = [f"{M}=range(0,10)", f"{N}=range(0,10)", "sweep.where=M + N < 9 and M != N"]
    points = sweep(*words, "sweep.sample={count: 12, method: latin_hypercube}")
    assert len({tuple(point.swept.values()) for point in points}) == 12
    assert all(p.swept[M] + p.swept[N] < 9 and p.swept[M] != p.swept[N] for p in points)


def test_a_sample_of_a_huge_space_does_not_enumerate_it(sweep: Sweep) -> None:
    axes = [f"{name}=range(1,100000000)" for name in (M, N, K, "seed")]
    points = sweep(*axes, "sweep.sample.count=5", "sweep.where=M % 2 == 0 and N < M")
    assert len(points) == 5
    assert all(point.swept[M] % 2 == 0 and point.swept[N] < point.swept[M] for point in points)


def test_constraints_cut_a_large_product_down_while_it_is_walked(sweep: Sweep) -> None:
    axes = [f"{name}=range(0,1000)" for name in (M, N, K)]
    points = sweep(*axes, "sweep.where=['M == 7', 'N == M + 1', 'K == N + 1']")
    assert [tuple(point.swept.values()) for point in points] == [(7, 8, 9)]


def test_a_sample_larger_than_what_there_is_takes_all_and_says_so(
    project: Project, tmp_path: Any
) -> None:
    said: list[str] = []
    composer = project({})
    composer._say = said.append
    words = ["seed=range(0,6)", "sweep.sample.count=10"]
    assert len(list(points_of(composer, words, multirun=True))) == 6
    assert said == ["sweep.sample: 6 of the 10 points asked for were found; all are taken"]
    points = points_of(composer, [*words, "sweep.where=seed < 2"], multirun=True)
    assert len(list(points)) == 2
    assert "2 of the 10" in said[1]


@pytest.fixture
def told(project: Project) -> Callable[..., tuple[list[dict[str, Any]], list[str]]]:
    """The points of a sweep, and what is said about it."""

    def points(*words: str) -> tuple[list[dict[str, Any]], list[str]]:
        said: list[str] = []
        composer = project({})
        composer._say = said.append
        found = points_of(composer, ["arch=x86_64_v2", *words], multirun=True)
        return [point.swept for point in found], said

    return points


Told = Callable[..., tuple[list[dict[str, Any]], list[str]]]
LARGE = [f"{M}=range(1,4001)", f"{N}=range(1,4001)"]


def test_a_sample_finds_the_few_points_that_a_tight_constraint_leaves(told: Told) -> None:
    points, said = told(*LARGE, "sweep.where=M * M == N", "sweep.sample.count=60")
    assert len(points) == 60 and not said
    assert all(point[M] ** 2 == point[N] for point in points)
    points, said = told(*LARGE, "sweep.where=M * M == N", "sweep.sample.count=100")
    assert len(points) == 63
    assert said == ["sweep.sample: 63 of the 100 points asked for were found; all are taken"]
    points, said = told(*LARGE, "sweep.where=M == N", "sweep.sample.count=1000")
    assert len({point[M] for point in points}) == 1000 and not said


def test_a_sample_under_an_equation_is_drawn_from_axes_of_any_length(told: Told) -> None:
    axes = [f"{name}=range(1,1000000000)" for name in (M, N, K)]
    points, said = told(*axes, "sweep.where=M + 1 == N and K > 5", "sweep.sample.count=20")
    assert len({(point[M], point[K]) for point in points}) == 20 and not said
    assert all(point[M] + 1 == point[N] for point in points)


def test_a_sample_that_may_have_missed_points_says_so(told: Told) -> None:
    axes = [f"{name}=range(1,1001)" for name in (M, N, K)]
    points, said = told(*axes, "sweep.where=M * N * K == 1000", "sweep.sample.count=200")
    assert 0 < len(points) < 200
    (note,) = said
    assert note.startswith(f"sweep.sample: only {len(points)} of the 200 points asked for were")
    assert note.endswith("tries; there may be more")


def test_no_point_is_left_is_said_only_where_it_is_known(told: Told) -> None:
    with pytest.raises(KernloomError, match=r"no point is left of 16,000,000: .*'M == N \+ 9000'"):
        told(*LARGE, "sweep.where=M == N + 9000", "sweep.sample.count=5")
    huge = [f"{name}=range(1,1000000000)" for name in (M, N, K)]
    with pytest.raises(KernloomError) as caught:
        told(*huge, "sweep.where=M * N * K == 7 ** 25", "sweep.sample.count=5")
    assert "no point was found in" in str(caught.value)
    assert "there may be some" in str(caught.value)
    assert "is left" not in str(caught.value)


def _used(points: list[dict[str, Any]], key: str) -> list[int]:
    return sorted(point[key] for point in points)


def test_a_latin_hypercube_under_constraints_is_one(told: Told) -> None:
    axes = [f"{M}=range(1,9)", f"{N}=range(1,9)"]
    cube = "sweep.sample={count: 8, method: latin_hypercube}"
    points, said = told(*axes, "sweep.where=M == N or M + 3 < N", cube)
    assert _used(points, M) == _used(points, N) == [*range(1, 9)] and not said
    cube = "sweep.sample={count: 40, method: latin_hypercube}"
    points, said = told(*LARGE, "sweep.where=M == N", cube)
    assert [(value - 1) // 100 for value in _used(points, M)] == [*range(40)] and not said


def test_a_latin_hypercube_that_cannot_be_is_told(told: Told) -> None:
    axes = [f"{M}=range(1,9)", f"{N}=range(1,9)"]
    cube = "sweep.sample={count: 8, method: latin_hypercube}"
    points, said = told(*axes, "sweep.where=M + 3 < N", cube)
    assert len(points) == 8 and all(point[M] + 3 < point[N] for point in points)
    assert said == [
        "sweep.sample: no Latin hypercube was found that keeps to the constraints; "
        "some values are used more often than others"
    ]


@pytest.mark.parametrize("seed", range(5))
def test_a_latin_hypercube_is_balanced_or_says_that_it_is_not(told: Told, seed: int) -> None:
    axes = [f"{M}=range(0,6)", f"{N}=range(0,12)"]
    sample = f"sweep.sample={{count: 12, method: latin_hypercube, seed: {seed}}}"
    for where in ("M <= N", "M != N", "M * 2 < N + 3", "M * N % 4 == 0"):
        points, said = told(*axes, f"sweep.where={where}", sample)
        balanced = _used(points, M) == sorted([*range(6)] * 2) and _used(points, N) == [*range(12)]
        assert balanced != bool(said), where
