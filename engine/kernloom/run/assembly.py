"""Assembles the engine: places, composer, stages, services. Only this module imports all of
them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

from kernloom.base.digest import DigestCache, Section, as_section, digest_of
from kernloom.base.errors import UnavailableError
from kernloom.base.places import Places, find_places
from kernloom.base.registry import Registry
from kernloom.build.arches import check_runs, is_native, resolve_native, with_vector_bytes
from kernloom.build.builder import Builder
from kernloom.build.built_for import BuiltFor
from kernloom.build.emulators import FoundEmulator, find_emulator
from kernloom.build.firmware import Firmware, Images
from kernloom.build.limit import CompileLimit
from kernloom.build.machines import machine_arch
from kernloom.build.not_built import compiler_needed
from kernloom.build.package import Package
from kernloom.build.programs import Programs
from kernloom.build.runtimes import host_programs
from kernloom.build.scons import Ahead
from kernloom.build.shared_cache import SharedCache
from kernloom.build.stage import Compile, Compilers, Orchestrate
from kernloom.build.toolchains import check_compiles, check_compiles_for
from kernloom.config.compose import Composer
from kernloom.config.convert import convert
from kernloom.config.groups import composed_cache
from kernloom.config.platforms import find_platform
from kernloom.config.schema import Emulator, Experiment, Scalar, Toolchain
from kernloom.device.contract import PLATFORM
from kernloom.device.devices import DEVICES
from kernloom.measure.roofs import Roofs
from kernloom.measure.rounds import Measure
from kernloom.measure.verify import Verify
from kernloom.pipeline.stage import Stage
from kernloom.plan.artifact import Artifact
from kernloom.plan.distribute import Distribute
from kernloom.plan.inspect import Inspect
from kernloom.plan.microkernels import Catch
from kernloom.plan.render import Render, Renderer
from kernloom.plan.select import (
    BUILT_IN,
    Answer,
    Provider,
    Providers,
    Request,
    Select,
    TransformNames,
)
from kernloom.plan.transforms import TRANSFORMS, Transform
from kernloom.run.known_parameters import StoredParameters
from kernloom.run.stores import store_location
from kernloom.store.store import open_store

STAGES: dict[str, type[Stage]] = {
    "inspect": Inspect,
    "select": Select,
    **TRANSFORMS,
    "catch": Catch,
    "distribute": Distribute,
    "render": Render,
    "compile": Compile,
    "orchestrate": Orchestrate,
    "package": Package,
    "firmware": Firmware,
    "verify": Verify,
    "measure": Measure,
}


class Assembly:
    """The session of the engine: all its parts, created on first use.

    It may live long and plan many sweeps: its caches are keyed by digests, and bounded.
    """

    def __init__(self, places: Places | None = None) -> None:
        self.places = places or find_places()
        self.stages: Registry[type[Stage]] = Registry("stage", STAGES, group="kernloom.stages")
        self.results = DigestCache()
        """Results derived from config sections only, valid at any time and place."""
        self.renderer = Renderer(self.template_folders, self.places.cache / "rendered")
        self.ahead = Ahead()
        """SCons, if it was started ahead of need; whoever does that closes it."""
        self.tuner: Provider | None = None
        """The provider `tuned`; a command may replace it."""
        self._reset_machine_caches()

    def _reset_machine_caches(self) -> None:
        self.here = DigestCache()
        """Results derived from configs and from what is installed on this machine."""
        self.compilers = Compilers(self.places.cache)
        self._asked: dict[str, Mapping[str, Any]] = {}
        """Digest of a resolved arch -> the section it was resolved from."""
        self.__dict__.pop("planning_services", None)
        self.__dict__.pop("_host_programs", None)
        self.__dict__.pop("_declared", None)
        self.__dict__.pop("roofs", None)

    def refresh(self) -> None:
        """Check again what may have changed outside since the last sweep was planned: templates,
        compilers, emulators. Config files are checked whenever points are composed."""
        self.renderer.refresh()
        self._reset_machine_caches()

    @cached_property
    def composer(self) -> Composer:
        folders = self.places.folders("configs")
        return Composer(
            folders,
            composed_cache(self.places),
            self.resolve_arch,
            say=_say,
            results=self.results,
        )

    @cached_property
    def planning_services(self) -> Mapping[type, Any]:
        """The services of plan and build stages."""
        return {
            Providers: Providers("provider", self._providers, group="kernloom.providers"),
            TransformNames: TransformNames(list(self.transforms.values())),
            Renderer: self.renderer,
            Compilers: self.compilers,
            Images: Images(self.compilers, self._declared),
            Roofs: self.roofs,
        }

    @property
    def _providers(self) -> Mapping[str, Provider]:
        """The providers that ship, with those that need the store."""
        return {**BUILT_IN, "stored": self._stored, "tuned": self._tuned}

    def _stored(self, request: Request) -> Answer:
        """The provider `stored`: the best parameters in the experiment's store."""
        if request.experiment is None:
            return Answer()
        return self.stored_parameters(request.experiment).provide(request)

    def _tuned(self, request: Request) -> Mapping[str, Scalar]:
        """The provider `tuned`: the winner of a study that is run now."""
        if self.tuner is None:
            # Named and not imported: studies depend on the engine.
            provider = import_module("kernloom.tune.provider")
            self.tuner = provider.Tuner(self.places)
        return self.tuner(request)

    def stored_parameters(self, experiment: Experiment) -> StoredParameters:
        """The parameters in the store of an experiment, as it was at the last refresh."""
        place = store_location(experiment.store, self.places)

        def read() -> StoredParameters:
            with open_store(place) as store:
                return StoredParameters(store)

        return self.here.by_key((StoredParameters, str(place)), read)

    @cached_property
    def roofs(self) -> Roofs:
        """The roofs of this machine, if it was calibrated."""
        return Roofs(self.places.calibrations, _say)

    @property
    def template_folders(self) -> list[Path]:
        return self.places.folders("templates")

    @cached_property
    def transforms(self) -> Mapping[str, str]:
        """Stage type -> the name of its transform."""
        return {
            name: cls.transform
            for name in self.stages.names()
            if issubclass(cls := self.stages.get(name, key=""), Transform)
        }

    def builder(self, experiment: Experiment | None = None) -> Builder:
        build = experiment.build if experiment else None
        if build is None:
            return Builder(self.places, ahead=self.ahead)
        shared = SharedCache.at(build.cache, self.places.roots[0]) if build.cache else None
        never = build.mode == "never"
        limit = None if build.limit is None else CompileLimit(build.limit)
        return Builder(self.places, build.jobs, build.keep, self.ahead, shared, never, limit)

    def resolve_arch(self, data: Mapping[str, Any]) -> Section[Any]:
        """The arch section with `native` resolved for the toolchain in use."""
        arch, toolchain = data.get("arch"), data.get("toolchain")
        if not isinstance(arch, Section) or not is_native(arch):
            return self.results.get(_with_vector_bytes, arch)
        key = (Assembly.resolve_arch, arch.digest, digest_of(toolchain))
        return self.here.by_key(key, lambda: self._native_arch(arch, toolchain))

    def _native_arch(self, arch: Section[Any], data: Any) -> Section[Any]:
        toolchain = convert(Toolchain, data, "toolchain")
        try:
            found = {toolchain.family: self.compilers.detect(toolchain)}
        except UnavailableError:
            # Reported when the point is planned, so that the other points of a sweep continue.
            found = {}
        made: Section[Any] = as_section(resolve_native(arch, found, self.places.cache))
        self._asked.setdefault(made.digest, arch)
        return made

    def arch_as_asked(self, arch: Mapping[str, Any]) -> Mapping[str, Any]:
        """An arch section as it was before `native` was resolved on this machine."""
        return self._asked.get(digest_of(arch), arch)

    def programs(self, experiment: Experiment) -> dict[str, Artifact]:
        """Role -> program to build for the experiment's device."""
        device = DEVICES.get(experiment.target.device, key="target.device")
        with compiler_needed(experiment.build.mode):
            return {role: self._program(role, experiment) for role in device.programs}

    def _program(self, role: str, experiment: Experiment) -> Artifact:
        target, toolchain = experiment.target, experiment.toolchain
        declared, name = self._declared, role
        if role == PLATFORM:
            platform = find_platform(target.machine.platform)
            declared, name = self._declared_with(platform.folder), platform.program
        if declared.program(name).runs_on == "host":
            return self._host_programs[name]
        found = self.compilers.detect(toolchain)
        arch = machine_arch(target, experiment.arch)
        return declared.artifact(
            name, BuiltFor(toolchain, arch, target.variant, found, experiment.runtime.name)
        )

    def _declared_with(self, folder: Path | None) -> Programs:
        """The programs with those of a package that adds a platform."""
        if folder is None:
            return self._declared
        roots = (*self.places.roots, folder)
        return self.here.by_key((Programs, roots), lambda: Programs(roots))

    @cached_property
    def _declared(self) -> Programs:
        return Programs(self.places.roots)

    @cached_property
    def _host_programs(self) -> dict[str, Artifact]:
        """Built with this machine's own compiler, whatever the experiment's toolchain is."""
        return host_programs(self._declared, self.places, self.compilers.detect)

    def emulator(self, emulator: Emulator) -> FoundEmulator:
        """The emulator on this machine; searched once."""
        return self.here.get(self._find_emulator, emulator)

    def _find_emulator(self, emulator: Emulator) -> FoundEmulator:
        return find_emulator(emulator, self.places.cache)

    def check_available(self, experiment: Experiment) -> None:
        """Refuse an experiment that this machine cannot run, before anything is built."""
        target, arch = experiment.target, experiment.arch
        device = DEVICES.get(target.device, key="target.device")
        with compiler_needed(experiment.build.mode):
            found = self.compilers.detect(experiment.toolchain)
        if sys.platform not in target.systems:
            raise UnavailableError(
                f"target '{target.name}' runs on {', '.join(target.systems)}, not {sys.platform}"
            )
        if target.machines:
            find_platform(target.machine.platform)
            check_compiles_for(found, target)
        if target.emulator:
            self.emulator(target.emulator)
        cpu_code = device.runs_cpu_code(target)
        if cpu_code:
            check_runs(target, arch)
        workload = experiment.workload
        dtypes = {tensor.dtype or workload.dtype for tensor in workload.tensors.values()}
        device.check(target, dtypes | {workload.dtype}, cache=self.places.cache)
        device.check_arch(arch)
        device.check_options(target, arch)
        if cpu_code:
            check_compiles(found, arch)


def _with_vector_bytes(arch: Mapping[str, Any]) -> Section[Any]:
    section: Section[Any] = as_section(with_vector_bytes(arch))
    return section


def _say(note: str) -> None:
    """Print a note to the terminal, beside a command's output."""
    print(f"kernloom: {note}", file=sys.stderr)
