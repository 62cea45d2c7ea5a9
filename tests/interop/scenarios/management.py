"""Scopes, streams, tags, listings, sealing and deleting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pravega_client as pravega

from tests.interop.scenarios.tools import raises, read

if TYPE_CHECKING:
    from tests.interop.scenarios.tools import Place

MANY_STREAMS = 130


def scopes(place: Place) -> None:
    m = place.manager()
    name = place.scope + "-scopes"
    assert m.create_scope(name)
    assert not m.create_scope(name)
    assert {name, place.scope} <= set(m.list_scope())
    m.create_stream(name, "holds", 1)
    assert raises(m.delete_scope, name), "a scope with a stream in it was deleted"
    assert m.seal_stream(name, "holds")
    assert m.delete_stream(name, "holds")
    assert m.delete_scope(name)
    assert name not in m.list_scope()
    assert m.create_scope(name), "a deleted scope's name is free again"
    assert m.delete_scope(name)


def streams(place: Place) -> None:
    m = place.manager()
    assert m.create_stream(place.scope, "plain", 3)
    assert not m.create_stream(place.scope, "plain", 3)
    assert raises(m.create_stream, place.scope + "-nowhere", "plain", 1), "a stream in no scope"
    fixed = pravega.StreamScalingPolicy.fixed_scaling_policy(2)
    by_rate = pravega.StreamScalingPolicy.auto_scaling_policy_by_event_rate(1000, 2, 1)
    by_bytes = pravega.StreamScalingPolicy.auto_scaling_policy_by_data_rate(1000, 2, 1)
    by_size = pravega.StreamRetentionPolicy.by_size(1 << 30)
    by_time = pravega.StreamRetentionPolicy.by_time(3_600_000)
    assert m.create_stream_with_policy(place.scope, "fixed", fixed, by_size, None)
    assert m.create_stream_with_policy(place.scope, "by-rate", by_rate, by_time, None)
    assert m.create_stream_with_policy(place.scope, "by-bytes", by_bytes, pravega.StreamRetentionPolicy.none(), None)
    assert {"plain", "fixed", "by-rate", "by-bytes"} <= set(m.list_stream(place.scope))


def tags(place: Place) -> None:
    m = place.manager()
    fixed = pravega.StreamScalingPolicy.fixed_scaling_policy(2)
    none = pravega.StreamRetentionPolicy.none()
    assert m.create_stream_with_policy(place.scope, "tagged", fixed, none, ["b", "a"])
    assert m.get_stream_tags(place.scope, "tagged") == ["b", "a"]
    assert m.update_stream_with_policy(place.scope, "tagged", fixed, none, ["c"])
    assert m.get_stream_tags(place.scope, "tagged") == ["c"]
    m.create_stream(place.scope, "untagged", 1)
    assert not m.get_stream_tags(place.scope, "untagged")


def listing(place: Place) -> None:
    """More streams than a page of the controller holds.  The system's own (`_MARK…`) are listed by Pravega too."""
    m = place.manager()
    scope = place.scope + "-listing"
    assert m.create_scope(scope)
    assert m.list_stream(scope) == []
    for n in range(MANY_STREAMS):
        assert m.create_stream(scope, f"s{n}", 1)
    listed = [name for name in m.list_stream(scope) if not name.startswith("_")]
    assert len(listed) == MANY_STREAMS, len(listed)
    assert set(listed) == {f"s{n}" for n in range(MANY_STREAMS)}


def sealing(place: Place) -> None:
    m = place.manager()
    place.stream(m, "sealed", 2)
    writer = m.create_writer(place.scope, "sealed")
    for n in range(200):
        writer.write_event(f"{n}", str(n))
    writer.flush()
    assert m.seal_stream(place.scope, "sealed")
    got = read(place, m, "sealed", 200, "sealed-group")
    assert sorted(map(int, got)) == list(range(200)), len(got)


def deleting(place: Place) -> None:
    """A stream is deleted when it is sealed, and nothing of it comes back under its name."""
    m = place.manager()
    for generation in range(3):
        place.stream(m, "reborn", generation + 1)
        writer = m.create_writer(place.scope, "reborn")
        for n in range(20):
            writer.write_event(f"{generation}:{n}", str(n))
        writer.flush()
        got = read(place, m, "reborn", 20, f"reborn-{generation}")
        assert {event.partition(b":")[0] for event in got} == {b"%d" % generation}, got
        if generation == 0:
            assert raises(m.delete_stream, place.scope, "reborn"), "a stream that is not sealed was deleted"
        assert m.seal_stream(place.scope, "reborn")
        assert m.delete_stream(place.scope, "reborn")
        assert "reborn" not in m.list_stream(place.scope)
