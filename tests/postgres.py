"""A PostgreSQL server of the tests' own: made, started and stopped by them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parts import without

PASSWORD = "s3cret/w@rd"
QUOTED = "s3cret%2Fw%40rd"
_DEBIAN = Path("/usr/lib/postgresql")


class Server:
    """A running server; `url` is that of a database of it."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self._folder = folder
        self._programs = programs
        self._data = folder / "data"
        self.port = _free_port()
        secret = folder / "password"
        secret.write_text(PASSWORD)
        options = ["--auth-host=scram-sha-256", "--auth-local=trust", f"--pwfile={secret}"]
        common = ["--username=loom", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        if os.getuid() == 0:
            for path in (folder, secret):
                shutil.chown(path, "postgres")
        self._run("initdb", "-D", str(self._data), *options, *common)
        self.start()
        self.execute("CREATE DATABASE trials", database="postgres")

    def url(self, *, password: str = QUOTED, database: str = "trials", query: str = "") -> str:
        user = f"loom:{password}" if password else "loom"
        return f"postgresql+psycopg://{user}@127.0.0.1:{self.port}/{database}{query}"

    def start(self) -> None:
        options = f"-c listen_addresses=127.0.0.1 -p {self.port} -k {self._folder} -c fsync=off"
        log = str(self._folder / "log")
        self._run("pg_ctl", "-D", str(self._data), "-w", "-l", log, "-o", options, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", str(self._data), "-w", "-m", "immediate", "stop")

    def execute(self, statement: str, database: str = "trials") -> list[tuple[object, ...]]:
        import psycopg

        place = f"host={self._folder} port={self.port} user=loom dbname={database}"
        with psycopg.connect(place, autocommit=True) as connection:
            found = connection.execute(statement.encode())
            return found.fetchall() if found.description else []

    def _run(self, program: str, *arguments: str) -> None:
        # PostgreSQL refuses to be run by root.
        before = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
        done = subprocess.run(
            [*before, str(self._programs / program), *arguments],
            cwd=self._folder,
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
    with tempfile.TemporaryDirectory(prefix="kernloom-pg-") as folder:
        server = Server(Path(folder), programs)
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
