"""A scene file that runs by itself: `python test_x.py --target a5`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from kernloom.base.errors import KernloomError, UsageError, nearest
from kernloom.base.scene_flags import ACCEPT, SWITCHES, VALUES

if TYPE_CHECKING:
    from kernloom.scene.running import Ended


def main(arguments: Sequence[str] | None = None, module: ModuleType | None = None) -> int:
    """Run the scenes of a module, by default of the program's file; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    module = module or sys.modules["__main__"]
    file = Path(str(getattr(module, "__file__", "scene.py"))).resolve()
    if any(word in ("-h", "--help") for word in words):
        print(help_text(file.name))
        return 0
    try:
        return _run(module, file, _parsed(words))
    except KernloomError as error:
        print(f"{file.name}: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"{file.name}: interrupted", file=sys.stderr)
        return 130


def help_text(name: str) -> str:
    shown = {f"--{flag} {value}": about for flag, (value, about) in VALUES.items()}
    shown |= {f"--{flag}": about for flag, about in (SWITCHES | ACCEPT).items()}
    lines = [f"  {flag:25} {about}" for flag, about in shown.items()]
    return "\n".join([f"usage: python {name} [--flag value ...]", "", *lines])


def _parsed(words: Sequence[str]) -> dict[str, str]:
    """Flag -> value; `yes` for a switch."""
    found: dict[str, str] = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name not in {*VALUES, *SWITCHES, *ACCEPT}:
            known = [f"--{flag}" for flag in (*VALUES, *SWITCHES, *ACCEPT)]
            raise UsageError(f"there is no flag '{word}'", hint=nearest(word, known))
        if name in VALUES and not equals:
            if not waiting:
                raise UsageError(f"--{name} needs a value: --{name} {VALUES[name][0]}")
            value = waiting.pop(0)
        elif equals and name not in VALUES:
            raise UsageError(f"--{name} takes no value")
        if name in VALUES and not value:
            raise UsageError(f"--{name} needs a value: --{name} {VALUES[name][0]}")
        found[name] = value or "yes"
    return found


def _run(module: ModuleType, file: Path, flags: dict[str, str]) -> int:
    # Imported here: a test file imports this module, too.
    from kernloom.base.places import find_places
    from kernloom.run.assembly import Assembly
    from kernloom.run.execution import exit_code
    from kernloom.scene.choosing import check_named, choice_of
    from kernloom.scene.reading import classes_of
    from kernloom.scene.running import SceneRunner
    from kernloom.scene.selection import chosen_picks

    choice = choice_of(flags)
    scenes = classes_of(module, file)
    check_named(choice, scenes)
    assembly = Assembly(find_places(file.parent))
    picks = chosen_picks(scenes, choice, assembly)
    if not picks:
        raise UsageError(
            "no case is chosen", hint="Cases name their targets; --manual include runs all of them."
        )
    results = SceneRunner(assembly, choice).run(picks, accept="accept" in flags)
    for ended in results.ended:
        print(_line(ended))
    for line in results.accepted:
        print(f"accepted {line}")
    bad = sum(not ended.good for ended in results.ended)
    print(f"{len(results.ended) - bad} verified, {bad} failed")
    return exit_code(results.trials, interrupted=results.interrupted)


def _line(ended: Ended) -> str:
    if not ended.good:
        return ended.text.replace("\n", "\n  ")
    from kernloom.base.gauges import VIRTUAL_TIME

    time = ended.trial.metrics.get(VIRTUAL_TIME.name)
    line = f"{ended.pick.name}: verified" + (f", {time:,} virtual ns" if time else "")
    return "\n  ".join([line, *ended.trial.warnings])
