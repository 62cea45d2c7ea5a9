"""The asyncio client, for users at `sarit.aio`.

    async with connect("127.0.0.1:9090") as client:
        await client.create_scope("demo")
        await client.create_stream("demo/numbers")
        async with client.writer("demo/numbers") as writer:
            writer.write("one", key="a")
            await writer.flush()
        async for event in client.reader("demo/numbers", end="tail"):
            ...

A client belongs to the event loop it was made on.  The blocking client is `sarit.connect`.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sarit.client.core import pages as listing
from sarit.client.core import segments
from sarit.client.core.addresses import default_traces, parse_addresses
from sarit.client.core.call_traces import CallTraces
from sarit.client.core.connection import first_request_id
from sarit.client.core.contexts import choose, with_login
from sarit.client.core.controller import ControllerClient
from sarit.client.core.iteration import Items, Mapped, Resumed
from sarit.client.core.login import Credentials, Tls, default_credentials, default_tls, refuse_plain
from sarit.client.core.retry import RetryPolicy
from sarit.client.core.values import Cut, SegmentInfo, StreamInfo, Successor
from sarit.client.groups.group import ReaderGroups
from sarit.client.limits import (
    CONTROLLER_KEEP_ALIVE_SECONDS,
    CONTROLLER_PING_SECONDS,
    DEFAULT_RETRY_TIMEOUT_SECONDS,
    DEFAULT_TRANSACTION_LEASE_SECONDS,
    DEFAULT_WRITER_BUFFER_BYTES,
)
from sarit.client.reader.decoding import decoding_of
from sarit.client.reader.reader import EventReader
from sarit.client.session.guard import check_call, guarded
from sarit.client.session.session import Session
from sarit.client.session.tracebacks import trimmed
from sarit.client.streams.byte_streams import ByteReader, ByteWriter
from sarit.client.streams.links import Links
from sarit.client.streams.segment_batches import segment_batches
from sarit.client.streams.stream import Stream
from sarit.client.sync.coordination import Coordination
from sarit.client.tables.table import Table, Tables, table_name
from sarit.client.transactions.transaction import TransactionalWriter
from sarit.client.writer.encoding import encoding_of
from sarit.client.writer.writer import EventWriter
from sarit.core.errors import Invalid, SaritError
from sarit.core.names import SegmentId, StreamName, is_user_name
from sarit.core.policies import RetentionPolicy, ScalingPolicy, StreamConfig
from sarit.sql.limits import QUERY_MEMORY_BYTES, UNCONFIRMED_QUERY_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Generator, Iterable, Mapping, Sequence
    from typing import Never

    import pyarrow as pa

    from sarit.client.core.typed import V, W
    from sarit.client.search.continuous import ContinuousQueries
    from sarit.client.search.index_search import Searches
    from sarit.client.structures.structures import Structures
    from sarit.core.cuts import StreamCut
    from sarit.env.ports import Env
    from sarit.rpc.in_process import LocalChannel
    from sarit.serializers.protocols import Deserializer, Serializer

RETIRED_ARGUMENTS: Final = {"patience": "retry_timeout"}


def stream_name(scope: str | StreamName, stream: str | None = None) -> StreamName:
    """`("scope", "stream")`, `("scope/stream",)` or a StreamName.  Raises Invalid."""
    if isinstance(scope, StreamName):
        return scope
    return StreamName.parse(scope if stream is None else f"{scope}/{stream}")


def refuse_retired(arguments: Mapping[str, object]) -> None:
    """Raises TypeError for keyword arguments that `connect` does not have; for a retired one it names the new one."""
    for name in arguments:
        new = RETIRED_ARGUMENTS.get(name)
        suggestion = f": it is {new!r} now" if new else ""
        raise TypeError(f"connect() got an unexpected keyword argument {name!r}{suggestion}")


def connect(
    address: str | None = None,
    *,
    retry_timeout: float = DEFAULT_RETRY_TIMEOUT_SECONDS,
    wait: float = 0.0,
    credentials: Credentials | None = None,
    tls: Tls | None = None,
    **retired: Never,
) -> Connecting:
    """Connect to the controller at `HOST:PORT`.  Raises Unreachable, TimedOut, Invalid (the address).

    `async with connect(...) as client` closes the client at the end; `client = await connect(...)` leaves that to you.
    Of a cluster, name several controllers with commas, as `HOST:PORT,HOST:PORT`: when one fails, its calls go to the
    next.
    Without an address it is found as that of a command: the variable SARIT_CONTROLLER; the context that SARIT_CONTEXT
    names; the one that `sarit context use` chose; 127.0.0.1:9090.  A context may say how to log in, too.
    `retry_timeout`: for how many seconds every call of the client goes on trying while the node does not answer, before
    it raises Unavailable; 0: one attempt.  `wait`: for how many seconds to wait for a node that is not there yet, as
    while it starts; without it the first failure is raised, so that a wrong address shows at once.
    `credentials`, `tls`: who we are, and how to know the server; without them the environment says so
    (`client/core/login.py`).  `tls://` before the address asks for TLS, too.  Without TLS, a log-in at another machine
    raises Invalid.
    """
    refuse_retired(retired)
    return Connecting(_connect(address, retry_timeout, wait, credentials, tls))


async def open_client(
    address: str | None = None,
    *,
    retry_timeout: float = DEFAULT_RETRY_TIMEOUT_SECONDS,
    wait: float = 0.0,
    credentials: Credentials | None = None,
    tls: Tls | None = None,
    env: Env | None = None,
) -> Client:
    """Connect as `connect` does, in a given `env`; None: in the real one."""
    check_call(connect, address, retry_timeout=retry_timeout, wait=wait)
    real = env is None
    environ: Mapping[str, str] = os.environ
    if address is None:
        chosen = choose()
        address, environ = chosen.controller, with_login(environ, chosen.login)
    if credentials is None:
        credentials = default_credentials(environ)
    if tls is None:
        tls = default_tls(address, environ)
    context = tls.context() if tls is not None else None
    if env is None:
        from sarit.env.real import real_env

        use = None if context is None else lambda: context
        env = real_env(client_tls=use, traces=default_traces(), service="sarit-client")
    policy = RetryPolicy(retry_timeout)
    addresses = parse_addresses(address)
    if context is None and real:
        refuse_plain(credentials, (host for host, _ in addresses), environ)
    attempt_seconds = policy.attempt_of(len(addresses))
    controller = ControllerClient(
        addresses, attempt_seconds, min(policy.keep_alive_seconds, CONTROLLER_KEEP_ALIVE_SECONDS), credentials, context,
        env.clock, CallTraces.of(env), first_request_id(env.random),
    )  # fmt: skip
    tokens = controller.tokens
    session = Session(env, controller, policy, *() if tokens is None else (tokens.forget,))
    session.parts.holds_readers = not real
    try:
        # Not by `retry_timeout`: a wrong address must show at once.
        once_each = RetryPolicy(wait, min_attempt=CONTROLLER_PING_SECONDS * len(addresses))
        await session.with_retry(controller.ping, once_each)
    except BaseException:
        # Also when cancelled: nobody else has the controller's channel.
        session.ended = "the client was never connected"
        await controller.close()
        raise
    return Client(session)


class Connecting(Coroutine[Any, Any, "Client"]):
    """A connection being made: await it for its client, or enter it as a block, which closes the client at its end."""

    __module__ = "sarit.aio"
    __slots__ = ("_client", "_work")

    def __init__(self, work: Coroutine[Any, Any, Client]) -> None:
        self._work = work
        self._client: Client | None = None

    # A coroutine in every respect: tasks and `asyncio.run` take it as they took the coroutine of before.

    def send(self, value: Any, /) -> Any:
        """Resume the work; called by the event loop."""
        return self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an error inside of the work; called by the event loop."""
        return self._work.throw(*error)

    def close(self) -> None:
        """End the work before it is done."""
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Client]:
        return self._work.__await__()

    async def __aenter__(self) -> Client:
        self._client = await self._work
        return self._client

    async def __aexit__(self, *_: object) -> None:
        assert self._client is not None
        await self._client.close()


async def _connect(
    address: str | None, retry_timeout: float, wait: float, credentials: Credentials | None, tls: Tls | None
) -> Client:
    try:
        return await open_client(address, retry_timeout=retry_timeout, wait=wait, credentials=credentials, tls=tls)
    except SaritError as error:
        raise trimmed(error) from None


def connect_in_process(
    address: str, channel: LocalChannel, env: Env, retry_timeout: float, credentials: Credentials | None
) -> Client:
    """Return a client of the controller in this process, at `address`; it reaches stores by the network."""
    policy = RetryPolicy(retry_timeout)
    controller = ControllerClient(
        parse_addresses(address), policy.attempt_of(1), credentials=credentials, clock=env.clock,
        traces=CallTraces.of(env), first_request_id=first_request_id(env.random), local=channel,
    )  # fmt: skip
    tokens = controller.tokens
    session = Session(env, controller, policy, *() if tokens is None else (tokens.forget,))
    session.parts.holds_readers = False
    return Client(session)


async def _config(session: Session, name: StreamName) -> StreamConfig:
    return await session.with_retry(lambda: session.controller.stream_config(name))


@guarded("session", local=("close",))
class Client:
    """A connection to Sarit.  Its writers and readers share its connections; `close` ends them."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._tables = Tables(session)
        self._coordination = Coordination(session)
        self._reader_groups = ReaderGroups(session)
        self._links = Links(session)

    def __repr__(self) -> str:
        return f"Client({self.session.controller.address}, {self.session.state()})"

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all writers and readers; a writer that was not closed loses what it has not flushed."""
        await self.session.close()

    @property
    def reader_groups(self) -> ReaderGroups:
        """The reader groups: create, open, list and delete them."""
        return self._reader_groups

    @property
    def tables(self) -> Tables:
        """The key-value tables: create, list and delete them; `client.table(name)` reads and writes one."""
        return self._tables

    @property
    def coordination(self) -> Coordination:
        """Shared state of processes: revisioned streams, synchronizers, memberships, elections, settings."""
        return self._coordination

    @property
    def structures(self) -> Structures:
        """Data structures that many processes share: counters, maps, sets, lists, queues."""
        # Imported here: a client that opens none does without this room.
        from sarit.client.structures.structures import Structures

        return Structures(self.session)

    @property
    def continuous(self) -> ContinuousQueries:
        """The continuous queries of streams: create, change, list and delete them."""
        from sarit.client.search.continuous import ContinuousQueries

        return ContinuousQueries(self.session)

    @property
    def search(self) -> Searches:
        """Searches in streams that are searchable: `await client.search(stream, query)`."""
        # Imported here: most programs do not search.
        from sarit.client.search.index_search import Searches

        return Searches(self.session)

    @property
    def links(self) -> Links:
        """The links to other installations: create, list, change, promote and delete them."""
        return self._links

    # -- scopes -------------------------------------------------------------------------------

    async def create_scope(self, scope: str) -> bool:
        """True when created, False when it existed.  Raises Invalid."""
        if not is_user_name(scope):
            raise Invalid(f"{scope!r} is no name for a scope: letters, digits, '.' and '-', at most 250")
        return await self.session.with_retry(lambda: self.session.controller.create_scope(scope))

    def list_scopes(self) -> AsyncIterator[str]:
        """Return all scopes, including those of the system, a page at a time."""
        return Items(listing.scopes(self.session))

    async def delete_scope(self, scope: str, *, recursive: bool = False) -> None:
        """Delete an empty scope, or with `recursive` all it holds.  Raises NotFound, Conflict (not empty)."""
        await self.session.with_retry_of_deletion(lambda: self.session.controller.delete_scope(scope, recursive))

    def list_streams(self, scope: str, *, tag: str | None = None, internal: bool = False) -> AsyncIterator[StreamName]:
        """Return the streams of a scope, a page at a time; `tag`: only those with it; `internal`: also those of the
        system.

        What is created or deleted meanwhile may be listed or not.  Raises NotFound."""

        def wanted(page: list[StreamName]) -> list[StreamName]:
            return [stream for stream in page if internal or is_user_name(stream.stream)]

        return Items(Mapped(listing.streams(self.session, scope, tag), wanted))

    # -- streams ------------------------------------------------------------------------------

    async def create_stream(
        self,
        scope: str | StreamName,
        stream: str | None = None,
        segments: int = 1,
        *,
        scaling: ScalingPolicy | None = None,
        retention: RetentionPolicy | None = None,
        tags: Sequence[str] = (),
    ) -> bool:
        """True when created, False when it existed (its configuration is unchanged).

        False, too, when a first attempt created it and its answer was lost.
        Name the stream by one string ("scope/stream") or two.  `segments`: how many it has at first; `scaling` instead
        of it gives a whole policy.  Raises NotFound (scope), Invalid.
        """
        name = stream_name(scope, stream)
        if not is_user_name(name.stream):
            raise Invalid(f"{name.stream!r} is no name for a stream: letters, digits, '.' and '-', at most 250")
        scaling = scaling or ScalingPolicy(min_segments=segments)
        scaling.check()
        retention = retention or RetentionPolicy()
        retention.check()
        config = StreamConfig(scaling, retention, tuple(tags))
        return await self.session.with_retry(lambda: self.session.controller.create_stream(name, config))

    async def update_stream(
        self,
        scope: str | StreamName,
        stream: str | None = None,
        *,
        segments: int | None = None,
        scaling: ScalingPolicy | None = None,
        retention: RetentionPolicy | None = None,
        tags: Sequence[str] | None = None,
    ) -> None:
        """Change the settings that are given and no others.  Raises NotFound, Sealed, Invalid."""
        name = stream_name(scope, stream)
        # Read, change, write: of two updates at the same time the later one wins.
        config = await _config(self.session, name)
        if segments is not None:
            scaling = replace(scaling or config.scaling, min_segments=segments)
        if scaling is not None:
            scaling.check()
            config = replace(config, scaling=scaling)
        if retention is not None:
            retention.check()
            config = replace(config, retention=retention)
        if tags is not None:
            config = replace(config, tags=tuple(tags))
        await self.session.with_retry(lambda: self.session.controller.update_stream(name, config))

    async def stream_info(self, scope: str | StreamName, stream: str | None = None) -> StreamInfo:
        """Return configuration, active segments, head and tail of a stream.  Raises NotFound."""
        name = stream_name(scope, stream)
        # One request after another: a scale in between shows only in the later ones.
        config = await _config(self.session, name)
        ranges = await self.session.with_retry(lambda: self.session.controller.current_segments(name))
        head, tail = await self.stream_cut_head(name), await self.stream_cut_tail(name)
        return StreamInfo(name, config, not ranges, tuple(ranges), head, tail)

    async def seal_stream(self, scope: str | StreamName, stream: str | None = None) -> None:
        """Refuse further events, for ever.  Raises NotFound."""
        name = stream_name(scope, stream)
        await self.session.with_retry(lambda: self.session.controller.seal_stream(name))

    async def truncate_stream(self, scope: str | StreamName, stream: str | None = None, *, cut: Cut) -> None:
        """Delete everything before `cut` ("tail": everything).  Raises NotFound, Invalid."""
        name = stream_name(scope, stream)
        found = await self.cut(name, cut)
        if found is None:
            raise Invalid("truncate at which cut? give a StreamCut, its text, or 'tail'")
        positions = found.positions
        await self.session.with_retry(lambda: self.session.controller.truncate_stream(name, positions))

    async def delete_stream(self, scope: str | StreamName, stream: str | None = None, *, seal: bool = False) -> None:
        """Delete a sealed stream; `seal`: seal it first.  Raises NotFound, Conflict (not sealed)."""
        name = stream_name(scope, stream)
        if seal:
            await self.session.with_retry(lambda: self.session.controller.seal_stream(name))
        await self.session.with_retry_of_deletion(lambda: self.session.controller.delete_stream(name))

    # -- data -----------------------------------------------------------------------------------

    def writer(
        self,
        stream: str | StreamName,
        *,
        name: str | None = None,
        buffer_bytes: int = DEFAULT_WRITER_BUFFER_BYTES,
        serializer: Serializer[W] | None = None,
    ) -> EventWriter[W]:
        """Return a writer of events; it connects with the first event.  `name`: under which it notes times.

        `serializer`: encodes what is written (`sarit.serializers`); None: bytes, str and Envelopes are.  A writer with
        one is opened first, as its block does."""
        name_of_stream = stream_name(stream)
        encoding = encoding_of(self.session, name_of_stream, serializer)
        return EventWriter(self.session, name_of_stream, buffer_bytes, name=name, encoding=encoding)

    def transactional_writer(
        self,
        stream: str | StreamName,
        *,
        name: str | None = None,
        lease_seconds: float = DEFAULT_TRANSACTION_LEASE_SECONDS,
        keep_alive: bool = True,
        buffer_bytes: int = DEFAULT_WRITER_BUFFER_BYTES,
        serializer: Serializer[W] | None = None,
    ) -> TransactionalWriter[W]:
        """Return a writer of transactions; `serializer`: as of `writer`.  Raises Invalid (its name).

        `lease_seconds` (10 to 600): how long a transaction outlives its writer.  `keep_alive` False: the lease is not
        renewed, so each transaction ends after that time."""
        return TransactionalWriter(
            self.session,
            stream_name(stream),
            name=name,
            lease_seconds=lease_seconds,
            keep_alive=keep_alive,
            buffer_bytes=buffer_bytes,
            serializer=serializer,
        )

    def stream(self, stream: str | StreamName) -> Stream:
        """Return one stream by name: epochs, scaling, batch reads, cuts by distance, event time.  Raises Invalid."""
        return Stream(self.session, stream_name(stream))

    def table(self, table: str | StreamName) -> Table:
        """Return one key-value table by name; `client.tables` creates and lists tables.  Raises Invalid (its name)."""
        return Table(self.session, table_name(table))

    def reader(
        self,
        stream: str | StreamName,
        start: Cut = "head",
        end: Cut = None,
        *,
        skip_truncated: bool = False,
        deserializer: Deserializer[V] | None = None,
        on_error: str | StreamName = "raise",
    ) -> EventReader[V]:
        """Return a reader of all events between two cuts.

        `start` and `end`: "head", "tail" (as of the first read), a StreamCut or its text; `end` None: follow the
        tail until the stream is sealed.  `skip_truncated`: skip truncated data instead of raising Truncated.

        `deserializer`: decodes events (`sarit.serializers`); None: they are bytes.  `on_error`: what to do with one
        that it cannot decode: "raise" Undecodable, "skip" it, or write it to the dead-letter stream of this name.
        """
        name = stream_name(stream)

        async def bounds() -> tuple[StreamCut, StreamCut | None]:
            first = await self.cut(name, "head" if start is None else start)
            return first or await self.stream_cut_head(name), await self.cut(name, end)

        decoding = decoding_of(self.session, deserializer, on_error, self.writer)
        return EventReader(self.session, name, bounds, skip_truncated=skip_truncated, decoding=decoding)

    async def cut(self, stream: str | StreamName, which: Cut) -> StreamCut | None:
        """ "head", "tail", the text of a cut, or a cut, as a cut; None for none.  Raises NotFound, Invalid."""
        return await segments.resolve_cut(self.session, stream_name(stream), which)

    async def stream_cut_head(self, stream: str | StreamName) -> StreamCut:
        """Return the cut before the oldest event.  Raises NotFound."""
        return await segments.head_cut(self.session, stream_name(stream))

    async def stream_cut_tail(self, stream: str | StreamName) -> StreamCut:
        """Return the cut after the newest event, as of now.  Raises NotFound."""
        return await segments.tail_cut(self.session, stream_name(stream))

    def byte_writer(self, stream: str | StreamName) -> ByteWriter:
        """Return a writer of plain bytes to a stream of one segment."""
        return ByteWriter(self.session, stream_name(stream))

    def byte_reader(self, stream: str | StreamName, offset: int = 0, *, skip_truncated: bool = False) -> ByteReader:
        """Return a reader of plain bytes from a stream of one segment; `skip_truncated`: skip truncated bytes."""
        return ByteReader(self.session, stream_name(stream), offset, skip_truncated=skip_truncated)

    async def sql(
        self,
        query: str,
        *,
        start: Cut = "head",
        end: Cut = "tail",
        limit_bytes: int | None = UNCONFIRMED_QUERY_BYTES,
        memory_bytes: int = QUERY_MEMORY_BYTES,
        spill_directory: str | None = None,
        timeout: float | None = None,
        tables: Mapping[str, Any] | None = None,
        values: str = "auto",
        registry: str | None = None,
        catalogs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> pa.Table:
        """Return the result of a SELECT over streams, each a table named `scope.stream`; `pip install "sarit[sql]"`.

        A stream has the column `sarit` (segment, offset, ingested, time, key, headers) and those of its values: with
        `values` "auto" the columns of its schema, if the property `schema-header` says that its events have one, and
        else `value`, which is bytes; "schema", "json" (inferred from the first events) or "binary" ask for one of them.
        `registry`: the URL of the schemas.  Every stream is read as it is when the query begins, from the cut `start`
        to `end`.

        `limit_bytes`: how much it may read of streams, None for any amount; bounds of `sarit.segment`, `sarit.offset`
        and `sarit.ingested` in the query lessen it.  `memory_bytes`: of the engine; what exceeds it goes to files in
        `spill_directory`, if there is one.  `timeout`: seconds for all of it.  `tables`: Arrow tables that the query
        names, too.

        `catalogs`: Iceberg catalogs by the names that the node has for them, with PyIceberg's properties: a stream with
        a table in one of them is the table and the stream's tail behind it, each event once.

        Raises Invalid (wrong SQL, with its place; memory), NotFound, Forbidden, TooMuch, TimedOut, MissingExtra."""
        from sarit.client.queries.query import QueryOptions, table_of
        from sarit.client.queries.values import ValueOptions, http_schemas
        from sarit.sql.sandbox import EngineSettings

        settings = EngineSettings(memory_bytes, None, spill_directory, limit_bytes=limit_bytes)
        how = ValueOptions(values, None if registry is None else http_schemas(registry))
        options = QueryOptions(settings, start, end, timeout, tables or {}, how, catalogs or {})
        return await table_of(self.session, query, options)

    # -- segments -------------------------------------------------------------------------------

    async def segment_infos(
        self, stream: str | StreamName, wanted: Iterable[SegmentId]
    ) -> Mapping[SegmentId, SegmentInfo]:
        """Start, end and state of segments, queried concurrently; deleted segments are omitted."""
        return await segments.segment_infos(self.session, stream_name(stream), wanted)

    async def successors(self, stream: str | StreamName, segment: SegmentId) -> list[Successor]:
        """Return the successors of a segment, each with all its predecessors.  Raises NotFound."""
        name = stream_name(stream)
        return await self.session.with_retry(lambda: self.session.controller.successors(name, segment))

    def segment_batches(
        self, stream: str | StreamName, segment: SegmentId, start: int = 0, end: int | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        """Return the events of one segment between two byte offsets as record batches (event, segment, offset)."""
        return Resumed(segment_batches(self.session, stream_name(stream), segment, start, end))
