"""What Hydra launches: one `kernloom run` of the job's words, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

import kernloom


def carry_out(config: DictConfig) -> int:
    """The exit code, which is also left beside those of the other jobs."""
    from kernloom.cli.hydra_app import CODES

    chosen = HydraConfig.get()
    words = list(chosen.overrides.task)
    if not any(word.lstrip("+").startswith("fleet") for word in words):
        # Launchers run jobs side by side, which is no way to measure.
        words.append("fleet.exclusive=measuring")
    engine = Path(kernloom.__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "kernloom", "run", *words],
        cwd=chosen.runtime.cwd,
        env={**os.environ, "PYTHONPATH": str(engine)},
        stdin=subprocess.DEVNULL,
    )
    codes = Path(chosen.sweep.dir) / CODES
    codes.mkdir(parents=True, exist_ok=True)
    (codes / str(chosen.job.num)).write_text(str(done.returncode))
    return done.returncode


def main() -> None:
    from kernloom.cli import hydra_job

    # The module's function, not that of __main__: launchers find it again by its name.
    hydra.main(version_base="1.3", config_path=None)(hydra_job.carry_out)()


if __name__ == "__main__":
    main()
