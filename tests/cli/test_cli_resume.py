"""Whatever kills a sweep, and when: the same command finishes it, and nothing is done twice."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
from collections import Counter
from random import Random
from typing import Any

import pytest

from command_line import DOUBLE, KERNEL, PATIENCE_S, Project, unshare, working_in

KILLS = 10
POINTS = 48
POLL_S = 0.002
HEAD = "#include <fcntl.h>\n#include <stdio.h>\n#include <unistd.h>"
# Every process that runs the kernel leaves one line, written at once.
BODY = f"""\
static int said;
if (!said) {{
    char line[40];
    int length = snprintf(line, sizeof line, "%d %d\\n", POINT, (int)getpid());
    int log = open(LOG, O_WRONLY | O_CREAT | O_APPEND, 0644);
    said = write(log, line, length) == length && close(log) == 0;
}}
{DOUBLE}
#if POINT == 10
    y[0] += 1;
#elif POINT == 20
    *(volatile int *)8 = POINT;
#endif
"""
TUNABLE = """\
tunables:
  tile:
    point: {{values: [{}], "off": 0}}
"""
QUICK = ("measure=quick",)
ROUNDS = (
    "measure=standard",
    "measure.together=6",
    "measure.samples=3",
    "measure.min_sample_us=50",
    "measure.min_rounds=2",
    "measure.max_rounds=2",
    "measure.bound=1",
    "measure.span_s=0",
)


def counted(project: Project) -> str:
    """A kernel whose processes are counted; the word that sweeps its points."""
    values = ",".join(map(str, range(POINTS)))
    kernel = KERNEL.format(name="counted").replace(
        "function: counted", "function: counted, macros: {POINT: point}"
    )
    # Kernels run in a folder of their own.
    head = f'{HEAD}\n#define LOG "{project.folder / "processes"}"'
    project.add("counted", BODY, head=head, kernel=kernel + TUNABLE.format(values))
    return f"select.fixed.tile.point={values}"


def come_so_far(project: Project) -> int:
    """How many kernels are built, and how many of them have been started."""
    log = project.folder / "processes"
    started = {line.split()[0] for line in log.read_text().splitlines()} if log.exists() else ()
    kernels = project.build / "kernels"
    return len(started) + (len(list(kernels.iterdir())) if kernels.exists() else 0)


def processes(project: Project) -> Counter[str]:
    """Point -> how many processes have run its kernel since this was last asked."""
    log = project.folder / "processes"
    if not log.exists():
        return Counter()
    lines = set(log.read_text().splitlines())
    log.unlink()
    return Counter(line.split()[0] for line in lines)


def attempts(project: Project, *words: str) -> list[tuple[Any, ...]]:
    """Every stored attempt, without what differs from run to run."""
    return sorted(
        (
            trial["id"],
            str(trial["params"]),
            trial["status"],
            trial["stage"],
            trial["verified"],
            tuple((item["name"], item["key"]) for item in trial["artifacts"]),
        )
        for trial in project.json("results", "--history", "--limit=1000", *words).trials
    )


def killed_at(project: Project, moment: int, *words: str) -> bool:
    """Kill the command when it has come so far; whether it was still running then."""
    process = project.start(*words)
    try:
        while process.poll() is None:
            if come_so_far(project) >= moment:
                return True
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL_S)
        return False
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "under_way"), [(QUICK, 1), (ROUNDS, 6)], ids=["quick", "rounds"]
)
def test_a_sweep_killed_at_ten_moments_ends_like_one_that_was_left_alone(
    project: Project, policy: tuple[str, ...], under_way: int
) -> None:
    sweep = ("run", "-m", "workload=counted", counted(project), *policy)
    moments = sorted(Random(5).sample(range(1, 2 * POINTS - 4), KILLS))
    for moment in moments:
        assert killed_at(project, moment, *sweep), f"ended before it came to {moment}"
    finished = project.json(*sweep)
    assert Counter(t["status"] for t in finished.trials)["ok"] == POINTS - 2
    disturbed, disturbed_processes = attempts(project), processes(project)
    assert working_in(project.folder) == []
    assert list((project.build / "tmp").iterdir()) == []

    shutil.rmtree(project.folder / ".kernloom")
    project.json(*sweep)
    assert disturbed == attempts(project)
    assert len(disturbed) == POINTS
    alone = processes(project)
    assert set(disturbed_processes) == set(alone)
    most = max(alone.values())
    assert (disturbed_processes - alone).total() <= KILLS * under_way * most


@pytest.mark.slow
@pytest.mark.parametrize("size", ["1200k", "2600k", "3400k"])
def test_a_disk_that_gets_full_in_a_sweep_costs_only_what_did_not_fit(
    project: Project, size: str
) -> None:
    sweep = ("run", "-m", "workload=counted", counted(project))
    (project.folder / ".kernloom").rename(project.folder / "before")
    (project.folder / ".kernloom").mkdir()
    small = (
        f'mount -t tmpfs -o size={size} none "$0/.kernloom" && cd "$0" && '
        '{ "$@"; echo "exit code $?"; mount -o remount,size=100m "$0/.kernloom"; }'
    )
    done = project.run(*sweep, before=unshare(project, small))
    assert "Traceback" not in done.stderr
    first, _, second = done.stdout.partition("exit code ")
    assert second.startswith("1\n")
    assert "verified" not in first
    assert "No space left" in done.stderr or "full" in done.stderr
    assert f"{POINTS - 2} verified, 2 failed" in second
