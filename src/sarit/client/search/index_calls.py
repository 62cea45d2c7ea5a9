"""The calls of a client about the index of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.client.core.controller import UnknownCall
from sarit.client.limits import SEARCH_CALL_SECONDS
from sarit.client.search.results import SearchInfo
from sarit.core.errors import Invalid
from sarit.rpc.generated import search_pb2 as pb
from sarit.rpc.search_cuts import cut_of
from sarit.rpc.search_methods import SEARCH

if TYPE_CHECKING:
    from typing import Any

    from sarit.client.session.session import Session
    from sarit.core.names import StreamName


async def ask(session: Session, stream: StreamName, method: Any, request: Any) -> Any:
    """Return the reply of a call.  Raises what the call does, and Invalid: the server has no searches."""
    controller = session.controller
    try:
        return await session.with_retry(lambda: controller.call(method, request, SEARCH_CALL_SECONDS))
    except UnknownCall:
        raise Invalid(
            f"the server of {stream} answers no searches: it is no Sarit, or an older one, or has no jobs"
        ) from None


async def index_info(session: Session, stream: StreamName) -> SearchInfo:
    """Return how far the index of a stream is.  Raises NotFound, Invalid (the server has no searches)."""
    request = pb.SearchInfoRequest(scope=stream.scope, stream=stream.stream)
    reply = await ask(session, stream, SEARCH.searchInfo, request)
    return SearchInfo(
        reply.searchable, reply.events, reply.shards, reply.bytes, reply.bytesBehind,
        cut_of(reply.cut, stream) if reply.HasField("cut") else None,
        reply.committedMs, reply.lostBytes, reply.partly, reply.problem,
        tuple((field.path, field.kind) for field in reply.fields), reply.timeField, reply.intervalSeconds,
        reply.start,
    )  # fmt: skip
