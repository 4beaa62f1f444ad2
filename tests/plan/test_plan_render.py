"""Rendering: confined, explained where it fails, and kept only as long as it is true."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from workbench import TOY, Workbench

from kernloom.base.sealed import read_sealed, write_sealed
from kernloom.plan.source import ENTRY

Project = Callable[..., Workbench]
TEMPLATE = "templates/kernels/scale.c.j2"
SHARED = "templates/kernels/shared.j2"


def test_a_source_is_complete_and_says_what_was_decided(toy: Workbench) -> None:
    plan = toy.plan("workload=toy")
    first, second = plan.outputs["source"]["sources"]
    assert first.source.name == "toy.first"
    assert list(first.source.files) == ["kernel.c"]
    text = first.source.files["kernel.c"]
    assert " * scale float32\n * tile: block=16\n * vectorize: lanes=4 streaming=false" in text
    assert f"void {ENTRY}(void *const *args)" in text
    assert "*(const long *)args[0]" in text
    assert "*(const float *)args[1]" in text
    assert "(const float *)args[2]" in text
    assert "(float *)args[3]" in text
    assert "/* 4 lanes in blocks of 16 */" in text
    # Equal steps share one library: no size or name of a tensor is in it.
    assert text == second.source.files["kernel.c"]


def test_every_file_a_source_came_from_is_named(toy: Workbench) -> None:
    origins = toy.plan("workload=toy").outputs["source"]["sources"][0].source.origins
    assert origins == {
        "kernels/scale.c.j2": TOY[TEMPLATE],
        "kernels/shared.j2": TOY[SHARED],
    }


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("one\n{% for %}\n", ["scale.c.j2:2", "Expected"]),
        ("one\ntwo\n{{ tile.blok }}\n", ["scale.c.j2:3", "blok"]),
        ("{{ nothing }}", ["scale.c.j2:1", "'nothing' is undefined"]),
        ("a\n{{ 1 // 0 }}", ["scale.c.j2:2", "ZeroDivisionError"]),
        ("{% include 'kernels/no.j2' %}", ["template 'kernels/no.j2' does not exist", "Looked in"]),
        ("{% import '../../secret' as s %}", ["template '../../secret' does not exist"]),
        ("{% include '/etc/passwd' %}", ["template '/etc/passwd' does not exist"]),
        ("{{ ''.__class__.__mro__ }}", ["scale.c.j2", "unsafe"]),
        ("{{ arguments.append(1) }}", ["scale.c.j2", "SecurityError"]),
        ("{{ ''.format.__globals__ }}", ["scale.c.j2"]),
        ("{% for i in range(10**9) %}x{% endfor %}", ["scale.c.j2", "OverflowError"]),
        ("{% include 'kernels/scale.c.j2' %}", ["RecursionError"]),
    ],
)
def test_a_broken_template_is_named_with_file_and_line(
    project: Project, template: str, said: list[str]
) -> None:
    message = project({TEMPLATE: template}).refusal("workload=toy")
    for part in said:
        assert part in message


def test_a_mistake_in_an_imported_template_is_named_there(project: Project) -> None:
    broken = "\n{% macro note(block, lanes) %}\n{{ block.missing }}{% endmacro %}\n"
    message = project({SHARED: broken}).refusal("workload=toy")
    assert "shared.j2:3" in message


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("kernels/sacle.c.j2", "template 'kernels/sacle.c.j2' does not exist"),
        ("../kernloom.yaml", "leaves"),
        ("/etc/passwd", "leaves"),
    ],
)
def test_a_template_elsewhere_is_refused(toy: Workbench, path: str, said: str) -> None:
    message = toy.refusal("workload=toy", f"workload.kernels.scale.sources.host.template={path}")
    assert "workload.kernels.scale.sources.host.template" in message
    assert said in message


def test_a_link_out_of_the_templates_is_refused(project: Project, tmp_path: Path) -> None:
    (tmp_path / "secret.c").write_text("int secret;")
    bench = project()
    (tmp_path / "project/templates/kernels/link.c").symlink_to(tmp_path / "secret.c")
    words = ["workload=toy", "workload.kernels.scale.sources.host.template=kernels/link.c"]
    assert "leaves" in bench.refusal(*words)


def test_a_kernel_without_a_source_for_the_target_is_named(toy: Workbench) -> None:
    message = toy.refusal("workload=toy", "target.sources=[gpu]")
    assert "kernel 'scale' has no source for target 'host' (gpu)" in message
    assert "has no source" in toy.refusal("workload=toy", "target.sources=[]")


def test_the_users_template_shadows_ours(project: Project) -> None:
    bench = project({"templates/kernels/axpy/host.c.j2": "/* my own axpy */\n"})
    assert "/* my own axpy */" in bench.plan("workload=axpy").text
    assert "my own" not in bench.plan("workload=sum").text


def _rendered(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "out/build/cache/rendered").iterdir())


def test_what_was_rendered_is_kept_on_disk(project: Project, tmp_path: Path) -> None:
    first = project().plan("workload=toy").text
    (kept,) = _rendered(tmp_path)
    document = read_sealed(kept)
    write_sealed(kept, {**document, "text": document["text"] + "/* kept */\n"})
    again = project().plan("workload=toy").text
    assert again.count("/* kept */") == 2
    assert again.replace("/* kept */\n", "") == first


def test_what_was_kept_is_dropped_when_an_imported_template_changes(project: Project) -> None:
    assert "lanes in blocks" in project().plan("workload=toy").text
    changed = TOY[SHARED].replace("lanes in blocks", "lanes per block")
    assert "lanes per block" in project({SHARED: changed}).plan("workload=toy").text
    assert "lanes in blocks" in project({SHARED: TOY[SHARED]}).plan("workload=toy").text


def test_what_was_kept_is_dropped_when_a_template_comes_to_shadow_it(project: Project) -> None:
    assert "mine" not in project().plan("workload=axpy").text
    macro = "{% macro entry() %}mine {{ varargs and kwargs }}{% endmacro %}"
    shadow = {"templates/kernels/lib/entry.j2": macro}
    assert "mine" in project(shadow).plan("workload=axpy").text


def test_what_was_kept_is_dropped_when_a_template_is_gone(project: Project, tmp_path: Path) -> None:
    project().plan("workload=toy")
    (tmp_path / "project" / SHARED).unlink()
    assert "template 'kernels/shared.j2' does not exist" in project().refusal("workload=toy")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"text": 1}', '{"text": "x", "origins": 5}'])
def test_a_kept_text_cut_short_is_rendered_again(
    project: Project, tmp_path: Path, text: str
) -> None:
    first = project().plan("workload=toy").text
    (kept,) = _rendered(tmp_path)
    kept.write_text(text)
    assert project().plan("workload=toy").text == first


def test_a_cache_that_cannot_be_written_is_only_slower(project: Project, tmp_path: Path) -> None:
    (tmp_path / "out/build/cache").mkdir(parents=True)
    (tmp_path / "out/build/cache/rendered").write_text("in the way")
    assert "lanes in blocks" in project().plan("workload=toy").text


NESTED = {
    TEMPLATE: "{% import 'kernels/outer.j2' as outer %}\n{{ outer.text }} {{ tile.block }}\n",
    "templates/kernels/outer.j2": (
        "{% import 'kernels/inner.j2' as inner %}{% set text = inner.text %}"
    ),
    "templates/kernels/inner.j2": "{% set text = 'first' %}",
}


def test_a_template_imported_by_an_imported_one_is_an_origin_of_every_text(
    project: Project,
) -> None:
    bench = project(NESTED)
    names = {"kernels/scale.c.j2", "kernels/outer.j2", "kernels/inner.j2"}
    for block in (16, 32):  # the second time, the imported template is already known
        words = ("workload=toy", f"select.fixed.tile.block={block}")
        origins = bench.plan(*words).outputs["source"]["sources"][0].source.origins
        assert origins.keys() == names


def test_a_change_deep_inside_drops_every_text_that_was_kept(project: Project) -> None:
    points = [("workload=toy", f"select.fixed.tile.block={block}") for block in (16, 32)]
    bench = project(NESTED)
    assert all("first" in bench.plan(*words).text for words in points)
    changed = project({"templates/kernels/inner.j2": "{% set text = 'second' %}"})
    assert all("second" in changed.plan(*words).text for words in points)


def test_what_was_kept_is_dropped_when_a_missing_template_appears(project: Project) -> None:
    template = "{% include 'kernels/extra.j2' ignore missing %} {{ tile.block }}\n"
    first = project({TEMPLATE: template}).plan("workload=toy")
    assert first.outputs["source"]["sources"][0].source.origins.keys() == {"kernels/scale.c.j2"}
    appeared = {"templates/kernels/extra.j2": "/* extra */"}
    assert "/* extra */" in project(appeared).plan("workload=toy").text


@pytest.mark.parametrize("how", ["{% include NAME %}", "{% import NAME as n %}{{ n.x }}"])
def test_a_link_out_of_the_templates_is_refused_from_inside_one(
    project: Project, tmp_path: Path, how: str
) -> None:
    (tmp_path / "secret.j2").write_text("{% set x = 'secret' %}")
    bench = project({TEMPLATE: how.replace("NAME", "'kernels/link.j2'")})
    (tmp_path / "project/templates/kernels/link.j2").symlink_to(tmp_path / "secret.j2")
    message = bench.refusal("workload=toy")
    assert "template 'kernels/link.j2' leaves" in message


def test_a_link_inside_the_templates_is_followed(project: Project, tmp_path: Path) -> None:
    bench = project({TEMPLATE: "{% include 'kernels/link.j2' %}"})
    folder = tmp_path / "project/templates/kernels"
    (folder / "real.j2").write_text("/* linked */")
    (folder / "link.j2").symlink_to(folder / "real.j2")
    assert "/* linked */" in bench.plan("workload=toy").text


def test_what_other_code_rendered_is_rendered_again(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project().plan("workload=toy")
    monkeypatch.setattr("kernloom.plan.texts.code_stamp", lambda *_, **__: "newer code")
    project().plan("workload=toy")
    assert len(_rendered(tmp_path)) == 2


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ 'a' * 10**10 }}", ["scale.c.j2:1", "needs more than 512 MiB of memory"]),
        ("{% for i in [1] %}\n{{ 9**(9**9) }}\n{% endfor %}", ["takes more than 4 s of CPU time"]),
        ("{{ 'abcdefgh' * 2**22 }}", ["gives 32 MiB of text, and at most 16 are taken"]),
    ],
)
def test_a_template_that_takes_too_much_is_refused(
    project: Project, template: str, said: list[str]
) -> None:
    refused = project({TEMPLATE: template}).refusal("workload=toy")
    assert all(text in refused for text in said), refused


def test_points_that_do_not_exhaust_a_template_are_rendered(project: Project) -> None:
    """The template is rendered in a process of its own, which the next point finds anew."""
    workbench = project({TEMPLATE: "{% if tile.block == 16 %}{{ 'a' * 10**10 }}{% endif %}"})
    assert "memory" in workbench.refusal("workload=toy", "select.fixed.tile.block=16")
    assert workbench.plan("workload=toy", "select.fixed.tile.block=32").outputs["source"]
