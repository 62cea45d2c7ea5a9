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
