"""The cache of values by number or by bytes."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

from sarit.serializers.http_schemas import ConfluentSchemas
from sarit.serializers.recent_values import RecentValues
from sarit.serializers.registry_client import RegistryClient


def test_values_that_were_used_longest_ago_are_dropped() -> None:
    cache: RecentValues[int, str] = RecentValues(1000, 256)
    for number in range(3):
        cache.put(number, f"v{number}", 100)  # each takes 256 bytes more
    assert [cache.get(number) for number in (1, 2)] == ["v1", "v2"]
    assert cache.get(0) is None
    cache.get(1)
    cache.put(3, "v3", 100)
    assert [cache.get(number) for number in (1, 2, 3)] == ["v1", None, "v3"]


def test_bytes_are_given_back() -> None:
    cache: RecentValues[int, str] = RecentValues(1000, 256)
    for _ in range(100):
        cache.put(1, "again", 700)
    cache.put(2, "too large", 800)
    assert (cache.get(1), cache.get(2)) == ("again", None)
    cache.drop(1)
    cache.drop(1)
    cache.put(3, "other", 700)
    assert (cache.get(1), cache.get(3)) == (None, "other")


def test_values_are_counted_by_default() -> None:
    cache: RecentValues[int, str] = RecentValues(2)
    cache.put(1, "a")
    cache.put(2, "b")
    cache.get(1)
    cache.put(3, "c")
    assert [cache.get(key) for key in (1, 2, 3)] == ["a", None, "c"]
    cache.put(3, "d")
    assert (cache.get(1), cache.get(3), len(cache)) == ("a", "d", 2)
    cache.clear()
    assert (cache.get(1), len(cache)) == (None, 0)


def test_threads_may_share_it() -> None:
    cache: RecentValues[int, int] = RecentValues(8)

    def work(first: int) -> None:
        for at in range(3000):
            cache.put((at + first) % 20, at)
            cache.get(at % 20)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, first) for first in range(4)]:
            done.result()
    assert len(cache) == 8


def test_pickled_cache_begins_empty_with_the_same_bound() -> None:
    held: RecentValues[int, str] = RecentValues(2)
    held.put(1, "one")
    other = pickle.loads(pickle.dumps(held))
    assert (len(held), len(other)) == (1, 0)
    for number in range(5):
        other.put(number, "x")
    assert len(other) == 2


def test_source_of_schemas_goes_to_another_process() -> None:
    """A loader for training is pickled to its workers with the reader of its payloads."""
    source = ConfluentSchemas(RegistryClient("http://127.0.0.1:1"))
    assert "127.0.0.1:1" in repr(pickle.loads(pickle.dumps(source)))
