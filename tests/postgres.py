"""A PostgreSQL server of the tests' own: made, started and stopped by them."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parts import without

PASSWORD = "s3cret/w@rd"
QUOTED = "s3cret%2Fw%40rd"
_DEBIAN = Path("/usr/lib/postgresql")
_WATCHER = """
import json, shutil, subprocess, sys
stop, folder = json.loads(sys.argv[1]), sys.argv[2]
sys.stdin.read()
subprocess.run(stop, cwd="/", stdin=subprocess.DEVNULL, capture_output=True)
shutil.rmtree(folder, ignore_errors=True)
"""
"""Waits for the end of whoever holds the other end of its input, then stops the server. One that is
still starting then ends by itself, for want of its folder."""


class Server:
    """A running server; `url` is that of a database of it."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self._programs = programs
        self._data = folder / "data"
        self.port = _free_port()
        stop = self._argv("pg_ctl", "-D", str(self._data), "-w", "-m", "immediate", "stop")
        self.watcher = subprocess.Popen(
            [sys.executable, "-c", _WATCHER, json.dumps(stop), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        secret = folder / "password"
        secret.write_text(PASSWORD)
        access = ["--auth-host=scram-sha-256", "--auth-local=trust", f"--pwfile={secret}"]
        common = ["--username=loom", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        if os.getuid() == 0:
            for path in (folder, secret):
                shutil.chown(path, "postgres")
        self._run("initdb", "-D", str(self._data), *access, *common)
        options = f"-c listen_addresses=127.0.0.1 -p {self.port} -k {folder} -c fsync=off"
        log = str(folder / "log")
        self._run("pg_ctl", "-D", str(self._data), "-w", "-l", log, "-o", options, "start")
        self.execute("CREATE DATABASE trials", database="postgres")

    def url(self, *, password: str = QUOTED, database: str = "trials", query: str = "") -> str:
        user = f"loom:{password}" if password else "loom"
        return f"postgresql+psycopg://{user}@127.0.0.1:{self.port}/{database}{query}"

    def stop(self) -> None:
        """What the watcher does as well when nobody is left to ask for it."""
        self.watcher.communicate(timeout=120)

    def execute(self, statement: str, database: str = "trials") -> list[tuple[object, ...]]:
        import psycopg

        place = f"host={self.folder} port={self.port} user=loom dbname={database}"
        with psycopg.connect(place, autocommit=True) as connection:
            found = connection.execute(statement.encode())
            return found.fetchall() if found.description else []

    def _argv(self, program: str, *arguments: str) -> list[str]:
        # PostgreSQL refuses to be run by root.
        before = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        return [*before, str(self._programs / program), *arguments]

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            self._argv(program, *arguments),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program != "pg_ctl" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            timeout=120,
        )
        assert done.returncode == 0, (program, done.stdout)


@contextmanager
def postgres() -> Iterator[Server]:
    programs = _programs()
    # Not below pytest's folder, which only its owner may enter.
    folder = Path(tempfile.mkdtemp(prefix="kernloom-pg-"))
    server = Server(folder, programs)
    try:
        yield server
    finally:
        server.stop()


def _programs() -> Path:
    """Where initdb and pg_ctl are; Debian keeps them off the PATH."""
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    versions = sorted(_DEBIAN.glob("*/bin/initdb"))
    if not versions:
        without("no PostgreSQL (initdb)")
    return versions[-1].parent


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
