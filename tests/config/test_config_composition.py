"""Composition: the same as Hydra's own, kept on disk, and open to a project's files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernloom.base.errors import ConfigError
from kernloom.base.places import share_folder
from kernloom.base.sealed import read_sealed, write_sealed
from kernloom.config import values
from kernloom.config.compose import Composer
from kernloom.config.groups import Groups
from kernloom.config.hydra_search_path import FolderPlugin
from kernloom.config.validate import experiment
from parsed import points_of

Compose = Callable[..., dict[str, Any]]
Project = Callable[[Mapping[str, str]], Composer]
CONFIGS = share_folder() / "configs"


def _choices() -> st.SearchStrategy[list[str]]:
    groups = Groups([CONFIGS])
    axes = [
        st.one_of(st.none(), st.sampled_from(groups.options(group)).map(f"{group}={{}}".format))
        for group in ("workload", "toolchain", "measure", "target")
    ]
    arches = [name for name in groups.options("arch") if name != "native"]
    arch = st.sampled_from(arches).map("arch={}".format)
    return st.tuples(arch, *axes).map(lambda words: [word for word in words if word])


_CHANGES = st.lists(
    st.sampled_from(
        [
            "seed=5",
            "timeout=2.5",
            "output=json",
            "show=source.text",
            "build.keep=true",
            "arch.cores=2",
            "arch.caches.l1=48KiB",
            "toolchain.extra_flags=[-g,'-DX=1']",
            "toolchain.flags=[]",
            "select.providers=[fixed,model]",
            "++select.fixed.tile.mr=8",
            "++select.fixed.vectorize={lanes:4}",
            "+workload.dtype=float64",
            "++workload.sizes.extra=7",
            "workload.about=${toolchain.name} on ${arch.name}",
            "~workload.cases.small",
            "++workload.cost.flops='2 * element'",
            "measure.samples=3",
            "pipeline.stages.source.use=render",
            "+pipeline.stages.again={use:unroll,in:{schedule:{ref:packing.schedule}}}",
            "~pipeline.stages.timing",
        ]
    ),
    max_size=6,
    unique=True,
)


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(groups=_choices(), changes=_CHANGES)
def test_equals_what_stock_hydra_composes(
    stock: Compose, composer: Composer, groups: list[str], changes: list[str]
) -> None:
    words = [*groups, *changes]
    (point,) = points_of(composer, words, multirun=False)
    assert point.data == stock(*words)


def test_interpolations_are_resolved_as_omegaconf_does(stock: Compose, compose: Compose) -> None:
    for changes in (
        ["workload.about=${seed}"],
        ["workload.about=a-${seed}-${build.keep}-${recipe}"],
        ["workload.about=${workload.sizes.M}", "workload.sizes.M=${workload.sizes.N}"],
        ["++select.fixed.tile.mr=${seed}"],
        ["workload.about=${pipeline.stages.choice.providers.0}"],
        ["workload.about=${toolchain.flags[1]}"],
        ["workload.about=${.name}"],
        ["workload.about=${oc.select:nothing,7}"],
        ["workload.about='\\${seed}'"],
        ["show=${arch.caches}"],
        ["++workload.cases.a.sizes=${workload.sizes}", "workload.sizes.M=${seed}"],
    ):
        words = ["arch=x86_64_v2", *changes]
        assert compose(*changes) == stock(*words), changes


SELECTS = [
    "${oc.select:seed}",
    "${oc.select:seed,7}",
    "${oc.select:nothing}",
    "${oc.select:nothing.at.all,-7}",
    "${oc.select:seed.x,1.50}",
    "${oc.select:nothing,word}",
    "${oc.select:nothing, true}",
    "${oc.select:nothing,null}",
    "${oc.select:nothing,'with space, and comma'}",
    "${oc.select:nothing,${workload.name}}",
    "${oc.select:trace,default}",
    "${oc.select:toolchain.flags.1,none}",
    "${oc.select:toolchain.flags.99,none}",
    "${oc.select:workload.sizes,none}",
    "a${oc.select:nothing,1}b${seed}c${oc.select:seed}",
    "${oc.select:nothing,a.b}",
    "${oc.select:nothing,1e3}",
    "${oc.select:nothing,NULL}",
    "${oc.select:nothing,[1,2]}",
    "${oc.select:${workload.name},5}",
    "${oc.select:build,${nothing}}",
]


@pytest.mark.parametrize("text", SELECTS)
def test_a_select_is_resolved_as_omegaconf_does(
    stock: Compose, compose: Compose, text: str
) -> None:
    words = [f'++workload.about="{text}"', "seed=3"]
    expected = stock("arch=x86_64_v2", *words)
    if "refused" in expected:
        with pytest.raises(ConfigError):
            compose(*words)
    else:
        assert compose(*words)["workload"]["about"] == expected["workload"]["about"]


@pytest.mark.parametrize("target", ["aarch64_sve", "riscv64_rvv"])
def test_omegaconf_resolves_no_shipped_config(
    composer: Composer, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a thousand times longer than a point of a sweep may."""

    def refuse(data: object) -> None:
        raise AssertionError("resolved by OmegaConf")

    monkeypatch.setattr(values, "_resolved_by_omegaconf", refuse)
    words = [f"target={target}", "arch.vector_bits=128,512"]
    one, other = points_of(composer, words, multirun=True)
    assert "128" in str(one.data["target"])
    assert "512" in str(other.data["target"])


def test_hydras_warnings_about_files_are_notes(tmp_path: Path) -> None:
    root = (CONFIGS / "kernloom.yaml").read_text().replace("  - _self_\n", "")
    assert "_self_" not in root
    (tmp_path / "kernloom.yaml").write_text(root)
    notes: list[str] = []
    folders, cache = [tmp_path, CONFIGS], tmp_path / "cache"
    composer = Composer(folders, cache, lambda data: data["arch"], say=notes.append)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _only(composer)
    (note,) = notes
    assert note.startswith("Hydra warns: In 'kernloom': Defaults list is missing `_self_`.")


def test_settings_of_hydra_in_a_root_config_do_no_harm(project: Project) -> None:
    root = (CONFIGS / "kernloom.yaml").read_text()
    root += "hydra: {launcher: {n_jobs: 3}, job: {name: mine}}\n"
    root = root.replace("\n\n", "\n  - override hydra/launcher: joblib\n\n", 1)
    assert _only(project({"kernloom.yaml": root}))["workload"]["name"] == "matmul"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["workload.about=${sede}"], ["workload.about", "'${sede}'", "Did you mean 'seed'?"]),
        (["seed=${timeout}", "timeout=${seed}"], ["refers to itself"]),
        (["++select.fixed.a=${select.fixed}"], ["refers to itself"]),
        (["show=${oc.env:KERNLOOM_NO_SUCH_VARIABLE}"], ["KERNLOOM_NO_SUCH_VARIABLE"]),
        (["show=${.nothing}"], ["nothing"]),
    ],
)
def test_an_interpolation_that_leads_nowhere_is_named(
    compose: Compose, words: list[str], said: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(*words)
    for part in said:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        ["arch=x86_64_v2", "workload=glob(*)"],
        ["arch=x86_64_v2", "toolchain=glob(*,exclude=[ccec,kalray])"],
        ["arch=x86_64_v2", "measure=glob(*)"],
        ["target=a5", "target.variant=onboard", "toolchain=ccec,kalray"],
    ],
)
def test_the_shipped_configs_are_all_valid(composer: Composer, words: list[str]) -> None:
    for point in points_of(composer, words, multirun=True):
        experiment(point.data)


def test_a_points_data_is_not_touched_by_the_next(composer: Composer) -> None:
    words = ["arch=x86_64_v2", "workload.sizes.M=1,2", "toolchain.flags=[-O1],[-O2]"]
    points = list(points_of(composer, words, multirun=True))
    assert [p.data["workload"]["sizes"]["M"] for p in points] == [1, 1, 2, 2]
    assert [p.data["toolchain"]["flags"] for p in points] == [["-O1"], ["-O2"]] * 2
    (plain,) = points_of(composer, ["arch=x86_64_v2"], multirun=False)
    assert plain.data["workload"]["sizes"]["M"] == 256


def _only(composer: Composer, *words: str) -> dict[str, Any]:
    (point,) = points_of(composer, ["arch=x86_64_v2", *words], multirun=False)
    return point.data


def test_a_projects_file_shadows_ours(project: Project) -> None:
    composer = project({"measure/quick.yaml": "name: quick\nsamples: 3\nwarmup: 0\n"})
    assert _only(composer)["measure"] == {"name": "quick", "samples": 3, "warmup": 0}


def test_a_projects_file_adds_an_option(project: Project) -> None:
    composer = project(
        {"workload/mine.yaml": "defaults: [/workload/axpy@_here_, _self_]\nname: mine\n"}
    )
    data = _only(composer, "workload=mine")
    assert data["workload"]["name"] == "mine"
    assert data["workload"]["steps"]["add"]["kernel"] == "axpy"
    assert "mine" in composer.options("workload")
    assert "axpy" in composer.options("workload")


def test_a_projects_root_config_shadows_ours(project: Project) -> None:
    text = (CONFIGS / "kernloom.yaml").read_text().replace("workload: matmul", "workload: sum")
    assert _only(project({"kernloom.yaml": text}))["workload"]["name"] == "sum"


def test_what_was_composed_is_kept_on_disk(project: Project, tmp_path: Path) -> None:
    first = _only(project({}))
    (kept,) = (tmp_path / "cache").iterdir()
    write_sealed(kept, {**read_sealed(kept), "seed": 42})
    assert _only(project({})) == {**first, "seed": 42}


def test_a_changed_added_or_removed_file_is_seen(project: Project, tmp_path: Path) -> None:
    configs = tmp_path / "configs"
    quick = "name: quick\nsamples: {}\nwarmup: 0\n"
    assert _only(project({}))["measure"]["samples"] == 7
    assert _only(project({"measure/quick.yaml": quick.format(3)}))["measure"]["samples"] == 3
    assert _only(project({"measure/quick.yaml": quick.format(4)}))["measure"]["samples"] == 4
    (configs / "measure" / "quick.yaml").unlink()
    assert _only(project({}))["measure"]["samples"] == 7


def test_a_change_that_keeps_size_and_time_is_seen(project: Project, tmp_path: Path) -> None:
    quick = "name: quick\nsamples: {}\nwarmup: 0\n"
    path = tmp_path / "configs" / "measure" / "quick.yaml"
    assert _only(project({"measure/quick.yaml": quick.format(3)}))["measure"]["samples"] == 3
    before = path.stat()
    composer = project({"measure/quick.yaml": quick.format(4)})
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert _only(composer)["measure"]["samples"] == 4


def test_a_kept_composition_cut_short_is_made_again(project: Project, tmp_path: Path) -> None:
    first = _only(project({}))
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_text(kept.read_text()[:100])
    assert _only(project({})) == first


def test_a_cache_that_cannot_be_written_is_only_slower(project: Project, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    assert _only(project({}))["seed"] == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: [", ["quick.yaml:2:1"]),
        ("name: quick\n  samples: 3\n", ["quick.yaml:2"]),
        ("name: a\nname: b\n", ["quick.yaml:2:1", "'name' stands here twice"]),
        ("- a\n- b\n", ["quick.yaml", "expected keys and values"]),
        ("{[a]: b}", ["quick.yaml"]),
        ("a: " + "[" * 5000 + "]" * 5000, ["quick.yaml", "nested too deeply"]),
        ("name: !!python/object/apply:os.system [id]\n", ["quick.yaml:1"]),
        ("name: \x01\n", ["quick.yaml"]),
        ("defaults: [nothing]\nname: quick\n", ["nothing"]),
        ("name: quick\nsamlpes: 3\n", ["unknown key 'samlpes'", "Did you mean 'samples'?"]),
        ("name: quick\nsamples: ???\n", ["measure.samples: must be given"]),
        ("name: quick\n", ["measure.", "is missing"]),
    ],
)
def test_a_mistake_in_a_file_is_named_with_file_and_line(
    project: Project, text: str, said: list[str]
) -> None:
    composer = project({"measure/quick.yaml": text})
    with pytest.raises(ConfigError) as caught:
        experiment(_only(composer))
    for part in said:
        assert part in str(caught.value)


def test_a_file_that_is_not_text_is_named(project: Project, tmp_path: Path) -> None:
    composer = project({"measure/quick.yaml": ""})
    (tmp_path / "configs" / "measure" / "quick.yaml").write_bytes(b"name: \xff\xfe")
    with pytest.raises(ConfigError, match=r"quick\.yaml: cannot be read"):
        _only(composer)


def test_a_change_in_a_linked_folder_is_seen(project: Project, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "mine.yaml").write_text("defaults: [axpy, _self_]\nabout: first\n")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs/workload").symlink_to(shared)

    def about() -> Any:
        (point,) = points_of(project({}), ["workload=mine", "arch=x86_64_v2"], multirun=False)
        return point.data["workload"]["about"]

    assert about() == "first"
    (shared / "mine.yaml").write_text("defaults: [axpy, _self_]\nabout: second\n")
    assert about() == "second"


def test_links_in_a_circle_and_into_nothing_do_no_harm(project: Project, tmp_path: Path) -> None:
    composer = project({"workload/mine.yaml": "defaults: [axpy, _self_]\nabout: mine\n"})
    folder = tmp_path / "configs/workload"
    (folder / "circle").symlink_to(tmp_path / "configs")
    (folder / ".#mine.yaml").symlink_to("someone@somewhere.1234:5678")
    (folder / "gone.yaml").symlink_to(tmp_path / "nowhere")
    (point,) = points_of(composer, ["workload=mine", "arch=x86_64_v2"], multirun=False)
    assert point.data["workload"]["about"] == "mine"
    assert ".#mine" not in composer.options("workload")


@pytest.mark.parametrize("name", [".hidden", "../../outside"])
def test_a_file_that_is_not_looked_after_is_no_config(
    project: Project, tmp_path: Path, name: str
) -> None:
    (tmp_path / "outside.yaml").write_text("about: outside\n")
    files = {
        "workload/mine.yaml": f"defaults: [axpy, {name}, _self_]\n",
        "workload/.hidden.yaml": "about: hidden\n",
    }
    with pytest.raises(ConfigError, match=r"unknown workload"):
        list(points_of(project(files), ["workload=mine", "arch=x86_64_v2"], multirun=False))


def test_what_other_code_composed_is_composed_again(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["workload=axpy", "arch=x86_64_v2"]
    list(points_of(project({}), words, multirun=False))
    monkeypatch.setattr("kernloom.config.compose.code_stamp", lambda *_, **__: "newer code")
    list(points_of(project({}), words, multirun=False))
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_a_hydra_application_that_composes_stays_as_it_is(project: Project) -> None:
    """Kernloom may be called from a program that is itself a Hydra application."""
    with hydra.initialize_config_dir(str(share_folder() / "configs"), version_base="1.3"):
        before = GlobalHydra.instance().hydra
        assert _only(project({}))["workload"]["name"] == "matmul"
        assert GlobalHydra.instance().hydra is before
        assert hydra.compose("kernloom", ["workload=axpy"]).workload.name == "axpy"
    assert not GlobalHydra.instance().is_initialized()
    assert FolderPlugin.folders == ()


def test_a_defaults_list_that_calls_a_resolver_is_not_kept_on_disk(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = (share_folder() / "configs/kernloom.yaml").read_text()
    text = own.replace("workload: matmul", "workload: ${oc.env:MY_WORKLOAD}")
    for name in ("axpy", "softmax"):
        monkeypatch.setenv("MY_WORKLOAD", name)
        assert _only(project({"kernloom.yaml": text}))["workload"]["name"] == name
    assert not (tmp_path / "cache").exists()


def test_references_in_a_resolver_s_arguments_are_resolved_first(compose: Compose) -> None:
    data = compose(
        "workload.about='${oc.env:NO_SUCH_VARIABLE,${seed}} of ${workload.name}'", "seed=3"
    )
    assert data["workload"]["about"] == "3 of matmul"
