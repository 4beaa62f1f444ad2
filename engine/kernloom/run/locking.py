"""Makes the lock of a recipe from trials, their plans and the manifests of their artifacts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernloom import __version__
from kernloom.base.environment import UNKNOWN, git_facts, host_facts, package_of
from kernloom.base.errors import UnavailableError
from kernloom.base.files import sha256_bytes, sha256_text
from kernloom.base.gauges import GAUGES, ROOF_FRACTION
from kernloom.build.manifest import read_manifest
from kernloom.measure.data import DataSets
from kernloom.measure.trial import Trial
from kernloom.plan.artifact import Artifact, steps_of
from kernloom.plan.planned import Planned
from kernloom.recipe.entries import plain, recorded_config
from kernloom.recipe.lock import Lock, LockedArtifact, LockedPoint, request_hashes, short
from kernloom.recipe.request import Request
from kernloom.run.assembly import Assembly

GOLDEN = "golden"
_ARCH_FLAGS = ("-march=", "-mcpu=", "-mtune=", "-mabi=", "-mfpu=", "-mfloat-abi=", "--target=")


class Locking:
    """Makes locks; what several points share is found once."""

    def __init__(self, assembly: Assembly) -> None:
        self._assembly = assembly
        self._data = DataSets(assembly.places.roots)
        self._goldens: dict[tuple[str, int], str] = {}
        self._packages: dict[Path, str] = {}
        self._artifacts: dict[str, LockedArtifact] = {}
        self._seconds = 0.0
        """Time that the builds took."""

    def lock(
        self,
        request: Request,
        trials: Sequence[Trial],
        plans: Sequence[Planned],
        points: Sequence[Mapping[str, Any]] = (),
    ) -> Lock:
        """The lock of a request whose points are these trials, planned like this. `points` are
        the swept values of each, unless they are those of the trials."""
        artifacts = self._artifacts
        toolchains: dict[str, dict[str, Any]] = {}
        locked = []
        swept = points or [trial.point for trial in trials]
        for trial, plan, point in zip(trials, plans, swept, strict=True):
            named = {str(item["name"]): str(item["key"]) for item in trial.artifacts}
            planned = {artifact.key: artifact for _, artifact in plan.named_artifacts}
            self._build(artifact for key, artifact in planned.items() if key in named.values())
            for name, key in named.items():
                if key not in planned:
                    raise UnavailableError(
                        f"{name} of trial {trial.id} was built from other sources, flags or "
                        "compilers than are here now, so it cannot be locked",
                        hint="Run it again: kernloom run ... recipe=FILE",
                    )
                for step in steps_of(planned[key]):
                    if step.key not in artifacts:
                        artifacts[step.key] = self._artifact(step)
                        self._add_toolchain(toolchains, step)
            locked.append(
                LockedPoint(
                    point=plain(point),
                    config=recorded_config(trial),
                    params=plain(trial.params),
                    id=trial.id,
                    artifacts=named,
                    status=trial.status,
                    verified=trial.verified,
                    metrics=_results(trial.metrics),
                    data=self._hashes(plan) if trial.good else {},
                    message=trial.message.splitlines()[0] if trial.message else "",
                )
            )
        return Lock(
            kernloom=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            request=request_hashes(request.written),
            git=git_facts(self._assembly.places.roots[0]),
            host=host_facts(),
            toolchains=toolchains,
            artifacts=artifacts,
            points=tuple(locked),
            cost={
                "build_s": round(self._seconds, 1),
                "run_s": round(sum(trial.seconds for trial in trials), 1),
                "bytes": sum(artifact.bytes for artifact in artifacts.values()),
            },
        )

    def _build(self, artifacts: Iterable[Artifact]) -> None:
        """Build the steps that are not on disk: the trials may come from the store, and programs
        from a shared cache."""
        build = self._assembly.places.build
        missing = {
            step.key: step
            for artifact in artifacts
            if artifact.key not in self._artifacts
            for step in steps_of(artifact)
            if (read_manifest(step.folder(build)) or {}).get("key") != step.key
        }
        if missing:
            self._assembly.builder().build(missing.values())

    def _artifact(self, artifact: Artifact) -> LockedArtifact:
        build = self._assembly.places.build
        manifest = read_manifest(artifact.folder(build)) or {}
        if manifest.get("key") != artifact.key:
            raise UnavailableError(
                f"artifact {artifact.name} ({artifact.key[:12]}) is not in {build} any more",
                hint="Run it again: kernloom run ... recipe=FILE",
            )
        self._seconds += float(manifest.get("seconds") or 0)
        return LockedArtifact(
            key=artifact.key,
            name=artifact.name,
            kind=artifact.kind,
            argv=artifact.argv,
            toolchain=short(artifact.identity.digest),
            inputs=_shortened(artifact.inputs),
            headers=_shortened(artifact.headers),
            linked=_shortened(artifact.linked),
            # A manifest has the templates of the first build of these inputs.
            origins={p: short(sha256_text(t)) for p, t in sorted(artifact.origins.items())},
            steps={path: step.key for path, step in artifact.steps.items()},
            output=short(manifest["output_sha256"]),
            bytes=artifact.path(build).stat().st_size,
        )

    def _add_toolchain(self, known: dict[str, dict[str, Any]], artifact: Artifact) -> None:
        identity = artifact.identity
        digest = short(identity.digest)
        found = known.get(digest)
        if found is None:
            driver = next(iter(artifact.tools.values()), None)
            found = known[digest] = {
                "name": identity.toolchain,
                "version": identity.version,
                "package": self._package(Path(driver)) if driver else UNKNOWN,
                "target": identity.triple,
                "flags": [],
                "parts": _shortened(identity.parts),
            }
        for flag in artifact.argv:
            if flag.startswith(_ARCH_FLAGS) and flag not in found["flags"]:
                found["flags"].append(flag)

    def _package(self, tool: Path) -> str:
        if tool not in self._packages:
            self._packages[tool] = package_of(tool)
        return self._packages[tool]

    def _hashes(self, plan: Planned) -> dict[str, str]:
        """Hashes of a plan's goldens and of the user's files that fill its tensors."""
        files = {f"file {tensor}": short(digest) for tensor, digest in plan.files.items()}
        return {GOLDEN: self.golden(plan), **files}

    def golden(self, plan: Planned) -> str:
        """The hash of the golden results of a plan."""
        experiment = plan.experiment
        key = (experiment.workload.digest, experiment.seed)
        if key not in self._goldens:
            goldens = self._data.goldens(experiment.workload, experiment.seed)
            parts = b"".join(name.encode() + array.tobytes() for name, array in goldens.items())
            self._goldens[key] = short(sha256_bytes(parts))
        return self._goldens[key]


def _shortened(hashes: Mapping[str, str]) -> dict[str, str]:
    return {path: short(digest) for path, digest in sorted(hashes.items())}


def _results(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The results of a trial with their intervals."""
    gauges = [key for gauge in GAUGES.all(metrics) for key in gauge.keys]
    # Rates follow from the time and the config.
    names = (*gauges, ROOF_FRACTION.name, "samples", "processes", "deterministic", "peers")
    found = {name: metrics[name] for name in names if metrics.get(name)}
    return {name: _rounded(value) for name, value in plain(found).items()}


def _rounded(value: Any) -> Any:
    """A number with the digits that mean something; counts stay whole."""
    if isinstance(value, dict):
        return {name: _rounded(inner) for name, inner in value.items()}
    return float(f"{value:.8g}") if isinstance(value, float) else value
