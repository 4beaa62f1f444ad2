"""Kernloom as a Hydra application, for Hydra's stock launchers and sweepers.

`kernloom run` composes by itself. Overrides that choose something of Hydra's
(hydra/launcher=joblib) hand the command over to Hydra, and every job is one `kernloom run` of its
overrides; all of them write to the same store. Hydra writes its overrides to disk, so the store,
whose URL may contain a password, is passed outside of Hydra.
"""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from kernloom.base.errors import KernloomError, UnavailableError, UsageError, nearest
from kernloom.base.places import Places
from kernloom.cli.hydra_documents import OUTPUT, check_output_of_jobs, print_documents
from kernloom.cli.invocation import TABLE
from kernloom.config.overrides import Override, Overrides, spelled
from kernloom.config.search_path import KEY as SEARCH_PATH_KEY
from kernloom.fleet.slurm.submission import NO_STORE
from kernloom.measure.ranking import changes_work
from kernloom.run.objectives import files_of_jobs, read_objective

CODES = "codes"
"""Folder of the jobs' exit codes, below the sweep's folder; an empty file means that the job did
not end."""
OBJECTIVES = "objectives"
"""Folder of the jobs' objectives, for sweepers that optimise."""
BEST = "optimization_results.yaml"
"""File with the result of a sweeper that optimises, in the sweep's folder."""
STORE_WORDS = "KERNLOOM_STORE_WORDS"
"""Environment variable with the overrides for the store, for each job."""
HAS_STORE_WORDS = "has-store-words"
"""Marker file in the folder of a sweep whose jobs must have such overrides."""
SEARCH_PATH = "search-path"
"""File with the overrides for the search path, in the sweep's folder."""
PACKAGES = {
    "launcher": {
        "joblib": "hydra-joblib-launcher",
        "submitit_local": "hydra-submitit-launcher",
        "submitit_slurm": "hydra-submitit-launcher",
    },
    "sweeper": {
        "ax": "hydra-ax-sweeper",
        "nevergrad": "hydra-nevergrad-sweeper",
        "optuna": "hydra-optuna-sweeper",
    },
}
"""Packages of Hydra's stock plugins."""
BASIC = "basic"
"""The sweeper that tries every combination; all others optimise."""
_FOLDER_KEYS = ("hydra.sweep.dir", "hydra.output_subdir")
_STDERR = 2
SPACES = (
    "hydra.sweeper.params.",
    "hydra.sweeper.parametrization.",
    "hydra.sweeper.ax_config.params.",
)
"""Prefixes of the keys with the search axes of sweepers that optimise."""


def run_by_hydra(
    places: Places, overrides: Overrides, output: str = TABLE, out: TextIO | None = None
) -> int:
    """Have Hydra launch one job per point; returns the exit_code_of_jobs of their exit codes. In a
    format for programs, what the jobs print goes to `out` at the end."""
    if not overrides.multirun:
        raise UsageError(
            "Hydra's own settings are for sweeps", hint="Add -m: kernloom run -m hydra/launcher=..."
        )
    check_output_of_jobs(output)
    _check_folders(overrides)
    _check_installed(places, overrides)
    if any(kind == "sweeper" and name != BASIC for kind, name in _choices(overrides)):
        check_axes(overrides)
    store = overrides.about("store").text
    searched = overrides.where(lambda override: override.key == SEARCH_PATH_KEY)
    added = [Path(path) for paths in searched.values(SEARCH_PATH_KEY) for path in paths]
    rest = overrides.without("store", "output").where(
        lambda override: override.key != SEARCH_PATH_KEY
    )
    others = [_word_for_hydra(override) for override in rest]
    places.build.mkdir(parents=True, exist_ok=True)
    # Below the build folder, because cluster nodes do not see another machine's /tmp.
    folder = Path(tempfile.mkdtemp(prefix="hydra-", dir=places.build))
    try:
        if store:
            (folder / HAS_STORE_WORDS).touch()
        (folder / SEARCH_PATH).write_text(json.dumps(searched.text), encoding="utf-8")
        (folder / OUTPUT).write_text(output, encoding="utf-8")
        done = subprocess.run(
            _command([*places.folders("configs"), *added], folder, [*others, *NO_STORE]),
            env={**os.environ, STORE_WORDS: json.dumps(store)},
            stdin=subprocess.DEVNULL,
            stdout=None if output == TABLE else _STDERR,
        )
        left = {int(path.name): path.read_text() for path in files_of_jobs(folder / CODES)}
        best = _best(folder)
        documents = io.StringIO()
        print_documents(folder, output, documents)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not left:
        raise UnavailableError("Hydra did not launch any job; what it said is above")
    code = exit_code_of_jobs([int(code) if code else 1 for code in left.values()])
    if left.keys() != set(range(len(left))):
        raise KernloomError("Hydra lost some of its jobs; what it said is above")
    if done.returncode and not code:
        raise KernloomError("Hydra ended early; what it said is above")
    if best and not done.returncode:
        print(f"kernloom: {best}", file=sys.stderr)
    (out or sys.stdout).write(documents.getvalue())
    return code


def _check_folders(overrides: Overrides) -> None:
    """Refuse to move the folder where jobs and this process leave files for each other."""
    for override in overrides:
        if override.key.startswith(_FOLDER_KEYS):
            raise UsageError(
                f"{override.key} cannot be set: Hydra's folder is below the build folder, and is "
                "removed at the end",
                hint="Results are in the store; `kernloom results` shows them.",
            )


def _word_for_hydra(override: Override) -> str:
    """The override's word, with permission to add its key: Hydra would refuse keys of open maps,
    such as select.fixed. Each job checks the keys itself."""
    is_value = override.kind == "change" and not override.package and not override.group
    own = override.key.startswith("hydra")
    return f"++{override.text}" if is_value and not own else override.text


def _best(folder: Path) -> str:
    """The best point reported by a sweeper that optimises; '' for other sweepers."""
    from kernloom.config.reader import load_yaml

    path = folder / BEST
    if not path.is_file():
        return ""
    text = path.read_text(encoding="utf-8")
    found = load_yaml(text, where=BEST)
    if not isinstance(found, dict):
        return f"the sweeper found\n{text.strip()}"
    name = found.get("name", "the sweeper")
    # The names used by Optuna and by Nevergrad.
    params = found.get("best_params", found.get("best_evaluated_params"))
    value = found.get("best_value", found.get("best_evaluated_result"))
    if not isinstance(params, dict) or not isinstance(value, (int, float)):
        return f"{name} found\n{text.strip()}"
    if not params:
        return f"{name} had one point only: no key was given several values"
    if not math.isfinite(value):
        return f"{name} found no point that works"
    files = files_of_jobs(folder / OBJECTIVES)
    metrics = {objective.metric for objective in map(read_objective, files) if objective}
    shown = " ".join(f"{str(key).lstrip('+')}={value}" for key, value in params.items())
    return f"{name} found {shown}: {' or '.join(filter(None, metrics))} = {value:g}"


def exit_code_of_jobs(codes: Sequence[int]) -> int:
    """The exit code for a set of jobs: for example 3 if all failures were unavailable targets; a
    job killed by a signal has failed."""
    bad = {code if code > 0 else 1 for code in codes if code}
    return 0 if not bad else bad.pop() if len(bad) == 1 else 1


def _choices(overrides: Overrides) -> list[tuple[str, str]]:
    """Kind and name of the chosen launcher and sweeper."""
    return [
        (kind, value)
        for override in overrides
        for kind in PACKAGES
        if override.key == f"hydra/{kind}" and override.kind != "delete" and not override.package
        for value in override.values
        if isinstance(value, str)
    ]


def check_axes(overrides: Overrides) -> None:
    """Refuse an axis along which trials do different work: an optimiser would take the least work
    for the best point."""
    for override in overrides:
        key = _axis(override)
        if changes_work(key):
            raise UsageError(
                f"{key} changes the work itself, and objectives of different work cannot be "
                "compared: a sweeper that optimises would choose the least work",
                hint=f"Give {key} one value, and search over what leaves the work as it is: "
                "select.fixed, toolchain, arch, pipeline. `run -m` without hydra/sweeper tries "
                "every value.",
            )


def _axis(override: Override) -> str:
    """The key that an override makes an axis of a search; '' if none."""
    for start in SPACES:
        if override.key.startswith(start):
            return override.key.removeprefix(start).lstrip("+")
    return override.key if override.swept else ""


def _check_installed(places: Places, overrides: Overrides) -> None:
    """Refuse a launcher or sweeper that Hydra lacks, before Hydra fails with its own message."""
    chosen = _choices(overrides)
    if not chosen:
        return
    from hydra.core.config_store import ConfigStore

    from kernloom.config.hydra_search_path import load_plugins

    # Plugins register their names when they are loaded.
    load_plugins()
    for kind, name in chosen:
        searched = [path for paths in overrides.values(SEARCH_PATH_KEY) for path in paths]
        folders = [*places.folders("configs"), *map(Path, searched)]
        files = [path for folder in folders for path in folder.glob(f"hydra/{kind}/*")]
        listed = [*ConfigStore.instance().list(f"hydra/{kind}"), *(path.name for path in files)]
        there = {entry.removesuffix(".yaml") for entry in listed if entry.endswith(".yaml")}
        if name in there:
            continue
        package = PACKAGES[kind].get(name)
        if package:
            install = f"{sys.executable} -m pip install {package}"
            hint = f"{install}  (installed: {', '.join(sorted(there))})"
        else:
            missing = sorted({*PACKAGES[kind].values()} - {PACKAGES[kind].get(t) for t in there})
            more = f" Others come with {', '.join(missing)}." if missing else ""
            hint = nearest(name, there) + more
        raise UnavailableError(f"Hydra has no {kind} '{name}' here", hint=hint)


def _command(folders: Sequence[Path], folder: Path, words: Sequence[str]) -> list[str]:
    return [
        sys.executable,
        "-m",
        "kernloom.cli.hydra_job",
        json.dumps([str(path) for path in folders]),
        "--multirun",
        f"hydra.sweep.dir={spelled(str(folder))}",
        "hydra.output_subdir=null",
        "hydra/job_logging=none",
        "hydra/hydra_logging=none",
        *words,
    ]
