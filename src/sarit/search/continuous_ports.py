"""What continuous queries need of the world beside the stream and the rows (`ports.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set

    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName
    from sarit.search.continuous_plan import Outcome, Proof
    from sarit.search.continuous_queries import TimedBatch
    from sarit.search.continuous_rows import Maker
    from sarit.search.query import Query


class OutputProblem(Invalid):
    """An output cannot be written to: it does not exist, it is sealed, or it is a mirror."""

    def __init__(self, output: StreamName, why: str) -> None:
        super().__init__(why)
        self.output = output


class QueryLanguage(Protocol):
    """How texts of queries and events are understood, with one mapping.  Calls take time: make them on a worker."""

    def query(self, text: str) -> Query:
        """Return the query of a text.  Raises Invalid."""

    def batch(self, events: Sequence[bytes], wanted: Mapping[str, Set[str]]) -> TimedBatch:
        """Return the index of some events.  `wanted`: of each text the tokens that queries ask for."""


class OpenTransaction(Protocol):
    """A transaction on an output that gets matches.  `id`: names it to others."""

    id: str

    async def write(self, events: Sequence[tuple[str, bytes]]) -> None:
        """Write events, each with its routing key; wait while too many are not acknowledged.  Raises OutputProblem,
        Unavailable."""

    async def flush(self) -> None:
        """Wait until everything is durable, and the lease is as long as at the begin.  Raises OutputProblem,
        Unavailable."""

    async def abort(self) -> None:
        """Discard the transaction, if possible; its lease discards it later otherwise.  Raises nothing."""

    def release(self) -> None:
        """Leave the transaction to whoever commits it by its id, until its lease ends."""


class Outputs(Protocol):
    """The streams that matches are written to."""

    async def problem(self, output: StreamName) -> str:
        """Return why a stream cannot be written to; empty: it can.  Raises Unavailable."""

    async def tail(self, output: StreamName) -> StreamCut:
        """Return the cut of the tail.  Raises OutputProblem, Unavailable."""

    async def begin(self, output: StreamName) -> OpenTransaction:
        """Begin a transaction, with the longest lease.  Raises OutputProblem, Unavailable."""

    async def commit(self, output: StreamName, transaction: str) -> Outcome:
        """Commit a transaction, which may have been committed before, and say how it ended.  Raises Unavailable."""

    async def has(self, output: StreamName, after: StreamCut, proof: Proof) -> bool | None:
        """Return whether a match is in an output behind a cut; None: nobody can tell, since events there were truncated
        or are too many, or the stream was deleted and made again.  Raises Unavailable."""


class Rights(Protocol):
    """The rules of access, as they were when they were read last."""

    async def refresh(self) -> None:
        """Read the rules again if they have changed.  Raises Unavailable."""

    def problem(self, maker: Maker, source: StreamName, output: StreamName) -> str:
        """Return why a maker may not have matches of a stream in an output; empty: it may."""
