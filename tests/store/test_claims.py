"""A claim is one engine's alone, until it lets go or is gone."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from kernloom.store import open_store

HOLDER = """
import sys
from pathlib import Path
from kernloom.store import open_store
place = sys.argv[1]
claims = open_store(place if "://" in place else Path(place)).claims()
print(claims.take("a"), flush=True)
sys.stdin.read()
"""


def test_a_claim_is_one_engines_alone(place: Path | str) -> None:
    with open_store(place) as first, open_store(place) as second:
        with closing(first.claims()) as mine, closing(second.claims()) as others:
            assert mine.take("a")
            assert not others.take("a")
            assert others.take("b")
            mine.release("a")
            assert others.take("a")
            assert not mine.take("a")
        with closing(first.claims()) as mine:
            assert mine.take("a") and mine.take("b")


def test_whoever_waits_gets_the_claim(place: Path | str) -> None:
    with (
        open_store(place) as first,
        open_store(place) as second,
        closing(first.claims()) as mine,
        closing(second.claims()) as others,
    ):
        assert mine.take("a")
        waiting = threading.Thread(target=others.wait, args=("a",))
        waiting.start()
        mine.release("a")
        waiting.join(60)
        assert not waiting.is_alive()
        assert not mine.take("a")


def test_the_claims_of_a_killed_engine_are_free(
    place: Path | str, environment: dict[str, str]
) -> None:
    with open_store(place) as store, closing(store.claims()) as claims:
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        with holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"True\n"
            assert not claims.take("a")
            holder.kill()
        claims.wait("a")


def test_where_nothing_can_be_locked_everything_can_be_claimed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with closing(open_store(tmp_path / "file" / "store.db").claims()) as claims:
        assert claims.take("a")
        claims.release("a")


@pytest.mark.parametrize("others_write", [True, False])
def test_a_store_tells_whether_others_have_written(
    path: Path, make_trial, others_write: bool
) -> None:
    with open_store(path) as store, open_store(path) as other:
        store.add(make_trial("a"))
        before = store.state()
        (other if others_write else store).add(make_trial("b"))
        assert (store.state() == before) is not others_write
