"""Structured sweeps: every point that was described, no other, each as Hydra would compose it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernloom.base.errors import KernloomError, UsageError
from kernloom.config.compose import Composer, Point
from kernloom.config.overrides import spelled
from kernloom.config.reader import dump_yaml
from parsed import points_of

Compose = Callable[..., dict[str, Any]]
Sweep = Callable[..., list[Point]]
Project = Callable[[Mapping[str, str]], Composer]

M, N, K = (f"workload.sizes.{name}" for name in "MNK")
MR = "select.fixed.tile.mr"


@pytest.fixture
def swept(project: Project) -> Callable[..., list[dict[str, Any]]]:
    """The points of a sweep file, with more words beside it."""

    def points(text: str, *words: str) -> list[dict[str, Any]]:
        composer = project({"sweep/mine.yaml": text})
        found = points_of(composer, ["arch=x86_64_v2", "sweep=mine", *words], multirun=True)
        return [point.swept for point in found]

    return points


Swept = Callable[..., list[dict[str, Any]]]


def test_axes_are_a_product_of_values_and_groups(swept: Swept) -> None:
    assert swept(f"axes: {{{MR}: [4, 6], toolchain: [gcc, clang]}}") == [
        {MR: 4, "toolchain": "gcc"},
        {MR: 4, "toolchain": "clang"},
        {MR: 6, "toolchain": "gcc"},
        {MR: 6, "toolchain": "clang"},
    ]


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        ("[4, 4.5, true, null, text]", [4, 4.5, True, None, "text"]),
        ("{from: 64, to: 192, step: 64}", [64, 128, 192]),
        ("{from: 64, to: 191, step: 64}", [64, 128]),
        ("{from: 3, to: 1, step: -1}", [3, 2, 1]),
        ("{from: 1, to: 3}", [1, 2, 3]),
        ("{from: 0.1, to: 0.5, step: 0.2}", [0.1, 0.3, 0.5]),
        ("{powers_of_two: [64, 512]}", [64, 128, 256, 512]),
        ("{powers_of_two: [65, 300]}", [128, 256]),
        ("'range(1,7,3)'", [1, 4]),
        ("'choice(a,3)'", ["a", 3]),
        ("7", [7]),
        ("'${seed}'", ["${seed}"]),
    ],
)
def test_an_axis_can_be_written_in_many_ways(swept: Swept, spec: str, values: list[Any]) -> None:
    assert [
        point["workload.about"] for point in swept(f"axes: {{workload.about: {spec}}}")
    ] == values


def test_a_pattern_chooses_options_in_a_file_too(swept: Swept) -> None:
    points = swept("axes: {measure: 'glob(*,exclude=[r*])'}")
    assert points == [{"measure": "quick"}, {"measure": "standard"}]


def test_zipped_keys_move_together(swept: Swept) -> None:
    text = f"zip: [{{{M}: [1, 2], {N}: [3, 4]}}, {{{K}: [5, 6]}}]"
    assert swept(text) == [
        {M: m, N: n, K: k} for (m, n), k in itertools.product([(1, 3), (2, 4)], [5, 6])
    ]


def test_nested_sweeps_follow_each_other_and_are_one_axis(swept: Swept) -> None:
    text = f"""
axes: {{seed: [1, 2]}}
nested:
  - {{axes: {{{M}: [1, 2], {N}: [1, 2]}}, where: M < N}}
  - zip: {{{M}: [8, 9], {K}: [3, 4]}}
"""
    inner = [{M: 1, N: 2}, {M: 8, K: 3}, {M: 9, K: 4}]
    assert swept(text) == [{"seed": seed, **row} for seed in (1, 2) for row in inner]


def test_constraints_see_short_names_whole_names_groups_and_what_is_not_swept(
    swept: Swept,
) -> None:
    text = f"""
axes: {{{M}: [100, 300, 500], toolchain: [gcc, clang]}}
where: [M < 400, workload.sizes.M <= sizes.N or toolchain == 'clang', K == 256, arch.cores >= 1]
"""
    assert swept(text) == [
        {M: 100, "toolchain": "gcc"},
        {M: 100, "toolchain": "clang"},
        {M: 300, "toolchain": "clang"},
    ]
    assert swept(text, f"{N}=1000") == [
        {M: m, "toolchain": name} for m in (100, 300) for name in ("gcc", "clang")
    ]


def test_a_size_that_follows_from_another_is_worked_out_for_constraints(swept: Swept) -> None:
    text = f"axes: {{{M}: [10, 20], {N}: ['M * 2', 5]}}\nwhere: N == 40"
    assert swept(text) == [{M: 20, N: "M * 2"}]


def test_a_constraint_sees_the_case_of_its_point(swept: Swept) -> None:
    assert swept("axes: {case: [default, small]}\nwhere: M < 100") == [{"case": "small"}]


def test_exclusions_leave_out_just_what_has_all_their_values(swept: Swept) -> None:
    text = f"""
axes: {{toolchain: [gcc, clang], {MR}: [4, 6, 8]}}
exclude: [{{toolchain: clang, mr: [6, 8]}}, {{{MR}: 4}}]
"""
    assert swept(text) == [{"toolchain": "gcc", MR: 6}, {"toolchain": "gcc", MR: 8}]


def test_named_points_are_added_and_keep_their_names(swept: Swept) -> None:
    text = f"""
axes: {{{M}: [1, 2]}}
where: M > 1
points: {{small: {{{M}: 1, workload: {{sizes: {{N: 8}}}}}}, clang: {{toolchain: clang}}}}
"""
    assert swept(text) == [
        {M: 2},
        {"sweep.point": "small", M: 1, N: 8},
        {"sweep.point": "clang", "toolchain": "clang"},
    ]


def test_named_points_alone_are_all_there_is(swept: Swept) -> None:
    points = swept(f"points: {{a: {{{M}: 1}}, b: {{}}}}", "seed=1,2")
    assert points == [
        {"seed": seed, **row}
        for seed in (1, 2)
        for row in ({"sweep.point": "a", M: 1}, {"sweep.point": "b"})
    ]


def test_axes_of_the_command_line_multiply_the_files(swept: Swept) -> None:
    points = swept(f"axes: {{{M}: [1, 2]}}\nwhere: M < seed", "seed=2,3")
    assert points == [{"seed": 2, M: 1}, {"seed": 3, M: 1}, {"seed": 3, M: 2}]


def test_one_value_on_the_command_line_stands_for_the_axis(swept: Swept) -> None:
    text = f"axes: {{toolchain: [gcc, clang], {M}: [1, 2]}}\nexclude: {{toolchain: clang, M: 1}}"
    assert swept(text, "toolchain=clang") == [{M: 2}]


def test_a_sweep_can_be_changed_and_written_on_the_command_line(swept: Swept, sweep: Sweep) -> None:
    text = f"axes: {{{M}: [1, 2], {N}: [1, 2]}}"
    changed = swept(text, f"sweep.axes.{M}=[7]", "sweep.where=M + N < 9")
    assert changed == [{M: 7, N: 1}]
    inline = sweep(
        f"sweep.axes.{M}={{from: 1, to: 3}}",
        "+sweep.where=['M != 2', \"M < 4\"]",
        f"sweep.points.odd={{{M}: 61}}",
    )
    assert [point.swept for point in inline] == [{M: 1}, {M: 3}, {"sweep.point": "odd", M: 61}]


WHERES = f"axes: {{{M}: [1, 2, 3, 4], {N}: [1, 2]}}\nwhere: M != 2\nexclude: {{M: 3, N: 1}}"


def test_constraints_of_the_command_line_are_added_to_those_of_the_file(swept: Swept) -> None:
    both = [*range(1, 5)], [1, 2]
    rows = [(m, n) for m, n in itertools.product(*both) if m != 2 and (m, n) != (3, 1)]

    def left(*words: str) -> list[tuple[int, int]]:
        return [(point[M], point[N]) for point in swept(WHERES, *words)]

    assert left() == rows
    for words in (["sweep.where=M > 1", "sweep.where=N < 2"], ["sweep.where=['M > 1', 'N < 2']"]):
        assert left(*words) == [(4, 1)]
    assert left("+sweep.where=M > 1") == [row for row in rows if row[0] > 1]
    more = ["sweep.exclude={M: 4}", "sweep.exclude=[{N: 2}]"]
    assert left(*more) == [(1, 1)]


@pytest.mark.parametrize("without", ["~sweep.where", "sweep.where=null"])
def test_what_the_file_asks_of_its_points_can_be_taken_away(swept: Swept, without: str) -> None:
    assert len(swept(WHERES, without, "~sweep.exclude")) == 8
    kept = swept(WHERES, without, "sweep.where=M == 2")
    assert [point[M] for point in kept] == [2, 2]


def test_the_files_constraints_are_taken_away_wherever_that_is_said(swept: Swept) -> None:
    kept = swept(WHERES, "sweep.where=M == 2", "~sweep.where")
    assert [point[M] for point in kept] == [2, 2]


PARTS = f"""
axes: {{{M}: [1, 2], seed: [1, 2]}}
zip: {{{N}: [1, 2], {K}: [1, 2]}}
points: {{a: {{{N}: 7}}, b: {{{K}: 8}}}}
"""


@pytest.mark.parametrize(
    ("words", "size"),
    [
        ([], 10),
        (["~sweep.points"], 8),
        (["~sweep.points.a"], 9),
        (["~sweep.zip.0"], 6),
        (["~sweep.zip"], 6),
        (["sweep.zip=[]"], 6),
        ([f"~sweep.axes.{M}"], 6),
        (["~sweep.axes.seed"], 6),
        (["~sweep.axes"], 4),
        (["~sweep.points.a", "~sweep.zip.0", f"{N}=5"], 5),
    ],
)
def test_any_part_of_a_file_can_be_taken_away(swept: Swept, words: list[str], size: int) -> None:
    assert len(swept(PARTS, *words)) == size


def test_a_sweep_that_describes_nothing_is_told(project: Project) -> None:
    said: list[str] = []
    composer = project({"sweep/mine.yaml": "axes:\n"})
    composer._say = said.append
    assert len(list(points_of(composer, ["sweep=mine"], multirun=True))) == 1
    assert said == ["sweep=mine has no axes and no points of its own: this is one point"]
    assert len(list(points_of(composer, ["sweep=mine", "seed=1,2"], multirun=True))) == 2
    assert len(list(points_of(composer, ["sweep=none"], multirun=True))) == 1
    assert len(said) == 1


def test_a_sweep_needs_m(project: Project) -> None:
    composer = project({"sweep/mine.yaml": "axes: {seed: [1, 2]}"})
    with pytest.raises(UsageError, match=r"single run\n  Add -m"):
        list(points_of(composer, ["sweep=mine"], multirun=False))


def test_a_constraint_on_a_size_that_is_written_as_an_expression_is_asked_of_whole_points(
    swept: Swept,
) -> None:
    text = f"axes: {{{N}: [K * 2, 3], {K}: [1, 9]}}\nwhere: N < 5"
    assert swept(text) == [{N: "K * 2", K: 1}, {N: 3, K: 1}, {N: 3, K: 9}]


def test_an_exclusion_that_matches_nothing_is_told(project: Project) -> None:
    said: list[str] = []
    composer = project({})
    composer._say = said.append
    words = ["toolchain=gcc,clang", "sweep.exclude={toolchain: icc}"]
    assert len(list(points_of(composer, words, multirun=True))) == 2
    assert said == ["sweep: exclude toolchain=icc matches no point"]


@pytest.mark.parametrize(
    ("exclude", "matches"),
    [
        ("{toolchain: icc}", False),
        ("{toolchain: clang}", True),
        ("{toolchain: clang, seed: 7}", True),
        ("{toolchain: clang, seed: 400}", False),
        ("{M: 1, N: 20}", False),
        ("{M: 2, N: 20}", True),
        ("{case: ragged, seed: 7}", False),
        ("{case: small, seed: 7}", True),
    ],
)
def test_an_exclusion_that_matches_nothing_is_told_beside_a_sample(
    project: Project, exclude: str, matches: bool
) -> None:
    said: list[str] = []
    composer = project({})
    composer._say = said.append
    words = [
        "toolchain=gcc,clang",
        "seed=range(100)",
        "case=small",
        "sweep.zip=[{workload.sizes.M: [1, 2], workload.sizes.N: [10, 20]}]",
        f"sweep.exclude={exclude}",
        "sweep.sample.count=3",
    ]
    assert len(list(points_of(composer, words, multirun=True))) == 3
    assert [text for text in said if "matches no point" in text] == ([] if matches else [said[0]])


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (f"axes: {{{M}s: [1]}}", [], ["unknown key 'Ms'", "M, N"]),
        ("axes: {toolchain: [gcc, clag]}", [], ["unknown toolchain 'clag'", "'clang'"]),
        ("axes: {store.path: [a, b]}", [], ["sweep.axes", "'store.path' belongs to the whole"]),
        ("axes: {sweep: [none]}", [], ["'sweep' belongs to the whole run"]),
        ("axes: {'a b': [1]}", [], ["sweep.axes: 'a b' is not a key"]),
        ("axes: {~seed: [1]}", [], ["a key that is deleted has no values"]),
        ("axes: {seed: []}", [], ["sweep.axes.seed: has no values"]),
        ("axes: {seed: 'range(1'}", [], ["sweep.axes.seed", "cannot be read"]),
        ("axes: {seed: 'interval(1,2)'}", [], ["sweep.axes.seed", "continuous interval"]),
        ("axes: {seed: {from: 1}}", [], ["sweep.axes.seed: needs both from and to"]),
        ("axes: {seed: {from: 1, to: 5, step: 0}}", [], ["no step of 0 leads from 1 to 5"]),
        ("axes: {seed: {from: 5, to: 1}}", [], ["no step of 1 leads from 5 to 1"]),
        ("axes: {seed: {from: a, to: 1}}", [], ["'a' is not a number"]),
        ("axes: {seed: {range: [1, 5]}}", [], ["unknown key 'range'", "{from: 64, to: 1024"]),
        ("axes: {seed: {powers_of_two: [0, 8]}}", [], ["no range of powers"]),
        ("axes: {seed: {powers_of_two: [5, 7]}}", [], ["no power of two is between 5 and 7"]),
        ("axes: {seed: {from: 0, to: 1.0e+15, step: 1}}", [], ["more than 1,000,000,000,000"]),
        ("axes: [seed]", [], ["sweep.axes: expected keys and values"]),
        ("axis: {seed: [1]}", [], ["sweep: unknown key 'axis'", "Did you mean 'axes'?"]),
        (f"zip: [{{{M}: [1, 2], {N}: [3]}}]", [], ["sweep.zip[0]", "M has 2", "N has 1"]),
        ("zip: [{}]", [], ["sweep.zip[0]: names no key"]),
        (f"zip: [{{{M}: [1], {N}: [3]}}]", [f"{M}=5"], ["sweep.zip[0]", "moves together"]),
        (f"axes: {{{M}: [1]}}\nzip: {{{M}: [2]}}", [], [f"'{M}' is swept twice"]),
        (f"axes: {{{M}: [1, 2]}}", [f"{M}=3,4"], [f"'{M}' is swept twice", f"sweep.axes.{M}="]),
        ("nested: [{where: M < 3}]", [], ["sweep.nested[0]: has no points"]),
        (
            f"axes: {{{N}: [1]}}\nnested: [{{axes: {{{M}: [1]}}, where: M < N}}]",
            [],
            ["sweep.nested[0].where[0]: 'N' is swept outside of this nested sweep"],
        ),
        (
            f"axes: {{{M}: [1]}}\nwhere: mm < 3",
            [],
            ["where[0]: unknown name 'mm'", "Allowed: K, M"],
        ),
        (f"axes: {{{M}: [1]}}\nwhere: arch.core < 3", [], ["'arch.core'", "'cores'"]),
        (f"axes: {{{M}: [1]}}\nwhere: M <", [], ["sweep.where[0]", "not an expression"]),
        (f"axes: {{{M}: [1]}}\nwhere: open(M)", [], ["unknown function 'open'"]),
        (f"axes: {{{M}: [1]}}\nwhere: M % 2", [], ["gives 1, which is neither true nor false"]),
        (f"axes: {{{M}: [0]}}\nwhere: 3 / M < 2", [], ["where[0]", "cannot be evaluated"]),
        (f"axes: {{{M}: [1]}}\nwhere: toolchain < 3", [], ["sweep.where[0]"]),
        (f"axes: {{{M}: [1]}}\nwhere: 1 < 3", [], ["'1 < 3' names no key"]),
        (
            "axes: {select.fixed.tile.mr: [4], select.fixed.pack.mr: [4]}\nwhere: mr < 3",
            [],
            ["'mr' may be any of select.fixed.pack.mr, select.fixed.tile.mr"],
        ),
        (
            f"axes: {{{M}: [1, 2, 3], {N}: [1, 2]}}\nwhere: [M > 2, N > 5]",
            [],
            ["no point is left of 6", "'M > 2' removed 4", "'N > 5' removed 2"],
        ),
        (f"axes: {{{M}: [1]}}\nexclude: {{mm: 1}}", [], ["exclude[0]: 'mm' is not swept", "M"]),
        (f"points: {{a: {{{M}s: 1}}}}", [], ["unknown key 'Ms'", "sweep.point=a"]),
        ("points: {a: {toolchain: clag}}", [], ["unknown toolchain 'clag'"]),
        (
            f"points: {{a: {{{M}: 1}}}}",
            [f"{M}=3"],
            ["sweep.points.a", "command line, too", "~sweep.points.a takes this point out"],
        ),
        (
            f"nested: [{{zip: {{{M}: [1], {N}: [3]}}}}]",
            [f"{M}=5"],
            ["sweep.nested[0].zip[0]", "~sweep.nested.0.zip.0 takes these keys out"],
        ),
        (
            f"axes: {{seed: [1]}}\nnested: [{{points: {{a: {{{M}: 1}}}}}}]\npoints: {{a: {{}}}}",
            [],
            ["sweep.points.a: another point has that name: sweep.nested[0].points.a"],
        ),
        (
            f"nested: [{{points: {{a: {{{M}: 1}}}}}}, {{points: {{a: {{{M}: 2}}}}}}]",
            [],
            ["sweep.nested[1].points.a: another point has that name: sweep.nested[0].points.a"],
        ),
        (PARTS, ["sweep.points={}"], ["sweep.points: {} adds nothing", "~sweep.points takes"]),
        (PARTS, ["sweep.axes={}"], ["sweep.axes: {} adds nothing", "~sweep.axes takes"]),
        (WHERES, ["sweep.where=[]"], ["sweep.where: [] adds nothing", "~sweep.where takes"]),
        (PARTS, ["~sweep.where"], ["sweep.where: has no value, so there is nothing to delete"]),
        (PARTS, ["~sweep.axes.sede"], ["there is no axis 'sede'", "Did you mean 'seed'?"]),
        (PARTS, ["sweep.where="], ["sweep.where[0]: has no value"]),
        ("axes: {mr: [4, 6]}", [], ["unknown key 'mr'", f"Did you mean '{MR}'?"]),
        ("axes: {tile.mr: [4, 6]}", [], ["unknown key 'tile'", f"Did you mean '{MR}'?"]),
        ("axes: {m: [10, 20]}", [], ["unknown key 'm'", f"Did you mean '{M}'?"]),
        ("axes: {samples: [1, 2]}", [], ["Did you mean 'measure.samples'?"]),
        (
            "axes: {workload.sizes.n: [1, 2]}",
            [],
            ["workload.sizes: unknown key 'n'", "Did you mean 'N'?", "N (of workload matmul)."],
        ),
        (
            "axes: {toolchain: [gcc, clang]}\nexclude: {tool: gcc}",
            [],
            ["Did you mean 'toolchain'? Allowed: toolchain."],
        ),
        (f"points: {{a: {{{M}: 1}}}}\nwhere: M < 3", [], ["there are none", "always taken"]),
        ("axes: {seed: [1]}\nsample: {count: 0}", [], ["sweep.sample.count: 0 is too small"]),
        ("axes: {seed: [1]}\nsample: {}", [], ["sweep.sample.count: is missing"]),
        ("axes: {seed: [1]}\nsample: {count: 1, method: lhs}", [], ["'lhs' is not allowed"]),
        (
            "# @package _global_\nsweep: {axes: {seed: [1]}}\nmeasure: {samples: 3}",
            [],
            ["more than the sweep"],
        ),
        (
            "defaults: [{/measure@_global_.other: rigorous}, _self_]\naxes: {seed: [1]}",
            [],
            ["more than the sweep"],
        ),
        ("axes: {seed: 'range(0,300000)'}", [], ["300,000 points", "sweep.sample.count"]),
        (
            "axes: {seed: 'range(0,10000000)', timeout: 'range(1,9)'}\nwhere: seed > timeout",
            [],
            ["more than 2,000,000 of 80,000,000 combinations", "sweep.sample.count"],
        ),
    ],
)
def test_a_mistake_in_a_sweep_is_named(
    swept: Swept, text: str, words: list[str], said: list[str]
) -> None:
    with pytest.raises(KernloomError) as caught:
        swept(text, *words)
    assert caught.value.exit_code == 2
    for part in said:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("measure=glob(*,exclude=quick)", ["rigorous", "standard"]),
        ("measure=glob(*,exclude=[q*,r*])", ["standard"]),
        ("timeout=range(1.0,2.0,0.25)", [1.0, 1.25, 1.5, 1.75]),
        ("seed=range(5,1,-2)", [5, 3]),
        ("seed=sort(3,1,2,reverse=true)", [3, 2, 1]),
        ("seed=int(1.0,2.0)", [1, 2]),
    ],
)
def test_hydras_functions_sweep(sweep: Sweep, word: str, values: list[Any]) -> None:
    key = word.partition("=")[0]
    assert [point.swept[key] for point in sweep(word)] == values


def test_shuffled_values_are_all_there(sweep: Sweep) -> None:
    assert {point.swept["seed"] for point in sweep("seed=shuffle(range(0,9))")} == {*range(9)}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("seed=tag(t1,choice(1,2))", "tags mean nothing to a grid"),
        ("seed=range(1,5,0)", "its step is 0"),
        ("seed=range(0,10000000000000)", "more values than can be swept"),
        ("timeout=range(0.0,1.0,0.0000001)", "more values than can be swept"),
        ("seed=range(5,1)", "'seed=range(5,1)' is an empty range"),
        ("seed=range(2.5,1)", "'seed=range(2.5,1)' is an empty range"),
        ("measure=glob(x*)", "'measure=glob(x*)' matches nothing"),
        ("seed=glob(*)", "'seed' is none"),
        ("toolchain=[gcc,clang]", "-m toolchain=gcc,clang"),
        ("sweep=none,none", "'sweep' belongs to the whole run"),
    ],
)
def test_what_cannot_be_a_grid_is_refused_by_name(sweep: Sweep, word: str, said: str) -> None:
    with pytest.raises(KernloomError) as caught:
        sweep(word)
    assert said in str(caught.value)


def test_a_key_cannot_be_two_axes(sweep: Sweep) -> None:
    with pytest.raises(UsageError, match="'seed' is swept and stands on the command line twice"):
        sweep("seed=1,2", "seed=3")


_VALUES: dict[str, list[Any]] = {
    M: [1, 16, 61],
    N: [1, 24, "M * 2"],
    "seed": [0, 7],
    "workload.about": ["it's", "a \\' b\\", "true", "${toolchain.name}", "", "x=1, (y)"],
    "timeout": [2.5, 1e-2, 60],
    "toolchain.extra_flags": [[], ["-g", "-DX='1'"]],
    "toolchain": ["gcc", "clang"],
    "measure": ["quick", "standard", "rigorous"],
    "workload": ["matmul", "matmul"],
    MR: [4, 6],
}


def _axes(keys: list[str]) -> st.SearchStrategy[dict[str, list[Any]]]:
    return st.fixed_dictionaries(
        {key: st.lists(st.sampled_from(_VALUES[key]), min_size=1, max_size=3) for key in keys}
    )


@st.composite
def _sweeps(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]], list[str]]:
    """A sweep's section and the points that it stands for, and words beside it."""
    keys = draw(st.permutations(list(_VALUES)))
    axes = draw(_axes(keys[:2]))
    length = draw(st.integers(1, 3))
    zipped = {
        key: draw(st.lists(st.sampled_from(_VALUES[key]), min_size=length, max_size=length))
        for key in keys[2:4]
    }
    branches = draw(st.lists(_axes(keys[4:5]), max_size=2))
    section: dict[str, Any] = {"axes": axes, "zip": [zipped]}
    rows = [{**row, **together} for row in _product(axes) for together in _columns(zipped, length)]
    if branches:
        section["nested"] = [{"axes": branch} for branch in branches]
        inner = [row for branch in branches for row in _product(branch)]
        rows = [{**row, **more} for row in rows for more in inner]
    dropped = draw(st.sampled_from(axes[keys[0]]))
    if any(row[keys[0]] != dropped for row in rows):
        section["exclude"] = [{keys[0]: [dropped]}]
        rows = [row for row in rows if row[keys[0]] != dropped]
    name = keys[5]
    section["points"] = {"one": {name: _VALUES[name][0]}}
    rows.append({"sweep.point": "one", name: _VALUES[name][0]})
    words = draw(st.lists(st.sampled_from(["build.keep=true", "show=source"]), unique=True))
    return section, rows, words


def _product(axes: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(axes, row, strict=True)) for row in itertools.product(*axes.values())]


def _columns(zipped: dict[str, list[Any]], length: int) -> list[dict[str, Any]]:
    return [{key: values[i] for key, values in zipped.items()} for i in range(length)]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(made=_sweeps(), data=st.data())
def test_every_point_equals_what_stock_hydra_composes_from_its_words(
    project: Project,
    stock: Compose,
    made: tuple[dict[str, Any], list[dict[str, Any]], list[str]],
    data: st.DataObject,
) -> None:
    section, rows, words = made
    composer = project({"sweep/mine.yaml": dump_yaml(section)})
    given_words = ["arch=x86_64_v2", "sweep=mine", *words]
    points = list(points_of(composer, given_words, multirun=True))
    assert [point.swept for point in points] == rows
    point = data.draw(st.sampled_from(points))
    # Stock Hydra knows no maps that are open to new names.
    spelled_out = [w.replace("select.", "++select.") for w in point.words]
    assert point.data == stock(*spelled_out), point.words
    (alone,) = points_of(composer, point.words, multirun=False)
    assert alone.data == point.data


@given(
    st.recursive(
        st.one_of(
            st.none(), st.booleans(), st.integers(), st.text("ab'\"\\ ,()[]{}:=1.", max_size=9)
        ),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=4,
    )
)
@settings(max_examples=200, deadline=None)
def test_a_value_is_read_back_as_it_was_spelled(composer: Composer, value: Any) -> None:
    assert composer.parse([f"workload.about={spelled(value)}"], multirun=True).values(
        "workload.about"
    ) == [value]


def test_the_sweeps_that_the_documentation_shows_can_be_swept(swept: Swept) -> None:
    page = Path(__file__).resolve().parents[2] / "docs/guide/sweeps.md"
    shown = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert [len(swept(text)) for text in shown] == [13, 12]
