"""Damaged bytes on the wire: an answer that no client repeats, on that request alone."""

from dataclasses import replace

import pytest

from sarit.client.core.replies import error_of
from sarit.core.errors import Corrupt, Forbidden, Invalid, Unavailable
from sarit.wire import commands as wire
from sarit.wire.damage import damage_in
from tests.unit.store.harness import SMALL, World, Writer
from tests.unit.store.server.test_connection import ATTRIBUTE, WRITER, run, serving

SEGMENT = "s/t/0.#epoch.0"
OTHER = "s/u/0.#epoch.0"
BY_HAND = replace(
    SMALL, containers=1, cache_bytes=0, chunk_cache_bytes=1, flush=replace(SMALL.flush, inline_below_bytes=1)
)


async def damaged(world, server):
    """Two segments, each with a chunk; that of SEGMENT is gone."""
    (opened,) = server.store.opened()
    for name in (OTHER, SEGMENT):
        await opened.container.create(name)
        writer = Writer(server.store, name)
        await writer.set_up()
        writer.append(b"x" * 100, 1)
        await writer.wait_for_replies()
        writer.session.close()
        await opened.flusher.checkpoint()
    for chunk in [chunk for chunk in world.storage.chunks if "-s2-" in chunk]:
        del world.storage.chunks[chunk]
    assert len(world.storage.chunks) == 1


@pytest.mark.parametrize(("version", "kind"), [(15, wire.ErrorMessage), (17, wire.AuthTokenCheckFailed)])
def test_read_of_damaged_bytes_is_answered_and_the_connection_goes_on(version, kind, caplog):
    async def main():
        world = World(limits=BY_HAND)
        async with serving(world) as server:
            await damaged(world, server)
            c = await server.client(version=version)
            for request in range(1, 6):
                reply = await c.ask(wire.ReadSegment(SEGMENT, 20, 100, "", request))
                assert type(reply) is kind
                assert reply.request_id == request
                assert reply.error_code == (0 if version == 17 else -1)  # the Rust client panics on others
                error = error_of(reply, SEGMENT)
                assert isinstance(error, Corrupt)
                assert str(error).startswith(f"segment {SEGMENT} cannot be read at offset 20: chunk c0000/")
                assert str(error).endswith("run `sarit verify` on the node's data directory")
            assert (await c.ask(wire.ReadSegment(OTHER, 20, 100, "", 7))).data == b"x" * 80
        assert len([line for line in caplog.messages if SEGMENT in line]) == 1, "one line for the chunk"

    run(main())


def test_damage_met_by_other_requests_is_answered(monkeypatch):
    async def main():
        async with serving() as server:
            c = await server.client()
            await server.create(SEGMENT)
            container = server.store.container(SEGMENT)

            async def broken(*_):
                raise Corrupt("the record of attribute 61 is damaged")

            monkeypatch.setattr(container, "get_attribute", broken)
            reply = await c.ask(wire.GetSegmentAttribute(2, SEGMENT, ATTRIBUTE, ""))
            assert damage_in(reply) == "the record of attribute 61 is damaged"
            assert (await c.ask(wire.GetStreamSegmentInfo(3, SEGMENT, ""))).exists

    run(main())


@pytest.mark.parametrize("version", [15, 17])
def test_damage_met_by_a_set_up_ends_it(version, monkeypatch):
    async def main():
        async with serving() as server:
            c = await server.client(version=version)
            await server.create(SEGMENT)
            container = server.store.container(SEGMENT)

            async def broken(*_):
                raise Corrupt("the record of attribute 77 is damaged")

            monkeypatch.setattr(container, "set_up_writer", broken)
            c.send(wire.SetupAppend(2, WRITER, SEGMENT, ""))
            if version == 15:  # any reply makes the Rust client repeat the set-up without a pause
                await c.closed()
            else:
                reply = await c.reply()
                assert reply.request_id == 2
                assert damage_in(reply) == "the record of attribute 77 is damaged"
                assert (await c.ask(wire.GetStreamSegmentInfo(3, SEGMENT, ""))).exists

    run(main())


def test_other_replies_of_the_same_kinds_are_no_damage():
    assert type(error_of(wire.ErrorMessage(1, SEGMENT, "offset 9 is after the end", 0), SEGMENT)) is Invalid
    assert type(error_of(wire.AuthTokenCheckFailed(1, "", 0), SEGMENT)) is Forbidden
    assert type(error_of(wire.AuthTokenCheckFailed(1, "", 1), SEGMENT)) is Unavailable
    assert damage_in(wire.SegmentIsSealed(1, SEGMENT, "damaged: no", 1)) is None
