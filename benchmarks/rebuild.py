"""A one-line change in the runner, rebuilt for every arch and variant whose toolchain is here: by
one object and a link for each, against one compiler call over all sources for each.

Both go through the same builder and SCons, in turns, into build folders of their own.

    .venv/bin/python benchmarks/rebuild.py [ROUNDS]
"""

from __future__ import annotations

import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "engine"))

from kernloom.base.places import Places, share_folder
from kernloom.build.builder import Builder
from kernloom.build.runtimes import all_runtimes
from kernloom.plan.artifact import Artifact, steps_of

CHANGED = "native/runner/launch.c"


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        share = Path(folder) / "share"
        for name in ("configs", "native"):
            shutil.copytree(share_folder() / name, share / name)
        shutil.copy(share_folder() / "SConstruct", share)
        engine = share_folder() / "engine"
        (share / "engine").symlink_to(engine if engine.is_dir() else share_folder().parents[1])
        ways = {"one call": _in_one_call, "objects": lambda artifact: artifact}
        places = {way: Places(share, None, Path(folder) / way, share / "store.db") for way in ways}
        spent: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        for number in range(rounds + 1):
            if number:
                with (share / CHANGED).open("a", encoding="utf-8") as file:
                    file.write(f"/* change {number} */\n")
            runners = _runners(places["objects"])
            for way, change in ways.items():
                found = _timed(Builder(places[way]), list(map(change, runners)))
                if number:
                    spent[way].append(found)
    print(f"{len(runners)} runners; {rounds} changes of one line in {CHANGED}, median seconds")
    print(f"{'':12}{'wall':>8}{'CPU':>8}")
    middle = {
        way: [statistics.median(one) for one in zip(*found, strict=True)]
        for way, found in spent.items()
    }
    for way, (wall, cpu) in middle.items():
        print(f"{way:12}{wall:8.2f}{cpu:8.2f}")
    ratios = [a / b for a, b in zip(middle["one call"], middle["objects"], strict=True)]
    print(f"{'faster by':12}{ratios[0]:7.1f}x{ratios[1]:7.1f}x")


def _runners(places: Places) -> list[Artifact]:
    """Every runner that this machine can build, once."""
    found = all_runtimes(places).artifacts
    return list({one.key: one for one in found if one.name == "runner"}.values())


def _in_one_call(runner: Artifact) -> Artifact:
    """The same program by one command over all of its sources."""
    objects = [step for step in steps_of(runner) if step.kind == "object"]
    files = {path: text for step in objects for path, text in step.files.items()}
    sources = {path: step.main for path, step in runner.steps.items()}
    argv = [sources.get(word, word) for word in runner.argv]
    headers = {name: digest for step in objects for name, digest in step.headers.items()}
    stamps = {path: stamp for step in (*objects, runner) for path, stamp in step.stamps.items()}
    return replace(
        runner,
        files=files,
        argv=(argv[0], "-Inative/include", *argv[1:]),
        steps={},
        headers=headers,
        stamps=stamps,
        redeclare=None,
    )


def _timed(builder: Builder, artifacts: Sequence[Artifact]) -> tuple[float, float]:
    """Seconds by the clock, and of CPU in all processes."""
    start, cpu = time.perf_counter(), _cpu()
    outcomes = builder.build(artifacts)
    spent = time.perf_counter() - start, _cpu() - cpu
    bad = [outcome for outcome in outcomes.values() if not outcome.ok]
    if bad:
        sys.exit(bad[0].message)
    return spent


def _cpu() -> float:
    uses = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(who)[:2]) for who in uses)


if __name__ == "__main__":
    main()
