"""Whatever a key is set to, planning works or says in a person's words why not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from workbench import Workbench

from kernloom.base.errors import KernloomError
from parsed import points_of

_VALUES = st.sampled_from(
    [
        *("null", "true", "false", "0", "-1", "1", "3.5", "1e400", "nan", "-0", "1,2"),
        *("word", "'two words'", "''", "???", "host", "float64", "uint8", "99999999999999999999"),
        *("[]", "{}", "[1]", "[a,b]", "[null]", "[[1]]", "{a:1}", "{a:{b:c}}", "{ref: x.y}"),
        *("'../../x'", "'n * 2'", "'1 / 0'", "'9**9**9'", "'${seed}'", "'${nothing}'"),
        *("{use: tile}", "{values: [1], off: 2}", "'\"text\"'"),
    ]
)


def keys(data: Any, prefix: str = "") -> Iterator[str]:
    inner = data.items() if isinstance(data, dict) else enumerate(data)
    for name, value in inner:
        yield f"{prefix}{name}"
        if isinstance(value, (dict, list)):
            yield from keys(value, f"{prefix}{name}.")


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_value_of_any_key_is_taken_or_refused(toy: Workbench, data: st.DataObject) -> None:
    (point,) = points_of(toy.assembly.composer, ["workload=toy", "arch=x86_64_v2"], multirun=False)
    known = st.sampled_from(sorted(keys(point.data)))
    words = data.draw(
        st.lists(
            st.one_of(
                st.tuples(st.sampled_from(["", "++"]), known, _VALUES).map(
                    lambda part: f"{part[0]}{part[1]}={part[2]}"
                ),
                known.map("~{}".format),
            ),
            min_size=1,
            max_size=3,
        )
    )
    try:
        toy.plan("workload=toy", *words)
    except KernloomError as error:
        assert str(error)
