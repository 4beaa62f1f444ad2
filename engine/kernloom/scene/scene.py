"""A scene: cases of one workload, the devices they run on, their arguments and their goldens.

Cheap to import, since test files do: the engine is imported when scenes are read or run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

from kernloom.base.errors import ConfigError, nearest

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Tensors = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Case:
    """One case of a scene. A scene has the same fields, as defaults of its cases."""

    name: str = ""
    targets: Sequence[str] = ()
    """Names of targets; the case runs on each."""
    runtimes: Sequence[str] = ()
    """Task runtimes for targets that have them; default: the target's own."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Sizes of the workload that differ from its defaults."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Tunables: transform -> tunable -> value, as in `select.fixed`."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Any other keys of the config; dots or nested maps. Dots when the scene was read."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Tensor -> fill."""
    golden: Mapping[str, str] = field(default_factory=dict)
    """Output tensor -> expression."""
    tolerance: Mapping[str, float | str] = field(default_factory=dict)
    """`rtol` and `atol`, for every element type; default: the workload's."""
    manual: bool | None = None
    """Left out unless `--manual` includes it. Default: as its scene."""
    skip_golden: bool | None = None
    """Run, but do not compare with the golden. Default: as its scene."""

    def __new__(cls, *_: Any, **given: Any) -> Case:
        for name in given:
            if name not in cls.__dataclass_fields__:
                hint = nearest(name, cls.__dataclass_fields__)
                raise ConfigError(f"a case has no '{name}'", hint=hint)
        return super().__new__(cls)

    def with_defaults(self, scene: Case) -> Case:
        """The case with the fields of its scene as defaults. Maps are merged by key, except
        `tolerance`; an empty list or map of a case sets nothing."""
        return replace(
            self,
            targets=self.targets or scene.targets,
            runtimes=self.runtimes or scene.runtimes,
            sizes={**scene.sizes, **self.sizes},
            params=nested({**dict(dotted(scene.params)), **dict(dotted(self.params))}),
            config={**dict(dotted(scene.config)), **dict(dotted(self.config))},
            arguments={**scene.arguments, **self.arguments},
            golden={**scene.golden, **self.golden},
            tolerance=self.tolerance or scene.tolerance,
            manual=bool(scene.manual if self.manual is None else self.manual),
            skip_golden=bool(scene.skip_golden if self.skip_golden is None else self.skip_golden),
        )


FIELDS = tuple(item.name for item in fields(Case) if item.name != "name")
"""Fields of both a scene and its cases."""


def dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested maps as dotted keys and values; an empty map is a value."""
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from dotted(value, f"{key}.")
        else:
            yield key, value


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `dotted`."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name, dot, rest = key.partition(".")
        below = found.get(name)
        if dot and isinstance(below, dict):
            found[name] = nested({**dict(dotted(below)), rest: value})
        else:
            found[name] = nested({rest: value}) if dot else value
    return found


class Scene:
    """Base class of scenes in Python. A subclass names its workload and lists its cases; it may
    fill arguments and compute goldens itself, both in place.

    The tensors of `arguments` have the fill of the workload. Those of `golden` are the
    arguments in double precision, and the outputs, which are zero. `case.sizes` has all sizes of
    the workload; `case.targets` and `case.runtimes` are those of this run.
    """

    workload: ClassVar[str]
    cases: ClassVar[Sequence[Case]]
    about: ClassVar[str] = ""
    targets: ClassVar[Sequence[str]] = ("host",)
    runtimes: ClassVar[Sequence[str]] = ()
    sizes: ClassVar[Mapping[str, int]] = {}
    params: ClassVar[Mapping[str, Any]] = {}
    config: ClassVar[Mapping[str, Any]] = {}
    tolerance: ClassVar[Mapping[str, float | str]] = {}
    manual: ClassVar[bool] = False
    skip_golden: ClassVar[bool] = False

    def arguments(self, tensors: Tensors, case: Case, rng: np.random.Generator) -> None:
        """Change the arguments in place; default: as the workload fills them."""

    def golden(self, tensors: Tensors, case: Case) -> None:
        """Write the expected outputs in place; default: the golden of the workload."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, value in vars(cls).items():
            helper = name.startswith("_") or name.isupper() or hasattr(value, "__get__")
            if not helper and name not in KEYS:
                raise ConfigError(
                    f"a scene has no '{name}'",
                    key=f"{cls.__module__}.{cls.__qualname__}",
                    hint=f"{nearest(name, KEYS)} Constants of your own are UPPER_CASE.",
                )


KEYS = ("workload", "cases", "about", *FIELDS)
"""Keys of a scene, in Python and in YAML."""
