"""Scenes are read from YAML and Python; what is wrong with them is named at once."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernloom
from command_line import Project
from kernloom.base.errors import ConfigError
from kernloom.base.places import find_places
from kernloom.run.assembly import Assembly
from kernloom.scene.choosing import picks_of
from kernloom.scene.overrides import check_scene, overrides_of
from kernloom.scene.reading import from_class, read_file, read_scenes
from kernloom.scene.scene import Case, Scene

FULL = """\
about: everything that a scene can say
workload: matmul
targets: [host, a5]
runtimes: [hostgraph, ringmap]
sizes: {M: 16, N: 24, K: 32}
tolerance: {rtol: 1.0e-3}
cases:
  plain:
  other:
    targets: [host]
    sizes: {M: 8}
    params: {tile: {mr: 4}}
    config: {workload: {dtype: float64}, seed: 3}
    arguments: {A: {kind: constant, value: 2.0}}
    golden: {C: A @ B}
    tolerance: {rtol: 0.5, atol: 1}
    manual: true
    skip_golden: true
"""
WRONG = {
    "wrkload: matmul": ("a scene has no 'wrkload'", "Did you mean 'workload'?"),
    "workload: matmull": ("unknown workload 'matmull'", "Did you mean 'matmul'?"),
    "size: {M: 1}": ("a scene has no 'size'", "Did you mean 'sizes'?"),
    "sizes: {M: 1.5}": ("sizes.M", "expected a whole number"),
    "targets: [a6]": ("unknown target 'a6'", "Did you mean 'a5'?"),
    "runtimes: [ringmop]": ("unknown runtime 'ringmop'", "Did you mean 'ringmap'?"),
    "cases: {a: {mannual: true}}": ("a case has no 'mannual'", "Did you mean 'manual'?"),
    "cases: {a: {sizes: {m: 4}}}": ("'m'", "Did you mean 'M'?"),
    "cases: {a: {sizes: {M: 4}, arguments: {D: {}}}}": ("'D'", "A, B, C"),
    "cases: {a: {arguments: {A: {knd: x}}}}": ("unknown key 'knd'", "Did you mean 'kind'?"),
    "cases: {a: {golden: {D: A}}}": ("'D'", "C"),
    "cases: {a: {params: {tile: {mrr: 4}}}}": ("unknown tunable", "Did you mean 'tile.mr'?"),
    "cases: {a: {config: {sede: 1}}}": ("unknown key 'sede'", "Did you mean 'seed'?"),
    "cases: {a: {config: {arch.hbm.latncy_ns: 1}}}": ("latncy_ns", "latency_ns"),
    "cases: {a: {config: {target: a5}}}": ("'target' is not set by `config`", "`targets`"),
    "cases: {a: {config: {store.path: x}}}": ("unknown key 'store.path'", "Allowed"),
    "cases: {a: {tolerance: {rtoll: 1}}}": ("unknown key 'rtoll'", "Did you mean 'rtol'?"),
    "cases: {}": ("cases", "has no cases"),
    "cases: {a: {config: {trace_level: 3}}}": ("unknown key 'trace_level'", "Allowed"),
    "cases: {a: {config: {whatif: all}}}": ("unknown key 'whatif'", "Allowed"),
    "cases: {a: {targets: [host], runtimes: [ringmop]}}": ("'ringmop'", "Did you mean 'ringmap'?"),
    "targets: [host, host]": ("names 'host' twice", "targets"),
    "cases: {a: {tolerance: {rtol: -1}}}": ("-1.0 is no tolerance", "tolerance.rtol"),
    "cases: {a: {tolerance: {atol: .nan}}}": ("nan is no tolerance", "tolerance.atol"),
    "cases: {a: {tolerance: {atol: .inf}}}": ("inf is no tolerance", "tolerance.atol"),
    "cases: {'a,b': {}}": ("'a,b' cannot be the name of a case", ""),
    'cases: {"a\\rb": {}}': ("cannot be the name of a case", "'a\\rb'"),
    "cases: {'a::b': {}}": ("'a::b' cannot be the name of a case", ""),
}


def spec(folder: Path, text: str, name: str = "mine.yaml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    (found,) = read_file(path)
    return found


def test_a_yaml_scene_says_all_that_a_case_has(tmp_path: Path, assembly: Assembly) -> None:
    scene = spec(tmp_path, FULL)
    check_scene(scene, assembly)
    assert (scene.name, scene.workload) == ("mine", "matmul")
    plain, other = scene.cases
    assert (plain.targets, plain.manual, plain.tolerance) == (("host", "a5"), False, {"rtol": 1e-3})
    assert (other.sizes, other.manual, other.skip_golden) == (
        {"M": 8, "N": 24, "K": 32},
        True,
        True,
    )
    picks = [pick.name for pick in picks_of(scene, assembly.composer)]
    assert picks == [
        "mine::plain on host",
        "mine::plain on a5-hostgraph",
        "mine::plain on a5-ringmap",
        "mine::other on host",
    ]


def test_the_overrides_of_a_case_compose_its_experiment(tmp_path: Path, assembly: Assembly) -> None:
    pick = picks_of(spec(tmp_path, FULL), assembly.composer)[-1]
    (point,) = assembly.composer.points(overrides_of(pick, assembly))
    workload = point.data["workload"]
    assert workload["sizes"] == {"M": 8, "N": 24, "K": 32}
    assert workload["dtype"] == "float64"
    assert workload["tensors"]["A"]["fill"] == {"kind": "constant", "value": 2.0}
    assert workload["tolerance"]["float64"] == {"rtol": 0.5, "atol": 1, "ulp": 0}
    assert (point.data["seed"], point.data["select"]["fixed"]["tile"]["mr"]) == (3, 4)


OWN = """\
workload: matmul
targets: [host]
runtimes: [ringmap]
manual: true
skip_golden: true
params: {tile: {mr: 4, multiply: {nr: 16}}}
config: {workload: {dtype: float64}, seed: 3}
cases:
  same: {}
  own:
    manual: false
    skip_golden: false
    params: {tile: {nr: 8}, tile.mr: 6}
    config: {workload.dtype: float32, arch.hbm: {latency_ns: 7}}
"""


def test_a_case_changes_single_keys_and_switches_of_its_scene(tmp_path: Path) -> None:
    same, own = spec(tmp_path, OWN).cases
    assert (same.manual, same.skip_golden) == (True, True)
    assert same.params == {"tile": {"mr": 4, "multiply": {"nr": 16}}}
    assert (own.manual, own.skip_golden) == (False, False)
    assert own.params == {"tile": {"mr": 6, "multiply": {"nr": 16}, "nr": 8}}
    assert own.config == {"workload.dtype": "float32", "seed": 3, "arch.hbm.latency_ns": 7}


def test_a_case_of_a_class_turns_a_switch_of_its_scene_off(tmp_path: Path) -> None:
    class TestMine(Scene):
        workload = "matmul"
        manual = True
        skip_golden = True
        cases = [Case("same"), Case("own", manual=False, skip_golden=False)]

    same, own = from_class(TestMine, tmp_path / "test_mine.py").cases
    assert (same.manual, same.skip_golden) == (True, True)
    assert (own.manual, own.skip_golden) == (False, False)


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_is_named_with_the_nearest_name(
    text: str, tmp_path: Path, assembly: Assembly
) -> None:
    sound = {
        "workload": "workload: matmul\n",
        "targets": "targets: [a5]\n",
        "cases": "cases: {a: {}}\n",
    }
    lines = [line for key, line in sound.items() if not text.startswith(key)]
    with pytest.raises(ConfigError) as error:
        check_scene(spec(tmp_path, "".join([*lines, text, "\n"])), assembly)
    for said in (*WRONG[text], "mine.yaml"):
        assert said in str(error.value)


def test_a_class_is_the_same_scene(tmp_path: Path, assembly: Assembly) -> None:
    class TestMine(kernloom.Scene):
        workload = "matmul"
        targets = ["host"]
        cases = [kernloom.Case("first", sizes={"M": 4}), Case("second", tolerance={"rtol": 1})]

    scene = from_class(TestMine, tmp_path / "test_mine.py")
    check_scene(scene, assembly)
    assert (scene.name, [case.name for case in scene.cases]) == ("TestMine", ["first", "second"])
    assert scene.code is None, "it has no methods of its own"
    assert dict(scene.cases[0].sizes) == {"M": 4}


def test_mistakes_in_a_class_are_named_where_it_is_written() -> None:
    with pytest.raises(ConfigError, match="a case has no 'szies'") as error:
        Case("first", szies={"M": 4})  # type: ignore[call-arg]
    assert "Did you mean 'sizes'?" in str(error.value)
    with pytest.raises(ConfigError, match="a scene has no 'tolerence'"):
        type("TestMine", (Scene,), {"workload": "matmul", "tolerence": {}})
    type("TestMine", (Scene,), {"workload": "matmul", "ROWS": 4, "_own": 1, "help": lambda: 1})


def test_two_cases_of_one_name_are_refused(tmp_path: Path) -> None:
    fields = {"workload": "matmul", "cases": [Case("a"), Case("a", manual=True)]}
    scene = type("TestMine", (Scene,), fields)
    with pytest.raises(ConfigError, match="two cases have the name 'a'"):
        from_class(scene, tmp_path / "test_mine.py")


@pytest.mark.parametrize("cases", [Case("a"), "a", None, 5, {"a": Case("a")}])
def test_cases_of_a_class_are_a_list(tmp_path: Path, cases: object) -> None:
    scene = type("TestMine", (Scene,), {"workload": "matmul", "cases": cases})
    with pytest.raises(ConfigError, match=r"TestMine\.cases: expected a list of cases"):
        from_class(scene, tmp_path / "test_mine.py")


def test_a_class_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    class TestMine(Scene):
        workload = "matmul"
        cases = [Case("a")]

        def __init__(self) -> None:
            raise RuntimeError("not today")

        def golden(self, tensors, case) -> None: ...

    with pytest.raises(ConfigError, match="TestMine: cannot be created: RuntimeError: not today"):
        from_class(TestMine, tmp_path / "test_mine.py")


def test_a_projects_scene_hides_a_shipped_one_of_its_name(informed_project: Project) -> None:
    places = find_places(informed_project.folder)
    shipped = {scene.name for scene in read_scenes(places)}
    assert {"matmul", "softmax"} <= shipped
    own = informed_project.write(
        "scenes/matmul.yaml", "workload: axpy\ncases: {a: {targets: [host]}}"
    )
    found = {scene.name: scene for scene in read_scenes(places)}
    assert found.keys() == shipped
    assert (found["matmul"].file, found["matmul"].workload) == (own, "axpy")


def test_a_python_file_that_cannot_be_imported_is_named(informed_project: Project) -> None:
    informed_project.write("scenes/broken.py", "import nothing_of_that_name\n")
    done = informed_project.run("check", "--scene", "all")
    assert (done.code, done.stdout) == (2, "")
    assert "broken.py: cannot be imported: ModuleNotFoundError" in done.stderr
