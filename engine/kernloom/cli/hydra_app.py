"""Kernloom as an application of Hydra's own, for its stock launchers and sweepers.

`kernloom run` composes by itself. Words that choose something of Hydra's (hydra/launcher=joblib)
hand the command over to Hydra, and every job is one `kernloom run` of its words; all of them write
to the same store.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernloom.config.hydra_compose import PRIMARY
from kernloom.errors import UnavailableError, UsageError
from kernloom.places import Places

CODES = "codes"
"""Where each job leaves its exit code, below the folder of the sweep."""


def run_by_hydra(places: Places, words: Sequence[str], *, multirun: bool) -> int:
    """Have Hydra launch a job for each point; the worst exit code of all of them."""
    if not multirun:
        raise UsageError(
            "Hydra's own settings are for sweeps", hint="Add -m: kernloom run -m hydra/launcher=..."
        )
    places.build.mkdir(parents=True, exist_ok=True)
    # Below the build folder, because the nodes of a cluster see no other machine's /tmp.
    folder = Path(tempfile.mkdtemp(prefix="hydra-", dir=places.build))
    try:
        done = subprocess.run(_command(places, folder, words), stdin=subprocess.DEVNULL)
        codes = [int(path.read_text()) for path in (folder / CODES).glob("*")]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if done.returncode or not codes:
        raise UnavailableError(
            "Hydra did not launch all jobs; what it said is above",
            hint="Is the launcher installed? pip install hydra-joblib-launcher, "
            "hydra-submitit-launcher.",
        )
    return max(codes)


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
