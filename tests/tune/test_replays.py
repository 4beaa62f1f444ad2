"""Replays: `tune space=FILE` searches a recorded space without a device."""

from __future__ import annotations

import gzip
import io
import json
import math
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy
import pytest

from kernloom.base.errors import ConfigError, KernloomError, UsageError
from kernloom.cli import replays
from kernloom.cli.invocation import Invocation
from kernloom.space.listed import listed_space
from kernloom.tune import guarded
from kernloom.tune.pool import shuffled_indices
from kernloom.tune.recorded import read_recording
from kernloom.tune.replay import replay
from kernloom.tune.score import best_so_far, community_budget, random_curve, score
from kernloom.tune.strategy import STRATEGIES, Point, Search, Strategy

Write = Callable[..., Path]
ROWS = [{"x": x, "y": y, "time": 1.0 + abs(x - 4) + y} for x in (1, 2, 4, 8) for y in range(4)]


def cache(rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    entries = {f"{row.get('x')},{row.get('y')}": row for row in rows}
    return {"tune_params_keys": ["x", "y"], "cache": entries, **more}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(content: Any, name: str = "space.json") -> Path:
        text = content if isinstance(content, str) else json.dumps(content, indent=0)
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return make


def tune(*words: str, output: str = "json") -> Any:
    out, err = io.StringIO(), io.StringIO()
    assert replays.run(Invocation("tune", words, output=output, stdout=out, stderr=err)) == 0
    return json.loads(out.getvalue()) if output == "json" else out.getvalue() + err.getvalue()


@pytest.mark.parametrize("name", ["space.json", "space.json.gz"])
def test_a_cache_is_searched(write: Write, name: str) -> None:
    found = tune(f"space={write(cache(ROWS), name)}", "strategy=random", "repeats=3", "budget=16")
    (replay,) = found["replays"]
    assert found["space"]["points"] == 16 and found["space"]["best"] == 1.0
    assert [repeat["best"] for repeat in replay["repeats"]] == [1.0] * 3
    assert all(repeat["point"] == {"x": 4, "y": 0} for repeat in replay["repeats"])
    assert [len(repeat["history"]) for repeat in replay["repeats"]] == [16] * 3


def test_the_table_has_a_row_per_repeat(write: Write) -> None:
    shown = tune(f"space={write(cache(ROWS))}", "repeats=2", "seed=5", output="table")
    assert [line.split()[0] for line in shown.splitlines()[3:6]] == ["seed", "5", "6"]
    assert "0 random search, 1 the best point at once" in shown


def test_t4_is_searched_and_higher_may_be_better(write: Write) -> None:
    results = [
        {
            "configuration": {"x": row["x"], "y": row["y"], "kind": "text"},
            "objectives": ["gflops"],
            "invalidity": "correct" if row["y"] else "runtime",
            "measurements": [{"name": "gflops", "value": row["time"], "unit": ""}],
        }
        for row in ROWS
    ]
    found = tune(f"space={write({'results': results})}", "budget=16", "repeats=1")
    assert found["space"]["failed"] == 4
    assert found["space"]["best"] == max(row["time"] for row in ROWS)
    assert found["replays"][0]["repeats"][0]["best"] == found["space"]["best"]


def test_a_study_that_did_not_end_is_read(write: Write) -> None:
    text = json.dumps(cache(ROWS), indent=0)
    open_end = text.rstrip("}\n") + "},"
    assert read_recording(write(open_end)).points == 16
    lines = open_end.splitlines()
    torn = "\n".join([*lines[:-1], '"8,3": {"x": 8, "y"'])
    with pytest.raises(ConfigError, match="is not JSON"):
        read_recording(write("{\n{" + torn))


def test_a_torn_last_line_is_left_out(write: Write) -> None:
    entries = [f'"{row["x"]},{row["y"]}": {json.dumps(row)}' for row in ROWS]
    head = '{"tune_params_keys": ["x", "y"],\n"cache": {\n'
    recording = read_recording(write(head + ",\n".join(entries)[:-9]))
    assert recording.points == 15
    assert recording.notes == ("the last line is torn and left out",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not JSON"),
        ("[1, 2]", "neither a cache"),
        ({"x": 1}, "neither a cache"),
        ({"tune_params_keys": ["x"], "cache": {}}, "space is empty"),
        ({"cache": {"1": {"x": 1}}}, "names of parameters is missing"),
        (cache([{"x": 1, "y": [2], "time": 1}]), "'y' is \\[2\\], not a plain value"),
        (cache([{"x": 1, "time": 1}]), "'y' is missing"),
        (cache([{"x": 1, "y": 2, "tme": 1.0}]), "no point has a result 'time'"),
        (cache([{"x": 1, "y": 2, "time": "RuntimeFailedConfig"}]), "no point has a result 'time'"),
        ({"results": [{"configuration": 3}]}, "no configuration"),
        ({"results": []}, "space is empty"),
    ],
)
def test_a_file_without_a_space_is_refused(write: Write, content: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_recording(write(content))


def test_a_damaged_or_missing_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "space.json.gz"
    path.write_bytes(gzip.compress(b"{}" * 99)[:12] + b"\xff" * 9)
    for place in (path, tmp_path / "none.json", tmp_path):
        with pytest.raises(ConfigError, match=str(place)):
            read_recording(place)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["budget=0"], "budget=0 is not allowed"),
        (["repeats=x"], "repeats=x is not allowed"),
        (["bugdet=3"], "no key 'bugdet'"),
        (["strategy=rondom"], "unknown strategy 'rondom'"),
    ],
)
def test_a_wrong_word_is_refused(write: Write, words: list[str], message: str) -> None:
    with pytest.raises((UsageError, ConfigError), match=message):
        tune(f"space={write(cache(ROWS))}", *words)


def test_another_output_is_refused(write: Write) -> None:
    with pytest.raises(UsageError, match="a replay has no output=t4"):
        tune(f"space={write(cache(ROWS))}", output="t4")


class Odd(Strategy):
    """Misbehaves as told."""

    name, about = "odd", "misbehaves"
    answer: Any = None

    def ask(self, count: int) -> list[Point]:
        print("a strategy may print")
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]

    def tell(self, point: Point, value: float | None) -> None:
        pass


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (ZeroDivisionError("oh"), "strategy 'odd' failed in ask: ZeroDivisionError: oh"),
        ([{"x": 1, "y": 0}], "'odd' suggests the same points for ever: x=1, y=0"),
        (SystemExit(7), "strategy 'odd' failed in ask: SystemExit: 7"),
        ([{"x": 1.0, "y": 0}], "'odd' suggests the same points for ever: x=1.0, y=0"),
        (
            [{"x": 3, "y": 0}],
            "'odd' suggests x=3, y=0, which is not a valid point of the space: "
            "x=3 is not among the values of its axis",
        ),
        ([{"x": "1", "y": 0}], "'odd' suggests x='1', y=0, which is not a valid point"),
        ([{"x": 1}], "which is not a valid point of the space: the point has no value for 'y'"),
        ([{}], "'odd' suggests {}, which is not a valid point"),
        ([{"x": 1, "y": 0, "z": 2}], "which is not a valid point of the space: z is no axis"),
        ([{"x": [1], "y": 0}], "which is not a valid point"),
        (["x"], "which is not a valid point of the space: it is no mapping"),
        (None, "'odd' gave None, not a list"),
    ],
)
def test_a_strategy_that_misbehaves_is_named(
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    answer: Any,
    message: str,
) -> None:
    monkeypatch.setattr(Odd, "answer", answer)
    monkeypatch.setitem(STRATEGIES._known, "odd", Odd)
    with pytest.raises(KernloomError) as caught:
        tune(f"space={write(cache(ROWS))}", "strategy=odd", "budget=4")
    assert message in str(caught.value)
    out, err = capfd.readouterr()
    assert "may print" in err
    assert "may print" not in out


def test_a_strategy_that_cannot_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unborn(Odd):
        def __init__(self, search: Search) -> None:
            raise ValueError("no")

    monkeypatch.setitem(STRATEGIES._known, "odd", Unborn)
    from kernloom.space.space import Space

    with pytest.raises(KernloomError, match="strategy 'odd' failed in start: ValueError: no"):
        guarded.GuardedStrategy("odd", Search(Space.of({"x": [1]})))


def test_the_score_of_random_search_is_zero_and_of_the_optimum_one(write: Write) -> None:
    recording = read_recording(write(cache(ROWS)))
    budget = community_budget(recording)
    random = random_curve(recording, budget)
    at_once = best_so_far(recording, [recording.ordered[0]], budget)
    assert score(recording, [at_once], random) == pytest.approx(1)
    assert score(recording, [random], random) == 0
    draws = numpy.random.default_rng(0)
    values = [[recording.values[i] for i in draws.permutation(16)[:2]] for _ in range(4000)]
    mean = numpy.mean([best_so_far(recording, one, 2) for one in values], axis=0)
    assert mean == pytest.approx(random_curve(recording, 2), rel=0.02)


ONE = {"configuration": {"a": 1}, "measurements": [{"name": "time", "value": 1.0}]}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"results": [ONE | {"objectives": 5}]}, r"results\[0\].objectives: expected a list"),
        ({"results": [ONE | {"measurements": [5]}]}, r"results\[0\].measurements: expected a list"),
        ({"results": [ONE | {"configuration": {}}]}, "has no parameter"),
        ({"results": [ONE | {"configuration": {"a": math.nan}}]}, "is nan, not a plain value"),
        ({"tune_params_keys": ["a", "a"], "cache": {"1": {"a": 1}}}, "named twice"),
        ({"tune_params_keys": ["a"], "cache": {"1": {"a": 10**400}}}, "not a plain value"),
    ],
)
def test_a_recording_with_nonsense_is_a_clear_error(
    tmp_path: Path, document: object, said: str
) -> None:
    path = tmp_path / "space.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigError, match=said):
        read_recording(path)


def test_numbers_too_large_for_anything_are_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "space.json"
    large = {"configuration": {"a": 2}, "measurements": [{"name": "time", "value": 10**400}]}
    path.write_text(json.dumps({"results": [ONE, large]}))
    assert len(read_recording(path).values) == 1
    path.write_text('{"results": ' + "1" * 5000 + "}")
    with pytest.raises(ConfigError, match="digits"):
        read_recording(path)


@pytest.mark.parametrize("name", ["auto", "genetic", "annealing", "local", "surrogate", "grid"])
@pytest.mark.parametrize("budget", [1, 2, 3])
def test_every_strategy_works_with_the_smallest_budgets(
    tmp_path: Path, name: str, budget: int
) -> None:
    path = tmp_path / "space.json"
    rows = {str(n): {"a": n % 3, "b": n // 3, "time": n + 1.0} for n in range(9)}
    path.write_text(json.dumps({"tune_params_keys": ["a", "b"], "cache": rows}))
    found = replay(read_recording(path), name, budget, 2)
    assert [len(one.points) for one in found.repeats] == [budget, budget]


def test_a_long_list_of_points_is_drawn_from_at_once() -> None:
    lines = [(n, (n * 7919) % 30000, (n * 104729) % 30000) for n in range(30000)]
    options = {name: range(30000) for name in "abc"}
    space = listed_space(options, lines)
    found = set(islice(shuffled_indices(space, 1), 1000))
    assert len(found) == 1000
    assert all(tuple(space.ranks_at(index)) in set(lines) for index in list(found)[:3])
