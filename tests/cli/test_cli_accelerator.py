"""Accelerators on the command line: sweeps of topologies, limiter, provenance, trace, probe, and
what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import attacks
from command_line import KERNEL, WORKLOAD, Project
from doc_pages import IMAGES, PAGES, drawing
from kernloom.base.places import find_places
from kernloom.measure.traces import MAX_DIGEST, trace_digest
from kernloom.run.assembly import Assembly
from parsed import plans_of
from parts import needs
from trace_events import checked_slices

CORE = """\
static void {{ function }}(struct kl_core *core, long n, uint64_t from, uint64_t to)
{
    float *x = kl_allocate(core, n * sizeof *x), *y = kl_allocate(core, n * sizeof *y);
    kl_wait(core, kl_load(core, x, from, n * sizeof *x));
    for (long i = 0; i < n; i++)
        y[i] = 2 * x[i];
    kl_charge(core, KL_UNIT_VECTOR, KL_DTYPE_FLOAT32, n);
    kl_wait(core, kl_store(core, to, y, n * sizeof *y));
}
"""
RUN = ("run", "workload=twice", "target=a5")
ONE_SIP = "arch.topology={sips: 1, cubes: 2, pes: {matrix: 1, vector: 2}}"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with a kernel that doubles a vector on one PE."""
    needs("gcc", "g++")
    project = Project(tmp_path_factory.mktemp("accelerator"))
    project.share_artifacts()
    kernel = KERNEL.format(name="twice").replace(
        "host: {file: twice.c, function: twice}", "core: {template: twice.c.j2}"
    )
    project.write("configs/kernel/twice.yaml", kernel)
    project.write("configs/workload/twice.yaml", WORKLOAD.format(name="twice", n=4096))
    project.write("templates/twice.c.j2", CORE)
    return project


def trial(project: Project, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = project.json(*RUN, *words).trial
    return found


def test_a_run_says_what_limits_it_and_on_what_its_numbers_rest(project: Project) -> None:
    found = trial(project, "arch.hbm.bandwidth=64")
    assert found["status"] == "ok" and found["verified"], found["message"]
    metrics, conditions = found["metrics"], found["conditions"]
    assert metrics["virtual_ns"] > 0
    assert 0 < metrics["utilisation_vector"] <= 1
    # Of one run, without the one that warms up: one load and one store of all elements.
    assert metrics["hbm_bytes"] == 2 * 4 * 4096
    assert {"virtual_ns", "noc_bytes"} <= set(metrics["deterministic"])
    assert conditions["limiter"]
    assert conditions["arch_provenance"]["override"] == 1
    assert conditions["arch_overrides"] == ["arch.hbm.bandwidth"]


def test_the_table_shows_the_limiter_and_the_provenance(project: Project) -> None:
    text = project.run(*RUN, "arch.hbm.bandwidth=64,32", "-m").stdout
    assert "limiter" in text and "virtual" in text
    assert "note: virtual times on a5 rest on arch data: " in text
    assert "1 override (arch.hbm.bandwidth)" in text


def test_virtual_time_is_the_same_in_every_run(project: Project) -> None:
    first, second = (trial(project, "rerun=all")["metrics"] for _ in range(2))
    assert first == second and first["virtual_ns"] > 0


def test_a_sweep_of_topologies_compiles_nothing_more(project: Project) -> None:
    assembly = Assembly(find_places(project.folder))
    words = [
        "workload=twice",
        "target=a5",
        "arch.topology.cubes=range(1,21)",
        "arch.hbm.bandwidth=range(10,60)",
    ]
    plans = plans_of(assembly, words, multirun=True)
    assert len(plans) == 1000 and not any(plan.refusal for plan in plans)
    assert len({plan.id for plan in plans}) == 1000
    assert len({tuple(a.key for _, a in plan.named_artifacts) for plan in plans}) == 1


def test_a_runtime_axis_collapses_for_the_host(project: Project) -> None:
    project.write("configs/kernel/any.yaml", KERNEL.format(name="any"))
    words = ["workload=axpy", "target=host,a5", "runtime=hostgraph,ringmap", "case=small"]
    trials = project.json("plan", *words, "-m").document["trials"]
    assert [one["point"]["runtime"] for one in trials] == ["none", "hostgraph", "ringmap"]


# Traces.


def test_a_trace_is_written_whole_and_its_digest_stored(project: Project) -> None:
    file = project.folder / "trace.json"
    found = trial(project, f"trace={file}")
    first = file.read_bytes()
    events = json.loads(first)["traceEvents"]
    assert {"X", "M"} <= {event["ph"] for event in events}
    digest = found["conditions"]["trace"]
    assert digest == trace_digest(first) and digest["bytes"] == len(first)
    assert len(json.dumps(digest, separators=(",", ":"))) <= MAX_DIGEST
    # Although the trial is stored now, it runs again: traces are not stored.
    assert not trial(project, f"trace={file}").get("reused")
    assert file.read_bytes() == first
    assert [path.name for path in project.folder.glob(".trace*")] == []


@pytest.fixture(scope="module")
def trace_of(project: Project) -> Callable[[str], bytes]:
    """The trace of axpy on a target."""

    @cache
    def trace_of(target: str) -> bytes:
        file = project.folder / f"{target}.json"
        words = ("workload=axpy", "case=small", f"target={target}", f"trace={file}")
        assert project.json("run", *words).trial["status"] == "ok"
        return file.read_bytes()

    return trace_of


def test_the_documentation_shows_a_real_trace(trace_of: Callable[[str], bytes]) -> None:
    title = "One launch of axpy (small) on a5"
    found = drawing("draw_trace").picture(json.loads(trace_of("a5")), title)
    assert found == (IMAGES / "trace.svg").read_text(encoding="utf-8")
    assert "(images/trace.svg)" in PAGES["docs/accelerator.md"].read_text(encoding="utf-8")


@pytest.mark.parametrize("target", ["a2a3", "a5", "mppa"])
def test_a_trace_is_what_the_trace_event_format_documents(
    trace_of: Callable[[str], bytes], target: str
) -> None:
    slices = checked_slices(trace_of(target))
    assert len(slices) > 100
    assert any(event.get("args", {}).get("bytes") for event in slices)


@pytest.mark.parametrize(
    ("event", "change"),
    [
        (0, {"name": ""}),
        (0, {"args": {}}),
        (1, {"ph": "Y"}),
        (1, {"name": "process_names"}),
        (2, {"tid": "1"}),
        (2, {"tid": 7}),
        (2, {"pid": 7}),
        (2, {"ts": -1}),
        (2, {"dur": "1"}),
        (3, {"dur": 5.001}),
    ],
)
def test_the_check_of_traces_finds_what_is_wrong(event: int, change: dict[str, Any]) -> None:
    named = {"ph": "M", "pid": 1, "args": {"name": "one"}}
    one = {"ph": "X", "pid": 1, "tid": 1, "ts": 0, "dur": 5.0, "name": "outer"}
    events = [
        {**named, "tid": 0, "name": "process_name"},
        {**named, "tid": 1, "name": "thread_name"},
        one,
        {**one, "ts": 1.0, "dur": 4.0},
    ]
    document = {"displayTimeUnit": "ns", "traceEvents": events}
    assert len(checked_slices(json.dumps(document).encode())) == 2
    events[event] |= change
    with pytest.raises((AssertionError, KeyError)):
        checked_slices(json.dumps(document).encode())


def test_a_trace_does_not_change_the_trial(project: Project) -> None:
    traced, plain = trial(project, "trace=a.json"), trial(project, "rerun=all")
    assert traced["status"] == "ok" and traced["id"] == plain["id"]
    assert traced["metrics"] == plain["metrics"]


def test_the_digest_of_a_large_trace_stays_small() -> None:
    events: list[dict[str, Any]] = []
    for track in range(500):
        named = {"ph": "M", "name": "thread_name", "pid": 1, "tid": track}
        events.append({**named, "args": {"name": f"a track with a long name, number {track}"}})
        events.append({"ph": "X", "name": "x", "pid": 1, "tid": track, "ts": 0, "dur": track + 1})
    digest = trace_digest(json.dumps({"traceEvents": events}).encode())
    assert digest["tracks"] == digest["slices"] == 500
    assert len(json.dumps(digest, separators=(",", ":"))) <= MAX_DIGEST
    assert next(iter(digest["busy_us"])).endswith("number 499")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["trace=none/there/t.json"], "there is no folder"),
        (["trace=."], "is not the name of a file"),
        (["trace=t.json", "-m", "seed=1,2"], "is about one run, but this sweep has 2"),
    ],
)
def test_a_trace_that_cannot_be_written_is_refused_first(
    project: Project, words: list[str], why: str
) -> None:
    done = project.run(*RUN, *words)
    assert done.code == 2 and why in done.stderr


def test_a_cpu_has_nothing_to_trace(project: Project) -> None:
    done = project.run("run", "workload=axpy", "trace=t.json")
    assert done.code == 2 and "keeps no virtual time to trace" in done.stderr


def test_what_measures_nothing_writes_no_trace(project: Project) -> None:
    done = project.run("check", "workload=twice", "target=a5", "trace=t.json")
    assert done.code == 2 and "nothing is measured here" in done.stderr
    assert not (project.folder / "t.json").exists()


# Bad input.


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["arch.topology.pes={matrix: 0, vector: 0}"], 2, "arch.topology.pes: a cube has no PEs"),
        (["arch.links.noc.bandwidth=0"], 2, "no transfer would ever end"),
        (["+arch.topology.pes.vectr=1"], 2, "unknown core type 'vectr'"),
        (["arch=x86_64_v2"], 2, "describes no accelerator: it has no topology"),
        (["runtime=none"], 2, "target 'a5' needs a task runtime"),
        (["target=host", "runtime=ringmap"], 2, "target 'host' has no task runtime 'ringmap'"),
        (["target.variant=onboard"], 3, "toolchain 'ccec': no program 'ccec'"),
        (["target.variant=qemu", "toolchain=gcc"], 2, "cannot build variant 'qemu'"),
        (["target.variant=release"], 2, "target 'a5' has no variant 'release'"),
        (
            ["target.machines.sim.platform=mychip"],
            3,
            "no package on this machine adds the platform 'mychip'",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_built(
    project: Project, words: list[str], code: int, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    done = project.run("plan", "workload=twice", "target=a5", *words)
    assert done.code == code and why in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["arch.clock.core_mhz=0.0001"], "arch.clock.core_mhz: must be at least 0.001"),
        (["arch.hbm.channels=65"], "arch.hbm.channels: must be between 1 and 64, not 65"),
    ],
)
def test_a_setting_that_the_platform_refuses_is_named_as_it_was_typed(
    project: Project, words: list[str], why: str
) -> None:
    found = trial(project, *words)
    assert found["status"] != "ok" and why in found["message"]


def test_a_launch_that_ends_in_virtual_time_does_not_name_the_limit_of_the_wall_clock(
    project: Project,
) -> None:
    lost = ",".join(str(every) for every in range(45, 90))
    options = [f"target.options.lose={lost}", "target.options.timeout_ns=2000000", "timeout=50"]
    found = project.json("run", "-m", *RUN[1:], ONE_SIP, *options).trials
    assert {one["status"] for one in found} <= {"ok", "timeout"}
    messages = [one["message"] for one in found if one["status"] == "timeout"]
    for text, limit in (
        ("did not answer Launch", "within 6000000 ns of virtual time (3 times "),
        ("did not answer Run of task 0", "within 2000000 ns of virtual time ("),
    ):
        message = next(message for message in messages if text in message)
        assert f"{limit}target.options.timeout_ns), until the virtual instant " in message
    assert not any("timeout=50" in message for message in messages)


def test_tensors_larger_than_hbm_are_refused_with_both_numbers(project: Project) -> None:
    words = ["plan", "workload=twice", "target=a5", ONE_SIP, "arch.hbm.bytes=1MiB"]
    done = project.run(*words, "workload.sizes.n=1000000")
    assert done.code == 2
    assert "arch.hbm.bytes: the tensors take 7.6 MiB (8,000,000 bytes)" in done.stderr
    assert "the HBM of 6 PEs is 6.0 MiB (6,291,456 bytes), 1.0 MiB (1,048,576 bytes)" in done.stderr
    assert project.run(*words, "workload.sizes.n=700000").code == 0


# Listing and drawing.


def test_targets_lists_accelerators_with_their_topology(project: Project) -> None:
    listed = {one["name"]: one for one in project.json("targets").document}
    for name, pes in (("a2a3", 72), ("a5", 108), ("mppa", 80)):
        assert listed[name]["available"] and listed[name]["family"] == "accelerator"
        assert listed[name]["topology"].endswith(f": {pes} PEs")
        assert "onboard" in listed[name]["unavailable_variants"]
    text = project.run("targets").stdout
    assert "a5: 1 sip of 36 cubes of 1 matrix and 2 vector PEs: 108 PEs" in text
    assert "not onboard: toolchain 'ccec'" in text


def test_doctor_draws_the_topology_with_provenance(project: Project) -> None:
    text = project.run("doctor", "target=a5", "arch.topology.sips=2").stdout
    for part in (
        "2 sips of 36 cubes of 1 matrix and 2 vector PEs: 216 PEs, 2000 MHz (assumed)",
        "pcie 500 ns, 32 GB/s (assumed)",
        "sips 0 to 1, linked by sip 400 ns, 50 GB/s",
        "HBM 128 GB/s on 4 channels",
        "PE 0  matrix: matrix unit 2048",
        "PE 2  vector: vector unit 128",
        "1 override",
    ):
        assert part in text
    document = project.json("doctor", "target=a5").document
    assert document["values"]["hbm.bytes"] == {"value": "1073741824", "provenance": "assumed"}
    assert document["provenance"]["published"] == 4


def test_doctor_probes_memory_by_size_and_distance(project: Project) -> None:
    words = ["doctor", "target=a5", "--probe", "arch.topology.sips=2"]
    probes = project.json(*words).document["probe"]
    by_distance: dict[str, list[float]] = {}
    for one in probes:
        assert one["read_ns"] > 0 and one["write_ns"] > 0
        by_distance.setdefault(one["distance"], []).append(one["read_ns"])
    assert list(by_distance) == ["own PE", "own cube", "other cube", "other sip"]
    for times in by_distance.values():
        assert times == sorted(times) and times[0] < times[-1]
    smallest = [times[0] for times in by_distance.values()]
    assert smallest == sorted(smallest) and smallest[0] < smallest[-1]
    assert "other sip" in project.run(*words).stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--probe"], "--probe needs an accelerator"),
        (["target=host", "--probe"], "is no accelerator"),
        (["target=a5", "--install"], "is about this machine, not about a target"),
        (["workload=axpy"], "'doctor' takes no 'workload=axpy'"),
    ],
)
def test_doctor_refuses_what_it_cannot_do(project: Project, words: list[str], why: str) -> None:
    done = project.run("doctor", *words)
    assert done.code == 2 and why in done.stderr


# Variants and recipes.


VARIANTS = [["target.variant=sim-asan"], ["target.variant=qemu"]]
if attacks.whole():  # each takes minutes to build
    VARIANTS += [["target.variant=sim-tsan"], [*VARIANTS[0], "toolchain=clang"]]


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS, ids=" ".join)
def test_virtual_time_is_the_same_in_every_variant(project: Project, variant: list[str]) -> None:
    needs("riscv64-linux-gnu-g++", "qemu-riscv64")
    found = trial(project, *variant)
    assert found["status"] == "ok", found["message"]
    assert found["metrics"] == trial(project)["metrics"]


@pytest.mark.slow
def test_a_recipe_of_a_variant_with_a_machine_of_its_own_is_replayed(project: Project) -> None:
    needs("riscv64-linux-gnu-g++", "qemu-riscv64")
    file = project.folder / "recipe.yaml"
    first = trial(project, "target.variant=qemu", f"recipe={file}", "rerun=all")
    again = project.json("recipe", "run", str(file))
    assert again.trial["id"] == first["id"] and again.trial["status"] == "ok"
    assert "differs" not in again.stderr and "has another" not in again.stderr


# Machines that must not build.


def test_a_machine_that_must_not_build_names_what_is_missing(
    project: Project, tmp_path: Path
) -> None:
    fresh = Project(tmp_path)
    for path in ("configs/kernel/twice.yaml", "configs/workload/twice.yaml"):
        fresh.write(path, (project.folder / path).read_text())
    fresh.write("templates/twice.c.j2", (project.folder / "templates/twice.c.j2").read_text())
    done = fresh.run(*RUN, "build.mode=never")
    assert done.code == 3
    assert "nothing is built here (build.mode=never)" in done.stderr
    for name in ("host.so", "control.so", "core.so", "platform_sim.so", "runner"):
        assert f"build/lib/a5/sim/hostgraph/{name}" in done.stderr
    assert "/kernels/" in done.stderr and "Where building is allowed: scons " in done.stderr
    assert trial(project)["status"] == "ok"
    assert trial(project, "build.mode=never", "rerun=all")["status"] == "ok"
