"""The overrides that compose the experiment of a case, and their check when a scene is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kernloom.base.errors import ConfigError, nearest
from kernloom.config.compose import NO_RUNTIME, Composer
from kernloom.config.overrides import Override, Overrides
from kernloom.config.schema import DTYPES, ROOT_KEYS, Tolerance
from kernloom.config.validate import experiment
from kernloom.run.assembly import Assembly
from kernloom.scene.choosing import Pick, picks_of
from kernloom.scene.reading import SceneSpec
from kernloom.scene.scene import dotted

CHOSEN = ("workload", "target", "runtime")
"""Config groups that a scene chooses by fields of its own."""
NOT_OF_A_CASE = (
    *("output", "rerun", "recipe", "trace", "trace_level", "deps", "replay", "whatif"),
    *("store", "fleet", "sweep", "screen", "show"),
)
"""Root keys of a command; a case cannot set them."""


def overrides_of(pick: Pick, assembly: Assembly) -> Overrides:
    """The experiment of a case on its target, as overrides."""
    case, composer = pick.case, assembly.composer
    chosen: dict[str, Any] = {"workload": pick.scene.workload, "target": pick.target}
    if pick.runtime != NO_RUNTIME:
        chosen["runtime"] = pick.runtime
    groups = composer.choose({**chosen, **dict(dotted(case.config))})
    values: dict[str, Any] = {f"workload.sizes.{name}": size for name, size in case.sizes.items()}
    values |= {f"workload.tensors.{name}.fill": fill for name, fill in case.arguments.items()}
    values |= {f"workload.golden.{name}": text for name, text in case.golden.items()}
    values |= {f"select.fixed.{key}": value for key, value in dotted(case.params)}
    return groups.then(composer.choose(values)).then(_tolerances(case.tolerance))


def _tolerances(given: Mapping[str, float | str]) -> list[Override]:
    """The tolerance for every element type, whether the workload has one for it or not."""
    if not given:
        return []
    tolerance = {**vars(Tolerance(rtol=0.0)), **given}
    of = (Override.of(f"workload.tolerance.{d}", tolerance, group=False) for d in DTYPES)
    return [replace(override, kind="force") for override in of]


def check_options(scene: SceneSpec, composer: Composer) -> None:
    """Refuse a workload, a target or a runtime that does not exist."""
    _check_option("workload", scene.workload, f"{scene.where}: workload", composer)
    for case in scene.cases:
        where = f"{scene.where}: {case.name}"
        for name in case.targets:
            _check_option("target", name, where, composer)
        for name in case.runtimes:
            _check_option("runtime", name, where, composer)


def _check_option(group: str, name: str, where: str, composer: Composer) -> None:
    options = composer.options(group)
    if name not in options:
        raise ConfigError(f"unknown {group} '{name}'", key=where, hint=nearest(name, options))


def check_scene(scene: SceneSpec, assembly: Assembly) -> None:
    """Refuse unknown keys and values, on every target of every case; nothing is planned."""
    check_options(scene, assembly.composer)
    composer = assembly.composer
    seen: set[str] = set()
    for pick in picks_of(scene, composer):
        where = f"{scene.where}: {pick.case.name}"
        for key, _ in dotted(pick.case.config):
            _check_key(key, where)
        try:
            overrides = overrides_of(pick, assembly)
            if pick.case.name in seen:
                composer.check_composes(overrides, resolved=False)
                continue
            seen.add(pick.case.name)
            (point,) = composer.points(overrides)
            _check_params(pick, point.data["workload"]["kernels"])
            experiment(point.data, assembly.results)
        except ConfigError as error:
            raise error.below(where) from None


def _check_key(key: str, where: str) -> None:
    root = key.split(".")[0].lstrip("+")
    if key in CHOSEN:
        plural = {"target": "targets", "runtime": "runtimes"}.get(key, key)
        raise ConfigError(f"'{key}' is not set by `config`", key=where, hint=f"Use `{plural}`.")
    if root in NOT_OF_A_CASE or root not in ROOT_KEYS:
        allowed = [name for name in ROOT_KEYS if name not in NOT_OF_A_CASE]
        raise ConfigError(
            f"unknown key '{key}'", key=f"{where}.config", hint=nearest(root, allowed)
        )


def _check_params(pick: Pick, kernels: Mapping[str, Any]) -> None:
    """Refuse tunables that no kernel of the workload has, in any of its sources."""
    known: set[str] = set()
    for kernel in kernels.values():
        sources = (kernel.get("sources") or {}).values()
        for tunables in (kernel.get("tunables"), *(s.get("tunables") for s in sources)):
            known |= {f"{t}.{name}" for t, names in (tunables or {}).items() for name in names}
    for key, _ in dotted(pick.case.params):
        transform, _, rest = key.partition(".")
        # A step may stand between the transform and the tunable.
        name = f"{transform}.{rest.rpartition('.')[2]}"
        if name not in known:
            raise ConfigError(f"unknown tunable '{key}'", key="params", hint=nearest(name, known))
