"""A Slurm of one node, started for the tests in a folder of its own and stopped after them."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from command_line import PATIENCE_S
from parts import needs, without

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "srun", "scancel", "sinfo")
CONFIG = """\
ClusterName=local
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={controller}
SlurmdPort={node}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0
SlurmdParameters=config_overrides
ReturnToService=2
SwitchType=switch/none
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
PartitionName=spare Nodes={host} MaxTime=INFINITE State=UP OverSubscribe=NO
"""


@dataclass(frozen=True)
class Cluster:
    """A Slurm that runs jobs on this machine."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def ask(self, *words: str) -> str:
        done = subprocess.run(
            words, env=os.environ | self.environment, capture_output=True, text=True, timeout=60
        )
        return done.stdout if done.returncode == 0 else ""

    def jobs(self) -> list[str]:
        """Name and state of each task in the queue."""
        return self.ask("squeue", "--noheader", "--array", "--format=%j %T").splitlines()


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for found in sockets:
            found.bind(("127.0.0.1", 0))
        return [found.getsockname()[1] for found in sockets]


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    needs(*PROGRAMS)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    controller, node = free_ports(2)
    host = socket.gethostname()
    text = CONFIG.format(
        host=host, user=getpass.getuser(), folder=folder, controller=controller, node=node
    )
    (folder / "slurm.conf").write_text(text, encoding="utf-8")
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    made = Cluster(folder)
    munged = ["munged", "--foreground", "--force", f"--key-file={key}", "--num-threads=1"]
    for name in ("socket", "pid-file", "log-file", "seed-file"):
        munged.append(f"--{name}={folder}/munge.{name.removesuffix('-file')}")
    with ExitStack() as stack:
        stack.enter_context(daemon(made, munged))
        until(lambda: (folder / "munge.socket").exists(), "munged has no socket", folder)
        stack.enter_context(daemon(made, ["slurmctld", "-D"]))
        until(lambda: bool(made.ask("sinfo", "--noheader")), "slurmctld does not answer", folder)
        stack.enter_context(daemon(made, ["slurmd", "-D"]))
        until(lambda: "idle" in made.ask("sinfo", "--noheader"), "the node is not idle", folder)
        try:
            yield made
        finally:
            made.ask("scancel", f"--user={getpass.getuser()}", "--signal=KILL", "--full")
            made.ask("scancel", f"--user={getpass.getuser()}")
            until(lambda: not made.jobs(), "tasks do not end", folder)


@contextmanager
def daemon(cluster: Cluster, argv: list[str]) -> Iterator[None]:
    log = cluster.folder / f"{argv[0]}.out"
    with log.open("wb") as file:
        process = subprocess.Popen(
            argv,
            env=os.environ | cluster.environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(true: object, otherwise: str, folder: Path) -> None:
    """Wait for a daemon; where it cannot run, the tests that need it are skipped visibly."""
    assert callable(true)
    deadline = time.monotonic() + PATIENCE_S / 2
    while not true():
        if time.monotonic() > deadline:
            logs = [path.read_text(errors="replace")[-500:] for path in folder.glob("*.out")]
            without(f"{otherwise}: {' '.join(logs)}")
        time.sleep(0.05)
