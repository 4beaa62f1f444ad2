"""Which cases of scenes run, on which targets and runtimes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernloom.base.errors import UsageError, nearest
from kernloom.base.scene_flags import MANUAL, Manual
from kernloom.config.compose import NO_RUNTIME, Composer
from kernloom.scene.reading import SceneSpec, names_of
from kernloom.scene.scene import Case

MAX_ROUNDS = 10_000


@dataclass(frozen=True)
class Choice:
    """Cases, targets and runtimes chosen by the flags of `check`, of pytest or of a scene file."""

    targets: tuple[str, ...] = ()
    """Default: every target of a case."""
    runtimes: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    """`NAME` of a scene or case, or `SCENE::CASE`; default: all."""
    manual: Manual = "exclude"
    rounds: int = 1
    skip_golden: bool = False

    def has_case(self, scene: str, case: str) -> bool:
        """Whether a case is among the chosen ones."""
        known = (scene, case, f"{scene}::{case}")
        return not self.cases or any(name in known for name in self.cases)

    def includes(self, pick: Pick) -> bool:
        """Whether a case runs on its target, with its runtime."""
        manual = self.manual == "include" or bool(pick.case.manual) == (self.manual == "only")
        return (
            manual
            and self.has_case(pick.scene.name, pick.case.name)
            and (not self.targets or pick.target in self.targets)
            and (not self.runtimes or pick.runtime in (*self.runtimes, NO_RUNTIME))
        )


def make_choice(
    targets: str = "",
    runtimes: str = "",
    cases: str = "",
    manual: str = "",
    rounds: str = "",
    *,
    skip_golden: bool = False,
) -> Choice:
    """A choice from the values of flags; lists have commas."""
    if manual and manual not in MANUAL:
        hint = nearest(manual, MANUAL)
        raise UsageError(f"'{manual}' is no choice of manual cases", hint=hint)
    if rounds and not (rounds.isdecimal() and 1 <= int(rounds) <= MAX_ROUNDS):
        raise UsageError(f"'{rounds}' is no number of rounds", hint=f"Allowed: 1 to {MAX_ROUNDS}.")
    mode = next((mode for mode in MANUAL if mode == manual), MANUAL[0])
    return Choice(
        _listed(targets), _listed(runtimes), _listed(cases), mode, int(rounds or 1), skip_golden
    )


def choice_of(flags: Mapping[str, str]) -> Choice:
    """The choice of a scene file's flags, or of pytest's without their prefix; a switch that is set
    has a text."""
    return make_choice(
        flags.get("target", ""),
        flags.get("runtime", ""),
        flags.get("case", ""),
        flags.get("manual", ""),
        flags.get("rounds", ""),
        skip_golden=bool(flags.get("skip-golden")),
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


@dataclass(frozen=True)
class Pick:
    """One case on one target, with one runtime."""

    scene: SceneSpec
    case: Case
    target: str
    runtime: str = NO_RUNTIME

    @property
    def name(self) -> str:
        """`SCENE::CASE on TARGET`, with the runtime if there is one."""
        return f"{self.scene.name}::{self.case.name} on {self.place}"

    @property
    def place(self) -> str:
        return self.target if self.runtime == NO_RUNTIME else f"{self.target}-{self.runtime}"


def picks_of(scene: SceneSpec, composer: Composer, runtimes: Sequence[str] = ()) -> list[Pick]:
    """Every case on every target, which must exist. A case that names no runtimes runs with
    `runtimes`, or else with the target's own."""
    found = []
    for case in scene.cases:
        for target in case.targets:
            own = composer.runtime_of(target)
            several = [own] if own == NO_RUNTIME else case.runtimes or runtimes or [own]
            found += [Pick(scene, case, target, runtime) for runtime in several]
    return found


def check_named(choice: Choice, scenes: Sequence[SceneSpec]) -> None:
    """Refuse a name that no scene and no case has."""
    known = [*names_of(scenes), *(case.name for scene in scenes for case in scene.cases)]
    for name in choice.cases:
        if name not in known:
            raise UsageError(f"no scene or case has the name '{name}'", hint=nearest(name, known))
