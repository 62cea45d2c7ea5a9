"""The controller API end to end: called in process, on a segment store of in-memory fakes."""

import asyncio
from contextlib import asynccontextmanager
from uuid import UUID

import pytest

from sarit.controller.assembly import Controller
from sarit.core.names import SegmentId
from sarit.process.store_calls.in_process import InProcessSegments, InProcessTables
from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.in_process import LocalChannel
from sarit.rpc.status import CallFailed, Status
from tests.rpc_calls import Stub
from tests.unit.store.harness import World, Writer, memory_env

STREAM = pb.StreamInfo(scope="s", stream="t")


@asynccontextmanager
async def controller(world=None):
    store = await (world or World()).start()
    segments = InProcessSegments(store, lambda: ("127.0.0.1", 12345))
    subject = Controller(InProcessTables(store), segments, memory_env(), ("127.0.0.1", 9090))
    await subject.start()
    stub = Stub(LocalChannel(subject.services(), lambda: "a test"))
    stub.store, stub.subject = store, subject
    await stub.createScope(pb.ScopeInfo(scope="s"))
    yield stub
    await subject.stop()
    await store.stop()


def config(stream="t", segments=2, tags=(), **policy):
    scaling = pb.ScalingPolicy(minNumSegments=segments, **policy)
    return pb.StreamConfig(
        streamInfo=pb.StreamInfo(scope="s", stream=stream), scalingPolicy=scaling, tags=pb.Tags(tag=tags)
    )


def run(test):
    asyncio.run(test)


async def status_of(call):
    with pytest.raises(CallFailed) as error:
        await call
    return error.value.status


async def pages(ask):
    """All names, requested in pages until one is empty, as clients do."""
    out, token = [], pb.ContinuationToken()
    while True:
        names, token = await ask(token)
        if not names:
            return out
        out += names


def test_scopes():
    async def main():
        async with controller() as c:
            s = pb.CreateScopeStatus
            assert (await c.createScope(pb.ScopeInfo(scope="s"))).status == s.SCOPE_EXISTS
            assert (await c.createScope(pb.ScopeInfo(scope="no_"))).status == s.INVALID_SCOPE_NAME
            assert (await c.checkScopeExists(pb.ScopeInfo(scope="s"))).exists
            assert not (await c.checkScopeExists(pb.ScopeInfo(scope="x"))).exists
            d = pb.DeleteScopeStatus
            assert (await c.deleteScope(pb.ScopeInfo(scope="x"))).status == d.SCOPE_NOT_FOUND
            assert (await c.deleteScopeRecursive(pb.ScopeInfo(scope="x"))).status == d.SUCCESS
            await c.createStream(config())
            assert (await c.deleteScope(pb.ScopeInfo(scope="s"))).status == d.SCOPE_NOT_EMPTY
            await c.createReaderGroup(pb.ReaderGroupConfiguration(scope="s", readerGroupName="g"))
            await c.createKeyValueTable(
                pb.KeyValueTableConfig(scope="s", kvtName="k", partitionCount=2, primaryKeyLength=4)
            )
            assert (await c.deleteScopeRecursive(pb.ScopeInfo(scope="s"))).status == d.SUCCESS
            assert not (await c.checkScopeExists(pb.ScopeInfo(scope="s"))).exists
            assert (await c.createScope(pb.ScopeInfo(scope="s"))).status == s.SUCCESS
            assert (await c.deleteScope(pb.ScopeInfo(scope="s"))).status == d.SUCCESS

    run(main())


def test_stream_life():
    async def main():
        async with controller() as c:
            s = pb.CreateStreamStatus
            assert (await c.createStream(config(tags=["b", "a"]))).status == s.SUCCESS
            assert (await c.createStream(config(segments=5))).status == s.STREAM_EXISTS
            assert (await c.createStream(config("no_name"))).status == s.INVALID_STREAM_NAME
            missing = pb.StreamConfig(streamInfo=pb.StreamInfo(scope="x", stream="t"))
            assert (await c.createStream(missing)).status == s.SCOPE_NOT_FOUND
            got = await c.getStreamConfiguration(STREAM)
            assert (got.scalingPolicy.minNumSegments, list(got.tags.tag)) == (2, ["b", "a"])
            ranges = (await c.getCurrentSegments(STREAM)).segmentRanges
            assert [(r.segmentId.segmentId, r.minKey, r.maxKey) for r in ranges] == [(0, 0.0, 0.5), (1, 0.5, 1.0)]
            head = await c.getSegments(pb.GetSegmentsRequest(streamInfo=STREAM))
            assert [(x.segmentId.segmentId, x.offset) for x in head.segments] == [(0, 0), (1, 0)]
            d, u = pb.DeleteStreamStatus, pb.UpdateStreamStatus
            assert (await c.deleteStream(STREAM)).status == d.STREAM_NOT_SEALED
            assert (await c.sealStream(STREAM)).status == u.SUCCESS
            assert (await c.sealStream(STREAM)).status == u.SUCCESS
            assert not (await c.getCurrentSegments(STREAM)).segmentRanges
            assert (await c.checkStreamExists(STREAM)).exists
            assert (await c.updateStream(config())).status == u.STREAM_SEALED
            assert (await c.deleteStream(STREAM)).status == d.SUCCESS
            assert (await c.deleteStream(STREAM)).status == d.STREAM_NOT_FOUND
            assert (await c.sealStream(STREAM)).status == u.STREAM_NOT_FOUND
            assert await status_of(c.getCurrentSegments(STREAM)) is Status.NOT_FOUND
            assert await status_of(c.getStreamConfiguration(STREAM)) is Status.NOT_FOUND
            # Created again: its segment numbers continue.
            assert (await c.createStream(config(segments=1))).status == s.SUCCESS
            (only,) = (await c.getCurrentSegments(STREAM)).segmentRanges
            assert only.segmentId.segmentId == 2

    run(main())


def test_a_new_number_of_segments_makes_a_new_epoch_with_successors():
    async def main():
        async with controller() as c:
            await c.createStream(config())
            writer = Writer(c.store, "s/t/0.#epoch.0")
            await writer.set_up()
            assert (await c.updateStream(config(segments=3))).status == pb.UpdateStreamStatus.SUCCESS
            ids = [r.segmentId.segmentId for r in (await c.getCurrentSegments(STREAM)).segmentRanges]
            assert ids == [SegmentId(1, n).packed for n in (2, 3, 4)]
            reply = await c.getSegmentsImmediatelyFollowing(pb.SegmentId(streamInfo=STREAM, segmentId=0))
            got = {e.segment.segmentId.segmentId: list(e.value) for e in reply.segments}
            assert got == {ids[0]: [0], ids[1]: [0, 1]}
            same = await c.getSegmentsImmediatlyFollowing(pb.SegmentId(streamInfo=STREAM, segmentId=0))
            assert same == reply
            assert (await c.store.container("s/t/0.#epoch.0").info("s/t/0.#epoch.0")).sealed
            epoch = await c.getEpochSegments(pb.GetEpochSegmentsRequest(streamInfo=STREAM, epoch=0))
            assert [r.segmentId.segmentId for r in epoch.segmentRanges] == [0, 1]
            between = pb.StreamCutRange(streamInfo=STREAM, to={i: 0 for i in ids})
            assert [x.segmentId for x in (await c.getSegmentsBetween(between)).segments] == [0, 1, *ids]
            valid = pb.SegmentId(streamInfo=STREAM, segmentId=ids[0])
            assert (await c.isSegmentValid(valid)).response
            assert not (await c.isSegmentValid(pb.SegmentId(streamInfo=STREAM, segmentId=0))).response
            scaled = pb.ScaleStatusRequest(streamInfo=STREAM, epoch=0)
            assert (await c.checkScale(scaled)).status == pb.ScaleStatusResponse.SUCCESS

    run(main())


def test_truncation_at_a_cut():
    async def main():
        async with controller() as c:
            await c.createStream(config())
            for n in range(2):
                writer = Writer(c.store, f"s/t/{n}.#epoch.0")
                await writer.set_up()
                writer.append(b"x" * 100, 1)
                await writer.wait_for_replies()
            u = pb.UpdateStreamStatus

            async def truncate(cut):
                return (await c.truncateStream(pb.StreamCut(streamInfo=STREAM, cut=cut))).status

            assert await truncate({0: 40}) == u.FAILURE
            assert await truncate({0: 101, 1: 0}) == u.FAILURE
            assert await truncate({0: 40, 1: 50}) == u.SUCCESS
            assert await truncate({0: 30, 1: 60}) == u.FAILURE
            head = await c.getSegments(pb.GetSegmentsRequest(streamInfo=STREAM))
            assert [(x.segmentId.segmentId, x.offset) for x in head.segments] == [(0, 40), (1, 50)]
            assert (await c.store.container("s/t/0.#epoch.0").info("s/t/0.#epoch.0")).start_offset == 40
            await c.updateStream(config(segments=1))
            (only,) = (await c.getCurrentSegments(STREAM)).segmentRanges
            assert await truncate({only.segmentId.segmentId: 0}) == u.SUCCESS
            reply = await c.getSegmentsImmediatelyFollowing(pb.SegmentId(streamInfo=STREAM, segmentId=0))
            assert len(reply.segments) == 1  # the answer for a deleted segment
            assert (await c.isStreamCutValid(pb.StreamCut(streamInfo=STREAM, cut={0: 1, 1: 1}))).response

    run(main())


def test_listings_end_with_an_empty_page(monkeypatch):
    async def main():
        monkeypatch.setattr("sarit.controller.catalog.PAGE", 3)
        async with controller() as c:
            names = [f"t{n}" for n in range(5)]
            for n, name in enumerate(names):
                await c.createStream(config(name, 1, tags=["odd"] if n % 2 else []))

            async def streams(token):
                r = await c.listStreamsInScope(
                    pb.StreamsInScopeRequest(scope=pb.ScopeInfo(scope="s"), continuationToken=token)
                )
                assert r.HasField("continuationToken")
                return [s.stream for s in r.streams], r.continuationToken

            async def tagged(token):
                r = await c.listStreamsInScopeForTag(
                    pb.StreamsInScopeWithTagRequest(scope=pb.ScopeInfo(scope="s"), tag="odd", continuationToken=token)
                )
                return [s.stream for s in r.streams], r.continuationToken

            async def scopes(token):
                r = await c.listScopes(pb.ScopesRequest(continuationToken=token))
                return list(r.scopes), r.continuationToken

            assert await pages(streams) == sorted([*names, *(f"_MARK{name}" for name in names)])
            assert await pages(tagged) == ["t1", "t3"]
            for scope in ("a", "Z", "_x", "0"):
                await c.createScope(pb.ScopeInfo(scope=scope))
            assert await pages(scopes) == ["0", "Z", "a", "s", "_system", "_x"]
            missing = await c.listStreamsInScope(pb.StreamsInScopeRequest(scope=pb.ScopeInfo(scope="x")))
            assert missing.status == pb.StreamsInScopeResponse.SCOPE_NOT_FOUND

    run(main())


def test_names_that_do_not_exist_have_an_address_and_a_token():
    async def main():
        async with controller() as c:
            nowhere = pb.StreamInfo(scope="never", stream="made_kvtable")
            uri = await c.getURI(pb.SegmentId(streamInfo=nowhere, segmentId=0))
            assert (uri.endpoint, uri.port) == ("127.0.0.1", 12345)
            assert (await c.getDelegationToken(nowhere)).delegationToken == ""
            bucket = c.getControllerToBucketMapping(pb.ControllerToBucketMappingRequest())
            assert await status_of(bucket) is Status.UNIMPLEMENTED

    run(main())


def test_reader_group_without_an_id_gets_one():
    async def main():
        async with controller() as c:
            ids = set()
            for name, given in (("a", str(UUID(int=0))), ("b", str(UUID(int=0))), ("c", "")):
                group = pb.ReaderGroupConfiguration(scope="s", readerGroupName=name, readerGroupId=given, generation=5)
                made = (await c.createReaderGroup(group)).config
                assert UUID(made.readerGroupId).version == 4
                assert made.generation == 0
                assert (await c.createReaderGroup(group)).config == made
                info = pb.ReaderGroupInfo(scope="s", readerGroup=name)
                assert (await c.getReaderGroupConfig(info)).config == made
                ids.add(made.readerGroupId)
            assert len(ids) == 3
            stale = await c.updateReaderGroup(pb.ReaderGroupConfiguration(scope="s", readerGroupName="a", generation=4))
            assert (stale.status, stale.generation) == (pb.UpdateReaderGroupResponse.INVALID_CONFIG, 4)
            gone = await c.updateReaderGroup(pb.ReaderGroupConfiguration(scope="s", readerGroupName="z", generation=4))
            assert (gone.status, gone.generation) == (pb.UpdateReaderGroupResponse.RG_NOT_FOUND, 4)

    run(main())


def test_reader_groups_and_subscribers():
    async def main():
        async with controller() as c:
            await c.createStream(config())
            start = pb.StreamCut(streamInfo=STREAM)
            group = pb.ReaderGroupConfiguration(
                scope="s", readerGroupName="g", groupRefreshTimeMillis=3000, retentionType=2, generation=0,
                readerGroupId="id-1", startingStreamCuts=[start], endingStreamCuts=[start],
            )  # fmt: skip
            first = await c.createReaderGroup(group)
            assert (first.status, first.config) == (pb.CreateReaderGroupResponse.SUCCESS, group)
            changed = pb.ReaderGroupConfiguration(scope="s", readerGroupName="g", groupRefreshTimeMillis=1)
            assert (await c.createReaderGroup(changed)).config == group
            assert list((await c.listSubscribers(STREAM)).subscribers) == ["s/g"]
            s = pb.UpdateSubscriberStatus

            async def note(cut, generation=0, group_id="id-1"):
                return (
                    await c.updateSubscriberStreamCut(
                        pb.SubscriberStreamCut(
                            subscriber="s/g",
                            generation=generation,
                            readerGroupId=group_id,
                            streamCut=pb.StreamCut(streamInfo=STREAM, cut=cut),
                        )
                    )
                ).status

            assert await note({0: 0, 1: 0}) == s.SUCCESS
            assert await note({0: 7, 1: 7}) == s.SUCCESS
            assert await note({0: 7, 1: 7}) == s.SUCCESS
            assert await note({0: 8, 1: 6}) == s.STREAM_CUT_NOT_VALID
            assert await note({0: 0}) == s.STREAM_CUT_NOT_VALID
            assert await note({0: 0, 1: 0}, generation=7) == s.GENERATION_MISMATCH
            assert await note({0: 0, 1: 0}, group_id="other") == s.SUBSCRIBER_NOT_FOUND
            group.retentionType = 0
            updated = await c.updateReaderGroup(group)
            assert (updated.status, updated.generation) == (pb.UpdateReaderGroupResponse.SUCCESS, 1)
            assert (await c.updateReaderGroup(group)).status == pb.UpdateReaderGroupResponse.INVALID_CONFIG
            assert not (await c.listSubscribers(STREAM)).subscribers
            info = pb.ReaderGroupInfo(scope="s", readerGroup="g", readerGroupId="id-1")
            assert (await c.getReaderGroupConfig(info)).config.generation == 1
            wrong = pb.ReaderGroupInfo(scope="s", readerGroup="g", readerGroupId="other")
            assert (await c.deleteReaderGroup(wrong)).status == pb.DeleteReaderGroupStatus.RG_NOT_FOUND
            assert (await c.deleteReaderGroup(info)).status == pb.DeleteReaderGroupStatus.SUCCESS
            assert not (await c.checkStreamExists(pb.StreamInfo(scope="s", stream="_RGg"))).exists

    run(main())


def test_records_survive_a_crash_of_the_node():
    async def main():
        world = World()
        async with controller(world) as c:
            await c.createStream(config(tags=["a"]))
            await c.updateStream(config(segments=3))
        async with controller(world) as c:
            assert len((await c.getCurrentSegments(STREAM)).segmentRanges) == 3

    run(main())
