"""Requests to the controller about transactions (controller.md 2 and 5): core values in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sarit.client.core.values import SegmentRange, TransactionStatus
from sarit.client.limits import OUTCOME_WITHIN_MS
from sarit.core.errors import Conflict, Invalid, NotFound
from sarit.core.names import SegmentId
from sarit.rpc import convert
from sarit.rpc.generated import controller_pb2 as pb

if TYPE_CHECKING:
    from sarit.client.core.controller import ControllerClient
    from sarit.core.names import StreamName

# The least int64: a commit without a time.
NO_TIMESTAMP: Final = -(1 << 63)

_Ping = pb.PingTxnStatus
_PING: Final = {
    _Ping.OK: TransactionStatus.OPEN,
    _Ping.COMMITTED: TransactionStatus.COMMITTED,
    _Ping.ABORTED: TransactionStatus.ABORTED,
    _Ping.UNKNOWN: TransactionStatus.UNKNOWN,
}


class TransactionCalls:
    """Calls on the transactions of one stream; ids are 128-bit numbers.  All raise Unavailable too."""

    def __init__(self, controller: ControllerClient, stream: StreamName) -> None:
        self._controller = controller
        self._stream = stream

    def __repr__(self) -> str:
        return f"TransactionCalls({self._stream}, {self._controller!r})"

    async def create(self, lease_ms: int) -> tuple[int, list[SegmentRange]]:
        """Begin a transaction: its id, and the segments it has parts beside.  Raises NotFound (stream), Invalid
        (lease)."""
        request = pb.CreateTxnRequest(streamInfo=convert.stream_info(self._stream), lease=lease_ms)
        reply = await self._controller.named(self._stream, self._controller.stub.createTransaction, request)
        return convert.transaction(reply.txnId), [_range(found) for found in reply.activeSegments]

    async def parts(self, transaction: int) -> list[SegmentRange]:
        """Return the segments a transaction has parts beside: those of its epoch.  Raises NotFound."""
        # The upper 32 bits of an id are the epoch in which it was begun.
        request = pb.GetEpochSegmentsRequest(streamInfo=convert.stream_info(self._stream), epoch=transaction >> 96)
        try:
            reply = await self._controller.call(self._controller.stub.getEpochSegments, request)
        except NotFound:
            raise NotFound(f"stream {self._stream} has no transaction {transaction:032x}") from None
        return [_range(found) for found in reply.segmentRanges]

    async def ping(self, transaction: int, lease_ms: int) -> TransactionStatus:
        """Renew the lease.  Raises Invalid when it may not be renewed any more."""
        request = pb.PingTxnRequest(
            streamInfo=convert.stream_info(self._stream), txnId=convert.transaction_message(transaction), lease=lease_ms
        )
        reply = await self._controller.call(self._controller.stub.pingTransaction, request)
        if reply.status not in _PING:
            raise Invalid(f"transaction {transaction:032x}: {_Ping.Status.Name(reply.status)}")
        return _PING[reply.status]

    async def commit(self, transaction: int, writer: str, time: int | None, *, wait: bool) -> TransactionStatus:
        """Decide to commit a transaction.  Returns its status then, UNKNOWN if not reported.

        Raises NotFound, Conflict (it was aborted)."""
        request = self._request(transaction, writer, time)
        return await self._decide(self._controller.stub.commitTransaction, request, transaction, wait, "aborted")

    async def abort(self, transaction: int, *, wait: bool) -> TransactionStatus:
        """Abort a transaction, as `commit` commits one.  Raises NotFound, Conflict (it was committed)."""
        request = self._request(transaction)
        return await self._decide(self._controller.stub.abortTransaction, request, transaction, wait, "committed")

    async def status(self, transaction: int) -> TransactionStatus:
        """Return the status of a transaction; UNKNOWN when it never was, or ended long ago.  Raises NotFound
        (stream)."""
        request = self._request(transaction)
        reply = await self._controller.named(self._stream, self._controller.stub.checkTransactionState, request)
        return TransactionStatus(reply.state)

    async def completed(self) -> list[tuple[int, TransactionStatus]]:
        """List the transactions that ended last, with how; some hundreds at most.  Raises NotFound (stream)."""
        request = pb.ListCompletedTxnRequest(streamInfo=convert.stream_info(self._stream))
        reply = await self._controller.named(self._stream, self._controller.stub.listCompletedTransactions, request)
        committed = pb.TxnResponse.COMMITTED
        return [
            (
                convert.transaction(found.txnId),
                TransactionStatus.COMMITTED if found.status == committed else TransactionStatus.ABORTED,
            )
            for found in reply.response
        ]

    async def _decide(
        self, method: Any, request: pb.TxnRequest, transaction: int, wait: bool, otherwise: str
    ) -> TransactionStatus:
        """`wait`: the server replies when it is executed.  UNKNOWN when it reports no status (docs/decisions/0404)."""
        if wait:
            request.outcomeWithinMillis = OUTCOME_WITHIN_MS
        reply = await self._controller.named(self._stream, method, request)
        if reply.status == pb.TxnStatus.FAILURE:
            raise Conflict(
                f"transaction {transaction:032x} of {self._stream} was {otherwise} (by another client, or because its "
                "lease expired)"
            )
        if reply.status == pb.TxnStatus.TRANSACTION_NOT_FOUND:
            raise NotFound(f"stream {self._stream} has no transaction {transaction:032x}, or it ended long ago")
        if reply.status == pb.TxnStatus.STREAM_NOT_FOUND:
            raise NotFound(f"stream {self._stream} does not exist")
        return TransactionStatus(reply.outcome)

    def _request(self, transaction: int, writer: str = "", time: int | None = None) -> pb.TxnRequest:
        return pb.TxnRequest(
            streamInfo=convert.stream_info(self._stream),
            txnId=convert.transaction_message(transaction),
            writerId=writer,
            timestamp=NO_TIMESTAMP if time is None else time,
        )


def _range(found: pb.SegmentRange) -> SegmentRange:
    return SegmentRange(SegmentId.unpack(found.segmentId.segmentId), found.minKey, found.maxKey)
