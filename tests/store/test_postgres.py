"""A server that cannot be used is named with what to do, and its password with nothing at all."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from kernloom.base.errors import (
    ConfigError,
    KernloomError,
    StoreError,
    UnavailableError,
    without_password,
)
from kernloom.store import open_store
from postgres import PASSWORD, QUOTED

SECRETS = (PASSWORD, QUOTED, "s3cret", "hunter2", "ter2")


def trouble(url: str) -> KernloomError:
    with open_store(url) as store, pytest.raises(KernloomError) as caught:
        store.query()
    assert not any(secret in str(caught.value) for secret in SECRETS)
    return caught.value


def test_a_server_that_is_down_is_not_available(server):
    error = trouble("postgresql+psycopg://loom:hunter2@127.0.0.1:1/trials")
    assert isinstance(error, UnavailableError)
    assert "loom:***@127.0.0.1:1/trials cannot be reached" in str(error)


def test_a_wrong_password_is_a_wrong_url(server):
    error = trouble(server.url(password="hunter2"))
    assert isinstance(error, ConfigError)
    assert "store.url" in str(error) and ".pgpass" in str(error)


def test_a_database_that_is_not_there_is_named_with_how_to_make_it(server):
    error = trouble(server.url(database="elsewhere"))
    assert isinstance(error, ConfigError)
    assert f"createdb -h 127.0.0.1 -p {server.port} -U loom elsewhere" in str(error)


def test_a_user_that_is_not_there_is_a_wrong_url(server):
    error = trouble(f"postgresql://nobody@/trials?host={server.folder}&port={server.port}")
    assert isinstance(error, ConfigError)
    assert 'role "nobody" does not exist' in error.message
    assert "Check the user" in error.hint


def test_a_schema_that_is_not_there_is_named_with_how_to_make_it(server, make_trial):
    place = server.url(query="?options=-csearch_path%3Dmine")
    error = trouble(place)
    assert isinstance(error, ConfigError)
    assert "there is no schema mine" in error.message
    assert error.hint == "Make it once: CREATE SCHEMA mine"
    with open_store(place) as store, pytest.raises(ConfigError, match="CREATE SCHEMA mine"):
        store.add(make_trial())


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://u:hunter2@h/db", "not the URL of a store"),
        ("postgresql://u:hunter2@h", "names no database"),
        ("postgresql://u:hunter2@h:port/db", "is not a URL"),
        ("sqlite:///file.db", "store.path=FILE"),
        ("hunter2", "not the URL of a store"),
        ("127.0.0.1:5977/kernloom", "'127.0.0.1:5977/kernloom' is not the URL of a store"),
        ("db.example.org/kernloom", "store.url=postgresql+psycopg://USER@HOST/DATABASE"),
        ("me@db.example.org/kernloom", "'me@db.example.org/kernloom' is not"),
        ("me:hunter2@h:5977/kernloom", "'me:***@h:5977/kernloom' is not"),
        ("me:hun@ter2@h/kernloom", "'me:***@h/kernloom' is not"),
        ("me:hunter2", "not the URL of a store"),
        ("h/db?password=hunter2", "not the URL of a store"),
        ("mysql://u:hun ter2@h/db", "not the URL of a store"),
        ("postgresql://h?sslpassword=hunter2", "names no database"),
    ],
)
def test_what_is_no_url_of_a_server_is_refused(url, said):
    assert said in str(trouble(url))


def test_a_reader_reads_and_is_told_that_it_cannot_write(server, make_trial):
    server.execute("CREATE SCHEMA guarded")
    place = server.url(query="?options=-csearch_path%3Dguarded")
    with open_store(place) as store:
        store.add(make_trial())
    server.execute("CREATE ROLE reader LOGIN PASSWORD 'hunter2'")
    server.execute("GRANT USAGE ON SCHEMA guarded TO reader")
    server.execute("GRANT SELECT ON ALL TABLES IN SCHEMA guarded TO reader")
    with open_store(place.replace(f"loom:{QUOTED}", "reader:hunter2")) as store:
        assert len(store.query()) == 1
        with pytest.raises(StoreError, match="cannot be changed") as caught:
            store.add(make_trial("b2"))
    assert "hunter2" not in str(caught.value)


def test_tables_of_something_else_are_not_touched(server, make_trial):
    server.execute("CREATE SCHEMA theirs")
    server.execute("CREATE TABLE theirs.trials (court text)")
    place = server.url(query="?options=-csearch_path%3Dtheirs")
    with open_store(place) as store, pytest.raises(StoreError, match="other people's tables"):
        store.add(make_trial())


def test_a_newer_store_is_refused(server, make_trial):
    server.execute("CREATE SCHEMA newer")
    place = server.url(query="?options=-csearch_path%3Dnewer")
    with open_store(place) as store:
        store.add(make_trial())
    server.execute("UPDATE newer.meta SET value = '99' WHERE key = 'schema_version'")
    with open_store(place) as store, pytest.raises(StoreError, match="newer than"):
        store.query()


def test_a_server_that_is_restarted_in_between_loses_nothing(server, make_trial):
    server.execute("CREATE SCHEMA restarted")
    place = server.url(query="?options=-csearch_path%3Drestarted")
    with open_store(place) as store:
        store.add(make_trial("before"))
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        )
        store.add(make_trial("after"))
    with open_store(place) as store:
        assert {trial.id for trial in store.query()} == {"before", "after"}


@pytest.fixture
def counted(server):
    """A store on the server, and the number of its connections."""
    server.execute("CREATE SCHEMA IF NOT EXISTS counted")
    url = server.url(query="?application_name=counted&options=-csearch_path%3Dcounted")
    ask = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'counted'"
    return url, lambda: server.execute(ask)[0][0]


def test_a_store_keeps_one_connection(counted, make_trial):
    place, connections = counted
    with open_store(place) as store:
        for number in range(3):
            store.add(make_trial(f"t{number}"))
        waiting = store.stream({"mr": "6"})
        next(waiting)
        assert len(store.query(sort="median_ns")) == 3 and store.distinct("mr") == [6]
        assert len(list(waiting)) == 2
        assert connections() == 1


def test_queries_go_on_after_a_restart(counted, server, make_trial):
    place, _ = counted
    with open_store(place) as store:
        store.add(make_trial("before"))
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        )
        assert "before" in {trial.id for trial in store.query()}


def test_a_fork_connects_anew(counted, make_trial):
    place, _ = counted
    with open_store(place) as store:
        store.add(make_trial("parent"))
        child = os.fork()
        if child == 0:
            store.add(make_trial("child"))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        store.add(make_trial("again"))
        assert {"parent", "child", "again"} <= store.latest(["parent", "child", "again"]).keys()


def test_the_password_is_not_stored(server, make_trial):
    server.execute("CREATE SCHEMA quiet")
    place = server.url(query="?options=-csearch_path%3Dquiet")
    words = ("workload=axpy", f"store.url={place}")
    with open_store(place) as store:
        store.add(make_trial(config={"store": {"name": "postgres", "url": place}}, overrides=words))
        (trial,) = store.query()
        rows = server.execute("SELECT t::text FROM quiet.trials t")
    assert trial.config["store"]["url"] == place.replace(QUOTED, "***")
    assert not any(secret in str(rows) for secret in SECRETS)


def test_what_comes_after_a_hidden_password_is_still_said():
    said = "postgresql://u:***@h:5/db?sslpassword=*** cannot be reached: mail root@h"
    assert without_password(said) == said


def test_a_password_with_a_space_is_not_stored(path, make_trial):
    url = "postgresql://me:SEC RET@h/db?sslpassword=SEC RET&x=1"
    chosen = {"store": {"name": "postgres", "url": url}}
    with open_store(path) as store:
        store.add(make_trial(config=chosen, overrides=(f"store.url={url}",)))
        (trial,) = store.query()
    hidden = "postgresql://me:***@h/db?sslpassword=***&x=1"
    assert trial.config["store"]["url"] == hidden
    assert trial.overrides == (f"store.url={hidden}",)
    assert b"RET" not in path.read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u:hunter2@host/db",
        "see postgresql+psycopg://u:hunter2/@:x@host:5/db?x=1 there",
        "postgresql://host/db?user=u&password=hunter2&x=1",
        "postgresql://u:my hunter2 @host/db",
        "'postgresql://u@domain:my hunter2@host/db' cannot be reached",
        "postgresql://host/db?sslpassword=hunter2&sslmode=require",
        "store.url=postgresql://host/db?sslpassword=my hunter2&PASSWD=hunter2",
    ],
)
def test_a_password_never_gets_into_an_error(text):
    for error in (StoreError(text), StoreError("", hint=text), ConfigError(text, key="store.url")):
        assert "hunter2" not in str(error)
        assert "***" in str(error)
    assert "host" in without_password(text)


def test_a_missing_driver_is_named_with_how_to_install_it(environment, tmp_path: Path):
    (tmp_path / "psycopg.py").write_text("raise ModuleNotFoundError('No module named psycopg')")
    code = (
        "from kernloom.store import open_store; from kernloom.base.errors import UnavailableError\n"
        "try: open_store('postgresql://u:hunter2@h/db').query()\n"
        "except UnavailableError as error: print(error)"
    )
    path = f"{tmp_path}:{environment['PYTHONPATH']}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert "pip install 'psycopg[binary]'" in done.stdout, done.stderr
    assert "hunter2" not in json.dumps([done.stdout, done.stderr])


SERVER = """
import os, signal
from postgres import postgres

with postgres() as server:
    print(server.watcher.pid, server.port, server.folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_server_ends_with_the_tests_even_if_they_are_killed(server, environment):
    path = f"{Path(__file__).parents[1]}:{environment['PYTHONPATH']}"
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        env=environment | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    ) as tests:
        watcher, port, folder = tests.stdout.readline().split()
        with suppress(ProcessLookupError):
            ended = select.poll()
            ended.register(os.pidfd_open(int(watcher)), select.POLLIN)
            assert ended.poll(120_000)
    assert tests.returncode == -signal.SIGKILL
    assert not Path(folder).exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port))).close()
