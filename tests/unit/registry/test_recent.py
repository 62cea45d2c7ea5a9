"""The cache of values by bytes."""

from __future__ import annotations

from sarit.registry.recent import Recent


def test_values_that_were_used_longest_ago_are_dropped() -> None:
    cache: Recent[int, str] = Recent(1000)
    for number in range(3):
        cache.put(number, f"v{number}", 100)  # each takes 256 bytes more
    assert [cache.get(number) for number in (1, 2)] == ["v1", "v2"]
    assert cache.get(0) is None
    cache.get(1)
    cache.put(3, "v3", 100)
    assert [cache.get(number) for number in (1, 2, 3)] == ["v1", None, "v3"]


def test_bytes_are_given_back() -> None:
    cache: Recent[int, str] = Recent(1000)
    for _ in range(100):
        cache.put(1, "again", 700)
    cache.put(2, "too large", 800)
    assert (cache.get(1), cache.get(2)) == ("again", None)
    cache.drop(1)
    cache.drop(1)
    cache.put(3, "other", 700)
    assert (cache.get(1), cache.get(3)) == (None, "other")
