"""What execution stands on, without compilers, processes or disks: a device, a builder, a store.

Plans are real, made once; everything that carries them out is here, so that a test can say which
kernel fails at which launch, and interrupt a run at every single thing that happens in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kernloom.base.errors import DeviceError, UnavailableError
from kernloom.base.gauges import INSTRUCTIONS, TIME
from kernloom.base.places import Places
from kernloom.build.builder import Outcome, State
from kernloom.build.explain import Explanation
from kernloom.config.schema import Arch, Target
from kernloom.device.contract import (
    Arguments,
    Buffer,
    Call,
    Device,
    DeviceSetup,
    LaunchResult,
    LaunchSettings,
    LoadedKernel,
    Scalar,
    Session,
    Transfer,
)
from kernloom.device.devices import DEVICES
from kernloom.fleet.local import Local, LocalSettings
from kernloom.measure.trial import Trial
from kernloom.plan.artifact import Artifact
from kernloom.plan.planned import Planned
from kernloom.run.assembly import Assembly
from kernloom.run.execution import Execution, Results
from kernloom.run.fleet import SCREENING
from kernloom.run.planning import plan_points
from kernloom.run.progress import NoProgress
from kernloom.run.screening import Screening, screen

DEVICE = "fake"
KERNEL = """\
name: doubled
arguments:
  n: {kind: size}
  x: {kind: tensor, shape: [n]}
  y: {kind: tensor, access: write, shape: [n]}
sources:
  host: {file: doubled.c, function: doubled, macros: {BY: by}}
tunables:
  unroll:
    by: {values: [1, 2, 3, 4, 5, 6, 7, 8], "off": 1}
"""
WORKLOAD = """\
defaults:
  - /kernel@kernels.doubled: doubled
  - _self_
name: doubled
sizes: {n: 8}
tensors:
  x: {shape: [n]}
  y: {shape: [n]}
steps:
  call: {kernel: doubled}
golden: {y: 2 * x}
"""
SOURCE = "void doubled(long n, const float *x, float *y) { y[n - 1] = BY * x[0]; }\n"
POINTS = 8
"""How many different plans there are."""
Overlap = Literal[True, False, "auto"]
SCREENING_FIELDS = ("status", "verified", "metrics", "conditions", "stage", "message", "stderr")
"""Fields of a screening result that a store keeps."""


def plan_project(folder: Path, without: Collection[str] = ()) -> list[Planned]:
    """Plans of one small kernel, each with an artifact of its own, for the fake device; `without`
    some types of stages."""
    for path, text in {
        "kernloom.yaml": "",
        "configs/kernel/doubled.yaml": KERNEL,
        "configs/workload/doubled.yaml": WORKLOAD,
        "templates/doubled.c": SOURCE,
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    assembly = FakeAssembly(World(), folder)
    values = ",".join(map(str, range(1, POINTS + 1)))
    words = ["workload=doubled", f"target.device={DEVICE}", "measure=quick"]
    words.append(f"select.fixed.unroll.by={values}")
    plans = plan_points(assembly, assembly.composer.parse(words, multirun=True), without=without)
    return [replace(plan, sweep=None, kept=None) for plan in plans]


def register(world: World) -> None:
    """The device that targets find under its name from now on."""
    DEVICES._known[DEVICE] = device_of(world)


def changed(plan: Planned, **settings: Any) -> Planned:
    """The plan with other settings of its experiment, and the same id."""
    return replace(plan, experiment=replace(plan.experiment, **settings))


def at(plan: Planned, **swept: Any) -> Planned:
    """The same trial at another point."""
    return replace(plan, point=replace(plan.point, swept=swept))


def key_of(plan: Planned) -> str:
    """The key of the plan's only artifact."""
    (artifact,) = plan.artifacts
    return artifact.key


@dataclass
class World:
    """What happens to kernels, and what has happened."""

    times_ns: dict[str, float] = field(default_factory=dict)
    """Artifact key -> time of a run."""
    faults: dict[str, Callable[[int], None]] = field(default_factory=dict)
    """Artifact key -> called with the number of each launch, from 1; may raise."""
    wrong: set[str] = field(default_factory=set)
    """Keys of artifacts that compute something else."""
    uncompilable: set[str] = field(default_factory=set)
    """Keys of artifacts that do not compile."""
    unplugged: bool = False
    """Nothing can be opened any more."""
    injected: str = ""
    """The faults that its device injects."""
    capabilities: frozenset[str] = frozenset(
        {"memory", "launch", "calibrate", "wall_clock", "cpu_clock", "context_switches"}
    )
    interrupt_at: int = 0
    """The number of what happens, from 1, that Ctrl-C comes just before."""
    happened: list[tuple[str, str]] = field(default_factory=list)
    """What, and to which artifact or trial."""
    there: set[str] = field(default_factory=set)
    """Keys of artifacts that are built."""
    entries: dict[tuple[str, str], str] = field(default_factory=dict)
    """Library and symbol -> key of the kernel's artifact, for libraries of several kernels."""

    def note(self, what: str, which: str = "") -> None:
        if self.interrupt_at and len(self.happened) + 1 >= self.interrupt_at:
            self.interrupt_at = 0
            raise KeyboardInterrupt
        self.happened.append((what, which))

    def all(self, what: str) -> list[str]:
        return [which for name, which in self.happened if name == what]

    def launched(self, plan: Planned) -> int:
        return self.all("launch").count(key_of(plan))


def fault(status: str, first: int = 1) -> Callable[[int], None]:
    """Every launch from the `first` one ends so."""

    def fail(number: int) -> None:
        if number >= first:
            raise DeviceError(f"it was {status}", status=status)

    return fail


class FakeSession(Session):
    """Memory and kernels of the fake device, in this process."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._memory: dict[int, bytearray] = {}
        self._kernels: list[str] = []

    def allocate(self, nbytes: int, label: str = "") -> Buffer:
        address = len(self._memory)
        self._memory[address] = bytearray(nbytes)
        return Buffer(address, nbytes, label)

    def free(self, buffer: Buffer) -> None:
        del self._memory[buffer.address]

    def write(self, buffer: Buffer, data: Any, offset: int = 0) -> None:
        raw = bytes(data)
        self._memory[buffer.address][offset : offset + len(raw)] = raw

    def read(self, buffer: Buffer, nbytes: int | None = None, offset: int = 0) -> bytearray:
        end = None if nbytes is None else offset + nbytes
        return self._memory[buffer.address][offset:end]

    def fill(self, buffer: Buffer, value: int) -> None:
        self._memory[buffer.address][:] = bytes([value]) * buffer.nbytes

    def load(self, path: Path, arguments: Arguments, entry: str = "kl_entry") -> LoadedKernel:
        self._kernels.append(self._world.entries.get((path.name, entry), path.name))
        return LoadedKernel.of(len(self._kernels) - 1, path, arguments)

    def launch(
        self, calls: Sequence[Call | Transfer], settings: LaunchSettings | None = None
    ) -> LaunchResult:
        settings = settings or LaunchSettings()
        time_ns = 0.0
        for call in calls:
            assert isinstance(call, Call)
            time_ns += self._call(call)
        inner = settings.inner or max(1, int(settings.min_sample_ns / time_ns))
        total = (int(time_ns * inner),) * settings.samples
        none = (0,) * settings.samples
        counts = "instructions" in self._world.capabilities
        readings = {INSTRUCTIONS.name: total} if counts else {}
        return LaunchResult(inner, total, total, none, none, readings)

    def _call(self, call: Call) -> float:
        world, key = self._world, self._kernels[call.kernel.handle]
        world.note("launch", key)
        if key in world.faults:
            world.faults[key](world.all("launch").count(key))
        n, x, y = call.args
        assert isinstance(n, Scalar)
        assert isinstance(x, Buffer)
        assert isinstance(y, Buffer)
        factor = 3 if key in world.wrong else 2
        self.write(y, factor * np.frombuffer(self._memory[x.address], np.float32))
        return world.times_ns.get(key, 1000.0)

    def close(self) -> None:
        self._memory.clear()


def device_of(world: World) -> type[Device]:
    """A device class for what happens in one world."""

    class FakeDevice(Device):
        name = DEVICE
        index = 0
        capabilities = world.capabilities
        gauges = (INSTRUCTIONS,) if "instructions" in world.capabilities else (TIME,)

        @classmethod
        def from_setup(cls, setup: DeviceSetup) -> FakeDevice:
            device = cls()
            device.arch = setup.arch.name
            return device

        @classmethod
        def check(
            cls, target: Target, dtypes: Collection[str] = (), *, cache: Path | None = None
        ) -> None:
            pass

        @classmethod
        def injected_faults(cls, target: Target) -> str:
            return world.injected

        @classmethod
        def check_tensors(cls, arch: Arch, nbytes: Mapping[str, int]) -> None:
            pass

        def open(self, *, timeout: float = 60.0) -> Session:
            world.note("open")
            if world.unplugged:
                raise UnavailableError("the device is gone")
            return FakeSession(world)

    return FakeDevice


class FakeBuilder:
    """Builds in no time."""

    def __init__(self, world: World, folder: Path, known: Mapping[str, Artifact]) -> None:
        self._world = world
        self._folder = folder
        self._known = known
        """All kernels, to find those in a library of several."""
        self.uses: list[str] = []

    def state(self, artifact: Artifact) -> State:
        here = artifact.key in self._world.there
        return State("cached" if here else "missing", Explanation("kept" if here else "new", ""))

    def prepare(self) -> None:
        self._world.note("prepare")

    def note_uses(self, artifacts: Iterable[Artifact]) -> None:
        self.uses += [artifact.key for artifact in artifacts]

    def build(
        self, artifacts: Iterable[Artifact], progress: Callable[[int, int], None] | None = None
    ) -> dict[str, Outcome]:
        return {
            key: outcome
            for found in self.as_built(artifacts, progress)
            for key, outcome in found.items()
        }

    def as_built(
        self,
        artifacts: Iterable[Artifact],
        progress: Callable[[int, int], None] | None = None,
        *,
        measured: object = None,
    ) -> Generator[dict[str, Outcome], None, None]:
        wanted = list(artifacts)
        here = [artifact for artifact in wanted if artifact.key in self._world.there]
        yield {artifact.key: self._outcome(artifact, cached=True) for artifact in here}
        for number, artifact in enumerate(wanted, 1):
            if artifact not in here:
                self._world.note("build", artifact.key)
                yield {artifact.key: self._outcome(artifact, cached=False)}
            if progress:
                progress(number, len(wanted))

    def _outcome(self, artifact: Artifact, *, cached: bool) -> Outcome:
        key = artifact.key
        members = self._members(artifact)
        ok = not self._world.uncompilable.intersection(members.values())
        if ok:
            self._world.there.add(key)
            self._world.entries |= {(key, entry): member for entry, member in members.items()}
        why = Explanation("kept" if cached else "new", "")
        message = "" if ok else "error: nobody can compile this"
        path = self._folder / key
        return Outcome(artifact, path, cached, 0.0, ok, message, path, why)

    def _members(self, artifact: Artifact) -> dict[str, str]:
        """Symbol -> key of each kernel in a library."""
        if artifact.kind != "batch":
            return {"kl_entry": artifact.key}
        text = artifact.files[artifact.main]
        places = {key: text.find(one.files[one.main]) for key, one in self._known.items()}
        inside = sorted((key for key in places if places[key] >= 0), key=lambda key: places[key])
        return {f"kl_entry__{number}": key for number, key in enumerate(inside)}


class FakeAssembly(Assembly):
    """The real parts, but for the builder."""

    def __init__(self, world: World, folder: Path, plans: Sequence[Planned] = ()) -> None:
        home = folder / ".kernloom"
        share = Assembly().places.share
        super().__init__(Places(share, folder, home / "build", home / "store.db"))
        known = {artifact.key: artifact for plan in plans for artifact in plan.artifacts}
        self.fake_builder = FakeBuilder(world, home / "build", known)

    def builder(self, experiment: Any = None) -> Any:
        return self.fake_builder


class FakeClaims:
    """The claims of one engine, beside those of others."""

    def __init__(self, store: FakeStore) -> None:
        self._store = store
        self.held: set[str] = set()

    def take(self, name: str) -> bool:
        if name in self._store.claimed:
            return False
        self._store.world.note("claim", name)
        self.held.add(name)
        return True

    def wait(self, name: str) -> None:
        self._store.world.note("wait", name)
        self._store.claimed.pop(name)()
        self.held.add(name)

    def release(self, name: str) -> None:
        self.held.discard(name)

    def close(self) -> None:
        self.held.clear()


class FakeStore:
    """Trials in memory, shared with engines that are not there."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.attempts: dict[str, list[Trial]] = {}
        self.kept_screenings: dict[str, dict[str, Any]] = {}
        self.reuses: list[str] = []
        self.claimed: dict[str, Callable[[], None]] = {}
        """What other engines have claimed -> what they do before they let go of it."""
        self.reachable_for: int | None = None
        """How many more trials it takes before it cannot be reached."""
        self._changes = 0

    def add(self, trial: Trial) -> None:
        self.world.note("store", trial.id)
        if self.reachable_for is not None:
            if not self.reachable_for:
                raise UnavailableError("the store cannot be reached")
            self.reachable_for -= 1
        self.attempts.setdefault(trial.id, []).append(trial)
        self.world.note("stored", trial.id)

    def add_by_another(self, trial: Trial) -> None:
        self.attempts.setdefault(trial.id, []).append(trial)
        self._changes += 1

    def latest(self, ids: Iterable[str]) -> dict[str, Trial]:
        return {
            id: replace(found[-1], samples=(), attempt=len(found))
            for id in ids
            if (found := self.attempts.get(id))
        }

    def history(self, id: str, limit: int) -> list[Trial]:
        return [replace(found, samples=()) for found in self.attempts.get(id, ())][::-1][:limit]

    def state(self) -> object:
        return self._changes

    def count_reuses(self, ids: Iterable[str], sources: Mapping[str, Any] | None = None) -> None:
        self.reuses += ids

    def save_screenings(self, screenings: Mapping[str, Trial]) -> None:
        for id, trial in screenings.items():
            self.kept_screenings[id] = {name: getattr(trial, name) for name in SCREENING_FIELDS}

    def screenings(self, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        return {id: self.kept_screenings[id] for id in ids if id in self.kept_screenings}

    def claims(self) -> FakeClaims:
        return FakeClaims(self)


class Told(NoProgress):
    """Progress that remembers what it was told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.ends: list[Trial] = []

    def ended(self, trial: Trial) -> None:
        self.ends.append(trial)

    def say(self, text: str) -> None:
        self.said.append(text)


class Engine:
    """Execution over the fakes: one per test, as often as it likes."""

    def __init__(self, folder: Path, plans: Sequence[Planned]) -> None:
        self.plans = list(plans)
        self.world = World()
        self.store: Any = FakeStore(self.world)
        self.told = Told()
        self.ended: list[Trial] = []
        """What a reader of the run is told, in this order."""
        self._folder = folder
        register(self.world)

    @property
    def assembly(self) -> FakeAssembly:
        register(self.world)
        return FakeAssembly(self.world, self._folder, self.plans)

    def local(
        self, assembly: Assembly, *, overlap: Overlap = False, phase: str = "measuring"
    ) -> Local:
        return Local(assembly, self.told, LocalSettings("local", overlap=overlap), phase)

    def run(
        self,
        plans: Sequence[Planned] | None = None,
        *,
        rerun: str = "none",
        overlap: Overlap = False,
        stored: bool = True,
    ) -> Results:
        """One run, as of a new process."""
        wanted = [changed(plan, rerun=rerun) for plan in (self.plans if plans is None else plans)]
        assembly = self.assembly
        self.ended = []
        fleet = self.local(assembly, overlap=overlap)
        store = self.store if stored else None
        return Execution(assembly, store, self.told, fleet, self.ended.append).execute(wanted)

    def screen(
        self,
        keep: int,
        plans: Sequence[Planned] | None = None,
        *,
        rerun: str = "none",
        batch: int = 25,
        overlap: Overlap = False,
    ) -> Screening:
        settings = replace(self.plans[0].experiment.screen, keep=keep, batch=batch)
        wanted = [
            changed(plan, screen=settings, rerun=rerun)
            for plan in (self.plans if plans is None else plans)
        ]
        assembly = self.assembly
        self.ended = []
        fleet = self.local(assembly, overlap=overlap, phase=SCREENING)
        return screen(assembly, wanted, self.store, fleet, self.told, self.ended.append)
