"""The tables of one query of the console, for its process: found and read with the rights of who asks.

All calls but `begin` and `stop` are made on the query's thread, one after the other.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from sarit.admin.console.query_view import QueryTooLarge
from sarit.client.queries.access import QueryAccess
from sarit.client.queries.loop_bridge import LoopBridge
from sarit.client.queries.tables import ClientTables
from sarit.client.queries.values import ValueOptions
from sarit.core.errors import Corrupt, Invalid, NotFound, SaritError
from sarit.process.limits import MAX_QUERY_SCANS, MAX_QUERY_TABLES, QUERY_BATCH_BYTES
from sarit.serializers.column_choice import AUTO, BINARY
from sarit.sql.child import KINDS
from sarit.sql.child_protocol import Frame, Kind, frame, relation_frame
from sarit.sql.meter import ScanMeter, TooMuch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sarit.admin.console.query_view import QueryRequest
    from sarit.client.aio import Client
    from sarit.serializers.schema_source import SchemaSource
    from sarit.sql.child_protocol import Read
    from sarit.sql.ports import Relation


class QueryTables:
    """The tables that one query has named, and its scans of them.

    `failure`: the first error of a read, which the process of the query passes on as a text alone."""

    def __init__(self, client: Client, request: QueryRequest, schemas: SchemaSource | None) -> None:
        """`schemas`: those that the caller may read; None: the process has no registry, and asks no other one."""
        limit_bytes = request.limit_bytes
        self._bridge = LoopBridge()
        self._meter = ScanMeter(limit_bytes)
        self._limit_bytes = limit_bytes
        choice = BINARY if schemas is None and request.values == AUTO else request.values
        values = ValueOptions(choice, partial(_own, schemas))
        self._tables = ClientTables(QueryAccess(client.session, self._bridge, self._meter), values=values)
        self._relations: list[Relation] = []
        self._bytes: list[dict[int, int]] = []  # of each relation's parts
        self._scans: dict[int, Iterator[bytes]] = {}
        self.planned_bytes = 0
        self.failure: Exception | None = None

    def __repr__(self) -> str:
        return f"<QueryTables, {len(self._relations)} tables, {len(self._scans)} scans>"

    @property
    def read_bytes(self) -> int:
        """How many bytes of streams were read."""
        return self._meter.read_bytes

    def find(self, path: tuple[str, ...]) -> Frame:
        """Return the answer to FIND: a relation, names like this one, or why the query must not have it."""
        try:
            if len(self._relations) >= MAX_QUERY_TABLES:
                raise Invalid(f"the query names more than {MAX_QUERY_TABLES} tables")
            found = self._tables.find(path)
            if found is None:
                return frame(Kind.ABSENT, list(self._tables.near(path)))
            schema = found.schema.serialize().to_pybytes()
        except SaritError as error:
            return self._refusal(error)
        self._relations.append(found)
        self._bytes.append({part.number: part.bytes for part in found.parts})
        return relation_frame(len(self._relations) - 1, found.parts, schema)

    def begin(self, read: Read) -> None:
        """Begin a scan.  Raises Corrupt: there is no such table or part."""
        if read.scan in self._scans or len(self._scans) >= MAX_QUERY_SCANS:
            raise Corrupt("a scan of the query has a number that is taken, or there are too many")
        if not 0 <= read.relation < len(self._relations):
            raise Corrupt("a scan of the query reads a table that it has not found")
        try:
            self.planned_bytes += sum(map(self._bytes[read.relation].__getitem__, read.numbers))
        except KeyError:
            raise Corrupt("a scan of the query reads a part that there is not") from None
        self._scans[read.scan] = self._batches(self._relations[read.relation], read)

    def _batches(self, relation: Relation, read: Read) -> Iterator[bytes]:
        for batch in relation.read(read.numbers, read.columns):
            yield from _encoded(batch)

    def next(self, scan: int) -> Frame:
        """Return the answer to NEXT: rows, the end of the scan, or why it failed.  Raises Corrupt."""
        found = self._scans.get(scan)
        if found is None:
            raise Corrupt("the query reads from a scan that it has not begun")
        try:
            data = next(found, None)
        except SaritError as error:
            return self._refusal(error)
        if data is None:
            del self._scans[scan]
            return Frame(Kind.END)
        return Frame(Kind.BATCH, data)

    def close_scan(self, scan: int) -> None:
        """End a scan that the query needs no more."""
        if (found := self._scans.pop(scan, None)) is not None:
            found.close()  # type: ignore[attr-defined]

    def stop(self) -> None:
        """End the reads under way; called on the event loop."""
        self._bridge.close()

    def close(self) -> None:
        """End all scans."""
        for scan in list(self._scans):
            self.close_scan(scan)

    def _refusal(self, error: SaritError) -> Frame:
        if self.failure is None:
            large = isinstance(error, TooMuch)
            self.failure = QueryTooLarge(self.planned_bytes, self._limit_bytes) if large else error
        kind = next((name for name, known in KINDS.items() if isinstance(error, known)), "unavailable")
        return frame(Kind.FAILED, {"kind": kind, "text": str(error)})


def _own(schemas: SchemaSource | None, _: str) -> SchemaSource:
    """Return the registry for events with a header.  Raises NotFound: there is none."""
    if schemas is None:
        raise NotFound("this process has no schema registry: read the values as bytes, or as JSON")
    return schemas


def _encoded(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield rows as streams of Arrow's IPC, in halves where they are large.  Raises Invalid: one row is too large."""
    if batch.nbytes > QUERY_BATCH_BYTES and batch.num_rows > 1:
        half = batch.num_rows // 2
        yield from _encoded(batch.slice(0, half))
        yield from _encoded(batch.slice(half))
        return
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    yield sink.getvalue().to_pybytes()
