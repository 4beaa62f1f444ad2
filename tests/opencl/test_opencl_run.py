"""The command line on the target opencl; test_recipe_replay.py verifies every workload there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from command_line import Project
from kernloom.base.errors import ConfigError
from kernloom.base.expressions import names_in
from kernloom.base.places import find_places
from kernloom.device.contract import Call, Scalar
from kernloom.device.opencl.choice import Options
from kernloom.device.opencl.device import OpenClDevice
from kernloom.device.opencl.probe import devices
from kernloom.plan.planned import Planned
from kernloom.run.assembly import Assembly
from parsed import plans_of
from parts import needs_opencl

KERNEL = """\
name: {name}
dtypes: [float32]
arguments:
  n: {{kind: size}}
  x: {{kind: tensor, shape: [n]}}
  y: {{kind: tensor, access: write, shape: [n]}}
sources:
  opencl:
    template: {name}.cl
    work: {{items: [n], group: [1]}}
"""
FUNCTION = """\
__kernel void kl_{name}(long n, __global const float *x, __global float *y)
{{
    const long i = get_global_id(0);
    {body}
}}
"""


def add(project: Project, name: str, body: str, n: int = 64) -> None:
    """A kernel in OpenCL C and a workload of the same name that should double a vector."""
    project.add(name, n=n, kernel=KERNEL.format(name=name))
    project.write(f"templates/{name}.cl", FUNCTION.format(name=name, body=body))


@pytest.fixture(scope="session")
def known_devices(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that has asked the drivers for their devices."""
    needs_opencl()
    project = Project(tmp_path_factory.mktemp("opencl"))
    done = project.run("plan", "target=opencl", "workload=axpy")
    assert done.code == 0, done.stderr
    return project


@pytest.fixture
def opencl(fresh_project: Project, known_devices: Project) -> Project:
    fresh_project.take_facts_from(known_devices)
    return fresh_project


def test_drivers_keep_what_they_compile_below_the_projects_own_folder(
    fresh_project: Project,
) -> None:
    needs_opencl()
    words = ("run", "target=opencl", "workload=axpy", "case=small")
    done = fresh_project.json(*words, env={"POCL_CACHE_DIR": ""})
    assert done.code == 0, done.stderr
    assert not list(fresh_project.home.iterdir())
    assert list((fresh_project.build / "cache" / "opencl" / "pocl").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ragged_sizes_are_verified_in_both_precisions(opencl: Project, dtype: str) -> None:
    done = opencl.json("check", "target=opencl", "case=ragged", f"workload.dtype={dtype}")
    assert done.code == 0, done.stderr
    assert len(done.trials) == 11


def test_tunables_change_the_source_and_the_work_sizes(opencl: Project) -> None:
    done = opencl.json(
        "run",
        "-m",
        "target=opencl",
        "case=ragged",
        "select.fixed.tile.mr=4,8",
        "select.fixed.tile.nv=1,3",
        "select.fixed.vectorize.lanes=1,4",
    )
    assert done.code == 0, done.stderr
    assert len({trial["artifacts"][0]["key"] for trial in done.trials}) == 8


WORKLOADS = (
    "axpy",
    "conv2d",
    "gelu",
    "layernorm",
    "matmul",
    "mlp",
    "softmax",
    "stencil5",
    "sum",
    "transpose",
)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_parameter_is_read_by_the_source_or_the_work_sizes(
    opencl: Project, workload: str
) -> None:
    assembly = Assembly(find_places(opencl.folder))
    words = ["target=opencl", f"workload={workload}"]
    if workload == "mlp":
        words.append("select.fixed.fuse.into_producer=false")
    (plan,) = plans_of(assembly, words, multirun=False)
    shown = {(t, s, n) for t, steps in plan.params.items() for s in steps for n in steps[s]}
    for place, item in enumerate(plan.steps):
        kernel = item.step.kernel
        for transform, group in kernel.tunables.items():
            for name, tunable in group.items():
                assert (transform, item.step.name, name) in shown
                key = f"select.fixed.{transform}.{item.step.name}.{name}"
                others = [v for v in tunable.values if v != item.step.decisions[transform][name]]
                changed = next(filter(None, (_planned(assembly, words, key, v) for v in others)))
                if transform != "fuse":
                    before, after = item.artifact.files, changed.steps[place].artifact.files
                    assert _seen(before, name) or _code(before) != _code(after), (transform, name)


def _planned(assembly: Assembly, words: list[str], key: str, value: object) -> Planned | None:
    others = [word for word in words if not word.startswith(key.rpartition(".")[0])]
    try:
        return plans_of(assembly, [*others, f"{key}={value}"], multirun=False)[0]
    except ConfigError:
        return None  # not allowed together with what the model chose


def _seen(files: Mapping[str, str], name: str) -> bool:
    """Whether the work sizes depend on a tunable."""
    (entry,) = json.loads(files["launch.json"])["entries"].values()
    return name in names_in([*entry["items"], *entry["group"]])


def _code(files: Mapping[str, str]) -> str:
    """A kernel without the comment that says what was decided."""
    return re.sub(r"/\*.*?\*/", "", files["kernel.cl"], flags=re.DOTALL)


@pytest.mark.parametrize("given", ["tile.kc=256", "parallelize.threads=1", "pack.b=true"])
def test_parameters_of_other_sources_are_refused_by_name(opencl: Project, given: str) -> None:
    done = opencl.run("run", "target=opencl", "workload=matmul", f"select.fixed.{given}")
    assert done.code == 2
    assert "select.fixed" in done.stderr
    assert "Allowed:" in done.stderr


def test_a_sum_is_the_same_on_any_number_of_compute_units(opencl: Project) -> None:
    """Many work-groups add, in an order that does not depend on which of them is first."""
    (plan,) = plans_of(
        Assembly(find_places(opencl.folder)), ["target=opencl", "workload=sum"], multirun=False
    )
    (step,) = plan.steps
    folder = opencl.folder / "package"
    folder.mkdir()
    for name, text in step.artifact.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    x = np.random.default_rng(0).normal(size=100_003).astype("float32")
    results = set()
    for units in (0, 1):
        device = OpenClDevice(Options(compute_units=units), cache=opencl.folder / "cache")
        with device.open() as session:
            source, sink = session.allocate(x.nbytes), session.allocate(4)
            session.write(source, x)
            kernel = session.load(folder / "kernel.cl", 3)
            for _ in range(5):
                session.launch([Call(kernel, (Scalar(x.size), source, sink))])
                results.add(bytes(session.read(sink)))
    assert len(results) == 1


@pytest.mark.parametrize(
    ("variable", "value", "reused"),
    [
        ("POCL_DEVICES", "basic", False),
        ("POCL_MAX_PTHREAD_COUNT", "1", False),
        ("POCL_WORK_GROUP_METHOD", "loops", False),
        ("POCL_CACHE_DIR", "elsewhere", True),
    ],
)
def test_a_trial_belongs_to_the_device_and_the_settings_of_its_driver(
    opencl: Project, tmp_path: Path, variable: str, value: str, reused: bool
) -> None:
    words = ("run", "target=opencl", "workload=axpy", "case=small")
    value = str(tmp_path / value) if variable == "POCL_CACHE_DIR" else value
    first = opencl.json(*words)
    assert opencl.json(*words).trial["reused"]
    other = opencl.json(*words, env={variable: value})
    assert other.code == 0, other.stderr
    assert other.trial["reused"] == reused
    assert (other.trial["id"] == first.trial["id"]) == reused
    (stored, *_) = opencl.json("results", f"id={other.trial['id']}").trials
    assert stored["machine"]["device"]["units"].isdigit()


def test_one_package_serves_all_sizes_and_is_mended(opencl: Project) -> None:
    words = ("run", "-m", "target=opencl", "workload=axpy", "workload.sizes.N=100,1000,10007")
    done = opencl.json(*words)
    assert done.document["build"]["built"] == 1
    again = opencl.json(*words, "rerun=all")
    assert (again.document["build"]["built"], again.document["build"]["scons"]) == (0, 0)
    (launch,) = opencl.build.glob("kernels/*/launch.json")
    launch.write_text(launch.read_text().replace("lanes", "group"))
    mended = opencl.json(*words, "rerun=all")
    assert mended.code == 0
    assert mended.document["build"]["built"] == 1


def test_times_are_the_devices_own(opencl: Project) -> None:
    done = opencl.json("run", "target=opencl", "workload=axpy", "case=small")
    metrics = done.trial["metrics"]
    assert metrics["median_ns"] == metrics["kernel_ns"] > 0
    assert (metrics["transfer_bytes"], metrics["transfer_ns"]) == (0, 0)
    assert metrics["deterministic"] == []
    assert "cpu_ns" not in metrics


PLACED = (
    "target=opencl",
    "workload=matmul",
    "case=small",
    "workload.tensors.A.place=host",
    "workload.tensors.B.place=device",
    "workload.tensors.C.place=host",
)


@pytest.mark.parametrize("how", ["auto", "in_place"])
def test_a_tensor_on_the_host_is_read_in_place_where_the_device_can(
    opencl: Project, how: str
) -> None:
    if not devices()[0].unified:
        pytest.skip("the device has memory of its own")
    done = opencl.json("run", *PLACED, f"target.options.host_memory={how}")
    assert done.code == 0, done.stderr
    assert done.trial["placement"] == {"A": "in_place", "B": "device", "C": "in_place"}
    metrics = done.trial["metrics"]
    assert metrics["transfer_bytes"] == 0
    assert 0 < metrics["transfer_ns"] < metrics["median_ns"]
    assert 0 < metrics["kernel_ns"] < metrics["median_ns"]


def test_tensors_that_are_read_updated_and_summed_in_place_are_verified(opencl: Project) -> None:
    for workload, tensor in (("axpy", "y"), ("softmax", "x"), ("sum", "x")):
        words = ("target=opencl", f"workload={workload}", "case=ragged")
        done = opencl.json("run", *words, f"workload.tensors.{tensor}.place=host")
        assert done.code == 0, done.stderr


def test_a_word_that_says_nothing_about_host_memory_is_refused(opencl: Project) -> None:
    done = opencl.run("run", *PLACED, "target.options.host_memory=shared")
    assert done.code == 2
    assert "target.options.host_memory" in done.stderr
    assert "auto, copy, in_place" in done.stderr


def test_a_tensor_on_the_host_is_copied_inside_the_measured_region(opencl: Project) -> None:
    done = opencl.json("run", *PLACED, "target.options.host_memory=copy")
    assert done.code == 0, done.stderr
    metrics = done.trial["metrics"]
    assert done.trial["placement"] == {"A": "copied", "B": "device", "C": "copied"}
    assert metrics["transfer_bytes"] == (16 * 32 + 16 * 24) * 4
    assert 0 < metrics["transfer_ns"] < metrics["median_ns"]
    assert 0 < metrics["kernel_ns"] < metrics["median_ns"]


@pytest.mark.parametrize("place", ["device:7", "moon", "device:", "host:0"])
def test_a_place_that_cannot_be_honoured_is_refused_by_name(opencl: Project, place: str) -> None:
    done = opencl.run(
        "run", "target=opencl", "workload=axpy", f"workload.tensors.x.place='{place}'"
    )
    assert done.code == 2
    assert place in done.stderr
    assert "Allowed: host, device, device:0" in done.stderr


def test_a_sub_device_is_named_by_its_index(opencl: Project) -> None:
    words = ("run", "target=opencl", "workload=axpy", "target.options.compute_units=1")
    done = opencl.run(*words, "case=small", "workload.tensors.x.place='device:0'")
    assert done.code == 0, done.stderr
    assert opencl.run(*words, "target.options.index=4095").code == 3
    assert opencl.run(*words, "target.options.indx=0").code == 2


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("y[i] = 3 * x[i];", "wrong", "golden"),
        ("y[i] = 2 * x[i]; if (i == 0) y[n] = 1e30f;", "out_of_bounds", "'y'"),
        ("volatile __global int *volatile p = 0; *p = 1;", "crashed", "SIG"),
        ("y[i] = not_there;", "build_failed", "not_there"),
        ("for (volatile int going = 1; going;) ;", "timeout", "KernelLaunch"),
    ],
)
def test_what_a_kernel_does_wrong_is_a_status(
    opencl: Project, body: str, status: str, said: str
) -> None:
    add(opencl, "mine", body)
    patience = "timeout=12" if status == "timeout" else "timeout=60"
    done = opencl.json("run", "target=opencl", "workload=mine", patience)
    assert done.code == 1, done.stderr
    assert done.trial["status"] == status
    assert said in done.trial["message"]


def test_a_kernel_without_work_sizes_or_source_is_refused(opencl: Project) -> None:
    text = KERNEL.format(name="mine")
    add(opencl, "mine", "y[i] = 2 * x[i];")
    assert opencl.run("run", "target=opencl", "workload=mine").code == 0
    for wrong in (
        text.replace("group: [1]", "group: [1, 1]"),
        text.replace("items: [n]", "items: [m]"),
        text.replace("    work: {items: [n], group: [1]}\n", ""),
        text.replace("opencl:", "host:"),
    ):
        opencl.write("configs/kernel/mine.yaml", wrong)
        done = opencl.run("run", "target=opencl", "workload=mine")
        assert done.code == 2, done.stdout
        assert "workload.kernels.mine.sources" in done.stderr


def test_without_a_platform_the_target_is_unavailable(
    fresh_project: Project, tmp_path: Path
) -> None:
    needs_opencl()
    nothing = {"OCL_ICD_VENDORS": str(tmp_path / "nothing")}
    done = fresh_project.run("run", "target=opencl", env=nothing)
    assert done.code == 3
    assert "pocl-opencl-icd" in done.stderr
    listed = fresh_project.json("targets", env=nothing).document
    (target,) = [item for item in listed if item["name"] == "opencl"]
    assert not target["available"]
    assert "OpenCL" in target["reason"]
    mixed = fresh_project.json(
        "run", "-m", "target=host,opencl", "workload=axpy", "case=small", env=nothing
    )
    assert [trial["status"] for trial in mixed.trials] == ["ok", "unavailable"]


def test_the_cpu_clock_is_refused_by_name(opencl: Project) -> None:
    done = opencl.json("run", "target=opencl", "workload=axpy", "measure.clock=cpu")
    assert done.trial["status"] == "refused"
    assert "cpu_clock" in done.trial["message"]


PLAIN_KERNEL = """\
name: plain
dtypes: [float32]
arguments:
  n: {kind: size}
  x: {kind: tensor, shape: [n]}
  y: {kind: tensor, access: write, shape: [n]}
sources:
  opencl:
    file: own/plain.cl
    function: twice
    macros: {STEP: step}
    work: {items: ["round_up(ceil_div(n, step), 64)"], group: [64]}
tunables:
  unroll:
    step: {values: [4, 8, 16], "off": 4}
"""
PLAIN = """\
#include "parts/factor.h"
__kernel void twice(int n, __global const float *x, __global float *y)
{
    const int first = get_global_id(0) * STEP;
    for (int i = first; i < n && i < first + STEP; i++)
        y[i] = FACTOR * x[i];
}
"""


def test_a_plain_file_with_macros_is_swept_and_follows_what_it_includes(
    opencl: Project, tmp_path: Path
) -> None:
    # Drivers split their options at spaces, so an include folder with one is the harder case.
    project = Project(tmp_path / "a folder")
    project.add("plain", kernel=PLAIN_KERNEL)
    project.write("templates/own/plain.cl", PLAIN)
    project.write("templates/own/parts/factor.h", "#define FACTOR 2\n")
    words = ("-m", "target=opencl", "workload=plain", "select.fixed.unroll.step=4,8,16")
    done = project.json("run", *words, "workload.sizes.n=1000,4097")
    assert done.code == 0, done.stderr
    assert len(done.trials) == 6
    assert done.document["build"]["built"] == 3, "a package serves all sizes"
    project.write("templates/own/parts/factor.h", "#define FACTOR 3\n")
    changed = project.json("run", *words)
    assert {trial["status"] for trial in changed.trials} == {"wrong"}


def test_files_that_only_the_driver_would_read_are_refused(opencl: Project, tmp_path: Path) -> None:
    outside = tmp_path / "factor.h"
    outside.write_text("#define FACTOR 2\n")
    opencl.add("plain", kernel=PLAIN_KERNEL)
    words = ("run", "target=opencl", "workload=plain")
    opencl.write("templates/own/plain.cl", PLAIN.replace('"parts/factor.h"', f"<{outside}>"))
    refused = opencl.run(*words)
    assert refused.code == 2
    assert "sources.opencl.file" in refused.stderr
    assert "changes would go unnoticed" in refused.stderr
    opencl.write("templates/own/plain.cl", PLAIN)
    opencl.write("templates/own/parts/factor.h", "#define FACTOR 2\n")
    assert opencl.run(*words).code == 0
    refused = opencl.run(*words, f"toolchain.extra_flags=[-I{tmp_path}]")
    assert refused.code == 2
    assert "toolchain.extra_flags" in refused.stderr
    assert "Allowed is what starts with -cl-" in refused.stderr
    assert opencl.run(*words, "toolchain.extra_flags=[-cl-mad-enable]").code == 0


def test_an_error_in_a_plain_file_names_its_own_line(opencl: Project) -> None:
    opencl.add("plain", kernel=PLAIN_KERNEL)
    opencl.write("templates/own/plain.cl", PLAIN)
    opencl.write("templates/own/parts/factor.h", "#define FACTOR nothing\n")
    done = opencl.json("run", "target=opencl", "workload=plain")
    assert done.trial["status"] == "build_failed"
    assert "plain.cl:6" in done.trial["message"]


SUM_KERNEL = """\
name: total
dtypes: [float32]
arguments:
  n: {kind: size}
  x: {kind: tensor, shape: [n]}
  y: {kind: tensor, access: write, shape: [1]}
sources:
  opencl:
    file: total.cl
    function: total
    macros: {ITEMS: items}
    work: {items: [items], group: [1], scratch: items}
    finish: {items: [1], group: [1]}
tunables:
  parallelize:
    items: {values: [16, 64], "off": 16}
"""
SUM = """\
__kernel void total(long n, __global const float *x, __global float *y, __global float *parts)
{
    const long me = get_global_id(0);
    float sum = 0;
    for (long i = me; i < n; i += ITEMS)
        sum += x[i];
    parts[me] = sum;
}

__kernel void total_finish(long n, __global const float *x, __global float *y,
                           __global float *parts)
{
    float sum = 0;
    for (int i = 0; i < ITEMS; i++)
        sum += parts[i];
    y[0] = sum;
}
"""
SUM_WORKLOAD = """\
defaults: [{/kernel@kernels.total: total}, _self_]
name: total
sizes: {n: 10000}
tensors: {x: {shape: [n]}, y: {shape: [1]}}
steps: {call: {kernel: total}}
golden: {y: "reshape(sum(x), [1])"}
tolerance: {float32: {rtol: 1e-3, atol: 1e-3}}
"""


def test_a_plain_file_may_finish_its_work_by_a_second_function(opencl: Project) -> None:
    opencl.write("configs/kernel/total.yaml", SUM_KERNEL)
    opencl.write("configs/workload/total.yaml", SUM_WORKLOAD)
    opencl.write("templates/total.cl", SUM)
    words = ("-m", "target=opencl", "workload=total", "select.fixed.parallelize.items=16,64")
    done = opencl.json("run", *words)
    assert done.code == 0, done.stderr
    assert len(done.trials) == 2
