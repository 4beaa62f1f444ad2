"""`check` runs scenes beside workloads, and compares virtual time with what is committed."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from command_line import Project
from kernloom.base.places import share_folder

MINE = """\
workload: late
cases:
  short: {sizes: {n: 50}, targets: [host]}
  long: {sizes: {n: 200}, targets: [host]}
  trusted: {sizes: {n: 200}, targets: [host], skip_golden: true}
  loose: {sizes: {n: 200}, targets: [host], tolerance: {rtol: 0.6}}
  tripled:
    sizes: {n: 200}
    targets: [host]
    arguments: {x: {kind: constant, value: 0}}
  huge: {sizes: {n: 300}, targets: [host], manual: true}
"""
PYTHON = """\
from kernloom.scene import Case, Scene

class Doubled(Scene):
    workload = "late"
    cases = [Case("zeros", sizes={"n": 128}), Case("wrong", sizes={"n": 4}), Case("bad")]

    def arguments(self, tensors, case, rng):
        tensors["x"][100:] = 0
        assert tensors["x"].shape == (case.sizes["n"],)

    def golden(self, tensors, case):
        print("text that must not be in the JSON document")
        assert case.name != "bad", "no golden for this case"
        tensors["y"][:] = 2 * tensors["x"] + (case.name == "wrong")
"""


@pytest.fixture(scope="module")
def staged(scenery: Project):
    """Scenes of the project; shipped ones of these names are hidden."""
    paths = [scenery.write("scenes/mine.yaml", MINE), scenery.write("scenes/doubled.py", PYTHON)]
    yield scenery
    for path in paths:
        path.unlink()


def statuses(trials: list[dict]) -> dict[str, str]:
    return {f"{t['point']['scene']}::{t['case']}": t["status"] for t in trials}


def test_every_case_of_a_scene_is_verified_in_its_own_way(staged: Project) -> None:
    done = staged.json("check", "--scene", "mine")
    assert done.code == 1
    assert statuses(done.trials) == {
        "mine::short": "ok",
        "mine::long": "wrong",
        "mine::trusted": "ok",
        "mine::loose": "ok",
        "mine::tripled": "ok",
    }
    wrong = next(trial for trial in done.trials if trial["status"] == "wrong")
    assert wrong["message"].count("golden ") == 3, "the first differences"
    trusted = next(trial for trial in done.trials if trial["case"] == "trusted")
    assert trusted["warnings"] == [
        "the golden was skipped: nothing shows that the results are right"
    ]


def test_a_scene_in_python_fills_arguments_and_computes_goldens(staged: Project) -> None:
    done = staged.json("check", "--scene", "Doubled")
    assert done.code == 1
    found = {trial["case"]: trial for trial in done.trials}
    assert found["zeros"]["verified"]
    assert found["wrong"]["status"] == "wrong"
    assert found["bad"]["status"] == "refused"
    assert "`golden` failed: AssertionError: no golden for this case" in found["bad"]["message"]
    assert "doubled.py:" in found["bad"]["message"]


MISTAKES = """\
import numpy as np
from kernloom.scene import Case, Scene

class Mistaken(Scene):
    workload = "good"
    sizes = {"n": 8}
    cases = [Case(name) for name in (
        "text", "ragged", "complex", "returned", "shape", "gone", "nan", "new", "exits", "unknown"
    )]

    def arguments(self, tensors, case, rng):
        if case.name == "nan":
            tensors["x"][:] = np.nan
        if case.name == "unknown":
            tensors["xs"] = tensors["x"]

    def golden(self, tensors, case):
        right = 2 * tensors["x"]
        match case.name:
            case "text": tensors["y"] = np.full(8, "x")
            case "ragged": tensors["y"] = [[1, 2], [3]]
            case "complex": tensors["y"] = right + 1j
            case "returned": return right
            case "shape": tensors["y"] = right[:3]
            case "gone": del tensors["y"]
            case "new": tensors["z"] = right
            case "exits": raise SystemExit(0)
            case _: tensors["y"][:] = right
"""
SAID = {
    "text": "'y' has elements of type <U1, but must have real numbers",
    "ragged": "'y' is no array",
    "complex": "'y' has elements of type complex128",
    "returned": "`golden` returns a value, but must change the tensors in place",
    "shape": "'y' is of shape [3], but must be [8]",
    "gone": "'y' is missing",
    "nan": "proves nothing: all of its 8 elements are NaN",
    "new": "there is no tensor 'z'",
    "exits": "`golden` failed: SystemExit: 0",
    "unknown": "there is no tensor 'xs'",
}


def test_a_mistake_in_a_method_refuses_its_case_alone(scenery: Project) -> None:
    path = scenery.write("scenes/mistaken.py", MISTAKES)
    try:
        done = scenery.json("check", "--scene", "Mistaken")
    finally:
        path.unlink()
    assert done.code == 1
    assert {trial["case"]: trial["status"] for trial in done.trials} == dict.fromkeys(
        SAID, "refused"
    )
    for trial in done.trials:
        assert SAID[trial["case"]] in trial["message"]
        assert "0.0" not in trial["message"], "an internal number"
    assert "Traceback" not in done.stderr


def test_scenes_run_beside_the_cases_of_their_workload(staged: Project) -> None:
    done = staged.json("check", "workload=late")
    cases = [trial["case"] for trial in done.trials if not trial["point"].get("scene")]
    scenes = {t["point"]["scene"] for t in done.trials if t["point"].get("scene")}
    assert (cases, scenes) == (["default"], {"mine", "Doubled"})
    assert not [t for t in staged.json("check", "workload=good").trials if t["point"].get("scene")]
    done = staged.json("check", "workload=late", "case=default")
    assert len(done.trials) == 1, "a case of a workload is no case of a scene"


def test_one_case_and_manual_cases_are_chosen(staged: Project) -> None:
    assert staged.json("check", "--scene", "mine::short").trial["case"] == "short"
    done = staged.json("check", "--scene", "mine", "--manual", "only")
    assert done.trial["case"] == "huge"
    done = staged.run("check", "--scene", "mine::shrt")
    assert (done.code, done.stdout) == (2, "")
    assert "Did you mean 'mine::short'?" in done.stderr
    done = staged.run("check", "--scene", "mine", "target=a5")
    assert done.code == 2
    assert "no chosen scene runs on a5" in done.stderr
    assert staged.run("check", "--scene", "mine", "--manual", "yes").code == 2
    assert staged.run("check", "--scene", "mine", "--rounds", "0").code == 2


def test_overrides_of_the_command_line_win_over_a_scene(staged: Project) -> None:
    words = ("check", "--scene", "mine::long", "workload.sizes.n=20")
    assert staged.json(*words).trial["verified"]
    done = staged.json("check", "-m", "--scene", "mine::long", "workload.sizes.n=20,150")
    assert [t["verified"] for t in done.trials] == [True, False]
    assert [t["point"]["workload.sizes.n"] for t in done.trials] == [20, 150]


def test_the_table_and_junit_show_scenes(staged: Project, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    done = staged.run("check", "--scene", "mine", "--rounds", "2", "--junit", str(report))
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if "mine::" in line}
    assert rows["mine::short"].endswith("verified")
    assert rows["mine::trusted"].endswith("golden skipped")
    assert "4 verified, 1 failed" in done.stdout
    root = ElementTree.parse(report).getroot()
    assert (root.get("tests"), root.get("failures")) == ("5", "1")
    assert "long [scene=mine]" in {case.get("name") for case in root.findall("testcase")}


def test_a_mistake_in_a_scene_ends_the_check(informed_project: Project) -> None:
    informed_project.add("good")
    informed_project.write("scenes/mine.yaml", "workload: good\ncases: {a: {siezs: {n: 1}}}\n")
    done = informed_project.run("check", "--scene", "all")
    assert (done.code, done.stdout) == (2, "")
    assert "mine.yaml.cases.a: a case has no 'siezs'" in done.stderr
    assert "Did you mean 'sizes'?" in done.stderr


def test_an_unknown_target_of_a_scene_ends_the_check(informed_project: Project) -> None:
    informed_project.add("good")
    informed_project.write("scenes/mine.yaml", "workload: good\ncases: {a: {targets: [a55]}}\n")
    done = informed_project.run("check", "workload=good")
    assert (done.code, done.stdout) == (2, "")
    assert "mine.yaml: a: unknown target 'a55'" in done.stderr
    assert "Did you mean 'a5'?" in done.stderr


@pytest.mark.parametrize(
    "key",
    ["trace=run.json", "trace_level=2", "deps=run.json", "replay=0", "whatif=all", "show=why"],
)
def test_a_look_into_one_run_is_refused_for_scenes(staged: Project, key: str) -> None:
    done = staged.run("check", "--scene", "mine", key)
    assert (done.code, done.stdout) == (2, "")
    assert f"{key} is about one run" in done.stderr
    assert not (staged.folder / "run.json").exists()


def test_scenes_are_not_sent_to_a_cluster(staged: Project) -> None:
    done = staged.run("check", "--scene", "mine::short", "fleet=slurm")
    assert (done.code, done.stdout) == (2, "")
    assert "'check' works on this machine only, not on fleet 'slurm'" in done.stderr


@pytest.fixture(scope="module")
def simulated(scenery: Project) -> Project:
    """A scene on a simulated accelerator, and its virtual time committed."""
    text = "workload: softmax\ntargets: [a5]\nsizes: {M: 4, N: 32}\ncases: {tiny: {}}\n"
    scenery.write("scenes/rows.yaml", text)
    done = scenery.run("check", "target=a5", "--scene", "rows", "--accept")
    assert done.code == 0, done.stderr + done.stdout
    assert "accepted: rows::tiny on a5-hostgraph: new: virtual_ns" in done.stderr
    return scenery


def test_the_same_virtual_time_is_good_in_every_round(simulated: Project) -> None:
    done = simulated.json("check", "target=a5", "--scene", "rows", "--rounds", "2")
    assert (done.code, done.trial["point"]) == (0, {"scene": "rows", "runtime": "hostgraph"})
    done = simulated.run("check", "target=a5", "--scene", "rows", "--accept")
    assert "accepted: nothing changed" in done.stderr


def test_other_hardware_diverges_and_the_first_hop_is_named(simulated: Project) -> None:
    arch = (share_folder() / "configs/arch/a5.yaml").read_text(encoding="utf-8")
    assert "latency_ns: 110" in arch
    own = simulated.write(
        "configs/arch/a5.yaml", arch.replace("latency_ns: 110", "latency_ns: 111")
    )
    expected = simulated.folder / "scenes/expected/rows.txt"
    before = expected.read_bytes()
    try:
        done = simulated.json("check", "target=a5", "--scene", "rows")
        assert (done.code, done.trial["status"], done.trial["stage"]) == (1, "wrong", "committed")
        first, task, hop, hint = done.trial["message"].splitlines()
        assert first.endswith("is committed (+2.000)")
        assert "first task that diverged: normalise on 0.0.1 vector, at " in task
        assert "latency on 0.0.1 dma 0, at " in hop
        assert "takes 119.000 ns, not 118.000 ns (+1.000 ns)" in hop
        assert "--accept" in hint
        done = simulated.run("check", "target=a5", "--scene", "rows", "--accept")
        assert "(+2.000)" in done.stderr
        assert simulated.run("check", "target=a5", "--scene", "rows").code == 0
    finally:
        own.unlink()
        expected.write_bytes(before)


@pytest.fixture(scope="module")
def graph(scenery: Project) -> Project:
    """A scene of several tasks that depend on each other, committed for both runtimes."""
    sizes = "{count: 4, depth: 2, tile: 8}"
    text = f"workload: batched_gemm\ntargets: [a5]\nsizes: {sizes}\ncases: {{sums: {{}}}}\n"
    scenery.write("scenes/graph.yaml", f"{text}runtimes: [hostgraph, ringmap]\n")
    done = scenery.run("check", "target=a5", "--scene", "graph", "--accept")
    assert done.code == 0, done.stderr + done.stdout
    return scenery


@pytest.mark.parametrize(
    ("before", "after", "hops"),
    [
        ("latency_ns: 110", "latency_ns: 111", ["latency on 0.0.0 dma 0"] * 2),
        (
            "noc: {latency_ns: 40",
            "noc: {latency_ns: 41",
            ["control 0 to pe 0.0.0, 212 bytes on 0.0 noc in, at"] * 2,
        ),
        (
            "submit_ns: 750",
            "submit_ns: 751",
            ["submit on host", "control 0 to pe 0.0.0, 212 bytes on 0.0 noc in starts at"],
        ),
        (
            "startup_cycles: {matrix: 32, vector: 16",
            "startup_cycles: {matrix: 32, vector: 18",
            ["vector on 0.0.1 vector"] * 2,
        ),
        ("complete_ns: 600", "complete_ns: 601", ["complete on 0.0.0 matrix"] * 2),
        ("hit_ns: 2", "hit_ns: 3", ["translate on 0.0.0 dma 0"] * 2),
    ],
)
def test_a_change_of_one_ns_names_its_resource_and_task(
    graph: Project, before: str, after: str, hops: list[str]
) -> None:
    arch = (share_folder() / "configs/arch/a5.yaml").read_text(encoding="utf-8")
    assert arch.count(before) == 1
    own = graph.write("configs/arch/a5.yaml", arch.replace(before, after))
    try:
        done = graph.json("check", "target=a5", "--scene", "graph")
    finally:
        own.unlink()
    assert [trial["stage"] for trial in done.trials] == ["committed"] * 2
    for trial, hop in zip(done.trials, hops, strict=True):
        _, task, found, *others = trial["message"].splitlines()
        assert "first task that diverged: " in task
        assert f"first resource and hop that diverged: {hop}" in found
        of = "add on 0.0.1 vector" if hop.startswith("vector") else "multiply on 0.0.0 matrix"
        assert found.endswith(f"of task {of}") == ("host" not in hop)
        assert ("nothing before it diverged: control 0 sent it later" in "".join(others)) == (
            "starts at" in hop
        )


def test_accepting_what_is_committed_leaves_the_file_alone(simulated: Project) -> None:
    expected = simulated.folder / "scenes/expected/rows.txt"
    # Compressed in another way: the slices are the same.
    lines = expected.read_text(encoding="utf-8").replace("\n", "\n\n")
    before = expected.read_bytes()
    expected.write_text(lines, encoding="utf-8")
    try:
        done = simulated.run("check", "target=a5", "--scene", "rows", "--accept")
        assert "accepted: nothing changed" in done.stderr
        assert expected.read_text(encoding="utf-8") == lines
    finally:
        expected.write_bytes(before)


def test_accepting_forgets_cases_that_the_scene_no_longer_has(simulated: Project) -> None:
    expected = simulated.folder / "scenes/expected/rows.txt"
    before = expected.read_text(encoding="utf-8")
    expected.write_text(f"{before}\n[gone a5 hostgraph]\nvirtual_ns 7\n", encoding="utf-8")
    done = simulated.run("check", "target=a5", "--scene", "rows", "--accept")
    assert done.stderr.count("accepted: ") == 1
    assert "accepted: rows::gone a5 hostgraph: removed" in done.stderr
    assert expected.read_text(encoding="utf-8") == before


def test_overrides_that_change_virtual_time_are_not_compared(simulated: Project) -> None:
    for same in ("rerun=all", "build.keep=true"):
        done = simulated.json("check", "target=a5", "--scene", "rows", same)
        assert (done.code, done.trial["warnings"]) == (0, [])
    slower = "arch.hbm.latency_ns=200"
    done = simulated.json("check", "target=a5", "--scene", "rows", slower)
    assert done.code == 0
    assert "not compared" in done.trial["warnings"][-1]
    done = simulated.run("check", "target=a5", "--scene", "rows", slower, "--accept")
    assert done.code == 2
    assert f"{slower} changes the scenes" in done.stderr
