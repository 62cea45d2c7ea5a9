"""The calls on transactions, and on writers' notes of event time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.controller.limits import MAX_OUTCOME_WAIT_SECONDS, MAX_WRITER_ID_BYTES
from sarit.controller.model.records import TxnState
from sarit.controller.model.transactions import LeaseTooLarge, TooOld
from sarit.controller.writers import EarlierTime, UnknownWriter
from sarit.core.errors import Conflict, Invalid, NotFound, SaritError
from sarit.rpc.convert import segment_range, stream_name, transaction, transaction_message
from sarit.rpc.generated import controller_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sarit.controller.catalog import Catalog
    from sarit.controller.transactions.transactions import Transactions
    from sarit.controller.writers import Writers

_Ping = pb.PingTxnStatus
_Txn = pb.TxnStatus
_Time = pb.TimestampResponse
_Remove = pb.RemoveWriterResponse

_PING = {
    TxnState.OPEN: _Ping.OK,
    TxnState.COMMITTING: _Ping.COMMITTED,
    TxnState.COMMITTED: _Ping.COMMITTED,
    TxnState.ABORTING: _Ping.ABORTED,
    TxnState.ABORTED: _Ping.ABORTED,
    TxnState.UNKNOWN: _Ping.UNKNOWN,
}


class TransactionCalls:
    """Rpcs on transactions and writers."""

    def __init__(self, catalog: Catalog, transactions: Transactions, writers: Writers) -> None:
        self._catalog = catalog
        self._transactions = transactions
        self._writers = writers

    async def createTransaction(self, request: pb.CreateTxnRequest) -> pb.CreateTxnResponse:
        name = stream_name(request.streamInfo)
        txn, segments = await self._transactions.create(name, request.lease)
        ranges = [segment_range(name, s.segment, s.low, s.high) for s in segments]
        return pb.CreateTxnResponse(txnId=transaction_message(txn), activeSegments=ranges)

    async def pingTransaction(self, request: pb.PingTxnRequest) -> pb.PingTxnStatus:
        name = stream_name(request.streamInfo)
        # A missing stream is a gRPC error; a missing transaction is the status UNKNOWN.
        await self._catalog.require(name)
        try:
            state = await self._transactions.ping(name, transaction(request.txnId), request.lease)
        except LeaseTooLarge:
            return _Ping(status=_Ping.LEASE_TOO_LARGE)
        except TooOld:
            return _Ping(status=_Ping.MAX_EXECUTION_TIME_EXCEEDED)
        return _Ping(status=_PING[state])

    async def commitTransaction(self, request: pb.TxnRequest) -> pb.TxnStatus:
        name, txn = stream_name(request.streamInfo), transaction(request.txnId)
        if len(request.writerId.encode()) > MAX_WRITER_ID_BYTES:
            raise Invalid(f"a writer's id has at most {MAX_WRITER_ID_BYTES} bytes; give a shorter one")
        return await self._decide(request, self._transactions.commit(name, txn, request.writerId, request.timestamp))

    async def abortTransaction(self, request: pb.TxnRequest) -> pb.TxnStatus:
        name, txn = stream_name(request.streamInfo), transaction(request.txnId)
        return await self._decide(request, self._transactions.abort(name, txn))

    async def _decide(self, request: pb.TxnRequest, work: Awaitable[None]) -> pb.TxnStatus:
        try:
            await work
        except Conflict:
            return _Txn(status=_Txn.FAILURE)
        except NotFound:
            found = await self._catalog.find(stream_name(request.streamInfo))
            return _Txn(status=_Txn.STREAM_NOT_FOUND if found is None else _Txn.TRANSACTION_NOT_FOUND)
        # Official clients do not set this field, which is Sarit's own; they poll the state instead.
        if not request.outcomeWithinMillis:
            return _Txn(status=_Txn.SUCCESS)
        seconds = min(request.outcomeWithinMillis / 1000, MAX_OUTCOME_WAIT_SECONDS)
        name, txn = stream_name(request.streamInfo), transaction(request.txnId)
        try:
            state = await self._transactions.outcome(name, txn, seconds)
        except SaritError:  # the decision is durable; the client can ask for the outcome
            state = TxnState.UNKNOWN
        return _Txn(status=_Txn.SUCCESS, outcome=int(state))  # type: ignore[arg-type]

    async def checkTransactionState(self, request: pb.TxnRequest) -> pb.TxnState:
        name = stream_name(request.streamInfo)
        await self._catalog.require(name)
        state = await self._transactions.state_after_completion(name, transaction(request.txnId))
        return pb.TxnState(state=int(state))  # type: ignore[arg-type]

    async def listCompletedTransactions(self, request: pb.ListCompletedTxnRequest) -> pb.ListCompletedTxnResponse:
        reply = pb.TxnResponse
        ended = await self._transactions.completed_log.latest(stream_name(request.streamInfo))
        return pb.ListCompletedTxnResponse(
            response=[
                reply(
                    txnId=transaction_message(txn),
                    status=reply.COMMITTED if state is TxnState.COMMITTED else reply.ABORTED,
                )
                for txn, state in ended
            ]
        )

    # -- time -------------------------------------------------------------------------------------

    async def noteTimestampFromWriter(self, request: pb.TimestampFromWriter) -> pb.TimestampResponse:
        position = request.position
        try:
            name = stream_name(position.streamInfo)
            await self._writers.note(name, request.writer, request.timestamp, dict(position.cut))
        except EarlierTime:
            return _Time(result=_Time.INVALID_TIME)
        except Invalid:
            return _Time(result=_Time.INVALID_POSITION)
        return _Time(result=_Time.SUCCESS)

    async def removeWriter(self, request: pb.RemoveWriterRequest) -> pb.RemoveWriterResponse:
        try:
            await self._writers.remove(stream_name(request.stream), request.writer)
        except UnknownWriter:
            return _Remove(result=_Remove.UNKNOWN_WRITER)
        except NotFound:
            return _Remove(result=_Remove.STREAM_DOES_NOT_EXIST)
        return _Remove(result=_Remove.SUCCESS)
