"""The calls on continuous queries: they write what users want into rows; the job of the stream adopts it.

The table of access has checked READ on the stream, and READ_UPDATE on the output for changes.  A query keeps its
output for life: so who may not change the output can neither change nor delete the query.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from sarit.controller.authorized_caller import current_authorized
from sarit.controller.calls.identity import IdentityCalls
from sarit.controller.jobs import JobKey
from sarit.controller.keys import SEARCH_TABLE, after_prefix
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, Unavailable
from sarit.core.names import SYSTEM_SCOPE, StreamName, is_user_name
from sarit.core.texts import cut_text
from sarit.process.limits import (
    MAX_CONTINUOUS_ATTEMPTS,
    MAX_LISTED_CONTINUOUS,
    MAX_SHOWN_WAY_CHARACTERS,
)
from sarit.process.search.continuous_outputs import ContinuousOutputs
from sarit.process.search.messages import text_of
from sarit.process.search.site import TableRows
from sarit.rpc.generated import controller_pb2 as pb
from sarit.rpc.generated import sarit_pb2, search_pb2
from sarit.rpc.search_cuts import cut_message
from sarit.search.continuous_plan import CONTINUOUS_JOB, CONTINUOUS_KIND, ContinuousState
from sarit.search.continuous_rows import (
    ContinuousQuery,
    Definition,
    Maker,
    check_name,
    decode_query,
    encode_query,
    mapping_key,
    query_key,
    write_rows,
)
from sarit.search.event_language import decode_mapping, encode_mapping, extended
from sarit.search.limits import MAX_SEARCH_SETTINGS_BYTES
from sarit.search.mapping import from_document
from sarit.search.query_parser import parse_query
from sarit.security.permissions import Caller, Permission, owner_resource

if TYPE_CHECKING:
    from sarit.controller.jobs import Job
    from sarit.process.search.calls import SearchWorld
    from sarit.search.mapping import Mapping


def family(world: SearchWorld) -> ContinuousCalls:
    """Return what serves the calls."""
    return ContinuousCalls(world)


class ContinuousCalls:
    """Calls on the continuous queries of streams."""

    def __init__(self, world: SearchWorld) -> None:
        self._controller = world.controller
        self._identity = IdentityCalls(world.controller.catalog)
        self._tables = world.tables
        self._rows = TableRows(world.tables)
        self._env = world.env
        self._outputs = ContinuousOutputs(self._rows, self._stream_id, world.env.clock)

    def __repr__(self) -> str:
        return f"<ContinuousCalls of {self._controller!r}>"

    async def close(self) -> None:
        """Close nothing."""

    async def putContinuous(self, request: search_pb2.PutContinuousRequest) -> search_pb2.PutContinuousResponse:
        """Create a query, or change it if a version is given.  Raises Exists, NotFound, Conflict, Invalid."""
        if not self._controller.makes_jobs:
            raise Invalid("this server runs no background jobs: start it with --jobs on")
        stream, output = StreamName(request.scope, request.stream), _output(request, check=True)
        name = check_name(request.name)
        if output == stream:
            raise Invalid(f"matches of {stream} cannot go to {output}: the query would be asked about its own matches")
        text = text_of(request.query)
        stream_id = await self._stream_id(stream)
        await self._require(output)
        await self._learn(stream, stream_id, text, request.mapping, inferred=request.inferred)
        wanted = Definition(text, output, with_event=request.withEvent, maker=_maker())
        key = query_key(stream_id, name)
        (found,) = await self._rows.get([key])
        if found is None:
            if request.version:
                raise NotFound(f"stream {stream} has no continuous query {name}")
            await self._check_outputs(stream, stream_id, output)
            query = ContinuousQuery(
                name, self._env.random.bytes(16).hex(), stream, wanted, created_ms=self._env.clock.wall_ms()
            )
        else:
            query = decode_query(found[0])
            if query.wanted == wanted:  # an answer was lost, and the call is repeated
                await self._ensure_job(stream)
                return search_pb2.PutContinuousResponse(query=_message(query, found[1]))
            query = self._changed(query, wanted, found[1], request.version)
        try:
            version = await self._put(stream, stream_id, key, encode_query(query), found)
        except Conflict:
            raise Conflict(f"continuous query {name} of {stream} was changed by another at the same time") from None
        if found is None:
            self._outputs.add(stream_id, output)
        await self._ensure_job(stream)
        return search_pb2.PutContinuousResponse(query=_message(query, version))

    def _changed(self, query: ContinuousQuery, wanted: Definition, version: int, expected: int) -> ContinuousQuery:
        """Return a query with another definition.  Raises Exists, Conflict, Invalid."""
        if not expected:
            if query.wanted is None:
                raise Exists(f"continuous query {query.name} is being deleted: wait until it is gone")
            raise Exists(f"continuous query {query.name} exists: change it, or delete it before")
        if expected != version:
            raise Conflict(f"continuous query {query.name} has changed since it was read: read it again")
        if query.wanted is None:
            raise NotFound(f"continuous query {query.name} is being deleted")
        if query.wanted.output != wanted.output:
            raise Invalid(
                f"the output of continuous query {query.name} is {query.wanted.output}, and stays: make another query"
            )
        return replace(query, wanted=wanted)

    async def listContinuous(self, request: search_pb2.ListContinuousRequest) -> search_pb2.ListContinuousResponse:
        """Return the queries of a stream after a name, those that the caller made or whose output it may read."""
        stream = StreamName(request.scope, request.stream)
        stream_id = await self._stream_id(stream)
        shown, more = await self._shown(stream_id, request.name, request.after)
        reply = search_pb2.ListContinuousResponse(
            queries=[_message(query, version) for query, version in shown], more=more
        )
        if shown:
            self._add_progress(reply, await self._ensure_job(stream))
        return reply

    def _add_progress(self, reply: search_pb2.ListContinuousResponse, job: Job | None) -> None:
        if job is None:
            return
        state = ContinuousState.decode(job.state)
        reply.events, reply.matches, reply.problem = state.events, state.matches, job.problem
        if state.cut is not None:
            reply.cut.CopyFrom(cut_message(state.cut))

    async def deleteContinuous(
        self, request: search_pb2.DeleteContinuousRequest
    ) -> search_pb2.DeleteContinuousResponse:  # fmt: skip
        """Delete a query: it is gone once the job has adopted that.  Raises NotFound, Invalid."""
        stream, output = StreamName(request.scope, request.stream), _output(request)
        stream_id = await self._stream_id(stream)
        key = query_key(stream_id, check_name(request.name))
        for _ in range(MAX_CONTINUOUS_ATTEMPTS):
            (found,) = await self._rows.get([key])
            if found is None:
                raise NotFound(f"stream {stream} has no continuous query {request.name}")
            query = decode_query(found[0])
            known = query.wanted or query.adopted
            if known is None or known.output != output:
                raise Invalid(f"{output} is not the output of continuous query {request.name}")
            # Of a query that was never asked nothing is under way.
            value = None if query.adopted is None else encode_query(replace(query, wanted=None))
            with suppress(Conflict):  # the job has adopted it meanwhile, or suspended it
                await self._put(stream, stream_id, key, value, found)
                await self._ensure_job(stream)
                return search_pb2.DeleteContinuousResponse()
        raise Unavailable(f"continuous query {request.name} is changed by others at the same time; try again")

    async def _shown(self, stream_id: str, name: str, after: str) -> tuple[list[tuple[ContinuousQuery, int]], bool]:
        """Return the queries of a page that the caller may see, with their versions, and whether there are more."""
        if name:
            (found,) = await self._rows.get([query_key(stream_id, name)])
            query = None if found is None else decode_query(found[0])
            return ([] if found is None or query is None or not self._may_see(query) else [(query, found[1])]), False
        shown: list[tuple[ContinuousQuery, int]] = []
        begin, end = query_key(stream_id, ""), after_prefix(query_key(stream_id, ""))
        start = query_key(stream_id, after) + b"\0" if after else begin
        while True:
            try:
                rows = await self._tables.scan(SEARCH_TABLE, start, end, MAX_LISTED_CONTINUOUS)
            except NotFound:  # there was never a query
                return shown, False
            for key, row in rows:
                query = decode_query(row.value)
                if self._may_see(query):
                    if len(shown) == MAX_LISTED_CONTINUOUS:
                        return shown, True
                    shown.append((query, row.version))
                start = key + b"\0"
            if not rows:
                return shown, False

    # -- parts ----------------------------------------------------------------------------------------

    async def _stream_id(self, stream: StreamName) -> str:
        request = sarit_pb2.CreationIdRequest(scope=stream.scope, stream=stream.stream)
        try:
            found: bytes = (await self._identity.creationId(request)).creationId
        except NotFound:
            raise NotFound(f"stream {stream} does not exist") from None
        return found.hex()

    async def _require(self, output: StreamName) -> None:
        """Raises NotFound: there is no such stream."""
        await self._controller.catalog.require(output)

    async def _put(
        self, stream: StreamName, stream_id: str, key: bytes, value: bytes | None, found: tuple[bytes, int] | None
    ) -> int:  # fmt: skip
        """Change a row that was found so, and return its version.  Raises Conflict."""
        change = key, value, None if found is None else found[1]
        return (await write_rows(self._rows, stream, stream_id, [change]))[0]

    async def _learn(self, stream: StreamName, stream_id: str, text: str, given: bytes, *, inferred: bool) -> None:
        """Check the text of a query, and add fields to what the queries of the stream know.

        Fields that were inferred are added only if the query needs them.  Raises Invalid."""
        more = None if not given else _mapping(given)
        key = mapping_key(stream_id)
        for _ in range(MAX_CONTINUOUS_ATTEMPTS):
            (found,) = await self._rows.get([key])
            known = decode_mapping(b"" if found is None else found[0])
            wanted = known if more is None else extended(known, more)
            if more is not None and not inferred:
                _check_kinds(known, more)
            try:
                parse_query(text, known)
                if inferred:
                    return
            except Invalid:
                if wanted == known:
                    raise
            parse_query(text, wanted)
            if wanted == known:
                return
            with suppress(Conflict):
                await self._put(stream, stream_id, key, encode_mapping(wanted), found)
                return
        raise Unavailable("the fields of continuous queries are changed by others at the same time; try again")

    async def _check_outputs(self, stream: StreamName, stream_id: str, output: StreamName) -> None:
        """Raises Invalid: the stream has too many queries or outputs, or its matches would come back to it."""
        await self._outputs.check(stream, stream_id, output)
        if way := await self._outputs.way(output, stream):
            shown = [str(each) if self._may_read(each) else "a stream that you may not read" for each in way]
            raise Invalid(
                f"matches of {stream} cannot go to {output}: queries would be asked about their own matches, since "
                f"continuous queries lead back: {cut_text(' -> '.join(shown), MAX_SHOWN_WAY_CHARACTERS)}"
            )

    async def _ensure_job(self, stream: StreamName) -> Job | None:
        """Return the job of a stream's queries; make it, or make it again if it is done."""
        key, jobs = JobKey(CONTINUOUS_KIND, stream, CONTINUOUS_JOB), self._controller.jobs
        found = await jobs.find(key)
        if found is not None and not found.job.done:
            return found.job
        if found is not None:
            with suppress(NotFound):
                await jobs.delete(key)
        with suppress(Exists):
            await jobs.create(key)
        return None

    def _may_see(self, query: ContinuousQuery) -> bool:
        who, definition = current_authorized.get(), query.wanted or query.adopted
        if who is None or definition is None:
            return True
        return definition.maker.name == who.user or self._may_read(definition.output)

    def _may_read(self, stream: StreamName) -> bool:
        who, access = current_authorized.get(), self._controller.access
        if who is None or access is None:
            return True
        resource = owner_resource(stream.scope, stream.stream)
        return access.rules.of(Caller(who.user, who.roles), resource) >= Permission.READ


def _maker() -> Maker:
    who = current_authorized.get()
    return Maker() if who is None else Maker(who.user, who.roles)


def _output(
    request: search_pb2.PutContinuousRequest | search_pb2.DeleteContinuousRequest, *, check: bool = False
) -> StreamName:  # fmt: skip
    """Return the output that a request names.  Raises Invalid: matches cannot go there."""
    scope, stream = request.output.scope, request.output.stream
    if check and (scope == SYSTEM_SCOPE or not is_user_name(scope) or not is_user_name(stream)):
        raise Invalid("the output of a continuous query is a stream of users, as SCOPE/STREAM")
    return StreamName(scope, stream)


def _mapping(given: bytes) -> Mapping:
    if len(given) > MAX_SEARCH_SETTINGS_BYTES:
        raise Invalid(f"a mapping of {len(given)} bytes: at most {MAX_SEARCH_SETTINGS_BYTES}")
    try:
        return from_document(json.loads(given)).check()
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise Invalid(f"the mapping is no JSON: {error}") from None


def _check_kinds(known: Mapping, more: Mapping) -> None:
    """Raises Invalid: a field has another kind for the queries that there are."""
    kinds = {field.path: field.kind for field in known.fields}
    for field in more.fields:
        if kinds.get(field.path, field.kind) is not field.kind:
            raise Invalid(f"field {field.path} is a {kinds[field.path]} for the queries of this stream, and stays one")


def _message(query: ContinuousQuery, version: int) -> search_pb2.ContinuousQuery:
    shown = query.wanted or query.adopted
    message = search_pb2.ContinuousQuery(
        name=query.name, queryId=query.id, state=query.state, problem=query.problem, version=version,
        createdMs=query.created_ms,
    )  # fmt: skip
    if shown is not None:
        message.query = shown.text.encode()
        message.output.CopyFrom(pb.StreamInfo(scope=shown.output.scope, stream=shown.output.stream))
        message.withEvent, message.maker = shown.with_event, shown.maker.name
    if query.holds_from is not None and not query.is_pending:
        message.holdsFrom.CopyFrom(cut_message(query.holds_from))
    return message
