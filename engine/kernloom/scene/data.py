"""The data of a case: the arguments and goldens that the methods of its scene compute."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from kernloom.base.errors import ConfigError
from kernloom.base.streams import stdout_to_stderr
from kernloom.run.own_data import OwnDataSets, Sizes
from kernloom.scene.choosing import Pick
from kernloom.scene.scene import Case, Scene


def data_of(pick: Pick, folders: Sequence[Path], *, skip_golden: bool) -> OwnDataSets:
    """Inputs and goldens of one case on one target."""
    code = pick.scene.code

    def case(sizes: Sizes) -> Case:
        return replace(pick.case, sizes=sizes, targets=(pick.target,), runtimes=(pick.runtime,))

    fill = golden = None
    if code and _has(code, "arguments"):
        fill = lambda tensors, sizes, rng: _call(  # noqa: E731
            pick, "arguments", lambda: code.arguments(tensors, case(sizes), rng)
        )
    if code and _has(code, "golden"):
        golden = lambda tensors, sizes: _call(  # noqa: E731
            pick, "golden", lambda: code.golden(tensors, case(sizes))
        )
    return OwnDataSets(pick.name, folders, fill, golden, skip_golden=skip_golden)


def _has(code: Scene, method: str) -> bool:
    own = getattr(type(code), method)
    return callable(own) and own is not getattr(Scene, method)


def _call(pick: Pick, method: str, call: Callable[[], object]) -> None:
    try:
        with stdout_to_stderr():
            returned = call()
    except (Exception, SystemExit) as error:  # code of the user
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
        where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
        raise ConfigError(
            f"`{method}` failed: {type(error).__name__}: {error}{where}", key=pick.name
        ) from error
    if returned is not None:
        raise ConfigError(
            f"`{method}` returns a value, but must change the tensors in place",
            key=pick.name,
            hint='For example: tensors["y"][:] = ...',
        )
