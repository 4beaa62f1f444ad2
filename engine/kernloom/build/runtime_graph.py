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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from kernloom.base.errors import KernloomError, UsageError
from kernloom.base.places import Places
from kernloom.build.builder import Builder, State
from kernloom.build.compile_commands import SEAL_FILE as COMMANDS_SEAL
from kernloom.build.compile_commands import origin_of, write_compile_commands
from kernloom.build.explain import Explanation, to_plain
from kernloom.build.make import Job, Result, execute
from kernloom.build.manifest import read_manifest
from kernloom.build.program import NATIVE, Program
from kernloom.build.runtimes import HOST_TOOLCHAINS, Runtimes, all_runtimes
from kernloom.build.shared_cache import KEY as CACHE_KEY
from kernloom.build.shared_cache import SharedCache
from kernloom.build.source_texts import is_unit
from kernloom.build.stable_paths import leads_right, make_links
from kernloom.build.workspace import sweep, unwritable, workspace
from kernloom.config.platforms import PLATFORMS, find_platform
from kernloom.plan.artifact import COMMANDS, FAILED, FOLDERS, MANIFEST, Artifact, steps_of

EVERYTHING = "all"
"""The default target."""
OWN_KINDS = ("program", "archive", "object")
"""Kinds of artifacts that plain `scons` builds."""


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
        self._sought: dict[str, Explanation] = {}
        """Key -> reason to build what the shared cache does not have."""
        self._damaged: set[str] = set()
        """Keys of entries of the shared cache that could not be used."""
        self._fetchable: set[str] = set()
        """Keys of entries of the shared cache that a dry run leaves there."""
        self._check_places()

    def _check_places(self) -> None:
        """Refuse what is in the way of folders, which SCons would end with a traceback."""
        build = self._builder.build_folder
        for folder in (build, *(build / name for name in ("lib", *FOLDERS.values()))):
            if folder.exists() and not folder.is_dir():
                raise unwritable(build, f"{folder} is no folder")
        for name in self.names:
            if name.is_dir() and not name.is_symlink():
                raise unwritable(build, f"{name} is a folder")

    @cached_property
    def runtimes(self) -> Runtimes:
        return all_runtimes(self._places)

    @cached_property
    def _artifacts(self) -> dict[str, Artifact]:
        """Path -> artifact, inputs first; of those with the same path, any."""
        every = (step for artifact in self.runtimes.artifacts for step in steps_of(artifact))
        return {str(self._builder.path(step)): step for step in every}

    def targets(self, *, all_steps: bool, cleaning: bool, dry: bool) -> Iterator[Target]:
        """What can be built, inputs first. The steps of what is whole are listed with `all_steps`,
        as far as they exist: nothing needs the others. `dry`: nothing was fetched before."""
        needed = {
            step.key
            for artifact in self.runtimes.artifacts
            if cleaning or not self._is_whole(artifact)
            for step in (self._unfetched(artifact) if dry else steps_of(artifact))
        }

        def here(artifact: Artifact) -> bool:
            return artifact.key in needed or (all_steps and self._is_whole(artifact))

        for path, artifact in self._artifacts.items():
            if here(artifact):
                steps = [step for step in artifact.steps.values() if here(step)]
                files = self._origins(artifact)
                made = (self._builder.path(step) for step in steps)
                yield Target(Path(path), (*files, *made), self._is_whole(artifact))

    def _unfetched(self, artifact: Artifact) -> Iterator[Artifact]:
        """An artifact and the steps that it needs unless the shared cache has it."""
        yield artifact
        shared = self._builder.shared
        if shared is not None and not self._is_whole(artifact) and shared.may_have(artifact):
            self._fetchable.add(artifact.key)
            return
        for step in artifact.steps.values():
            yield from self._unfetched(step)

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
        runtimes, top = self.runtimes, Path.cwd()
        lib, path = self._builder.build_folder / "lib", top / name
        # A link of an earlier run stays there without its toolchain.
        of = path.relative_to(lib).parts[0] if lib in path.parents else name
        if of in {*runtimes.programs, *runtimes.arches, *runtimes.toolchains} - {*self.aliases}:
            reasons = "".join(f"\n  {error}" for error in runtimes.missing_for(of))
            if not reasons:
                return f"no program below {NATIVE}/ is built for '{of}'"
            return f"no toolchain for '{of}' is on this machine:{reasons}"
        named = [str(p.relative_to(top)) for p in self.names if p.is_relative_to(top)]
        close = get_close_matches(name, named if "/" in name else self.aliases, 1)
        hint = f"Did you mean '{close[0]}'? " if close else ""
        return f"nothing is called '{name}'. {hint}`scons -h` lists what there is."

    def can_be_named(self, path: Path) -> bool:
        """Whether a file that no target makes may be asked for, as for any source: but no stable
        path, which must not lead to what a toolchain of the past has built."""
        return path.exists() and self._builder.build_folder / "lib" not in path.parents

    def shown(self, path: str, *, explaining: bool) -> str:
        """The line of a target that SCons prints."""
        artifact = self._artifacts[path]
        if artifact.key in self._fetchable:
            return f"would fetch {shown_path(Path(path))}"
        if not explaining and artifact.key not in self._damaged:
            return _command(artifact)
        return f"{self._reason(artifact, self._builder.state(artifact)).text}\n{_command(artifact)}"

    def _reason(self, artifact: Artifact, state: State) -> Explanation:
        """Why an artifact has to be built."""
        return self._sought.get(artifact.key, state.explanation)

    def fetch(self, targets: Sequence[str]) -> Iterator[Path]:
        """Copy what these aliases and paths stand for from the shared cache; all of it if there are
        none. Objects are looked for only where what is made of them is not there."""
        shared = self._builder.shared
        if shared is None:
            return
        for artifact in self._finished(targets):
            for found in self._fetched(artifact, shared):
                self._made.files += 1
                yield self._builder.path(found)

    def _finished(self, targets: Sequence[str]) -> list[Artifact]:
        if not targets:
            return self.runtimes.artifacts
        ends = {self._builder.path(one): one for one in self.runtimes.artifacts} | self.names
        named = {path for target in targets for path in self.aliases.get(target, ())}
        found = [self._artifacts[target] for target in targets if target in self._artifacts]
        return found + [
            artifact
            for path, artifact in ends.items()
            if path in named or any(path.is_relative_to(target) for target in targets)
        ]

    def _fetched(self, artifact: Artifact, shared: SharedCache) -> Iterator[Artifact]:
        """What had to be copied of an artifact, or else of its steps."""
        if artifact.key in self._sought:
            return
        whole = self._is_whole(artifact)
        if not whole:
            self.lock()
        expected = shared.may_have(artifact)
        state = self._builder.fetched_state(artifact)
        if not state.cached:
            self._sought[artifact.key] = state.explanation
            if expected:
                self._damaged.add(artifact.key)
            for step in artifact.steps.values():
                yield from self._fetched(step, shared)
        elif not whole:
            yield artifact

    def make(self, target: Sequence[Any], source: Sequence[Any], env: Any) -> int:
        """The action that makes one file."""
        artifact = self._artifacts[target[0].get_abspath()]
        try:
            with self._lock:
                folder = self._workspace()
            # Another process may have built it before this one got the lock.
            state = self._builder.state(artifact)
        except KernloomError as error:
            print(error, file=sys.stderr)
            return 1
        if state.cached:
            with self._lock:
                self._made.files += 1
            return 0
        job = Job(artifact, to_plain(self._reason(artifact, state)))
        result = execute(job, self._builder.build_folder, folder, self._builder.shared)
        said = _message(artifact, result)
        with self._lock:
            self._made.files += result.ok
            if said:
                print(said, file=sys.stdout if result.ok else sys.stderr, flush=True)
        return 0 if result.ok else 1

    def link(self, target: Sequence[Any], source: Sequence[Any], env: Any) -> int:
        """The action that points a stable path to its program."""
        name = Path(target[0].get_abspath())
        with self._lock:
            make_links([self.names[name]], self._builder.build_folder)
        return 0

    def own_files(self) -> Iterator[Path]:
        """What earlier runs have built, or failed to: folders of programs and objects, and their
        histories."""
        build = self._builder.build_folder
        for kind in OWN_KINDS:
            for folder in filter(Path.is_dir, _entries(build / FOLDERS[kind])):
                manifest = read_manifest(folder)
                if manifest is not None or not any(folder.iterdir()):
                    yield folder
                if manifest is not None:
                    yield self._builder.history(str(manifest["name"]))
        for folder in _entries(build / FAILED):
            manifest = read_manifest(folder)
            if manifest is not None and manifest.get("kind") in OWN_KINDS:
                yield folder
        for link in (path for path in (build / "lib").rglob("*") if path.is_symlink()):
            leads_to = Path(os.path.normpath(link.parent / link.readlink()))
            if any(leads_to.is_relative_to(build / FOLDERS[kind]) for kind in OWN_KINDS):
                yield link
        yield from (build / "lib").glob(f"*/*/*/{MANIFEST}")

    def prune(self) -> None:
        """Remove folders that cleaning has emptied."""
        self.lock()
        build = self._builder.build_folder
        for path in build.glob(".sconsign*"):  # of an older Kernloom
            path.unlink()
        for top in (build / "lib", *(build / FOLDERS[kind] for kind in OWN_KINDS)):
            folders = [path for path in top.rglob("*") if path.is_dir() and not path.is_symlink()]
            for folder in (*sorted(folders, reverse=True), top):
                with contextlib.suppress(OSError):
                    folder.rmdir()
        if not any((build / FOLDERS[kind]).exists() for kind in FOLDERS if kind not in OWN_KINDS):
            # Then nothing but runtimes was built here.
            for path in (build / COMMANDS, build / COMMANDS_SEAL):
                path.unlink(missing_ok=True)
        for folder in (build / "index", build / FAILED, build / "tmp"):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def close(self) -> None:
        """Record what was built for editors, and remove temporary files, also of killed runs."""
        sweep(self._builder.build_folder)
        # Editors can do without, as on a full disk.
        with self._made.stack, contextlib.suppress(OSError):
            if self._made.files:
                whole = [one for one in self.runtimes.artifacts if self._builder.state(one).cached]
                self._builder.note_uses(whole)
                write_compile_commands(self._places, whole)

    def _origins(self, artifact: Artifact) -> Iterator[Path]:
        """Files of an artifact; its unit of several sources is none."""
        for name in artifact.files:
            root = origin_of(artifact, name, self._roots)
            if root or not is_unit(name):
                yield (root or self._places.share) / name

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
            try:
                build.mkdir(parents=True, exist_ok=True)
                handle = os.open(build / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise unwritable(build, error.strerror or str(error)) from None
            self._made.stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_EX)

    def _workspace(self) -> Path:
        """A folder for this run, and the lock of the build folder, from the first build on."""
        if self._made.folder is None:
            self.lock()
            folder = workspace(self._builder.build_folder)
            self._made.folder = self._made.stack.enter_context(folder)
        return self._made.folder


def check_settings(settings: Mapping[str, str]) -> None:
    """Refuse `key=value` on the command line of SCons, which would change nothing."""
    for key, value in settings.items():
        said = f"{key}={value}"
        hint = "Compilers and flags are those of configs/toolchain/; `scons -h` lists the targets."
        if key == CACHE_KEY:
            hint = f"Write --build-cache={value}."
        elif key in ("arch", "toolchain"):
            hint = f"Write `scons {value}`."
        raise UsageError(f"'{said}' is no setting of this build", hint=hint)


def _preference(artifact: Artifact) -> int:
    """Rank among programs with the same stable path: GCC first, as for host programs."""
    order = HOST_TOOLCHAINS
    name = artifact.identity.toolchain
    family = next((place for place, known in enumerate(order) if name.startswith(known)), None)
    return len(order) if family is None else family


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _command(artifact: Artifact) -> str:
    """The command of a target, as SCons prints it."""
    tool, *words = artifact.argv
    return shlex.join([Path(artifact.tools[tool]).name, *words])


def _message(artifact: Artifact, result: Result) -> str:
    if result.broken:
        return f"{artifact.name}: {result.broken}"
    if result.outdated:
        return (
            f"{result.outdated} changed while {artifact.name} was being built, or it is read in a "
            "way that cannot be foreseen; run scons again"
        )
    return result.message


def shown_path(path: Path | None) -> str:
    """A path as it is named on the command line."""
    if path is None:
        return "build/lib/ARCH/VARIANT/RUNTIME/PROGRAM"
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _about(program: Program) -> str:
    return textwrap.shorten(program.about or f"({program.kind})", 80)


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
        f"  scons {shown_path(next(iter(graph.names), None))}",
        "                           just this file",
        "  scons -n | -c | -j N     show commands | remove what it built | N jobs (default: cores)",
        "  scons --tree=all         the graph",
        "  scons --debug=explain    why something is built",
        "  scons --build-cache=DIR  share what is built with other checkouts",
        "",
        "Programs:",
        *(f"  {name:12} {_about(program)}" for name, program in sorted(programs.items())),
        "Arches and toolchains:",
        *(f"  {line}" for line in textwrap.wrap(", ".join(others), 94)),
    ]
    if graph.runtimes.unavailable:
        lines += ["Left out, for lack of a toolchain:"]
        lines += [f"  {error}" for error in graph.runtimes.unavailable]
    return "\n".join(lines) + "\n"
