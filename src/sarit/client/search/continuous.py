"""Continuous queries: asked about every new event of a stream, each match written to an output stream exactly once.

    found = await client.continuous.create("shop/orders", "late", "delay AND NOT test", "shop/alerts")
    found.holds_from     # the cut of the stream from which the query holds

Who makes a query needs READ on the stream and READ_UPDATE on the output; the query acts with these rights, which are
checked at every batch.  Matches are JSON: docs/formats/continuous-queries.md.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sarit.client.limits import CONTINUOUS_POLL_SECONDS, DEFAULT_CONTINUOUS_WAIT_SECONDS
from sarit.client.search.mappings import scan_mapping
from sarit.client.session.guard import guarded
from sarit.core.errors import Invalid, NotFound, TimedOut
from sarit.core.names import StreamName
from sarit.core.public import public
from sarit.rpc import convert
from sarit.rpc.generated import search_pb2 as pb
from sarit.rpc.search_cuts import cut_of
from sarit.rpc.search_methods import SEARCH
from sarit.search.mapping import NO_FIELDS, to_document

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sarit.client.session.session import Session
    from sarit.core.cuts import StreamCut


@public
@dataclass(frozen=True, slots=True)
class ContinuousQuery:
    """A continuous query of a stream.

    `query`: its text.  `output`: the stream that gets its matches.  `with_event`: each match has the text of its event.
    `id`: unique, also among queries of the same name.  `maker`: the user with whose rights it acts; empty: there are no
    users.  `state`: "pending" (it does not hold yet as it is wanted), "active", "failed" (see `problem`: it holds for
    no event until that is put right), or "deleting".  `holds_from`: it holds for events from this cut; None: for none
    yet.  `version`: of this state, for a change.  `created_ms`: since 1970."""

    name: str
    stream: StreamName
    query: str
    output: StreamName
    with_event: bool
    id: str
    maker: str
    state: str
    problem: str
    holds_from: StreamCut | None
    version: int
    created_ms: int


@public
@dataclass(frozen=True, slots=True)
class ContinuousProgress:
    """How far the continuous queries of a stream are, as was stored last.

    `events`: that they were asked about.  `matches`: that were written.  `cut`: matches of events before it are in the
    outputs; None: nothing was asked yet.  `problem`: why they are not asked now; empty: they are."""

    events: int
    matches: int
    cut: StreamCut | None
    problem: str


@guarded("_session")
class ContinuousQueries:
    """The continuous queries of streams: `client.continuous`.

    Streams are named `scope/stream`.  All methods raise NotFound (a stream, or the query), Forbidden and Unavailable.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"ContinuousQueries({self._session.controller.address}, {self._session.state()})"

    async def create(
        self, stream: str | StreamName, name: str, query: str, output: str | StreamName, *,
        with_event: bool = False, mapping: Mapping[str, Any] | None = None,
        wait: float = DEFAULT_CONTINUOUS_WAIT_SECONDS,
    ) -> ContinuousQuery:  # fmt: skip
        """Create a query, and wait until it holds, or has failed.

        `mapping`: fields that queries of this stream may name, as of an index; without it those that others have given,
        and those that its index has, or its first events.  `wait`: for so many seconds; 0: it may be pending.  Raises
        Exists, Invalid (the text, with the place), TimedOut (it is created, and pending)."""
        name_of = _stream(stream)
        request = _request(name_of, name, query, _stream(output), with_event, mapping)
        return await self._put(name_of, request, wait)

    async def change(
        self, stream: str | StreamName, name: str, query: str, *,
        with_event: bool | None = None, mapping: Mapping[str, Any] | None = None,
        wait: float = DEFAULT_CONTINUOUS_WAIT_SECONDS,
    ) -> ContinuousQuery:  # fmt: skip
        """Give a query another text; its output stays.  It holds in its old form until it holds in the new one.

        Raises as `create`, and Conflict: somebody changed it at the same time."""
        found = await self.get(stream, name)
        chosen = found.with_event if with_event is None else with_event
        request = _request(found.stream, name, query, found.output, chosen, mapping)
        request.version = found.version
        return await self._put(found.stream, request, wait)

    async def delete(
        self, stream: str | StreamName, name: str, *, wait: float = DEFAULT_CONTINUOUS_WAIT_SECONDS
    ) -> None:
        """Delete a query, and wait until it is gone: no event is matched any more then.

        Raises TimedOut: it is being deleted."""
        found = await self.get(stream, name)
        request = pb.DeleteContinuousRequest(
            scope=found.stream.scope, stream=found.stream.stream, name=name, output=convert.stream_info(found.output)
        )
        controller = self._session.controller

        async def call() -> None:
            await controller.call(SEARCH.deleteContinuous, request)

        await self._session.with_retry_of_deletion(call)
        if wait:
            await self._until(found.stream, name, lambda query: query is None or query.id != found.id, wait)

    async def get(self, stream: str | StreamName, name: str) -> ContinuousQuery:
        """Return a query."""
        found = await self._find(_stream(stream), name)
        if found is None:
            raise NotFound(f"stream {_stream(stream)} has no continuous query {name}, or none that you may see")
        return found

    async def list(self, stream: str | StreamName) -> tuple[ContinuousQuery, ...]:
        """Return the queries of a stream that the caller made, or whose output the caller may read, by name."""
        name_of, found, after = _stream(stream), [], ""
        while True:
            reply = await self._listed(name_of, after)
            found += [_query(name_of, each) for each in reply.queries]
            if not reply.more or not reply.queries:
                return tuple(found)
            after = reply.queries[-1].name

    async def progress(self, stream: str | StreamName) -> ContinuousProgress:
        """Return how far the queries of a stream are."""
        name_of = _stream(stream)
        reply = await self._listed(name_of)
        cut = cut_of(reply.cut, name_of) if reply.HasField("cut") else None
        return ContinuousProgress(reply.events, reply.matches, cut, reply.problem)

    async def _listed(self, stream: StreamName, after: str = "", name: str = "") -> Any:
        request = pb.ListContinuousRequest(scope=stream.scope, stream=stream.stream, after=after, name=name)
        controller = self._session.controller
        return await self._session.with_retry(lambda: controller.named(stream, SEARCH.listContinuous, request))

    async def _find(self, stream: StreamName, name: str) -> ContinuousQuery | None:
        reply = await self._listed(stream, name=name)
        return next((_query(stream, each) for each in reply.queries if each.name == name), None)

    async def _put(self, stream: StreamName, request: pb.PutContinuousRequest, wait: float) -> ContinuousQuery:
        try:
            reply = await self._called(request)
        except Invalid as error:
            if request.mapping:
                raise
            # The query may name fields that no query has named before.
            mapping = await scan_mapping(self._session, stream)
            if not mapping.fields:
                if NO_FIELDS not in str(error):
                    raise
                raise Invalid(f"{error}; a mapping says which fields later events will have") from None
            request.mapping, request.inferred = json.dumps(to_document(mapping)).encode(), True
            reply = await self._called(request)
        made = _query(stream, reply.query)
        if not wait or made.state != "pending":
            return made

        def holds(query: ContinuousQuery | None) -> bool:
            return query is None or query.id != made.id or query.state != "pending"

        return await self._until(stream, request.name, holds, wait) or made

    async def _called(self, request: pb.PutContinuousRequest) -> Any:
        # Which of the two streams is missing, or whether it is the query, the server says.
        controller = self._session.controller
        return await self._session.with_retry(lambda: controller.call(SEARCH.putContinuous, request))

    async def _until(
        self, stream: StreamName, name: str, reached: Callable[[ContinuousQuery | None], bool], seconds: float
    ) -> ContinuousQuery | None:
        """Poll a query until its state is as wanted.  Raises TimedOut."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    found = await self._find(stream, name)
                    if reached(found):
                        return found
                    await asyncio.sleep(CONTINUOUS_POLL_SECONDS)
        except TimeoutError:
            problem = (await self.progress(stream)).problem
            raise TimedOut(
                f"continuous query {name} of {stream} is not adopted after {seconds:g} s: "
                f"{problem or 'a worker has to run its job; see `sarit stream jobs`'}"
            ) from None


def _stream(name: str | StreamName) -> StreamName:
    return name if isinstance(name, StreamName) else StreamName.parse(name)


def _request(
    stream: StreamName, name: str, query: str, output: StreamName, with_event: bool, mapping: Mapping[str, Any] | None
) -> pb.PutContinuousRequest:
    try:
        encoded = b"" if mapping is None else json.dumps(mapping).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"the mapping cannot be written as JSON: {error}") from None
    return pb.PutContinuousRequest(
        scope=stream.scope, stream=stream.stream, name=name, query=query.encode(errors="replace"),
        output=convert.stream_info(output), withEvent=with_event, mapping=encoded,
    )  # fmt: skip


def _query(stream: StreamName, found: pb.ContinuousQuery) -> ContinuousQuery:
    return ContinuousQuery(
        found.name, stream, found.query.decode(errors="replace"), StreamName(found.output.scope, found.output.stream),
        found.withEvent, found.queryId, found.maker, found.state, found.problem,
        cut_of(found.holdsFrom, stream) if found.HasField("holdsFrom") else None, found.version, found.createdMs,
    )  # fmt: skip
