"""What Hydra launches: one `kernloom run` of the job's words, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

import kernloom
from kernloom.errors import UsageError


def carry_out(config: DictConfig) -> int:
    """The exit code, which is also left beside those of the other jobs."""
    from kernloom.cli.hydra_app import CODES, HAS_STORE_WORDS, STORE_WORDS

    chosen = HydraConfig.get()
    folder = Path(chosen.sweep.dir)
    code = folder / CODES / str(chosen.job.num)
    code.parent.mkdir(parents=True, exist_ok=True)
    code.touch()
    environment = {**os.environ, "PYTHONPATH": str(Path(kernloom.__file__).resolve().parents[1])}
    store = environment.pop(STORE_WORDS, None)
    if store is None and (folder / HAS_STORE_WORDS).exists():
        print(
            "kernloom: error: the launcher does not hand the environment on, so this job does "
            "not know its store\n  Name the store in a file of configs/store, or have the "
            "environment exported.",
            file=sys.stderr,
        )
        returned = UsageError.exit_code
    else:
        words = _words(chosen.overrides.task, json.loads(store or "[]"))
        returned = subprocess.run(
            [sys.executable, "-P", "-m", "kernloom", "run", *words],
            cwd=chosen.runtime.cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
        ).returncode
    code.write_text(str(returned))
    return returned


def _words(told: Sequence[str], store: Sequence[str]) -> list[str]:
    """Those of the job, with its store in the place of what Hydra was told."""
    from kernloom.cli.fleets.submission import root_key

    words = [word for word in told if root_key(word) != "store"]
    if not any(root_key(word) == "fleet" for word in words):
        # Launchers run jobs side by side, which is no way to measure.
        words.append("fleet.exclusive=measuring")
    return [*words, *store]


def main() -> None:
    from kernloom.cli import hydra_job

    # The module's function, not that of __main__: launchers find it again by its name.
    hydra.main(version_base="1.3", config_path=None)(hydra_job.carry_out)()


if __name__ == "__main__":
    main()
