"""A store that lost its containers and does not know it answers nothing that was true once."""

import asyncio
from dataclasses import replace

import pytest

from sarit.core.errors import Conflict, Moved, Unavailable
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.store.container.operations import FRAME_HEADER
from sarit.store.hosting.health import HealthState
from sarit.store.server.batches import append_many, infos, read_many
from sarit.wire import commands as wire
from tests.unit.store.harness import SMALL, World, Writer
from tests.unit.store.placements import RecordedPlacement
from tests.unit.store.server.test_connection import WRITER
from tests.unit.store.test_hand_over import NAME, NUMBER, peers, run, until


async def fenced_owner(a, b):
    """`a` is fenced, does not know it, and its lease ended; `b` has changed what `a` knows."""
    await a.own(1)
    await a.store.container(NAME).create(NAME)
    client = await a.client()
    (opened,) = a.store.opened()
    # A checkpoint later on would find out.
    await until(lambda: opened.flusher.checkpoint_frame == opened.container.state.applied_frame)
    await b.own(2)
    await b.store.container(NAME).update_attribute(NAME, b"k" * 16, 5, NULL_ATTRIBUTE_VALUE)
    a.placement.runs = False
    return client


ANSWERS = [
    wire.GetSegmentAttribute(5, NAME, b"k" * 16, ""),
    wire.TruncateSegment(5, NAME, 7, ""),
    wire.UpdateSegmentAttribute(5, NAME, b"k" * 16, 7, 6, ""),
    wire.GetStreamSegmentInfo(5, NAME, ""),
    wire.SetupAppend(5, WRITER, NAME, ""),
    wire.SetupAppend(5, WRITER, NAME.replace("#epoch.0", "#epoch.1"), ""),
    wire.ReadSegment(NAME.replace("#epoch.0", "#epoch.1"), 0, 10, "", 5),
]


@pytest.mark.parametrize("command", ANSWERS, ids=lambda command: type(command).__name__)
def test_fenced_owner_without_a_lease_answers_nothing(command):
    async def main():
        async with peers(lease_0=RecordedPlacement(), lease_1=RecordedPlacement()) as (a, b):
            client = await fenced_owner(a, b)
            client.send(command)
            with pytest.raises(ConnectionError):
                await client.reply()
            await a.reaches(HealthState.ABSENT)

    run(main())


@pytest.mark.parametrize("command", ANSWERS[:5], ids=lambda command: type(command).__name__)
def test_owner_without_a_lease_answers_after_a_proof(command):
    async def main():
        async with peers(1, lease_0=RecordedPlacement(valid=False)) as (a,):
            await a.own()
            await a.store.container(NAME).create(NAME)
            frames = frames_of(a)
            client = await a.client()
            assert (await client.ask(command)).request_id == 5
            assert frames, "a frame proves it"

    run(main())


def test_fenced_owner_answers_no_batch():
    async def main():
        async with peers(lease_0=RecordedPlacement(), lease_1=RecordedPlacement()) as (a, b):
            await fenced_owner(a, b)
            (append,) = await append_many(a.store, [(NAME, 7, b"x")])
            assert isinstance(append, Unavailable)

        async with peers(lease_0=RecordedPlacement(), lease_1=RecordedPlacement()) as (a, b):
            await fenced_owner(a, b)
            (read,) = await read_many(a.store, [(NAME, 0, 5)])
            assert isinstance(read, Unavailable | Moved)

        async with peers(lease_0=RecordedPlacement(), lease_1=RecordedPlacement()) as (a, b):
            await fenced_owner(a, b)
            with pytest.raises((Unavailable, Moved)):
                await infos(a.store, [NAME])

    run(main())


def frames_of(peer):
    container = peer.store.serving()[0]
    frames, append = [], container.log.append

    def count(number, parts, done):
        frames.append(FRAME_HEADER.unpack(parts[0])[2])
        append(number, parts, done)

    container.log.append = count
    return frames


def test_owner_with_a_lease_answers_without_a_frame():
    async def main():
        async with peers(1, lease_0=RecordedPlacement()) as (a,):
            await a.own()
            await a.store.container(NAME).create(NAME)
            frames, client = frames_of(a), await a.client()
            for command in ANSWERS[:5]:
                await client.ask(command)
            assert not frames

    run(main())


def test_questions_share_proofs_of_which_one_is_in_flight():
    async def main():
        world = World()
        async with peers(1, world=world, lease_0=RecordedPlacement(valid=False)) as (a,):
            await a.own()
            container = a.store.container(NAME)
            await container.create(NAME)
            frames = frames_of(a)
            world.logs.hold_appends = True
            asked = []
            for _ in range(20):
                asked.append(asyncio.ensure_future(container.confirm()))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            assert frames == [0]
            assert not any(question.done() for question in asked)
            world.logs.hold_appends = False
            await asyncio.gather(*asked)
            assert frames == [0, 0], "one for the first question, one for all the others"

    run(main())


def test_proof_that_was_sent_before_the_question_does_not_count():
    async def main():
        async with peers(lease_0=RecordedPlacement(valid=False)) as (a, b):
            await a.own(1)
            container = a.store.container(NAME)
            log, reports = container.log.append, []
            # The first frame is durable, and its report is late.
            container.log.append = lambda number, parts, done: log(number, parts, reports.append)
            first = asyncio.ensure_future(container.confirm())
            await until(lambda: reports)
            await b.own(2)
            second = asyncio.ensure_future(container.confirm())
            await asyncio.sleep(0)
            container.log.append = log
            container.group_commit._durable(reports.pop())
            await first
            with pytest.raises(Unavailable):
                await second

    run(main())


def test_refused_append_of_a_fenced_owner_is_not_answered():
    async def main():
        async with peers(lease_0=RecordedPlacement(valid=False), lease_1=RecordedPlacement()) as (a, b):
            await a.own(1)
            await a.store.container(NAME).create(NAME)
            writer = Writer(a.store, NAME)
            await writer.set_up()
            await b.own(2)
            # Conditional on a length that the new owner has by now, and this one does not.
            writer.append(b"x", 1, expected_offset=100)
            await until(lambda: writer.replies.errors)
            assert not isinstance(writer.replies.errors[0], Conflict)

    run(main())


def test_frames_without_a_change_are_truncated_in_time(monkeypatch):
    monkeypatch.setattr("sarit.store.tiering.flusher.MAX_UNCHANGED_FRAMES", 10)

    async def main():
        world = World()
        async with peers(1, world=world, lease_0=RecordedPlacement(valid=False)) as (a,):
            await a.own()
            opened = a.store.opened()[0]
            before = opened.flusher.checkpoint_frame
            for _ in range(30):
                await opened.container.confirm()
            await until(lambda: opened.flusher.checkpoint_frame >= before + 10)
            assert len(world.logs.stored[NUMBER].frames) <= 21
            # They are replayed as any other.
            opened.container.fail(Unavailable("made to fail"))
            await until(lambda: a.store.opened() and a.store.opened()[0] is not opened)

    run(main())


def test_fenced_owner_without_a_lease_writes_no_chunk():
    """It leaked for ever when the next owner had swept the epochs before (simulation seed 843218, 3 stores)."""

    async def main():
        limits = replace(SMALL, flush=replace(SMALL.flush, interval_seconds=1000))
        world = World(limits=limits)
        async with peers(world=world, lease_0=RecordedPlacement(), lease_1=RecordedPlacement()) as (a, b):
            await a.own(1)
            await a.store.container(NAME).create(NAME)
            writer = Writer(a.store, NAME)
            await writer.set_up()
            writer.append(b"x" * 500, 1)
            await writer.wait_for_replies()
            (opened,) = a.store.opened()
            await b.own(2)
            a.placement.runs = False
            with pytest.raises(Unavailable):
                await opened.flusher.checkpoint()
            await a.reaches(HealthState.ABSENT)
            assert not opened.container.storage.chunks

    run(main())
