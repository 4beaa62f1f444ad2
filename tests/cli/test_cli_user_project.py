"""A user's own kernels, workloads and configs, in a folder of their own beside the shipped ones."""

from __future__ import annotations

import pytest

from command_line import KERNEL, WORKLOAD, Project
from kernloom.base.places import share_folder

TEMPLATED = """\
void {{ function }}(long n, const {{ ctype }} *x, {{ ctype }} *y);
void {{ function }}(long n, const {{ ctype }} *x, {{ ctype }} *y)
{
    long i = 0;
    for (; i + {{ unroll.by }} <= n; i += {{ unroll.by }}) {
{% for u in range(unroll.by) %}
        y[i + {{ u }}] = 2 * x[i + {{ u }}];
{% endfor %}
    }
    for (; i < n; i++)
        y[i] = 2 * x[i];
}
"""
BLOCKED = """\
for (long block = 0; block < n; block += BLOCK)
    for (long i = block; i < n && i < block + BLOCK; i++)
        y[i] = FACTOR * x[i];
"""
TUNABLE = """\
tunables:
  unroll:
    by: {values: [1, 2, 4], "off": 1}
"""
MACROS = """\
tunables:
  tile:
    block: {values: [16, 64, 256], "off": 16}
constraints: [block <= n]
"""


@pytest.fixture
def templated(project: Project) -> Project:
    kernel = KERNEL.format(name="twice").replace(
        "file: twice.c, function: twice", "template: kernels/twice/host.c.j2"
    )
    project.add("twice", kernel=kernel + TUNABLE)
    project.write("templates/kernels/twice/host.c.j2", TEMPLATED)
    return project


@pytest.fixture
def blocked(project: Project) -> Project:
    kernel = KERNEL.format(name="blocked").replace(
        "function: blocked", "function: blocked, macros: {BLOCK: block, FACTOR: 2}"
    )
    project.add("blocked", BLOCKED, kernel=kernel + MACROS)
    return project


def test_a_kernel_of_ones_own_needs_yaml_and_a_template(templated: Project) -> None:
    done = templated.json("run", "workload=twice")
    assert (done.code, done.trial["status"]) == (0, "ok"), done
    assert done.trial["params"] == {"unroll": {"call": {"by": 1}}}


def test_the_tunables_of_ones_own_template_are_swept(templated: Project) -> None:
    done = templated.json("run", "-m", "workload=twice", "select.fixed.unroll.by=1,2,4")
    assert [trial["status"] for trial in done.trials] == ["ok", "ok", "ok"]
    assert [trial["params"]["unroll"]["call"]["by"] for trial in done.trials] == [1, 2, 4]
    assert {trial["provider"] for trial in done.trials} == {"fixed"}
    assert len({trial["artifacts"][0]["key"] for trial in done.trials}) == 3


def test_the_macros_of_a_plain_c_kernel_are_tunables(blocked: Project) -> None:
    done = blocked.json("run", "-m", "workload=blocked", "select.fixed.tile.block=16,64,256")
    assert [trial["status"] for trial in done.trials] == ["ok", "ok", "ok"], done
    assert [trial["params"]["tile"]["call"]["block"] for trial in done.trials] == [16, 64, 256]
    assert [trial["point"] for trial in done.trials] == [
        {"select.fixed.tile.block": block} for block in (16, 64, 256)
    ]
    source = blocked.run("plan", "workload=blocked", "select.fixed.tile.block=64", "show=source")
    assert "#define BLOCK 64" in source.stdout
    assert "#define FACTOR 2" in source.stdout


def test_a_point_that_breaks_a_constraint_is_refused_by_its_name(blocked: Project) -> None:
    done = blocked.json(
        "run", "-m", "workload=blocked", "workload.sizes.n=100", "select.fixed.tile.block=16,256"
    )
    assert [trial["status"] for trial in done.trials] == ["ok", "refused"]
    assert "block <= n" in done.trials[1]["message"]


@pytest.mark.slow
def test_parameters_can_come_from_a_file(blocked: Project) -> None:
    path = blocked.write("my params, best.yaml", "tile: {block: 64}\n")
    done = blocked.json("run", "workload=blocked", f"select.file={path}")
    assert done.trial["params"]["tile"]["call"]["block"] == 64
    assert done.trial["provider"] == "file"


def test_a_users_file_shadows_the_built_in_one(project: Project) -> None:
    shipped = (share_folder() / "configs/workload/axpy.yaml").read_text(encoding="utf-8")
    assert "alpha: 1.5" in shipped
    project.write("configs/workload/axpy.yaml", shipped.replace("alpha: 1.5", "alpha: 2.5"))
    assert project.run("run", "workload=axpy", "case=small").code == 0
    stored = project.json("results", "workload.scalars.alpha=2.5")
    assert len(stored.trials) == 1


@pytest.mark.slow
def test_a_users_measuring_policy_joins_the_shipped_ones(project: Project) -> None:
    project.add("good")
    policy = (share_folder() / "configs/measure/quick.yaml").read_text(encoding="utf-8")
    changed = policy.replace("name: quick", "name: mine").replace("samples: 7", "samples: 3")
    project.write("configs/measure/mine.yaml", changed)
    metrics = project.json("run", "workload=good", "measure=mine").trial["metrics"]
    assert metrics["samples"] == 3


@pytest.mark.slow
def test_a_workload_may_call_its_kernels_in_several_steps(project: Project) -> None:
    project.add("good")
    workload = WORKLOAD.format(name="chain", n=500).replace(
        "kernels.chain: chain", "kernels.k: good"
    )
    workload = workload.replace(
        "  call: {kernel: chain}",
        "  first: {kernel: k, args: {y: t}}\n  second: {kernel: k, args: {x: t}}",
    )
    workload = workload.replace("  y: {shape: [n]}", "  y: {shape: [n]}\n  t: {shape: [n]}")
    project.write("configs/workload/chain.yaml", workload.replace("2 * x", "4 * x"))
    done = project.json("run", "workload=chain")
    assert (done.code, done.trial["status"]) == (0, "ok"), done


def test_a_header_beside_a_plain_c_kernel_is_part_of_it(project: Project) -> None:
    project.write("templates/factor.h", "#define FACTOR 2\n")
    body = "for (long i = 0; i < n; i++) y[i] = FACTOR * x[i];"
    project.add("headed", body, head='#include "factor.h"')
    assert project.json("run", "workload=headed").trial["status"] == "ok"
    project.write("templates/factor.h", "#define FACTOR 3\n")
    second = project.json("run", "workload=headed")
    assert second.trial["status"] == "wrong"
    assert second.document["build"]["built"] == 1


def test_a_toolchain_and_a_target_that_inherit_are_listed_as_they_run(project: Project) -> None:
    project.write(
        "configs/toolchain/mine.yaml",
        "defaults: [gcc, _self_]\nname: mine\nextra_flags: [-O3]\n",
    )
    project.write(
        "configs/target/mine.yaml",
        "# @package _global_\ndefaults: [host, {override /toolchain: mine}, _self_]\n"
        "target: {name: mine}\n",
    )
    project.write("configs/store/mine.yaml", "defaults: [sqlite, _self_]\npath: mine.db\n")
    listed = {target["name"]: target for target in project.json("targets").document}
    assert listed["mine"]["available"], listed["mine"]["reason"]
    assert listed["mine"] == {**listed["host"], "name": "mine"}
    tools = {tool["name"]: tool for tool in project.json("doctor").document["toolchains"]}
    assert tools["mine"] == {**tools["gcc"], "name": "mine"}
    done = project.json("run", "target=mine", "workload=axpy", "case=small", "store=mine")
    assert done.code == 0, done.stderr
    (stored,) = project.json("results", "store=mine").trials
    assert stored["config"]["toolchain"]["extra_flags"] == ["-O3"]


def test_configs_that_inherit_have_results_of_their_own(project: Project) -> None:
    project.write("configs/workload/mine.yaml", "defaults: [axpy, _self_]\nsizes: {N: 500}\n")
    project.write("configs/toolchain/fast.yaml", "defaults: [gcc, _self_]\nextra_flags: [-O3]\n")
    project.write("configs/arch/small.yaml", "defaults: [native, _self_]\ncaches: {l1: 8KiB}\n")
    words = ["workload=axpy,mine", "toolchain=gcc,fast", "arch=native,small"]
    done = project.json("run", "-m", *words)
    assert done.code == 0, done.stderr
    assert {trial["workload"] for trial in done.trials} == {"axpy", "mine"}
    for key in ("workload", "toolchain", "arch.name"):
        groups = project.json("results", "--group", key).document["rows"]
        assert [group["trials"] for group in groups] == [4, 4]


def test_targets_lists_each_target_by_the_name_of_its_file(project: Project) -> None:
    project.write("configs/target/mine.yaml", "# @package _global_\ndefaults: [host, _self_]\n")
    project.write("configs/target/headless.yaml", "defaults: [host, _self_]\n")
    targets = project.json("targets").document
    assert len({target["name"] for target in targets}) == len(targets)
    listed = {target["name"]: target for target in targets}
    assert listed["mine"] | {"name": "host"} == listed["host"]
    done = project.run("run", "target=headless", "workload=axpy")
    assert done.code == 2
    assert "its config is wrong" in listed["headless"]["reason"]
    for said in (done.stderr, listed["headless"]["reason"]):
        assert "headless.yaml: the first line of a target's file must be" in said
