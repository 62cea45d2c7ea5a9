"""Shared data structures of the blocking client, on a node."""

from __future__ import annotations

import threading

import pytest

import sarit
from tests.nodes import RunningNode


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with RunningNode(tmp_path_factory.mktemp("structures") / "node") as running:
        yield running


@pytest.fixture
def client(node):
    with sarit.connect(node.controller) as made:
        made.create_scope("s")
        yield made


def test_threads_add_to_one_counter(client, node) -> None:
    returned: list[int] = []

    def add() -> None:
        with sarit.connect(node.controller) as own:
            visits = own.structures.counter("s/visits")
            returned.extend([visits.add() for _ in range(20)])

    threads = [threading.Thread(target=add) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    visits = client.structures.counter("s/visits")
    assert sorted(returned) == list(range(1, 61))
    assert (visits.name, visits.value()) == (sarit.StreamName("s", "visits"), 60)
    values = visits.watch()
    assert next(values) == 60
    visits.add(2)
    assert next(values) == 62
    with pytest.raises(sarit.Invalid, match="amount='2'"):
        visits.add("2")


def test_map_and_set_of_the_blocking_client(client) -> None:
    prices = client.structures.map("s/prices")
    version = prices.put("bread", b"3")
    with pytest.raises(sarit.Conflict):
        prices.put("bread", b"4", version=0)
    assert prices.get("bread") == sarit.MapEntry("bread", b"3", version)
    prices.put_many({"cake": b"5"})
    assert [entry.key for entry in prices.items()] == ["bread", "cake"]
    changes = prices.watch()
    assert [next(changes).key for _ in range(2)] == ["bread", "cake"]
    assert prices.remove("cake")
    assert next(changes) == sarit.MapChange("cake", None)
    assert prices.size(fresh=False) == 1
    seen = client.structures.set("s/seen")
    assert seen.add_many(item for item in (b"a", b"b")) == 2
    assert not seen.add(b"a")
    assert seen.contains(b"a")
    assert seen.discard(b"a")
    assert (seen.items(), seen.size()) == ([b"b"], 1)
    assert next(seen.watch()) == sarit.SetChange(b"b", True)


def test_list_and_queue_of_the_blocking_client(client) -> None:
    log = client.structures.list("s/log")
    assert (log.append(b"a"), log.extend(item for item in (b"b", b"c"))) == (0, 1)
    assert (log.get(2), log.length(), log.bounds()) == (b"c", 3, (0, 3))
    assert [item.value for item in log.items(1)] == [b"b", b"c"]
    assert next(log.watch(1)) == sarit.ListItem(1, b"b")
    log.remove_before(2)
    with pytest.raises(sarit.Truncated):
        log.get(0)
    work = client.structures.queue("s/work", lease_seconds=60)
    work.put_many([b"x", b"y"], priority=1)
    work.put(b"now")
    first = work.take(timeout=5)
    assert (first.value, work.peek().value, work.size(), work.lease_seconds) == (b"now", b"x", 3, 60)
    work.renew(first)
    work.give_back(first)
    work.done(work.take())
    assert [work.take(timeout=0).value for _ in range(2)] == [b"x", b"y"]
    assert work.take(timeout=0.01) is None
