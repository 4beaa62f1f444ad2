"""The graph of plain `scons`: every runtime with its objects and their sources, as SCons nodes.

Targets are named by the hash of their inputs, so a target that exists and is undamaged is up to
date. Stable paths (build/lib/ARCH/VARIANT/RUNTIME/NAME) are links to them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from kernloom.base.places import Places
from kernloom.build.builder import Builder
from kernloom.build.compile_commands import FILE as COMMANDS
from kernloom.build.compile_commands import SEAL_FILE as COMMANDS_SEAL
from kernloom.build.compile_commands import origin_of, write_compile_commands
from kernloom.build.explain import to_plain
from kernloom.build.make import Job, Result, execute
from kernloom.build.manifest import read_manifest
from kernloom.build.runtimes import HOST_TOOLCHAINS, Runtimes, all_runtimes
from kernloom.build.shared_cache import SharedCache
from kernloom.build.stable_paths import leads_right, make_links
from kernloom.build.workspace import sweep, workspace
from kernloom.config.platforms import PLATFORMS, find_platform
from kernloom.plan.artifact import FOLDERS, MANIFEST, Artifact, steps_of

EVERYTHING = "all"
"""The default target."""


@dataclass(frozen=True)
class Target:
    """A file of the graph."""

    path: Path
    sources: tuple[Path, ...]
    whole: bool
    """Whether it exists, undamaged."""


@dataclass
class _Made:
    """What this run has made so far."""

    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Holds the lock of the build folder and the workspace, from the first build on."""
    folder: Path | None = None
    """The workspace."""
    files: int = 0


class RuntimeGraph:
    """Targets, aliases and actions for SConstruct."""

    def __init__(self, places: Places, shared: SharedCache | None = None) -> None:
        self._places = places
        self._builder = Builder(places, shared=shared)
        self._made = _Made()
        self._lock = threading.Lock()
        self._locked = False

    @property
    def signatures(self) -> Path:
        """Where SCons keeps what it knows of the last run."""
        folder = self._builder.build_folder
        folder.mkdir(parents=True, exist_ok=True)
        return folder / ".sconsign"

    @cached_property
    def runtimes(self) -> Runtimes:
        return all_runtimes(self._places)

    @cached_property
    def _artifacts(self) -> dict[str, Artifact]:
        """Path -> artifact, inputs first; of those with the same path, any."""
        every = (step for artifact in self.runtimes.artifacts for step in steps_of(artifact))
        return {str(self._builder.path(step)): step for step in every}

    def targets(self, *, all_steps: bool) -> Iterator[Target]:
        """What can be built, inputs first. Without `all_steps`, only the steps of what is missing:
        the rest are plain files."""
        wanted = {
            step.key
            for artifact in self.runtimes.artifacts
            if all_steps or not self._is_whole(artifact)
            for step in steps_of(artifact)
        }
        for path, artifact in self._artifacts.items():
            if artifact.key in wanted:
                files = (self._origin(artifact, name) for name in artifact.files)
                steps = (self._builder.path(step) for step in artifact.steps.values())
                yield Target(Path(path), (*files, *steps), self._is_whole(artifact))

    @cached_property
    def names(self) -> dict[Path, Artifact]:
        """Stable path -> the program it leads to. Where several toolchains build the same, the
        preferred one's."""
        found: dict[Path, Artifact] = {}
        for artifact in sorted(self.runtimes.artifacts, key=_preference):
            if (link := artifact.link(self._builder.build_folder)) is not None:
                found.setdefault(link, artifact)
        return found

    def path(self, artifact: Artifact) -> Path:
        return self._builder.path(artifact)

    def leads_right(self, name: Path) -> bool:
        """Whether a stable path leads to its program already."""
        return leads_right(name, self._builder.path(self.names[name]))

    @cached_property
    def aliases(self) -> dict[str, list[Path]]:
        """Programs, arches and toolchains -> the files they stand for."""
        found: dict[str, list[Path]] = {EVERYTHING: []}
        for runtime in self.runtimes.built:
            link = runtime.artifact.link(self._builder.build_folder)
            ends = [self._builder.path(runtime.artifact)]
            if link is not None and self.names[link] is runtime.artifact:
                ends.append(link)
            for alias in (EVERYTHING, runtime.program, runtime.arch, runtime.toolchain):
                found.setdefault(alias, []).extend(ends)
        return {alias: list(dict.fromkeys(paths)) for alias, paths in found.items()}

    def unknown(self, name: str) -> str:
        """What is wrong with a target that nothing builds."""
        if name in self.runtimes.programs:
            reasons = "; ".join(str(error) for error in self.runtimes.unavailable)
            return f"no toolchain for '{name}' is on this machine. {reasons}"
        top = Path.cwd()
        named = [str(p.relative_to(top)) for p in self.names if p.is_relative_to(top)]
        close = get_close_matches(name, named if "/" in name else self.aliases, 1)
        hint = f"Did you mean '{close[0]}'? " if close else ""
        return f"nothing is called '{name}'. {hint}`scons -h` lists what there is."

    def make(self, target: Sequence[Any], source: Sequence[Any], env: Any) -> int:
        """The action that makes one file."""
        artifact = self._artifacts[target[0].get_abspath()]
        with self._lock:
            folder = self._workspace()
        state = self._builder.fetched_state(artifact)
        if state.cached:
            with self._lock:
                self._made.files += 1
            return 0
        job = Job(artifact, to_plain(state.explanation))
        result = execute(job, self._builder.build_folder, folder, self._builder.shared)
        said = _message(artifact, result)
        with self._lock:
            self._made.files += result.ok
            if said:
                print(said, file=sys.stdout if result.ok else sys.stderr, flush=True)
        return 0 if result.ok else 1

    def command(self, target: Sequence[Any], source: Sequence[Any], env: Any) -> str:
        """The command of a target, as SCons prints it."""
        artifact = self._artifacts[target[0].get_abspath()]
        tool, *words = artifact.argv
        return shlex.join([Path(artifact.tools[tool]).name, *words])

    def reason(self, path: str) -> str:
        """Why a target has to be built."""
        return self._builder.state(self._artifacts[path]).explanation.text

    def link(self, target: Sequence[Any], source: Sequence[Any], env: Any) -> int:
        """The action that points a stable path to its program."""
        name = Path(target[0].get_abspath())
        with self._lock:
            make_links([self.names[name]], self._builder.build_folder)
        return 0

    def own_files(self) -> Iterator[Path]:
        """What earlier runs have built: folders of programs and objects, and their histories."""
        build = self._builder.build_folder
        for kind in ("program", "object"):
            for folder in filter(Path.is_dir, _entries(build / FOLDERS[kind])):
                manifest = read_manifest(folder)
                if manifest is not None or not any(folder.iterdir()):
                    yield folder
                if manifest is not None:
                    yield self._builder.history(str(manifest["name"]))
        for link in (path for path in (build / "lib").rglob("*") if path.is_symlink()):
            leads_to = Path(os.path.normpath(link.parent / link.readlink()))
            if leads_to.is_relative_to(build / FOLDERS["program"]):
                yield link
        yield from (build / "lib").glob(f"*/*/*/{MANIFEST}")

    def prune(self) -> None:
        """Remove folders that cleaning has emptied."""
        self.lock()
        build = self._builder.build_folder
        for path in build.glob(f"{self.signatures.name}*"):
            path.unlink()
        for top in (build / "lib", *(build / FOLDERS[kind] for kind in ("program", "object"))):
            folders = [path for path in top.rglob("*") if path.is_dir() and not path.is_symlink()]
            for folder in (*sorted(folders, reverse=True), top):
                with contextlib.suppress(OSError):
                    folder.rmdir()
        if not any((build / FOLDERS[kind]).exists() for kind in ("kernel", "batch")):
            # Then nothing but runtimes was built here.
            for path in (build / COMMANDS, build / COMMANDS_SEAL):
                path.unlink(missing_ok=True)
            for folder in (build / "index", build / "failed", build / "tmp"):
                with contextlib.suppress(OSError):
                    folder.rmdir()

    def close(self) -> None:
        """Record what was built for editors, and remove temporary files, also of killed runs."""
        sweep(self._builder.build_folder)
        with self._made.stack:
            if self._made.files:
                whole = [one for one in self.runtimes.artifacts if self._builder.state(one).cached]
                self._builder.note_uses(whole)
                write_compile_commands(self._places, whole)

    def _origin(self, artifact: Artifact, name: str) -> Path:
        return (origin_of(artifact, name, self._roots) or self._places.share) / name

    @cached_property
    def _roots(self) -> tuple[Path, ...]:
        """Folders with native/: Kernloom's, the project's, and those of vendors' platforms."""
        platforms = map(find_platform, PLATFORMS.names())
        return (*self._places.roots, *(one.folder for one in platforms if one.folder))

    def _is_whole(self, artifact: Artifact) -> bool:
        return self._builder.is_whole(artifact)

    def lock(self) -> None:
        """Wait for other builds below the build folder, and keep them out until the end."""
        if not self._locked:
            self._locked = True
            build = self._builder.build_folder
            build.mkdir(parents=True, exist_ok=True)
            handle = os.open(build / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._made.stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)

    def _workspace(self) -> Path:
        """A folder for this run, and the lock of the build folder, from the first build on."""
        if self._made.folder is None:
            self.lock()
            folder = workspace(self._builder.build_folder)
            self._made.folder = self._made.stack.enter_context(folder)
        return self._made.folder


def _preference(artifact: Artifact) -> int:
    """Rank among programs with the same stable path: GCC first, as for host programs."""
    order = HOST_TOOLCHAINS
    name = artifact.identity.toolchain
    family = next((place for place, known in enumerate(order) if name.startswith(known)), None)
    return len(order) if family is None else family


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _message(artifact: Artifact, result: Result) -> str:
    if result.broken:
        return f"{artifact.name}: {result.broken}"
    if result.outdated:
        return (
            f"{result.outdated} changed while {artifact.name} was being built, or it is read in a "
            "way that cannot be foreseen; run scons again"
        )
    return result.message


def _shown(path: Path | None) -> str:
    if path is None:
        return "build/lib/ARCH/VARIANT/RUNTIME/PROGRAM"
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def help_text(graph: RuntimeGraph) -> str:
    """The text of `scons -h`."""
    programs = graph.runtimes.programs
    others = sorted(graph.aliases.keys() - programs.keys() - {EVERYTHING})
    lines = [
        "Builds Kernloom's runtimes: the programs below native/, for every arch and variant whose",
        "toolchain is on this machine. Kernels are built by `kernloom run`.",
        "",
        "  scons                    everything",
        "  scons NAME...            a program, an arch or a toolchain of those below",
        f"  scons {_shown(next(iter(graph.names), None))}",
        "                           just this file",
        "  scons -n | -c | -j N     show commands | remove all | N jobs (default: one per core)",
        "  scons --tree=all         the graph",
        "  scons --debug=explain    why something is built",
        "  scons --build-cache=DIR  share what is built with other checkouts",
        "",
        "Programs:",
        *(f"  {name:12} {textwrap.shorten(p.about, 80)}" for name, p in sorted(programs.items())),
        "Arches and toolchains:",
        *(f"  {line}" for line in textwrap.wrap(", ".join(others), 94)),
    ]
    if graph.runtimes.unavailable:
        lines += ["Left out, for lack of a toolchain:"]
        lines += [f"  {error}" for error in graph.runtimes.unavailable]
    return "\n".join(lines) + "\n"
