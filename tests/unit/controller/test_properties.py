"""Properties of a stream over the API: set, kept by an official client's update, and gone with the stream."""

from __future__ import annotations

import asyncio

import pytest

from sarit.controller import keys
from sarit.controller.calls.properties import PropertyCalls
from sarit.controller.model import codec
from sarit.core.errors import Invalid, NotFound
from sarit.rpc.generated import sarit_pb2
from tests.unit.controller.world import STREAM, World, config, run, stream_with


async def served():
    """A world with a stream, its controller, and the calls."""
    world = World()
    controller = await world.controller()
    await stream_with(controller)
    return world, controller, PropertyCalls(controller.catalog)


def ask(**fields):
    return sarit_pb2.StreamPropertiesRequest(**{"scope": "s", "stream": "t", **fields})


def change(properties, **fields):
    return sarit_pb2.ChangeStreamPropertiesRequest(**{"scope": "s", "stream": "t", **fields}, properties=properties)


def test_properties_survive_an_update_by_an_official_client_a_seal_and_another_controller():
    async def main():
        world, controller, own = await served()
        assert dict((await own.streamProperties(ask())).properties) == {}
        wanted = {"time-unit": "seconds", "example.com.team": "blue"}
        assert dict((await own.changeStreamProperties(change(wanted))).properties) == wanted
        await controller.streams.update(STREAM, config(3, ("a",)))
        assert dict((await own.streamProperties(ask())).properties) == wanted
        await controller.streams.seal(STREAM)
        reply = await own.changeStreamProperties(change({"example.com.team": ""}))
        assert dict(reply.properties) == {"time-unit": "seconds"}
        other = await world.controller()
        (stored,) = await other.catalog.get("s", [keys.properties_key("t")])
        assert codec.decode_properties(stored.value) == {"time-unit": "seconds"}
        await own.changeStreamProperties(change({"time-unit": ""}))
        assert await other.catalog.get("s", [keys.properties_key("t")]) == [None]

    run(main())


def test_new_stream_of_the_name_has_none():
    async def main():
        world, controller, own = await served()
        await own.changeStreamProperties(change({"time-unit": "seconds"}))
        await controller.streams.seal(STREAM)
        await controller.streams.delete(STREAM)
        with pytest.raises(NotFound):
            await own.streamProperties(ask())
        with pytest.raises(NotFound):
            await own.changeStreamProperties(change({"a.b": "c"}))
        assert [key for key in world.scopes()["s"] if not key.startswith(keys.NUMBERS)] == []
        await controller.streams.create(STREAM, config())
        assert dict((await own.streamProperties(ask())).properties) == {}

    run(main())


def test_wrong_or_unknown_is_refused_and_changes_nothing():
    async def main():
        world, controller, own = await served()
        for wrong in ({"time-unit": "weeks"}, {"time": "x"}, {f"a.b{n}": "x" for n in range(33)}):
            with pytest.raises(Invalid):
                await own.changeStreamProperties(change(wrong))
        for missing in ({"stream": "none"}, {"scope": "none"}):
            with pytest.raises(NotFound):
                await own.streamProperties(ask(**missing))
        assert dict((await own.streamProperties(ask())).properties) == {}

    run(main())


def test_changes_at_the_same_time_are_all_there():
    async def main():
        world, controller, own = await served()
        await asyncio.gather(*(own.changeStreamProperties(change({f"a.b{n}": "x"})) for n in range(8)))
        assert len((await own.streamProperties(ask())).properties) == 8

    run(main())
