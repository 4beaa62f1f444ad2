"""A job launched by Hydra: one `kernloom run` of its overrides, in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException
from omegaconf import DictConfig, OmegaConf

import kernloom
from kernloom.base.errors import UsageError
from kernloom.cli.hydra_documents import OUTPUT, document_file
from kernloom.config.hydra_compose import PRIMARY, VERSION_BASE
from kernloom.config.hydra_search_path import SearchFolder, search_path
from kernloom.config.resolvers import register_all
from kernloom.config.yaml_source import YamlSource
from kernloom.measure.ranking import Objective
from kernloom.run.objectives import files_of_jobs, read_objective

BASIC_SWEEPER = "BasicSweeper"
"""Class that tries every combination and needs no objective."""


class NoObjective(CompactHydraException):
    """Ends a job without an objective for the sweeper; the reason was printed on stderr before."""


def execute(config: DictConfig) -> float | None:
    """The job's objective, if Hydra's sweeper is an optimiser; the exit code is written to a file
    beside those of the other jobs."""
    from kernloom.cli.hydra_app import CODES, OBJECTIVES

    chosen = HydraConfig.get()
    number, folder = str(chosen.job.num), Path(chosen.sweep.dir)
    code, objective = folder / CODES / number, folder / OBJECTIVES / number
    for path in (code, objective):
        path.parent.mkdir(parents=True, exist_ok=True)
    code.touch()
    optimises = str(chosen.sweeper._target_).rpartition(".")[2] != BASIC_SWEEPER
    problem = not_minimised(chosen.sweeper) if optimises else ""
    returned = UsageError.exit_code if problem else _run(chosen, folder, objective)
    found = read_objective(objective) if optimises else None
    if found and returned == UsageError.exit_code:
        # Only this point is refused: one failed trial among others.
        returned = 1
    if found and not comparable(found, objective.parent):
        problem = (
            "the sweeper changes the work itself (workload, case, target, sizes or dtype), so "
            "its objectives cannot be compared\n  Sweep over what leaves the work as it is: "
            "select.fixed, toolchain, arch, pipeline."
        )
        returned = UsageError.exit_code
    code.write_text(str(returned))
    if problem:
        print(f"kernloom: error: {problem}", file=sys.stderr, flush=True)
    if optimises and (problem or not found):
        raise NoObjective(f"job {number} has no objective")
    return found.value if found else None


def _run(chosen: Any, folder: Path, objective: Path) -> int:
    from kernloom.cli.hydra_app import HAS_STORE_WORDS, SEARCH_PATH, STORE_WORDS

    environment = {**os.environ, "PYTHONPATH": str(Path(kernloom.__file__).resolve().parents[1])}
    store = environment.pop(STORE_WORDS, None)
    if store is None and (folder / HAS_STORE_WORDS).exists():
        print(
            "kernloom: error: the launcher does not hand the environment on, so this job does "
            "not know its store\n  Name the store in a file of configs/store, or have the "
            "environment exported.",
            file=sys.stderr,
        )
        return UsageError.exit_code
    searched = json.loads((folder / SEARCH_PATH).read_text(encoding="utf-8"))
    output = (folder / OUTPUT).read_text(encoding="utf-8")
    told = [*chosen.overrides.task, f"output={output}"]
    words = _words(told, [*json.loads(store or "[]"), *searched])
    document = document_file(folder, str(chosen.job.num))
    with document.open("wb") if document else nullcontext() as file:
        return subprocess.run(
            [sys.executable, "-P", "-m", "kernloom", "run", *words, f"--objective={objective}"],
            cwd=chosen.runtime.cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
        ).returncode


def comparable(own: Objective, folder: Path) -> bool:
    """Whether all jobs that have ended so far did the same work."""
    found = [own, *filter(None, map(read_objective, files_of_jobs(folder)))]
    return len({objective.work for objective in found if objective.work}) <= 1


def not_minimised(sweeper: Any) -> str:
    """Why a sweeper's settings do not suit an objective to be minimised; '' if they do."""
    directions = OmegaConf.select(sweeper, "direction")
    listed = list(directions) if OmegaConf.is_list(directions) else [directions]
    if len(listed) > 1:
        return "hydra.sweeper.direction: a trial has one objective, not " + str(len(listed))
    names = [str(getattr(direction, "name", direction)) for direction in listed]
    for key, bad in (
        ("optim.maximize", True),  # nevergrad
        ("ax_config.experiment.minimize", False),
    ):
        if OmegaConf.select(sweeper, key) is bad:
            return f"hydra.sweeper.{key}: the objective is a time or a count, which is minimised"
    if "maximize" in names:
        return "hydra.sweeper.direction: the objective is a time or a count, which is minimised"
    return ""


def _words(told: Sequence[str], store: Sequence[str]) -> list[str]:
    """The job's overrides, with its store instead of the one given to Hydra."""
    from kernloom.config.overrides import root_key

    words = [word for word in told if root_key(word) != "store"]
    if not any(root_key(word) == "fleet" for word in words):
        # Launchers run jobs in parallel, which would disturb measurements.
        words.append("fleet.exclusive=measuring")
    return [*words, *store]


def main() -> None:
    """`hydra_job FOLDERS ARGUMENTS...`: FOLDERS is a JSON list of config folders."""
    from kernloom.cli import hydra_job

    folders = [SearchFolder(Path(folder)) for folder in json.loads(sys.argv.pop(1))]
    register_all()
    YamlSource.open_maps = True
    with search_path(folders):
        # The module's function, not that of __main__: launchers find it again by its name.
        hydra.main(
            version_base=VERSION_BASE, config_path=str(folders[0].path), config_name=PRIMARY
        )(hydra_job.execute)()


if __name__ == "__main__":
    main()
