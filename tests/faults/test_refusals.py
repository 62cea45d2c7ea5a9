"""Replies of a real node to wrong requests: the status of the protocol, and no partial effect.

One table for the controller's API, one for the store's.  A snapshot of everything before and after each request must be
equal.  (Tables: tests/unit/client/tables/test_invalid_requests.py.)
"""

from __future__ import annotations

import asyncio

import pytest

from sarit.client.aio import connect
from sarit.core.errors import SaritError
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.rpc.channel import Channel
from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.status import CallFailed
from sarit.wire import commands as wire
from tests.faults.many_connections import address_of, bare, ends
from tests.faults.wrong_calls import CALLS, DEEP, LEASE, STREAM, begin, cut, group, note
from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode
from tests.rpc_calls import Stub
from tests.unit.store.server.test_connection import append_end, raw

SEGMENT = "s/t/0.#epoch.0"
MISSING = "s/t/9.#epoch.0"
TRANSIENT = f"{SEGMENT}#transient.{'a' * 32}.{'b' * 32}"
WRITER = b"w" * 16


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    options = ("--containers", "2", "--watermark-interval", "0.2")  # a test waits for a watermark
    with RunningNode(tmp_path_factory.mktemp("refusals") / "data", *options) as running:
        asyncio.run(furnish(running.controller))
        yield running


async def furnish(controller) -> None:
    """Streams `t` (two segments, 100 bytes of one truncated) and `sealed`, a group, a table; transactions see below."""
    async with await connect(controller) as client:
        await client.create_scope("s")
        for name in ("t", "sealed"):
            await client.create_stream(f"s/{name}", segments=2)
            async with client.writer(f"s/{name}") as writer:
                writer.write_many([b"x" * 92] * 20, keys=[f"{n}" for n in range(20)])
        await client.seal_stream("s/sealed")
        head, tail = await client.stream_cut_head("s/t"), await client.stream_cut_tail("s/t")
        assert all(offset >= 300 for offset in tail.positions.values())
        await client.session.controller.truncate_stream(head.stream, dict.fromkeys(head.positions, 100))
        await client.tables.create("s/k", primary_key_bytes=4, partitions=2)
        await client.table("s/k").put("key1", "value")


class Snapshot:
    """The whole state, as text."""

    def __init__(self, node) -> None:
        self._node = node

    async def __aenter__(self) -> Snapshot:
        self._client = await connect(self._node.controller)
        self._channel = Channel(*address_of(self._node.controller))
        self.stub = Stub(self._channel)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._channel.close()
        await self._client.close()

    async def watermarked(self, stream: str) -> None:
        """Return when the watermark of a noted time is written, which happens in the background."""
        mark = f"s/_MARK{stream}"
        while not sum((await self._client.stream_cut_tail(mark)).positions.values()):
            await asyncio.sleep(0.01)

    async def everything(self) -> list[str]:
        """The state."""
        client, found = self._client, []
        async for scope in client.list_scopes():
            found.append(scope)
            async for stream in client.list_streams(scope, internal=True):
                found.append(str(await client.stream_info(stream)))
                found += map(str, await client.stream(stream).epochs())
                infos = await client.segment_infos(stream, (await client.stream_cut_head(stream)).positions)
                found += [str(info) for _, info in sorted(infos.items())]
                found.append(str(await self.stub.listSubscribers(pb.StreamInfo(scope=scope, stream=stream.stream))))
            async for name in client.tables.list(scope):
                found.append(str(name))
                found += [str(entry) async for entry in client.table(name).scan()]
        return found


async def status_of(stub, rpc, request):
    try:
        reply = await getattr(stub, rpc)(request)
    except CallFailed as error:
        return error.status
    field = next(field for field in ("status", "result", "state") if hasattr(reply, field))
    return getattr(reply, field)


def test_wrong_calls_get_their_status_and_change_nothing(node) -> None:
    async def main() -> None:
        async with Snapshot(node) as looking:
            before = await looking.everything()
            for number, (rpc, request, expected) in enumerate(CALLS):
                got = await status_of(looking.stub, rpc, request)
                assert got == expected, (rpc, str(request), got)
                if number % 8 == 0 or number + 1 == len(CALLS):
                    assert await looking.everything() == before, (rpc, str(request))

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    assert "Traceback" not in node.log()


def test_stale_transactions_and_groups_are_refused(node) -> None:
    """Decided transactions, other generations and ids of a group, earlier times."""

    async def main() -> None:
        async with Snapshot(node) as looking:
            c = looking.stub
            made = [(await c.createTransaction(begin(LEASE))).txnId for _ in range(2)]
            ids = [pb.TxnRequest(streamInfo=STREAM, txnId=one) for one in made]
            assert await status_of(c, "commitTransaction", ids[0]) == pb.TxnStatus.SUCCESS
            assert await status_of(c, "abortTransaction", ids[1]) == pb.TxnStatus.SUCCESS
            while {await status_of(c, "checkTransactionState", one) for one in ids} != {
                pb.TxnState.COMMITTED,
                pb.TxnState.ABORTED,
            }:
                await asyncio.sleep(0.01)
            config = group(readerGroupId="id-1", retentionType=2, startingStreamCuts=[cut({})], endingStreamCuts=[])
            assert await status_of(c, "createReaderGroup", config) == pb.CreateReaderGroupResponse.SUCCESS
            assert await status_of(c, "noteTimestampFromWriter", note({0: 200}, 10)) == pb.TimestampResponse.SUCCESS
            await looking.watermarked("t")
            pings = [pb.PingTxnRequest(streamInfo=STREAM, txnId=one, lease=LEASE) for one in made]
            u, s, t = pb.UpdateReaderGroupResponse, pb.UpdateSubscriberStatus, pb.TimestampResponse
            other = pb.SubscriberStreamCut(
                subscriber="s/g", generation=7, readerGroupId="id-1", streamCut=cut({0: 200, 1: 200})
            )
            stranger = pb.SubscriberStreamCut(subscriber="s/g", readerGroupId="x", streamCut=cut({0: 200, 1: 200}))
            partial = pb.SubscriberStreamCut(subscriber="s/g", readerGroupId="id-1", streamCut=cut({0: 200}))
            before = await looking.everything()
            for rpc, request, expected in (
                # First: a writer that noted nothing for 30 s is forgotten, with the times that it noted.
                ("noteTimestampFromWriter", note({0: 200}, 9), t.INVALID_TIME),
                ("noteTimestampFromWriter", note({0: 150}, 10), t.INVALID_POSITION),
                ("commitTransaction", ids[1], pb.TxnStatus.FAILURE),
                ("abortTransaction", ids[0], pb.TxnStatus.FAILURE),
                ("commitTransaction", ids[0], pb.TxnStatus.SUCCESS),
                ("abortTransaction", ids[1], pb.TxnStatus.SUCCESS),
                ("pingTransaction", pings[0], pb.PingTxnStatus.COMMITTED),
                ("pingTransaction", pings[1], pb.PingTxnStatus.ABORTED),
                ("updateReaderGroup", group(readerGroupId="id-1", generation=3), u.INVALID_CONFIG),
                ("updateReaderGroup", group(readerGroupId="other"), u.INVALID_CONFIG),
                (
                    "deleteReaderGroup",
                    pb.ReaderGroupInfo(scope="s", readerGroup="g", readerGroupId="other"),
                    pb.DeleteReaderGroupStatus.RG_NOT_FOUND,
                ),
                ("updateSubscriberStreamCut", other, s.GENERATION_MISMATCH),
                ("updateSubscriberStreamCut", stranger, s.SUBSCRIBER_NOT_FOUND),
                ("updateSubscriberStreamCut", partial, s.STREAM_CUT_NOT_VALID),
            ):
                got = await status_of(c, rpc, request)
                assert got == expected, (rpc, str(request), got)
                assert await looking.everything() == before, (rpc, str(request))
            right = pb.ReaderGroupInfo(scope="s", readerGroup="g", readerGroupId="id-1")
            assert await status_of(c, "deleteReaderGroup", right) == pb.DeleteReaderGroupStatus.SUCCESS

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    assert "Traceback" not in node.log()


ATTRIBUTE = b"a" * 16
# (request, expected reply without its texts)
REQUESTS = [
    (wire.CreateSegment(1, SEGMENT, 0, 0, "", 0), wire.AuthTokenCheckFailed),
    (wire.SetupAppend(1, WRITER, MISSING, ""), wire.NoSuchSegment(1, MISSING, "", -1)),
    (wire.GetStreamSegmentInfo(1, MISSING, ""), wire.NoSuchSegment(1, MISSING, "", -1)),
    (wire.GetSegmentAttribute(1, MISSING, ATTRIBUTE, ""), wire.NoSuchSegment(1, MISSING, "", -1)),
    (wire.UpdateSegmentAttribute(1, MISSING, ATTRIBUTE, 5, 6, ""), wire.NoSuchSegment(1, MISSING, "", -1)),
    (wire.UpdateSegmentAttribute(1, SEGMENT, ATTRIBUTE, 5, 6, ""), wire.SegmentAttributeUpdated(1, False)),
    (wire.UpdateSegmentPolicy(1, SEGMENT, 0, 0, ""), wire.AuthTokenCheckFailed),
    (wire.LocateOffset(1, MISSING, 0, ""), wire.NoSuchSegment(1, MISSING, "", -1)),
    (wire.ReadSegment(MISSING, 7, 10, "", 1), wire.NoSuchSegment(1, MISSING, "", 7)),
    (wire.ReadSegment(SEGMENT, 7, 10, "", 1), wire.SegmentIsTruncated(1, SEGMENT, 100, "", 7)),
    (wire.ReadSegment(SEGMENT, -7, 10, "", 1), wire.SegmentIsTruncated(1, SEGMENT, 100, "", -7)),
    (wire.ReadSegment("s/sealed/0.#epoch.0", DEEP, 10, "", 1), wire.ErrorMessage),
    (wire.TruncateSegment(1, SEGMENT, DEEP, ""), wire.SegmentIsTruncated),
    (wire.TruncateSegment(1, SEGMENT, -1, ""), wire.SegmentIsTruncated),
    (wire.TruncateSegment(1, MISSING, 0, ""), wire.NoSuchSegment(1, MISSING, "", 0)),
    (wire.SealSegment(1, MISSING, ""), wire.NoSuchSegment(1, MISSING, "", -1)),
    (wire.DeleteSegment(1, SEGMENT, ""), wire.AuthTokenCheckFailed),
    (wire.MergeSegments(1, SEGMENT, MISSING, ""), wire.AuthTokenCheckFailed),
    (wire.MergeSegments(1, SEGMENT, TRANSIENT, ""), wire.NoSuchSegment(1, TRANSIENT, "", -1)),
    (wire.MergeSegmentsBatch(1, SEGMENT, (TRANSIENT,), ""), wire.AuthTokenCheckFailed),
    (wire.CreateTableSegment(1, "s/new_kvtable/0.#epoch.0", "", key_length=8), wire.AuthTokenCheckFailed),
    (wire.DeleteTableSegment(1, "s/k_kvtable/0.#epoch.0", False, ""), wire.AuthTokenCheckFailed),
    (wire.CreateTransientSegment(1, WRITER, MISSING, ""), wire.NoSuchSegment(1, MISSING, "", -1)),
    (wire.GetTableSegmentInfo(1, SEGMENT, ""), wire.ErrorMessage),
    (wire.ReadTable(1, SEGMENT, "", (wire.TableKey(b"k"),)), wire.ErrorMessage),
    (wire.GetTableSegmentInfo(1, MISSING, ""), wire.NoSuchSegment(1, MISSING, "", -1)),
    (wire.CreateTableSegment(1, "", ""), wire.AuthTokenCheckFailed),
]


def test_wrong_requests_get_their_reply_and_change_nothing(node) -> None:
    async def main() -> None:
        async with Snapshot(node) as looking:
            before = await looking.everything()
            client = await bare(node.store)
            for request, expected in REQUESTS:
                reply = await client.ask(request)
                if isinstance(expected, type):
                    assert type(reply) is expected, (request, reply)
                else:
                    assert reply == expected, request
                assert await looking.everything() == before, request
            # A name beyond every bound is refused as it is read: its connection ends.
            long = await bare(node.store)
            long.send(wire.encode(wire.SealSegment(1, "x" * 65_000, "")))
            await ends(long)
            assert await looking.everything() == before
            # Zeros as plain UTF-8 has them: Java's form, in which names are echoed, would need two bytes for each.
            zeros = bytes(60_000)
            client.send(raw(11, bytes(8) + len(zeros).to_bytes(2) + zeros + bytes(2)))
            await ends(client)
            assert await looking.everything() == before

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    assert "Traceback" not in node.log()


def test_wrong_appends_get_their_reply_and_store_nothing(node) -> None:
    async def main() -> None:
        async with Snapshot(node) as looking:
            before = await looking.everything()
            client = await bare(node.store)
            sealed = "s/sealed/0.#epoch.0"
            setup = await client.ask(wire.SetupAppend(1, WRITER, sealed, ""))
            assert setup.last_event_number == NULL_ATTRIBUTE_VALUE
            client.send(append_end(b"late", 1, 7))
            assert await client.reply() == wire.SegmentIsSealed(5, sealed, "", 7)
            await client.ask(wire.SetupAppend(1, WRITER, SEGMENT, ""))
            wrong = wire.ConditionalAppend(WRITER, 8, 3, b"not there", 6)
            assert await client.ask(wrong) == wire.ConditionalCheckFailed(WRITER, 8, 6)
            assert await looking.everything() == before
            # A second connection of the same writer takes over: what the first one sends then is out of turn.
            other = await bare(node.store)
            await other.ask(wire.SetupAppend(1, WRITER, SEGMENT, ""))
            client.send(append_end(b"out of turn", 1, 9))
            await ends(client)
            assert await looking.everything() == before
            other.writer.close()

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
    assert "Traceback" not in node.log()


def test_client_reports_errors_before_or_after_the_request(node) -> None:
    async def main() -> None:
        async with await connect(node.controller) as client, Snapshot(node) as looking:
            before = await looking.everything()
            for call in (
                lambda: client.create_scope("no_name"),
                lambda: client.create_stream("s/no name"),
                lambda: client.create_stream("nowhere/t"),
                lambda: client.create_stream("s/new", segments=0),
                lambda: client.update_stream("s/sealed", segments=3),
                lambda: client.truncate_stream("s/t", cut="no cut"),
                lambda: client.truncate_stream("s/t", cut=None),
                lambda: client.delete_stream("s/t"),
                lambda: client.delete_scope("s"),
                lambda: client.stream("s/t").scale(0),
                lambda: client.stream("s/sealed").scale(3),
                lambda: client.transactional_writer("s/none").begin(),
                lambda: client.transactional_writer("s/t", lease_seconds=1).begin(),
                lambda: client.transactional_writer("s/t").commit("no id"),
                lambda: client.transactional_writer("s/t").take_up("0" * 32),
                lambda: client.tables.create("s/new", primary_key_bytes=0),
                lambda: client.table("s/k").put("too long a key", "x"),
                lambda: client.table("s/k").put("key2", bytes(2 << 20)),
                lambda: client.table("s/k").insert("key1", "x"),
                lambda: client.reader("s/none").open(),
            ):
                with pytest.raises(SaritError):
                    await call()
                assert await looking.everything() == before

    asyncio.run(asyncio.wait_for(main(), HANG_SECONDS))
