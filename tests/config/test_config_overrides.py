"""What the command line can change, and what it cannot."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernloom.base.errors import ConfigError, KernloomError, UsageError
from kernloom.base.places import share_folder
from kernloom.config.compose import Point
from kernloom.config.groups import Groups
from kernloom.config.override_parser import _parse, _plain, parse_overrides
from kernloom.config.schema import ROOT_KEYS
from kernloom.config.validate import experiment

Compose = Callable[..., dict[str, Any]]
Sweep = Callable[..., list[Point]]
GROUPS = Groups([share_folder() / "configs"])

OVERRIDES = {
    "workload": ("workload=softmax", "workload.name", "softmax"),
    "target": ("target.variant=asan", "target.variant", "asan"),
    "arch": ("arch.cores=3", "arch.cores", 3),
    "toolchain": ("toolchain=clang", "toolchain.name", "clang"),
    "runtime": ("runtime=none", "runtime.name", "none"),
    "pipeline": ("pipeline.about=mine", "pipeline.about", "mine"),
    "select": ("select.providers=[model]", "select.providers", ["model"]),
    "measure": ("measure=rigorous", "measure.name", "rigorous"),
    "store": ("store.path=/x/y.db", "store.path", "/x/y.db"),
    "fleet": ("fleet=local", "fleet.name", "local"),
    "sweep": ("sweep=none", "sweep", {}),
    "build": ("build.keep=true", "build.keep", True),
    "screen": ("screen.keep=3", "screen.keep", 3),
    "case": ("case=ragged", "workload.sizes.M", 61),
    "seed": ("seed=7", "seed", 7),
    "output": ("output=json", "output", "json"),
    "catch": ("catch=off", "catch", "off"),
    "distribute": ("distribute=off", "distribute", "off"),
    "rerun": ("rerun=all", "rerun", "all"),
    "recipe": ("recipe=r.yaml", "recipe", "r.yaml"),
    "trace": ("trace=t.json", "trace", "t.json"),
    "trace_level": ("trace_level=2", "trace_level", 2),
    "deps": ("deps=d.json", "deps", "d.json"),
    "replay": ("replay=3.10", "replay", "3.10"),
    "timeout": ("timeout=2.5", "timeout", 2.5),
    "memory_limit": ("memory_limit=4GiB", "memory_limit", "4GiB"),
    "show": ("show=source", "show", "source"),
    "whatif": ("whatif=hbm", "whatif", "hbm"),
    "search": ("search=brief", "search.name", "brief"),
}


def at(data: Any, key: str) -> Any:
    for name in key.split("."):
        data = data[name]
    return data


@pytest.mark.parametrize("root", ROOT_KEYS)
def test_every_root_key_can_be_overridden(compose: Compose, root: str) -> None:
    word, key, value = OVERRIDES[root]
    data = compose(word)
    assert at(data, key) == value
    experiment(data)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("workload=matmol", ["unknown workload 'matmol'", "Did you mean 'matmul'?", "softmax"]),
        ("toolchain=gc", ["unknown toolchain 'gc'", "Did you mean 'gcc'?"]),
        ("arch=x86_64_v9", ["unknown arch 'x86_64_v9'", "Did you mean 'x86_64_"]),
        ("wrkload=axpy", ["unknown key 'wrkload'", "Did you mean 'workload'?"]),
        ("mr=4", ["unknown key 'mr'", "Did you mean 'select.fixed.tile.mr'?"]),
        ("sizes.M=4", ["unknown key 'sizes'", "Did you mean 'workload.sizes.M'?"]),
        ("workload.sizes.m=4", ["Did you mean 'M'?", "Allowed: K, M, N (of workload matmul)."]),
        ("workload.sises.M=3", ["workload: unknown key 'sises'", "Did you mean 'sizes'?"]),
        ("workload.sizes.Q=3", ["workload.sizes: unknown key 'Q'", "K, M, N"]),
        ("case=[small]", ["case: workload 'matmul' has no case"]),
        ("~arch", ["arch: expected keys and values"]),
        ("case=smal", ["case", "no case 'smal'", "Did you mean 'small'?", "default"]),
        ("workload.dtype=float23", ["workload.dtype", "'float23'", "Did you mean 'float32'?"]),
        ("workload.tensors.A.dtype=half", ["workload.tensors.A.dtype", "'half'", "float32"]),
        ("seed=many", ["seed: expected a whole number, not 'many'"]),
        ("seed=-1", ["seed: -1 is too small", "0 or more"]),
        ("seed=1.5", ["seed: expected a whole number, not 1.5"]),
        ("seed=null", ["seed: expected a whole number, not None"]),
        ("timeout=0", ["timeout", "too small", "0.001"]),
        ("timeout=nan", ["timeout: nan is not a finite number"]),
        ("timeout=inf", ["timeout: inf is not a finite number"]),
        ("measure.pin=maybe", ["measure.pin: expected true or false, not 'maybe'"]),
        ("measure.baselines=[numpy]", ["measure: unknown key 'baselines'", "mean 'peers'?"]),
        ("+measure.baselines=[numpy]", ["measure: unknown key 'baselines'", "mean 'peers'?"]),
        ("measure.max_rounds=0", ["measure.max_rounds: 0 is too small"]),
        ("select.providers=model", ["select.providers: expected a list"]),
        ("toolchain.flags=[1]", ["toolchain.flags[0]: expected text, not 1"]),
        ("workload.sizes=3", ["workload.sizes: expected keys and values, not 3"]),
        ("workload.sizes.M=???", ["workload.sizes.M: must be given"]),
        ("workload.tensors.A.shape.9=3", ["'9' is not an index", "0 to 1"]),
        ("seed.deeper=1", ["seed", "has no key 'deeper'"]),
        ("~nothing", ["unknown key 'nothing'"]),
        ("~workload.golden.C", ["workload.golden: no output has a golden"]),
        ("+seed=3", ["seed: is there already"]),
        ("+new=1", ["unknown key 'new'"]),
        ("+new.key=1", ["unknown key 'new'"]),
        ("++new.key=1", ["unknown key 'new'"]),
        ("+workload.tensors.A.fil.low=1", ["workload.tensors.A: unknown key 'fil'", "'fill'"]),
        ("target.variant=fast", ["target.variant", "no variant 'fast'", "asan, release"]),
        ("workload.steps.multiply.kernel=matmull", ["unknown kernel 'matmull'", "'matmul'"]),
        ("workload.sizes.M=lenght", ["workload.sizes.M: unknown name 'lenght'"]),
        ("kernel=axpy", ["Could not override 'kernel'", "kernel@workload.kernels.matmul"]),
    ],
)
def test_a_mistake_is_named_with_key_value_and_what_is_allowed(
    compose: Compose, word: str, said: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        experiment(compose(word))
    for part in said:
        assert part in str(caught.value)


@pytest.mark.parametrize("word", ["hydra.run.dir=x", "+hydra/launcher=basic"])
def test_settings_of_hydra_are_no_keys_of_an_experiment(compose: Compose, word: str) -> None:
    with pytest.raises(UsageError) as caught:
        compose(word)
    assert f"'{word}' is a setting of Hydra's own" in str(caught.value)
    assert "kernloom run -m hydra/launcher=" in str(caught.value)


@pytest.mark.parametrize("word", ["workload.sizes", "-x"])
def test_words_without_a_value_are_quoted_back(compose: Compose, word: str) -> None:
    with pytest.raises(UsageError) as caught:
        compose(word)
    assert f"'{word}' is not key=value" in str(caught.value)


def test_a_bare_option_is_answered_with_the_group_it_belongs_to(compose: Compose) -> None:
    with pytest.raises(UsageError) as caught:
        compose("softmax")
    assert "Did you mean workload=softmax?" in str(caught.value)


@pytest.mark.parametrize("word", ["a b=1", "x=[1", "x={a", "=("])
def test_words_that_are_no_overrides_are_quoted_back(compose: Compose, word: str) -> None:
    with pytest.raises(UsageError) as caught:
        compose(word)
    assert f"'{word}' cannot be read" in str(caught.value)
    assert "key=value" in str(caught.value)


def test_plus_adds_and_double_plus_does_either(compose: Compose) -> None:
    assert compose("+workload.cases.mine={sizes: {M: 3}}")["workload"]["cases"]["mine"]
    assert compose("++seed=3")["seed"] == 3
    assert compose("++workload.dtype=float64")["workload"]["dtype"] == "float64"


def test_tilde_deletes(compose: Compose) -> None:
    assert "seed" not in compose("~seed")
    assert experiment(compose("~seed")).seed == 0
    assert "unrolling" not in compose("~pipeline.stages.unrolling")["pipeline"]["stages"]
    assert "seed" not in compose("seed=5", "~seed=5")
    with pytest.raises(ConfigError, match="seed: holds 0, not 5, so it is not deleted"):
        compose("~seed=5")


def test_keys_that_only_the_schema_knows_need_no_plus(compose: Compose) -> None:
    data = compose("workload.dtype=float64", "workload.tensors.A.fill.kind=normal")
    assert data["workload"]["dtype"] == "float64"
    assert experiment(data).workload.tensors["A"].fill.kind == "normal"


def test_open_maps_take_new_names_without_plus(compose: Compose) -> None:
    data = compose(
        "select.fixed.tile.mr=8",
        "pipeline.stages.more.use=unroll",
        "pipeline.stages.more.in.schedule.ref=packing.schedule",
    )
    assert data["select"]["fixed"] == {"tile": {"mr": 8}}
    assert data["pipeline"]["stages"]["more"]["in"] == {"schedule": {"ref": "packing.schedule"}}
    assert data["pipeline"]["stages"]["choice"]["fixed"] == {"tile": {"mr": 8}}


def test_lists_are_replaced_and_maps_merged(compose: Compose) -> None:
    data = compose("toolchain.flags=[-O1]", "workload.sizes={M: 5}", "toolchain.variants.asan=[]")
    assert data["toolchain"]["flags"] == ["-O1"]
    assert data["workload"]["sizes"] == {"M": 5, "N": 256, "K": 256}
    variants = data["toolchain"]["variants"]
    assert variants["release"] == variants["asan"] == [] and variants["sim"]


@pytest.mark.parametrize(
    "path",
    [
        "a b.yaml",
        "a,b.yaml",
        "it's",
        'say "hi"',
        "a;b&c|d",
        "a\\b",
        "ends\\",
        "a\\'b",
        "'half",
        "x=y",
        "[1]{2}(3)",
        "ü/ñ.db",
        "50%",
        "a:b",
        "",
    ],
)
@pytest.mark.parametrize("key", ["recipe", "select.file", "store.path"])
def test_a_path_is_taken_as_it_is(compose: Compose, key: str, path: str) -> None:
    assert at(compose(f"{key}={path}"), key) == path


def test_a_path_may_be_quoted_or_null(compose: Compose) -> None:
    assert compose("recipe='a b'")["recipe"] == "a b"
    assert compose('recipe="a,b"')["recipe"] == "a,b"
    assert compose("recipe=null")["recipe"] is None
    assert compose("++trace=t.json")["trace"] == "t.json"


FILLED = "workload.tensors.A.fill.path"


@pytest.mark.parametrize("key", ["select.file", FILLED])
@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("a.yaml,b.yaml", ["a.yaml", "b.yaml"]),
        ("choice(a.yaml,/x/b-1.yaml)", ["a.yaml", "/x/b-1.yaml"]),
        ("choice(a.yaml)", ["a.yaml"]),
        ("'a 1.yaml','b,2.yaml'", ["a 1.yaml", "b,2.yaml"]),
        ("choice('it\\'s',b)", ["it's", "b"]),
    ],
)
def test_several_paths_are_an_axis(sweep: Sweep, key: str, text: str, paths: list[str]) -> None:
    points = sweep(f"{key}={text}")
    assert [point.swept for point in points] == [{key: path} for path in paths]
    assert [at(point.data, key) for point in points] == paths
    for point, path in zip(points, paths, strict=True):
        (alone,) = parse_overrides([point.words[-1]], GROUPS, multirun=True)
        assert alone.values == (path,) and not alone.swept


def test_a_path_with_commas_is_one_where_it_is_quoted_or_cannot_be_swept(sweep: Sweep) -> None:
    (point,) = sweep("select.file='a,b.yaml'", "store.path=c,d.db", "recipe=choice(e,f)")
    assert not point.swept
    assert point.data["select"]["file"] == "a,b.yaml"
    assert point.data["store"]["path"] == "c,d.db"
    assert point.data["recipe"] == "choice(e,f)"


def test_paths_that_cannot_be_read_as_several_are_answered_with_how_to_write_them(
    sweep: Sweep, compose: Compose
) -> None:
    with pytest.raises(UsageError) as caught:
        sweep("select.file=f(1,2).yaml")
    for part in ("select.file=choice(", "sweep.axes.select.file=", "select.file='a,1.yaml'"):
        assert part in str(caught.value)
    with pytest.raises(UsageError, match="Add -m to sweep"):
        compose("select.file=choice(a,b)")


def test_the_last_axis_of_a_sweep_moves_fastest(sweep: Sweep) -> None:
    points = sweep("workload.sizes.M=1,2", "toolchain=gcc,clang", "seed=5")
    assert [point.swept for point in points] == [
        {"workload.sizes.M": 1, "toolchain": "gcc"},
        {"workload.sizes.M": 1, "toolchain": "clang"},
        {"workload.sizes.M": 2, "toolchain": "gcc"},
        {"workload.sizes.M": 2, "toolchain": "clang"},
    ]
    assert [point.data["toolchain"]["name"] for point in points] == ["gcc", "clang"] * 2
    assert {point.data["seed"] for point in points} == {5}


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("workload.sizes.M=choice(4,8)", [4, 8]),
        ("workload.sizes.M=range(4,10,3)", [4, 7]),
        ("workload.sizes.M=sort(8,4)", [4, 8]),
        ("workload.sizes.M=4,M,'N * 2'", [4, "M", "N * 2"]),
        ("toolchain.flags=[-O1],[-O2,-g]", [["-O1"], ["-O2", "-g"]]),
        ("measure=glob(*)", ["quick", "rigorous", "standard"]),
        ("measure=glob([q*,s*])", ["quick", "standard"]),
        ("measure=choice(quick)", ["quick"]),
    ],
)
def test_sweeps_in_hydras_words(sweep: Sweep, word: str, values: list[Any]) -> None:
    key = word.partition("=")[0]
    assert [point.swept[key] for point in sweep(word)] == values


def test_without_m_several_values_are_refused_with_a_hint(compose: Compose) -> None:
    for word in ("seed=1,2", "seed=choice(1,2)", "measure=glob(*)", "seed=range(1,3)"):
        with pytest.raises(UsageError, match="Add -m to sweep"):
            compose(word)


def test_an_interval_cannot_be_swept(sweep: Sweep) -> None:
    with pytest.raises(UsageError, match="continuous interval"):
        sweep("timeout=interval(1,4)")


def test_a_pattern_that_matches_nothing_is_refused(sweep: Sweep) -> None:
    with pytest.raises(UsageError, match="matches nothing"):
        sweep("workload=glob(zz*)")


def test_a_case_changes_defaults_but_the_command_line_wins(compose: Compose) -> None:
    assert compose("case=small")["workload"]["sizes"] == {"M": 16, "N": 24, "K": 32}
    for words in (["case=small", "workload.sizes.M=9"], ["workload.sizes.M=9", "case=small"]):
        assert compose(*words)["workload"]["sizes"] == {"M": 9, "N": 24, "K": 32}


def test_a_case_can_be_made_on_the_command_line(compose: Compose) -> None:
    data = compose("workload.cases.mine.sizes.M=7", "case=mine")
    assert data["workload"]["sizes"]["M"] == 7


def test_a_case_can_only_change_data(compose: Compose) -> None:
    with pytest.raises(ConfigError, match="a case cannot change 'golden'"):
        compose("workload.cases.mine.golden.C=A", "case=mine")


@pytest.mark.parametrize("word", ["workload.cases.small=5", "workload.cases=[small]"])
def test_a_case_that_is_none_is_named(compose: Compose, word: str) -> None:
    with pytest.raises(ConfigError, match="case"):
        compose(word, "case=small")


def test_the_default_case_changes_nothing(compose: Compose) -> None:
    assert compose("case=default") == compose()


_TEXT = (
    "workload target seed sizes M x_1 _a a1 0 1 007 -1 -0 1.5 01.5 .5 1. 1e3 1_0 true True TRUE "
    "false null Null nan inf -inf e5 off a-b a.b ??? on word Word_2 ٣ 1٣ ä"
)
_PARTS = st.sampled_from(_TEXT.split())
_KEYS = st.one_of(
    st.sampled_from(["workload", "seed", "workload.sizes.M", "select.fixed.tile.mr"]),
    st.lists(_PARTS, min_size=1, max_size=3).map(".".join),
    st.lists(_PARTS, min_size=1, max_size=3).map("/".join),
    st.text("abZ_0.-/", min_size=1, max_size=6),
)
_VALUES = st.one_of(
    st.lists(_PARTS, min_size=1, max_size=3).map(",".join),
    st.text("aeE_019.,-+", min_size=1, max_size=7),
    st.integers().map(str),
    st.floats().map(str),
)


@settings(max_examples=300, deadline=None)
@given(key=_KEYS, value=_VALUES, multirun=st.booleans())
def test_the_short_way_reads_a_word_exactly_as_hydra_does(
    key: str, value: str, multirun: bool
) -> None:
    word = f"{key}={value}"
    short = _plain(word, GROUPS, multirun=multirun)
    assume(short is not None)
    assert repr(short) == repr(_parse(word, GROUPS, multirun=multirun))


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=25), st.booleans())
def test_any_word_is_read_or_refused_for_people(word: str, multirun: bool) -> None:
    try:
        parse_overrides([word], GROUPS, multirun=multirun)
    except KernloomError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("x=" + "[" * 3000, "nested 3000 deep; at most 50 are read"),
        ("x=" + "{a:" * 400 + "1" + "}" * 400, "nested 400 deep"),
        ("x=" + "sort(" * 2000 + "1" + ")" * 2000, "nested 2000 deep"),
        ("x=[" + "1," * 20_000 + "1]", "a list of 20,000 values"),
        ("x" + ".x" * 3000 + "=1", "a key of 6001 characters is too long"),
        ("x=1" + "0" * 5000, "a number of 5001 digits is too long"),
        ("x=range(1" + "0" * 400 + ")", "cannot be enumerated"),
        ("x=range(nan,inf)", "cannot be enumerated"),
    ],
)
def test_words_that_no_parser_should_see_are_refused(word: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        parse_overrides([word], Groups([]), multirun=True)
    assert len(str(caught.value)) < 1000


def test_long_sweeps_are_still_read() -> None:
    values = ",".join(f"'a {number}'" for number in range(5000))
    for word in (f"x={values}", f"x=choice({values})"):
        (override,) = parse_overrides([word], Groups([]), multirun=True)
        assert len(override.values) == 5000


@pytest.mark.parametrize("number", [10**400, -(10**400), 2**63])
@pytest.mark.parametrize("key", ["timeout", "seed", "workload.scalars.alpha", "measure.bound"])
def test_numbers_that_fit_no_machine_word_are_refused(
    compose: Compose, key: str, number: int
) -> None:
    with pytest.raises(ConfigError, match=r"is too (large|small)"):
        experiment(compose(f"++{key}={number}"))


def test_references_that_double_at_every_step_are_refused(compose: Compose) -> None:
    """20 levels of ten references each would be 10**20 characters."""
    words = ["+workload.cases.c0=xxxxxxxxxx"]
    words += [
        f"+workload.cases.c{n}='{f'${{workload.cases.c{n - 1}}}' * 10}'" for n in range(1, 15)
    ]
    with pytest.raises(ConfigError, match="stand for more values than are allowed"):
        compose(*words)
