"""Kernloom as an application of Hydra's own, for its stock launchers and sweepers.

`kernloom run` composes by itself. Words that choose something of Hydra's (hydra/launcher=joblib)
hand the command over to Hydra, and every job is one `kernloom run` of its words; all of them write
to the same store. Hydra writes down what it is told, so which store that is, with a password
perhaps, goes past it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernloom.cli.fleets.submission import NO_STORE, root_key
from kernloom.config.hydra_compose import PRIMARY
from kernloom.errors import KernloomError, UnavailableError, UsageError, nearest
from kernloom.places import Places

CODES = "codes"
"""Where each job leaves its exit code, below the folder of the sweep; a file without one is of a
job that did not end."""
STORE_WORDS = "KERNLOOM_STORE_WORDS"
"""In the environment: the words about the store, for each job."""
HAS_STORE_WORDS = "has-store-words"
"""Lies in the folder of a sweep whose jobs must have some."""
PACKAGES = {
    "launcher": {
        "joblib": "hydra-joblib-launcher",
        "submitit_local": "hydra-submitit-launcher",
        "submitit_slurm": "hydra-submitit-launcher",
    },
    "sweeper": {},
}
"""What brings Hydra's stock plugins."""
_CHOICE = re.compile(r"\+*hydra/(launcher|sweeper)=([\w-]+)")


def run_by_hydra(places: Places, words: Sequence[str], *, multirun: bool) -> int:
    """Have Hydra launch a job for each point; the worst exit code of all of them."""
    if not multirun:
        raise UsageError(
            "Hydra's own settings are for sweeps", hint="Add -m: kernloom run -m hydra/launcher=..."
        )
    _check_installed(places, words)
    store = [word for word in words if root_key(word) == "store"]
    others = [word for word in words if word not in store]
    places.build.mkdir(parents=True, exist_ok=True)
    # Below the build folder, because the nodes of a cluster see no other machine's /tmp.
    folder = Path(tempfile.mkdtemp(prefix="hydra-", dir=places.build))
    try:
        if store:
            (folder / HAS_STORE_WORDS).touch()
        done = subprocess.run(
            _command(places, folder, [*others, *NO_STORE]),
            env={**os.environ, STORE_WORDS: json.dumps(store)},
            stdin=subprocess.DEVNULL,
        )
        left = {int(path.name): path.read_text() for path in (folder / CODES).glob("*")}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not left:
        raise UnavailableError("Hydra did not launch any job; what it said is above")
    if done.returncode or left.keys() != set(range(len(left))):
        raise KernloomError("Hydra lost some of its jobs; what it said is above")
    return worst([int(code) if code else 1 for code in left.values()])


def worst(codes: Sequence[int]) -> int:
    """The exit code that those of the jobs lead to: 3, for instance, if all that failed was not
    available; a job that a signal ended has failed."""
    bad = {code if code > 0 else 1 for code in codes if code}
    return 0 if not bad else bad.pop() if len(bad) == 1 else 1


def _check_installed(places: Places, words: Sequence[str]) -> None:
    """Refuse a launcher or sweeper that Hydra does not have, before it says so its own way."""
    chosen = [found.groups() for word in words if (found := _CHOICE.fullmatch(word))]
    if not chosen:
        return
    from hydra.core.config_store import ConfigStore
    from hydra.core.plugins import Plugins

    # Plugins say what they are called when they are loaded.
    Plugins.instance()
    for kind, name in chosen:
        files = [p for found in places.folders("configs") for p in found.glob(f"hydra/{kind}/*")]
        listed = [*ConfigStore.instance().list(f"hydra/{kind}"), *(path.name for path in files)]
        there = {entry.removesuffix(".yaml") for entry in listed}
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


def _command(places: Places, folder: Path, words: Sequence[str]) -> list[str]:
    found = places.folders("configs")
    # Hydra wants the root config in the first folder; those after it shadow each other as ours do.
    root = next(path for path in found if (path / f"{PRIMARY}.yaml").is_file())
    first = folder / "configs"
    first.mkdir()
    (first / f"{PRIMARY}.yaml").symlink_to(root / f"{PRIMARY}.yaml")
    others = ",".join(_quoted(f"file://{path}") for path in found)
    return [
        sys.executable,
        "-m",
        "kernloom.cli.hydra_job",
        "--multirun",
        f"--config-dir={first}",
        f"--config-name={PRIMARY}",
        f"hydra.searchpath=[{others}]",
        f"hydra.sweep.dir={_quoted(str(folder))}",
        "hydra.output_subdir=null",
        "hydra/job_logging=none",
        "hydra/hydra_logging=none",
        *words,
    ]


def _quoted(text: str) -> str:
    """Text as one value of Hydra's grammar."""
    escaped = text.replace("'", "\\'")
    return f"'{escaped}'"
