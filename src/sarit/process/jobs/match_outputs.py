"""The outputs of continuous queries as a client of this process writes them: by transactions."""

from __future__ import annotations

import logging
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING
from uuid import UUID

from sarit.client.core.values import TransactionStatus
from sarit.client.transactions.transaction import TransactionalWriter
from sarit.core.errors import Conflict, Forbidden, Invalid, NotFound, SaritError, Sealed, Unavailable
from sarit.process.jobs.event_source import StreamEvents
from sarit.process.jobs.stream_source import StreamSource
from sarit.process.limits import CONTINUOUS_LEASE_SECONDS, MAX_CONTINUOUS_SEARCHED_BYTES
from sarit.search.continuous_matches import is_proof
from sarit.search.continuous_plan import Outcome
from sarit.search.continuous_ports import OutputProblem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sarit.client.session.session import Session
    from sarit.client.transactions.transaction import Transaction
    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName
    from sarit.env.ports import Clock
    from sarit.search.continuous_plan import Proof

_log = logging.getLogger("sarit.search")

_ENDS = {
    TransactionStatus.COMMITTED: Outcome.COMMITTED,
    TransactionStatus.COMMITTING: Outcome.COMMITTED,
    TransactionStatus.ABORTED: Outcome.ABORTED,
    TransactionStatus.ABORTING: Outcome.ABORTED,
    TransactionStatus.UNKNOWN: Outcome.UNKNOWN,
}


@contextmanager
def naming_output(output: StreamName) -> Iterator[None]:
    """Run a block in which errors that say that an output takes no events become OutputProblem."""
    try:
        yield
    except OutputProblem:
        raise
    except (NotFound, Sealed, Invalid, Forbidden) as error:
        raise OutputProblem(output, str(error)) from None
    except Conflict as error:  # its lease was lost: the batch is asked about again
        raise Unavailable(f"a transaction on {output} has ended before its time: {error}") from None


class MatchTransaction:
    """A transaction that gets matches."""

    def __init__(
        self, output: StreamName, writer: TransactionalWriter[bytes], transaction: Transaction[bytes]
    ) -> None:  # fmt: skip
        self.id = transaction.id.hex
        self._output = output
        self._writer = writer
        self._transaction = transaction

    def __repr__(self) -> str:
        return f"<MatchTransaction {self.id} on {self._output}>"

    async def write(self, events: Sequence[tuple[str, bytes]]) -> None:
        """Write events, each with its routing key; wait while too many are not acknowledged.  Raises OutputProblem,
        Unavailable."""
        with naming_output(self._output):
            for key, data in events:
                self._transaction.write(data, key=key)
            await self._transaction.drain()

    async def flush(self) -> None:
        """Wait until everything is durable, and the lease is as long as at the begin.  Raises OutputProblem,
        Unavailable."""
        with naming_output(self._output):
            await self._transaction.flush()
            await self._writer.renew(self._transaction.id)

    async def abort(self) -> None:
        """Discard the transaction, if possible; its lease discards it later otherwise.  Raises nothing."""
        try:
            await self._transaction.abort(wait=False)
        except SaritError as error:
            _log.info("transaction %s on %s is left to its lease: %s", self.id, self._output, error)

    def release(self) -> None:
        """Leave the transaction to whoever commits it by its id, until its lease ends."""
        with suppress(Conflict):  # the transaction was aborted, and so released
            self._transaction.release()


class StreamOutputs:
    """The outputs of the queries of one stream, by a session of a client of this process, which may do everything."""

    def __init__(self, session: Session, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self._writers: dict[StreamName, TransactionalWriter[bytes]] = {}

    def __repr__(self) -> str:
        return f"<StreamOutputs, {len(self._writers)} streams>"

    def _writer(self, output: StreamName) -> TransactionalWriter[bytes]:
        if output not in self._writers:
            self._writers[output] = TransactionalWriter(self._session, output, lease_seconds=CONTINUOUS_LEASE_SECONDS)
        return self._writers[output]

    async def problem(self, output: StreamName) -> str:
        """Return why a stream cannot be written to; empty: it can.  Raises Unavailable."""
        try:
            await (await self.begin(output)).abort()
        except OutputProblem as error:
            return str(error) or "it cannot be written to"
        return ""

    async def tail(self, output: StreamName) -> StreamCut:
        """Return the cut of the tail.  Raises OutputProblem, Unavailable."""
        with naming_output(output):
            return await StreamSource(self._session, output, self._clock).edge("tail")

    async def begin(self, output: StreamName) -> MatchTransaction:
        """Begin a transaction, with the longest lease.  Raises OutputProblem, Unavailable."""
        with naming_output(output):
            writer = self._writer(output)
            return MatchTransaction(output, writer, await writer.begin())

    async def commit(self, output: StreamName, transaction: str) -> Outcome:
        """Commit a transaction, which may have been committed before, and say how it ended.  Raises Unavailable."""
        writer, number = self._writer(output), UUID(hex=transaction)
        try:
            await writer.commit(number)
        except (Conflict, NotFound):
            try:
                status = await writer.status(number)
            except NotFound:
                return Outcome.GONE
            if status not in _ENDS:
                raise Unavailable(f"transaction {transaction} on {output} is {status.name.lower()}") from None
            return _ENDS[status]
        return Outcome.COMMITTED

    async def has(self, output: StreamName, after: StreamCut, proof: Proof) -> bool | None:
        """Return whether a match is in an output behind a cut; None: nobody can tell, since events there were truncated
        or are too many, or the stream was deleted and made again.  Raises Unavailable."""
        try:
            return await self._has(output, after, proof)
        except NotFound:  # no segment of the cut: what had the match is gone
            return None

    async def _has(self, output: StreamName, after: StreamCut, proof: Proof) -> bool | None:
        source, at, seen, lost = StreamEvents(self._session, output, self._clock), after, 0, 0
        async with aclosing(source.follow(after)) as slices:
            async for found in slices:
                if found is None:
                    if not await source.bytes_behind(at):
                        return None if lost else False
                    continue
                if any(is_proof(event, proof) for event in found.events):
                    return True
                at = found.end
                lost += found.lost_bytes
                seen += sum(map(len, found.events))
                if seen > MAX_CONTINUOUS_SEARCHED_BYTES:
                    return None
        return None

    async def close(self) -> None:
        """Leave open transactions to their leases."""
        for writer in self._writers.values():
            await writer.close()
