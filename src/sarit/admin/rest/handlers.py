"""What each operation of the REST API does: it asks the controller by the asyncio client, as any other client does.

A handler gets a request that was checked, and returns the body of its answer, whose status the table has.  It raises
the kinds of `core/errors.py`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from sarit.admin.rest import bodies
from sarit.admin.rest.continuous import CONTINUOUS_HANDLERS
from sarit.admin.rest.limits import MAX_LISTED
from sarit.admin.rest.links import LINK_HANDLERS
from sarit.admin.rest.search import SEARCH_HANDLERS
from sarit.core.errors import Exists, Invalid, NotFound
from sarit.core.names import READER_GROUP_PREFIX, StreamName, is_user_name
from sarit.rpc.generated import controller_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from sarit.admin.rest.asked import Asked, Handler
    from sarit.client.aio import Client


class Raw(bytes):
    """A body that is JSON already."""


# -- scopes -------------------------------------------------------------------------------------------


async def list_scopes(client: Client, asked: Asked) -> Raw:
    """List the scopes."""
    controller = client.session.controller

    async def page(after: str) -> list[tuple[str, Any]]:
        token = pb.ContinuationToken(token=after)
        found, _ = await client.session.with_retry(lambda: controller.scopes(token))
        return [(name, {"scopeName": name}) for name in found]

    return await _listed("scopes", asked, _pages(page, asked.query.get("continuationToken", "")))


async def create_scope(client: Client, asked: Asked) -> Any:
    """Create a scope."""
    scope = asked.body["scopeName"]
    if not await client.create_scope(scope):
        raise Exists(f"scope {scope} exists")
    return {"scopeName": scope}


async def get_scope(client: Client, asked: Asked) -> Any:
    """Return the document of a scope.  Raises NotFound."""
    controller, request = client.session.controller, pb.ScopeInfo(scope=asked.scope)
    found = await client.session.with_retry(lambda: controller.call(controller.stub.checkScopeExists, request))
    if not found.exists:
        raise NotFound(f"scope {asked.scope} does not exist")
    return {"scopeName": asked.scope}


async def delete_scope(client: Client, asked: Asked) -> None:
    """Delete an empty scope."""
    await client.delete_scope(asked.scope)


# -- streams ------------------------------------------------------------------------------------------


async def list_streams(client: Client, asked: Asked) -> Raw:
    """List the streams of a scope."""
    kind, tag = asked.query.get("filter_type"), asked.query.get("filter_value")
    if (kind == "tag") != (tag is not None):
        raise Invalid("filter_type=tag and filter_value=TAG belong together")
    internal = kind == "showInternalStreams"
    session = client.session

    async def page(after: str) -> list[tuple[str, Any]]:
        found = await session.with_retry(lambda: session.controller.stream_configs(asked.scope, tag, after))
        # Return all names, so that the next page begins after the last one, and a body only for the wanted streams.
        return [
            (name.stream, bodies.stream_property(name, config) if is_user_name(name.stream) != internal else None)
            for name, config in found
        ]

    return await _listed("streams", asked, _pages(page, asked.query.get("continuationToken", "")))


async def create_stream(client: Client, asked: Asked) -> Any:
    """Create a stream."""
    stream = StreamName(asked.scope, asked.body["streamName"])
    config = bodies.stream_config(asked.body)
    if not await client.session.with_retry(lambda: client.session.controller.create_stream(stream, config)):
        raise Exists(f"stream {stream} exists")
    return bodies.stream_property(stream, config)


async def get_stream(client: Client, asked: Asked) -> Any:
    """Return the document of a stream."""
    config = await client.session.with_retry(lambda: client.session.controller.stream_config(asked.stream))
    return bodies.stream_property(asked.stream, config)


async def update_stream(client: Client, asked: Asked) -> Any:
    """Replace the configuration of a stream."""
    config = bodies.stream_config(asked.body)
    await client.session.with_retry(lambda: client.session.controller.update_stream(asked.stream, config))
    return bodies.stream_property(asked.stream, config)


async def delete_stream(client: Client, asked: Asked) -> None:
    """Delete a sealed stream."""
    await client.delete_stream(asked.stream)


async def update_stream_state(client: Client, asked: Asked) -> Any:
    """Seal a stream."""
    await client.seal_stream(asked.stream)
    return asked.body


async def get_scaling_events(client: Client, asked: Asked) -> Any:
    """List the epochs of a stream in a range of time."""
    first, last = asked.query["from"], asked.query["to"]
    if first > last:
        raise Invalid(f"from={first} is later than to={last}")
    session = client.session
    events = await session.with_retry(lambda: session.controller.scaling_events(asked.stream, first, last))
    return [bodies.scaling_event(event) for event in events]


# -- reader groups ------------------------------------------------------------------------------------


async def list_reader_groups(client: Client, asked: Asked) -> Raw:
    """List the reader groups of a scope, by the internal stream that each group has."""
    controller = client.session.controller

    async def page(after: str) -> list[tuple[str, Any]]:
        token = pb.ContinuationToken(token=READER_GROUP_PREFIX + after)
        found, _ = await client.session.with_retry(lambda: controller.streams(asked.scope, None, token))
        # Names are in order, so those of groups come one after the other.
        groups = [name.stream for name in found if name.stream.startswith(READER_GROUP_PREFIX)]
        names = (group.removeprefix(READER_GROUP_PREFIX) for group in groups)
        return [(name, {"readerGroupName": name}) for name in names]

    return await _listed("readerGroups", asked, _pages(page, asked.query.get("continuationToken", "")))


async def get_reader_group(client: Client, asked: Asked) -> Any:
    """Return the document of a reader group."""
    group = await client.reader_groups.open(asked.group)
    return bodies.reader_group(asked.scope, asked.path["readerGroupName"], await group.info())


async def delete_reader_group(client: Client, asked: Asked) -> None:
    """Delete a reader group."""
    await client.reader_groups.delete(asked.group)


# -- lists --------------------------------------------------------------------------------------------


async def _pages(
    page: Callable[[str], Awaitable[list[tuple[str, Any]]]], after: str
) -> AsyncIterator[list[tuple[str, Any]]]:
    while found := await page(after):
        yield found
        after = found[-1][0]


async def _listed(field: str, asked: Asked, pages: AsyncIterator[list[tuple[str, Any]]]) -> Raw:
    """Return a list up to the requested limit.  Raises Invalid when it is too long and no limit is given."""
    limit = asked.query.get("limit", MAX_LISTED)
    pieces: list[str] = []
    last = ""
    more = False
    async for page in pages:
        wanted = [(name, body) for name, body in page if body is not None]
        more = len(pieces) + len(wanted) > limit
        for name, body in wanted[: limit - len(pieces)]:
            last = name
            # Encode one entry at a time: thousands at once would block the event loop, which serves appends.
            pieces.append(json.dumps(body))
        if more:
            break
    if more and "limit" not in asked.query:
        raise Invalid(f"there are more than {MAX_LISTED} {field}: ask for some of them by limit=1000")
    token = f', "continuationToken": {json.dumps(last)}' if more else ""
    return Raw(f'{{"{field}": [{", ".join(pieces)}]{token}}}'.encode())


HANDLERS: Final[dict[str, Handler]] = {
    "listScopes": list_scopes,
    "createScope": create_scope,
    "getScope": get_scope,
    "deleteScope": delete_scope,
    "listStreams": list_streams,
    "createStream": create_stream,
    "getStream": get_stream,
    "updateStream": update_stream,
    "deleteStream": delete_stream,
    "updateStreamState": update_stream_state,
    "getScalingEvents": get_scaling_events,
    "listReaderGroups": list_reader_groups,
    "getReaderGroup": get_reader_group,
    "deleteReaderGroup": delete_reader_group,
    **LINK_HANDLERS,
    **SEARCH_HANDLERS,
    **CONTINUOUS_HANDLERS,
}
