"""A lock holds everything in little space, reads back as it was, and detects a changed byte."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernloom.base.errors import ConfigError
from kernloom.config.reader import load_yaml
from kernloom.recipe.difference import comparable
from kernloom.recipe.flow import block, flow
from kernloom.recipe.lock import (
    DIGEST,
    Lock,
    LockedArtifact,
    LockedPoint,
    digest_of,
    from_document,
    to_document,
)
from kernloom.recipe.tables import Sections, changed, changes_to, section_in

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=12),
    st.sampled_from(
        ["yes", "off", "null", "1e5", "1_0", "0x1", "2026-01-01", "~", "=", "<<", "a: b"]
    ),
)
KEYS = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=6)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4)
)
MAPPINGS = st.dictionaries(KEYS, VALUES, max_size=5)


@settings(max_examples=200, deadline=None)
@given(VALUES)
def test_a_line_of_a_lock_reads_back_as_it_was(value: Any) -> None:
    assert load_yaml(f"x: {flow(value)}\n", where="test")["x"] == value


@settings(max_examples=100, deadline=None)
@given(MAPPINGS)
def test_blocks_read_back_as_they_were(value: Any) -> None:
    lines = ["top:", *block(value, depth=2, indent=2)]
    assert load_yaml("\n".join(lines), where="test")["top"] == (value or None)


@settings(max_examples=200, deadline=None)
@given(MAPPINGS, MAPPINGS)
def test_changes_make_one_mapping_from_another(old: Any, new: Any) -> None:
    new = {**old, **new}
    changes = changes_to(old, new)
    if changes is not None:
        assert changed(old, changes) == new


@settings(max_examples=100, deadline=None)
@given(st.lists(MAPPINGS, max_size=5))
def test_sections_read_back_as_they_were(values: list[Any]) -> None:
    sections = Sections()
    numbers = [sections.number(value) for value in values]
    assert [section_in(sections.rows, number) for number in numbers] == values


def artifact(number: int, **more: Any) -> LockedArtifact:
    given: dict[str, Any] = {
        "key": f"{number:032x}",
        "name": "matmul.multiply",
        "kind": "kernel",
        "argv": ("cc", "-O2", "kernel.c"),
        "toolchain": "f" * 32,
        "inputs": {"kernel.c": f"{number:032x}"},
        "headers": {},
        "linked": {"libm.so": "1" * 32},
        "origins": {"kernels/matmul/host.c.j2": "2" * 32},
        "steps": {},
        "output": f"{number + 7:032x}",
        "bytes": 19_744,
    }
    return LockedArtifact(**{**given, **more})


def lock(points: int) -> Lock:
    """A lock of a sweep in which every point has a kernel of its own."""
    workload = {"name": "matmul", "about": "x" * 2000, "sizes": {"N": 0, "M": 64}}
    others = {
        "target": {"name": "host"},
        "toolchain": {"name": "gcc"},
        "pipeline": {"name": "native", "stages": {"source": {"use": "render"}}},
    }
    artifacts = [artifact(0, name="runner", kind="program", steps={"a.o": f"{1:032x}"})]
    artifacts += [artifact(number) for number in range(1, points + 1)]
    return Lock(
        kernloom="0.1.0",
        created="2026-01-01T00:00:00+00:00",
        request={"run": "a" * 32},
        git={"commit": "unknown"},
        host={"cpu": "x", "governor": "unknown"},
        toolchains={"f" * 32: {"name": "gcc", "version": "12.2.0", "parts": {"cc1": "3" * 32}}},
        artifacts={one.key: one for one in artifacts},
        points=tuple(
            LockedPoint(
                point={"workload.sizes.N": n, "select.fixed.tile.mr": n % 7},
                config={
                    "workload": {**workload, "sizes": {"N": n, "M": 64}},
                    **others,
                    "seed": 0,
                },
                params={
                    "tile": {"multiply": {"mr": n % 7, "nv": 2, "kc": 512, "nc": 512}},
                    "vectorize": {"multiply": {"lanes": 16}},
                    "unroll": {"multiply": {"k": 1}},
                    "parallelize": {"multiply": {"threads": 1}},
                },
                id=f"{n:016x}",
                artifacts={"matmul.multiply": f"{n + 1:032x}", "runner": f"{0:032x}"},
                status="ok",
                verified=True,
                metrics={
                    "median_ns": 12345.678 + n,
                    "ci_low_ns": 1.5,
                    "ci_high_ns": 2.5,
                    "gflops": 9.75,
                },
                data={"golden": f"{n:032x}"},
            )
            for n in range(points)
        ),
        cost={"build_s": 1.5, "run_s": 2.5, "bytes": 100},
    )


def test_a_lock_reads_back_as_it_was() -> None:
    made = lock(5)
    document = to_document(made)
    text = "\n".join(["lock:", *block(document, depth=2, indent=2)])
    assert from_document(load_yaml(text, where="x")["lock"], "x") == made


def test_equal_sections_are_written_once() -> None:
    text = "\n".join(block(to_document(lock(200)), depth=2))
    assert text.count("x" * 2000) == 1
    assert len(text) < 200_000


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found: list[tuple[Any, ...]] = []
    for key, inner in items:
        nested = isinstance(inner, (dict, list)) and inner
        found += leaves(inner, (*path, key)) if nested else [(*path, key)]
    return found


def altered(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    result = copy.deepcopy(document)
    place = result
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return result


def test_every_changed_value_is_detected() -> None:
    document = to_document(lock(2))
    for path in leaves(document):
        with pytest.raises(ConfigError, match="edited since it was written"):
            from_document(altered(document, path, "another"), "x")


@pytest.mark.parametrize("value", [None, -1, 10**30, "text", 1.5, True, [], {}, [[]], {"a": {}}])
def test_nonsense_under_a_right_digest_is_refused_or_read(value: Any) -> None:
    document = to_document(lock(2))
    for path in leaves(document):
        if path[-1] == DIGEST and len(path) == 1:
            continue
        strange = altered(document, path, value)
        strange[DIGEST] = digest_of(strange)
        try:
            from_document(strange, "x")
        except ConfigError as error:
            assert str(error).startswith("x: the lock is damaged")


def test_an_option_without_a_value_is_no_difference() -> None:
    old = {"pipeline": {"stages": {"choice": {"use": "select"}}}}
    new = {"pipeline": {"stages": {"choice": {"use": "select", "python": None}}}}
    assert comparable(old) == comparable(new)
