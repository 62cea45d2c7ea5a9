"""The blocking client: `client = sarit.connect("127.0.0.1:9090")`.

    with sarit.connect("127.0.0.1:9090") as client:
        client.create_scope("demo")
        client.create_stream("demo/numbers")
        with client.writer("demo/numbers") as writer:
            writer.write("one", key="a")
        for event in client.reader("demo/numbers", end="tail"):
            print(event)

The asyncio client (`aio.py`) on a loop in a background thread; every method is its twin's, waited for.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sarit.client import aio
from sarit.client.blocking.coordination import Coordination
from sarit.client.blocking.groups import ReaderGroups
from sarit.client.blocking.handles import Stream
from sarit.client.blocking.loop_thread import LoopThread
from sarit.client.blocking.streams import ByteReader, ByteWriter, EventReader, EventWriter
from sarit.client.blocking.tables import Table, Tables
from sarit.client.blocking.transactions import TransactionalWriter
from sarit.client.core.session import RETRY_TIMEOUT_SECONDS
from sarit.client.transactions.transaction import DEFAULT_LEASE_SECONDS
from sarit.client.writer.writer import DEFAULT_BUFFER_BYTES
from sarit.core.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Never

    import pyarrow as pa

    from sarit.client.core.values import SegmentInfo, StreamInfo, Successor
    from sarit.core.cuts import StreamCut
    from sarit.core.names import SegmentId, StreamName
    from sarit.core.policies import RetentionPolicy, ScalingPolicy


def connect(
    address: str = "127.0.0.1:9090",
    *,
    retry_timeout: float = RETRY_TIMEOUT_SECONDS,
    wait: float = 0.0,
    **retired: Never,
) -> Client:
    """Connect to the controller at `HOST:PORT`.  Raises Unavailable when no controller answers, Invalid (the address).

    `retry_timeout`: for how many seconds writers and readers retry before they raise Unavailable.  `wait`: for how
    many seconds to retry when no controller answers yet, as while a node starts.
    """
    aio.refuse_retired(retired)
    thread = LoopThread()
    try:
        return Client(thread, thread.run(aio.connect(address, retry_timeout=retry_timeout, wait=wait)))
    except BaseException:
        thread.close()
        raise


class Client:
    """A connection to Sarit; may be shared by threads.  Its writers and readers end with `close`."""

    def __init__(self, thread: LoopThread, client: aio.Client) -> None:
        self._thread = thread
        self._client = client
        self._run = thread.run
        self.coordination = Coordination(thread, client.coordination)
        self.reader_groups = ReaderGroups(thread, client.reader_groups)
        self.tables = Tables(thread, client.tables)

    def __repr__(self) -> str:
        return f"blocking {self._client!r}"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything; writers that were not closed lose what they have not flushed."""
        if self._thread.alive:
            with suppress(Invalid):  # another thread closes it, too
                self._run(self._client.close())
            self._thread.close()

    # -- scopes -------------------------------------------------------------------------------

    def create_scope(self, scope: str) -> bool:
        """True when created, False when it existed.  Raises Invalid."""
        return self._run(self._client.create_scope(scope))

    def list_scopes(self) -> list[str]:
        """All scopes, also those the system uses."""
        return self._run(self._client.list_scopes())

    def delete_scope(self, scope: str, *, recursive: bool = False) -> None:
        """Delete an empty scope, or with `recursive` all it holds.  Raises NotFound, Conflict (not empty)."""
        self._run(self._client.delete_scope(scope, recursive=recursive))

    def list_streams(self, scope: str, *, tag: str | None = None, internal: bool = False) -> list[StreamName]:
        """The streams of a scope, those with `tag`; `internal`: also those kept by the system.  Raises NotFound."""
        return self._run(self._client.list_streams(scope, tag=tag, internal=internal))

    # -- streams ------------------------------------------------------------------------------

    def create_stream(
        self,
        scope: str | StreamName,
        stream: str | None = None,
        segments: int = 1,
        *,
        scaling: ScalingPolicy | None = None,
        retention: RetentionPolicy | None = None,
        tags: Sequence[str] = (),
    ) -> bool:
        """True when created, False when it existed (and keeps its configuration).  Name it by one string or two.

        `segments` is the number it begins with; `scaling` instead says more.  Raises NotFound (scope), Invalid.
        """
        return self._run(
            self._client.create_stream(scope, stream, segments, scaling=scaling, retention=retention, tags=tags)
        )

    def update_stream(
        self,
        scope: str | StreamName,
        stream: str | None = None,
        *,
        segments: int | None = None,
        scaling: ScalingPolicy | None = None,
        retention: RetentionPolicy | None = None,
        tags: Sequence[str] | None = None,
    ) -> None:
        """Change what is given, keep the rest.  Raises NotFound, Sealed, Invalid."""
        self._run(
            self._client.update_stream(
                scope, stream, segments=segments, scaling=scaling, retention=retention, tags=tags
            )
        )

    def stream_info(self, scope: str | StreamName, stream: str | None = None) -> StreamInfo:
        """Configuration, active segments, head and tail.  Raises NotFound."""
        return self._run(self._client.stream_info(scope, stream))

    def seal_stream(self, scope: str | StreamName, stream: str | None = None) -> None:
        """Let it take no more events, for ever.  Raises NotFound."""
        self._run(self._client.seal_stream(scope, stream))

    def truncate_stream(self, scope: str | StreamName, stream: str | None = None, *, cut: aio.Cut) -> None:
        """Forget everything before `cut` ("tail": everything).  Raises NotFound, Invalid."""
        self._run(self._client.truncate_stream(scope, stream, cut=cut))

    def delete_stream(self, scope: str | StreamName, stream: str | None = None, *, seal: bool = False) -> None:
        """Delete a sealed stream; `seal`: seal it first.  Raises NotFound, Conflict (not sealed)."""
        self._run(self._client.delete_stream(scope, stream, seal=seal))

    # -- data -----------------------------------------------------------------------------------

    def writer(
        self, stream: str | StreamName, *, name: str | None = None, buffer_bytes: int = DEFAULT_BUFFER_BYTES
    ) -> EventWriter:
        """A writer of events; it connects with the first event.  `write` waits when `buffer_bytes` are not acked.

        `name` is what it notes times under; some random one when it is not given."""
        writer = self._client.writer(stream, name=name, buffer_bytes=buffer_bytes)
        return EventWriter(self._thread, writer, buffer_bytes)

    def transactional_writer(
        self,
        stream: str | StreamName,
        *,
        name: str | None = None,
        lease_seconds: float = DEFAULT_LEASE_SECONDS,
        keep_alive: bool = True,
        buffer_bytes: int = DEFAULT_BUFFER_BYTES,
    ) -> TransactionalWriter:
        """A writer of transactions.  `lease_seconds` (10 to 600): how long one outlives a writer that is gone;
        `keep_alive` False: each ends after that time anyway.  Raises Invalid (its name)."""
        writer = self._client.transactional_writer(
            stream, name=name, lease_seconds=lease_seconds, keep_alive=keep_alive, buffer_bytes=buffer_bytes
        )
        return TransactionalWriter(self._thread, writer)

    def stream(self, stream: str | StreamName) -> Stream:
        """One stream by name: epochs, scaling, batch reads, cuts by distance, event time."""
        return Stream(self._thread, self._client.stream(stream))

    def table(self, table: str | StreamName) -> Table:
        """One key-value table by name; `client.tables` makes and lists them.  Raises Invalid (its name)."""
        return Table(self._thread, self._client.table(table))

    def reader(
        self, stream: str | StreamName, start: aio.Cut = "head", end: aio.Cut = None, *, skip_truncated: bool = False
    ) -> EventReader:
        """A reader of all events between two cuts.  Raises NotFound, Invalid.

        `start` and `end`: "head", "tail" (as of now), a StreamCut or its text; `end` None: follow the tail until the
        stream is sealed.  `skip_truncated`: go on behind what was truncated instead of raising.
        """

        async def opened() -> EventReader:
            reader = self._client.reader(stream, start, end, skip_truncated=skip_truncated)
            return EventReader(self._thread, await reader.open())

        return self._run(opened())

    def byte_writer(self, stream: str | StreamName) -> ByteWriter:
        """A writer of plain bytes to a stream of one segment."""
        return ByteWriter(self._thread, self._client.byte_writer(stream))

    def byte_reader(self, stream: str | StreamName, offset: int = 0, *, skip_truncated: bool = False) -> ByteReader:
        """A reader of plain bytes of a stream of one segment; `skip_truncated`: go on behind what was truncated."""
        return ByteReader(self._thread, self._client.byte_reader(stream, offset, skip_truncated=skip_truncated))

    def cut(self, stream: str | StreamName, which: aio.Cut) -> StreamCut | None:
        """ "head", "tail", the text of a cut, or a cut, as a cut.  Raises NotFound, Invalid."""
        return self._run(self._client.cut(aio.stream_name(stream), which))

    def stream_cut_head(self, stream: str | StreamName) -> StreamCut:
        """The oldest position.  Raises NotFound."""
        return self._run(self._client.stream_cut_head(stream))

    def stream_cut_tail(self, stream: str | StreamName) -> StreamCut:
        """The position behind the newest event as of now.  Raises NotFound."""
        return self._run(self._client.stream_cut_tail(stream))

    # -- segments -------------------------------------------------------------------------------

    def segment_infos(self, stream: str | StreamName, wanted: Iterable[SegmentId]) -> Mapping[SegmentId, SegmentInfo]:
        """Start, end and state of segments, asked at about one moment; those that are gone are left out."""
        return self._run(self._client.segment_infos(stream, list(wanted)))

    def successors(self, stream: str | StreamName, segment: SegmentId) -> list[Successor]:
        """What follows a segment, with all predecessors.  Raises NotFound."""
        return self._run(self._client.successors(stream, segment))

    def segment_batches(
        self, stream: str | StreamName, segment: SegmentId, start: int = 0, end: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The events of one segment between two byte offsets as record batches (event, segment, offset)."""
        return self._thread.iterate(self._client.segment_batches(stream, segment, start, end))
