"""Spools: sequences that keep only their newest items in memory."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from kernloom.base import spool
from kernloom.base.spool import Reordered, Spool


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "BLOCK", 4)


@pytest.mark.parametrize("in_memory", [0, 4, 8, 1000])
@pytest.mark.parametrize("length", [0, 1, 4, 5, 57])
def test_a_spool_is_the_sequence_of_what_was_appended(length: int, in_memory: int) -> None:
    items = [{"number": n} for n in range(length)]
    spooled = Spool(items, in_memory)
    assert len(spooled) == length
    assert list(spooled) == items == list(spooled)
    assert [spooled[n] for n in range(length)] == items
    assert spooled[1:3] == items[1:3] and spooled[-2:] == items[-2:]
    for place in (length, -length - 1):
        with pytest.raises(IndexError):
            spooled[place]


def test_any_order_of_reading_while_it_grows_finds_the_same() -> None:
    order = random.Random(7)
    spooled: Spool[int] = Spool(in_memory=0)
    for n in range(200):
        spooled.append(n)
        asked = order.randrange(n + 1)
        assert spooled[asked] == asked


def test_what_items_share_is_shared_again_when_they_are_read_back() -> None:
    section = {"much": list(range(100))}
    spooled = Spool([{"n": n, "section": section} for n in range(8)], in_memory=0)
    first = list(spooled)[:4]
    assert all(a["section"] is b["section"] for a, b in pairwise(first))


def test_a_full_disk_costs_memory_and_no_items(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    spooled: Spool[int] = Spool(range(20), in_memory=4)
    monkeypatch.setattr(spool.pickle, "dump", full)
    for n in range(20, 90):
        spooled.append(n)
    assert list(spooled) == list(range(90))


def test_an_order_of_its_own_is_a_view_of_the_items() -> None:
    view = Reordered(Spool(range(40), in_memory=0), [39, 0, 0, 17])
    assert (len(view), list(view), view[-1], view[:2]) == (4, [39, 0, 0, 17], 17, [39, 0])
