"""The API over a loopback socket, on fakes: calls that `test_service.py` does not make, and errors."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from sarit.controller.limits import MAX_STREAMS_OF_GROUP
from sarit.core.errors import Corrupt, Unavailable
from sarit.core.names import SegmentId, transaction_segment
from sarit.rpc import convert
from sarit.rpc.channel import Channel
from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.methods import PRAVEGA
from sarit.rpc.status import CallFailed, Status
from tests.limits import HANG_SECONDS
from tests.rpc_calls import Stub, listen
from tests.unit.controller.fakes import Faults
from tests.unit.controller.world import STREAM, World, quiet, run, segment

INFO = pb.StreamInfo(scope="s", stream="t")
NOWHERE = pb.StreamInfo(scope="s", stream="none")
LEASE = 30_000


@asynccontextmanager
async def api(world=None):
    world = world or World()
    controller = await world.controller()
    server, port = await listen(controller.services())
    channel = Channel("127.0.0.1", port)
    try:
        stub = Stub(channel)
        stub.world, stub.controller, stub.channel = world, controller, channel
        await stub.createScope(pb.ScopeInfo(scope="s"))
        config = pb.StreamConfig(streamInfo=INFO, scalingPolicy=pb.ScalingPolicy(minNumSegments=2))
        await stub.createStream(config)
        yield stub
    finally:
        channel.close()
        server.close()
        await server.wait_closed()
        await controller.stop()


async def status_of(call):
    with pytest.raises(CallFailed) as error:
        await call
    return error.value.status


def txn_request(txn, info=INFO, **fields):
    return pb.TxnRequest(streamInfo=info, txnId=txn, **fields)


OWN_CALLS = (
    "cutAt",
    "streamConfigs",
    "scalingEvents",
    "listRules",
    "changeRules",
    "listQuotas",
    "changeQuotas",
    "quotaUse",
    "creationId",
    "dropSubscriber",
    "streamProperties",
    "changeStreamProperties",
    "createJob",
    "listJobs",
    "deleteJob",
    "createLink",
    "listLinks",
    "linkStatus",
    "changeLink",
    "deleteLink",
    "promoteLink",
)


def test_every_rpc_of_the_proto_is_served():
    async def main():
        async with api() as c:
            paths = list(c.controller.services())
            assert len(pb.DESCRIPTOR.services_by_name["ControllerService"].methods) == 47
            assert paths[47:] == [f"/sarit.v1.SaritService/{name}" for name in OWN_CALLS]
            bucket = c.getControllerToBucketMapping(pb.ControllerToBucketMappingRequest())
            assert await status_of(bucket) is Status.UNIMPLEMENTED
            (server,) = (await c.getControllerServerList(pb.ServerRequest())).nodeURI
            assert (server.endpoint, server.port) == ("127.0.0.1", 9090)

    run(main())


def test_the_life_of_a_transaction():
    async def main():
        async with api() as c:
            made = await c.createTransaction(pb.CreateTxnRequest(streamInfo=INFO, lease=LEASE))
            assert [(r.segmentId.segmentId, r.minKey, r.maxKey) for r in made.activeSegments] == [
                (0, 0, 0.5),
                (1, 0.5, 1),
            ]
            assert made.txnId.lowBits >= 0
            assert made.txnId.highBits >> 32 == 0
            txn = convert.transaction(made.txnId)
            c.world.segments.append(transaction_segment(segment(0), txn), "x")
            state = pb.TxnState
            assert (await c.checkTransactionState(txn_request(made.txnId))).state == state.OPEN
            ping = pb.PingTxnRequest(streamInfo=INFO, txnId=made.txnId, lease=LEASE)
            assert (await c.pingTransaction(ping)).status == pb.PingTxnStatus.OK
            ping.lease = 600_001
            assert (await c.pingTransaction(ping)).status == pb.PingTxnStatus.LEASE_TOO_LARGE
            for _ in range(2):
                done = await c.commitTransaction(txn_request(made.txnId, writerId="w", timestamp=5))
                assert done.status == pb.TxnStatus.SUCCESS
            await quiet(c.controller)
            assert (await c.checkTransactionState(txn_request(made.txnId))).state == state.COMMITTED
            assert c.world.segments.segments[segment(0)].parts == [("x", 10)]
            assert (await c.abortTransaction(txn_request(made.txnId))).status == pb.TxnStatus.FAILURE
            ping.lease = LEASE
            assert (await c.pingTransaction(ping)).status == pb.PingTxnStatus.COMMITTED

            other = (await c.createTransaction(pb.CreateTxnRequest(streamInfo=INFO, lease=LEASE))).txnId
            assert (await c.abortTransaction(txn_request(other))).status == pb.TxnStatus.SUCCESS
            await quiet(c.controller)
            assert (await c.checkTransactionState(txn_request(other))).state == state.ABORTED
            assert (await c.commitTransaction(txn_request(other))).status == pb.TxnStatus.FAILURE
            listed = (await c.listCompletedTransactions(pb.ListCompletedTxnRequest(streamInfo=INFO))).response
            ends = {(r.txnId.highBits, r.txnId.lowBits): r.status for r in listed}
            assert ends == {
                (made.txnId.highBits, made.txnId.lowBits): pb.TxnResponse.COMMITTED,
                (other.highBits, other.lowBits): pb.TxnResponse.ABORTED,
            }
            assert not [name for name in c.world.segments.segments if "#transaction" in name]
            c.world.check()

    run(main())


def test_commit_reply_includes_outcome_when_requested():
    async def main():
        async with api() as c:
            create = pb.CreateTxnRequest(streamInfo=INFO, lease=LEASE)
            ways = ((c.commitTransaction, pb.TxnState.COMMITTED), (c.abortTransaction, pb.TxnState.ABORTED))
            for decide, end in ways:
                txn = (await c.createTransaction(create)).txnId
                for _ in range(2):  # asked again: it is complete
                    reply = await decide(txn_request(txn, outcomeWithinMillis=10_000))
                    assert (reply.status, reply.outcome) == (pb.TxnStatus.SUCCESS, end)
                assert (await c.checkTransactionState(txn_request(txn))).state == end
                await quiet(c.controller)
            txn = (await c.createTransaction(create)).txnId
            reply = await c.commitTransaction(txn_request(txn))
            assert reply.SerializeToString() == b""  # as before
            await quiet(c.controller)
            c.controller.transactions.schedule_completion = lambda name: None
            txn = (await c.createTransaction(create)).txnId
            reply = await c.commitTransaction(txn_request(txn, outcomeWithinMillis=10_000))
            assert (reply.status, reply.outcome) == (pb.TxnStatus.SUCCESS, pb.TxnState.COMMITTING)

    run(main())


def test_a_writer_whose_id_is_too_long_for_a_key_is_refused():
    """Its commit was accepted and could not be executed: it blocked all later commits of the stream, and its seal."""

    async def main():
        async with api() as c:
            txn = (await c.createTransaction(pb.CreateTxnRequest(streamInfo=INFO, lease=LEASE))).txnId
            for writer in ("w" * 1025, "\u20ac" * 342):
                call = c.commitTransaction(txn_request(txn, writerId=writer, timestamp=5))
                assert await status_of(call) is Status.INVALID_ARGUMENT
            reply = await c.commitTransaction(txn_request(txn, writerId="w" * 1024, timestamp=5))
            assert reply.status == pb.TxnStatus.SUCCESS

    run(main())


def test_invalid_transactions_are_refused():
    async def main():
        async with api() as c:
            for lease in (9_999, 600_001, 0, -1):
                short = pb.CreateTxnRequest(streamInfo=INFO, lease=lease)
                assert await status_of(c.createTransaction(short)) is Status.INVALID_ARGUMENT
            gone = pb.CreateTxnRequest(streamInfo=NOWHERE, lease=LEASE)
            assert await status_of(c.createTransaction(gone)) is Status.NOT_FOUND
            never = pb.TxnId(highBits=1, lowBits=2)
            assert (await c.checkTransactionState(txn_request(never))).state == pb.TxnState.UNKNOWN
            assert (await c.commitTransaction(txn_request(never))).status == pb.TxnStatus.TRANSACTION_NOT_FOUND
            assert (await c.commitTransaction(txn_request(never, NOWHERE))).status == pb.TxnStatus.STREAM_NOT_FOUND
            ping = pb.PingTxnRequest(streamInfo=INFO, txnId=never, lease=LEASE)
            assert (await c.pingTransaction(ping)).status == pb.PingTxnStatus.UNKNOWN
            await c.sealStream(INFO)
            sealed = pb.CreateTxnRequest(streamInfo=INFO, lease=LEASE)
            assert await status_of(c.createTransaction(sealed)) is Status.INVALID_ARGUMENT

    run(main())


def test_scale_and_its_check():
    async def main():
        async with api() as c:
            entry = pb.ScaleRequest.KeyRangeEntry
            halves = [entry(start=0.5, end=0.75), entry(start=0.75, end=1.0)]
            scaled = await c.scale(pb.ScaleRequest(streamInfo=INFO, sealedSegments=[1], newKeyRanges=halves))
            assert (scaled.status, scaled.epoch) == (pb.ScaleResponse.STARTED, 0)
            got = [(r.segmentId.segmentId, r.minKey, r.maxKey) for r in scaled.segments]
            assert got == [(SegmentId(1, 2).packed, 0.5, 0.75), (SegmentId(1, 3).packed, 0.75, 1.0)]
            wrong = await c.scale(pb.ScaleRequest(streamInfo=INFO, sealedSegments=[0], newKeyRanges=halves))
            assert wrong.status == pb.ScaleResponse.FAILURE
            nan = await c.scale(pb.ScaleRequest(streamInfo=INFO, newKeyRanges=[entry(start=float("nan"), end=1.0)]))
            assert nan.status == pb.ScaleResponse.FAILURE
            check = pb.ScaleStatusResponse
            for epoch, status in ((0, check.SUCCESS), (1, check.IN_PROGRESS), (2, check.INVALID_INPUT)):
                asked = await c.checkScale(pb.ScaleStatusRequest(streamInfo=INFO, epoch=epoch))
                assert asked.status == status
            assert c.world.segments.segments[segment(1)].sealed

    run(main())


def test_scale_with_bounds_as_pravega_computes_them():
    async def main():
        async with api() as c:
            entry = pb.ScaleRequest.KeyRangeEntry
            fifths = pb.StreamConfig(streamInfo=INFO, scalingPolicy=pb.ScalingPolicy(minNumSegments=5))
            await c.updateStream(fifths)
            third = (await c.getCurrentSegments(INFO)).segmentRanges[2]
            assert (third.minKey, third.maxKey) == (0.4, 0.6)
            asked = [entry(start=0.4, end=0.5), entry(start=0.5, end=3 * (1.0 / 5))]
            assert asked[1].end != 0.6
            request = pb.ScaleRequest(
                streamInfo=INFO, sealedSegments=[third.segmentId.segmentId], newKeyRanges=asked
            )  # fmt: skip
            scaled = await c.scale(request)
            assert scaled.status == pb.ScaleResponse.STARTED
            assert [(r.minKey, r.maxKey) for r in scaled.segments] == [(0.4, 0.5), (0.5, 0.6)]
            assert await c.scale(request) == scaled, "repeated, since its answer was lost"
            active = [r.segmentId.segmentId for r in (await c.getCurrentSegments(INFO)).segmentRanges]
            sevenths = [entry(start=at * (1.0 / 7), end=(at + 1) * (1.0 / 7)) for at in range(7)]
            scaled = await c.scale(pb.ScaleRequest(streamInfo=INFO, sealedSegments=active, newKeyRanges=sevenths))
            assert (scaled.status, scaled.segments[-1].maxKey) == (pb.ScaleResponse.STARTED, 1.0)

    run(main())


def test_scale_that_would_break_the_policy_or_the_key_space_is_refused():
    """As Pravega: a precondition for what may change, a failed call for ranges that can never be right."""

    async def main():
        async with api() as c:
            entry = pb.ScaleRequest.KeyRangeEntry
            precondition, failure = pb.ScaleResponse.PRECONDITION_FAILED, pb.ScaleResponse.FAILURE

            async def scale(replaced, *ranges):
                entries = [entry(start=low, end=high) for low, high in ranges]
                request = pb.ScaleRequest(streamInfo=INFO, sealedSegments=replaced, newKeyRanges=entries)
                return (await c.scale(request)).status

            assert await scale([0, 1], (0, 1)) == precondition, "two segments are the least"
            assert await scale([77], (0, 1)) == precondition, "not active"
            assert await scale([0], (0, 0.3), (0.2, 0.5)) == failure, "they overlap"
            assert await scale([0], (0, 0.2), (0.3, 0.5)) == failure, "a gap"
            assert await scale([0], (0, 0.25), (0.25, 0.6)) == failure, "more than the replaced one had"
            assert len((await c.getCurrentSegments(INFO)).segmentRanges) == 2
            assert await scale([0], (0, 0.25), (0.25, 0.5)) == pb.ScaleResponse.STARTED
            sealed = pb.UpdateStreamStatus.SUCCESS
            assert (await c.sealStream(INFO)).status == sealed
            assert await scale([1], (0.5, 0.75), (0.75, 1)) == failure, "it is sealed"

    run(main())


def test_tags_keep_the_order_in_which_they_were_given():
    async def main():
        async with api() as c:
            scaling = pb.ScalingPolicy(minNumSegments=2)
            for tags in (["b", "a", "c", "a"], ["c", "a", "b"]):
                config = pb.StreamConfig(streamInfo=INFO, scalingPolicy=scaling, tags=pb.Tags(tag=tags))
                assert (await c.updateStream(config)).status == pb.UpdateStreamStatus.SUCCESS
                kept = (await c.getStreamConfiguration(INFO)).tags.tag
                assert list(kept) == list(dict.fromkeys(tags))

    run(main())


def test_streams_of_a_group_are_bounded():
    async def main():
        async with api() as c:
            cut = pb.StreamCut(streamInfo=INFO, cut={0: 0})
            many = [cut] * (MAX_STREAMS_OF_GROUP + 1)
            for field in ("startingStreamCuts", "endingStreamCuts"):
                group = pb.ReaderGroupConfiguration(scope="s", readerGroupName="g", **{field: many})
                for call in (c.createReaderGroup, c.updateReaderGroup):
                    with pytest.raises(CallFailed, match="at most 1000 streams, not 1001") as refused:
                        await call(group)
                    assert refused.value.status is Status.INVALID_ARGUMENT

    run(main())


def test_writers_note_times():
    async def main():
        async with api() as c:
            reply = pb.TimestampResponse

            async def note(time, cut, info=INFO, writer="w"):
                position = pb.StreamCut(streamInfo=info, cut=cut)
                noted = await c.noteTimestampFromWriter(
                    pb.TimestampFromWriter(writer=writer, position=position, timestamp=time)
                )
                return noted.result

            for nowhere in ({77: 4}, {0: -1}, {-1: 0}):
                assert await note(10, nowhere) == reply.INVALID_POSITION
            assert await note(10, {0: 5}) == reply.SUCCESS
            assert await note(9, {0: 5}) == reply.INVALID_TIME
            assert await note(10, {0: 4}) == reply.INVALID_POSITION
            assert await note(10, {77: 4}) == reply.INVALID_POSITION
            assert await note(10, {0: 5, 1: 1}) == reply.SUCCESS
            assert await note(9, {0: 1}, writer="v") == reply.SUCCESS
            assert await status_of(note(1, {0: 1}, NOWHERE)) is Status.NOT_FOUND
            removed = pb.RemoveWriterResponse
            assert (await c.removeWriter(pb.RemoveWriterRequest(writer="w", stream=INFO))).result == removed.SUCCESS
            gone = await c.removeWriter(pb.RemoveWriterRequest(writer="w", stream=NOWHERE))
            assert gone.result == removed.STREAM_DOES_NOT_EXIST
            unknown = await c.removeWriter(pb.RemoveWriterRequest(writer="nobody", stream=INFO))
            assert unknown.result == removed.UNKNOWN_WRITER
            # The writer is back: its time may start again, its position must not go back while it counts.
            assert await note(1, {0: 0}) == reply.INVALID_POSITION
            assert await note(1, {0: 5}) == reply.SUCCESS

    run(main())


def test_key_value_tables():
    async def main():
        async with api() as c:
            s = pb.CreateKeyValueTableStatus

            async def create(name, scope="s", partitions=2, primary=4, secondary=4):
                config = pb.KeyValueTableConfig(
                    scope=scope, kvtName=name, partitionCount=partitions, primaryKeyLength=primary,
                    secondaryKeyLength=secondary, rolloverSizeBytes=7,
                )  # fmt: skip
                return (await c.createKeyValueTable(config)).status

            assert [await create("k"), await create("k")] == [s.SUCCESS, s.TABLE_EXISTS]
            assert await create("bad_") == await create("x", primary=0) == s.INVALID_TABLE_NAME
            assert await create("k", "none") == s.SCOPE_NOT_FOUND
            info = pb.KeyValueTableInfo(scope="s", kvtName="k")
            ranges = (await c.getCurrentSegmentsKeyValueTable(info)).segmentRanges
            got = [(r.segmentId.streamInfo.stream, r.segmentId.segmentId, r.minKey, r.maxKey) for r in ranges]
            assert got == [("k", 0, 0, 0.5), ("k", 1, 0.5, 1)]
            assert c.world.segments.segments["s/k_kvtable/1.#epoch.0"].key_length == 8
            config = await c.getKeyValueTableConfiguration(info)
            assert (config.config.partitionCount, config.config.rolloverSizeBytes) == (2, 7)
            page = pb.KVTablesInScopeRequest(scope=pb.ScopeInfo(scope="s"))
            listed = await c.listKeyValueTablesInScope(page)
            assert ([t.kvtName for t in listed.kvtables], listed.continuationToken.token) == (["k"], "k")
            page.continuationToken.token = "k"
            last = await c.listKeyValueTablesInScope(page)
            assert (list(last.kvtables), last.continuationToken.token) == ([], "k")
            assert (await c.deleteKeyValueTable(info)).status == pb.DeleteKVTableStatus.SUCCESS
            assert (await c.deleteKeyValueTable(info)).status == pb.DeleteKVTableStatus.TABLE_NOT_FOUND
            assert await status_of(c.getCurrentSegmentsKeyValueTable(info)) is Status.NOT_FOUND
            missing = await c.getKeyValueTableConfiguration(info)
            assert missing.status == pb.KeyValueTableConfigResponse.TABLE_NOT_FOUND
            assert await create("k", partitions=1) == s.SUCCESS
            (only,) = (await c.getCurrentSegmentsKeyValueTable(info)).segmentRanges
            assert only.segmentId.segmentId == 2

    run(main())


def test_queries_about_missing_objects_return_not_found():
    async def main():
        async with api() as c:
            cut = pb.StreamCut(streamInfo=NOWHERE, cut={0: 0})
            for call in (
                c.getCurrentSegments(NOWHERE),
                c.getSegments(pb.GetSegmentsRequest(streamInfo=NOWHERE)),
                c.getEpochSegments(pb.GetEpochSegmentsRequest(streamInfo=INFO, epoch=1)),
                c.getEpochSegments(pb.GetEpochSegmentsRequest(streamInfo=INFO, epoch=-1)),
                c.getSegmentsImmediatelyFollowing(pb.SegmentId(streamInfo=NOWHERE)),
                c.getSegmentsImmediatelyFollowing(pb.SegmentId(streamInfo=INFO, segmentId=9)),
                c.getSegmentsBetween(pb.StreamCutRange(streamInfo=NOWHERE, to={0: 0})),
                c.isStreamCutValid(cut),
                c.getStreamConfiguration(NOWHERE),
                c.listCompletedTransactions(pb.ListCompletedTxnRequest(streamInfo=NOWHERE)),
                c.getCurrentSegments(pb.StreamInfo(scope="a/b", stream="\x00")),
            ):
                assert await status_of(call) is Status.NOT_FOUND
            # As in Pravega: these have statuses for it.
            missing = await c.checkScale(pb.ScaleStatusRequest(streamInfo=NOWHERE))
            assert missing.status == pb.ScaleStatusResponse.INVALID_INPUT
            assert (await c.scale(pb.ScaleRequest(streamInfo=NOWHERE))).status == pb.ScaleResponse.FAILURE
            assert not (await c.isSegmentValid(pb.SegmentId(streamInfo=NOWHERE))).response
            assert (await c.truncateStream(cut)).status == pb.UpdateStreamStatus.STREAM_NOT_FOUND
            elsewhere = pb.StreamInfo(scope="none", stream="t")
            assert (await c.sealStream(elsewhere)).status == pb.UpdateStreamStatus.SCOPE_NOT_FOUND
            between = c.getSegmentsBetween(pb.StreamCutRange(streamInfo=INFO))
            assert await status_of(between) is Status.INVALID_ARGUMENT
            negative = c.getURI(pb.SegmentId(streamInfo=INFO, segmentId=-1))
            assert await status_of(negative) is Status.INVALID_ARGUMENT

    run(main())


def test_sealed_stream_is_said_to_be_sealed_whatever_is_asked():
    async def main():
        async with api() as c:
            sealed, failure = pb.UpdateStreamStatus.STREAM_SEALED, pb.UpdateStreamStatus.FAILURE
            cuts = [{0: 0, 1: 0}, {0: 0}, {}, {0: -1, 1: 0}, {0: 10**9, 1: 0}, {SegmentId(7, 7).packed: 0}]

            async def truncated(cut):
                return (await c.truncateStream(pb.StreamCut(streamInfo=INFO, cut=cut))).status

            assert [await truncated(cut) for cut in cuts[1:]] == [failure] * 5
            await c.sealStream(INFO)
            assert [await truncated(cut) for cut in cuts] == [sealed] * 6
            odd = pb.StreamConfig(streamInfo=INFO, tags=pb.Tags(tag=["a\0b"]))
            assert (await c.updateStream(odd)).status == sealed

    run(main())


def test_invalid_scale_request_is_refused():
    async def main():
        async with api() as c:
            noise = PRAVEGA.createStream._replace(request_type=pb.ContinuationToken)
            with pytest.raises(CallFailed) as error:
                await c.channel.call(noise, pb.ContinuationToken(token="\x0f" * 9), HANG_SECONDS, {})
            assert error.value.status is Status.INVALID_ARGUMENT
            strange = pb.StreamConfig(streamInfo=INFO, scalingPolicy=pb.ScalingPolicy(scaleType=9))
            assert await status_of(c.createStream(strange)) is Status.INVALID_ARGUMENT
            many = pb.StreamConfig(streamInfo=NOWHERE, scalingPolicy=pb.ScalingPolicy(minNumSegments=1 << 30))
            assert await status_of(c.createStream(many)) is Status.INVALID_ARGUMENT
            tagged = pb.StreamConfig(streamInfo=NOWHERE, tags=pb.Tags(tag=["a\0b"]))
            assert await status_of(c.createStream(tagged)) is Status.INVALID_ARGUMENT

    run(main())


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Unavailable("not now"), Status.UNAVAILABLE),
        (Corrupt("rot"), Status.OUT_OF_RANGE),  # no client repeats that
        (ZeroDivisionError(), Status.INTERNAL),
        (AssertionError(), Status.INTERNAL),
    ],
)
def test_errors_map_to_statuses(error, status):
    async def main():
        async with api() as c:

            def fail(number, call):
                raise error

            c.world.arm(Faults(before=fail))
            assert await status_of(c.getCurrentSegments(INFO)) is status
            c.world.arm(Faults())
            assert (await c.getCurrentSegments(INFO)).segmentRanges

    run(main())


def test_names_and_ids_cross_the_wire_unchanged():
    for txn in (0, 1, (1 << 128) - 1, 7 << 96 | 5, 1 << 63, 1 << 127):
        assert convert.transaction(convert.transaction_message(txn)) == txn
    assert convert.stream_name(convert.stream_info(STREAM)) == STREAM
