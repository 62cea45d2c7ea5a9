"""Properties of a stream, over the calls of Sarit's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.client.core.controller import UnknownCall
from sarit.core.properties import check_change
from sarit.rpc.generated import sarit_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.client.session.session import Session
    from sarit.core.names import StreamName


async def read(session: Session, stream: StreamName) -> dict[str, str]:
    """Return the properties; none from a server that has no such call.  Raises NotFound."""
    return dict(sorted((await _read(session, stream)).properties.items()))


async def link(session: Session, stream: StreamName) -> str:
    """Return the name of the link whose mirror a stream is; empty: it is no mirror.  Raises NotFound."""
    found: str = (await _read(session, stream)).link
    return found


async def _read(session: Session, stream: StreamName) -> pb.StreamPropertiesResponse:
    controller = session.controller
    request = pb.StreamPropertiesRequest(scope=stream.scope, stream=stream.stream)
    try:
        reply: pb.StreamPropertiesResponse = await session.with_retry(
            lambda: controller.named(stream, controller.sarit_stub.streamProperties, request)
        )
    except UnknownCall:
        return pb.StreamPropertiesResponse()
    return reply


async def change(session: Session, stream: StreamName, changes: Mapping[str, str | None]) -> dict[str, str]:
    """Set properties, or remove those that are None.  Returns all of them afterwards.  Raises NotFound, Invalid."""
    controller = session.controller
    wanted = {name: "" if value is None else value for name, value in changes.items()}
    check_change(wanted)
    request = pb.ChangeStreamPropertiesRequest(scope=stream.scope, stream=stream.stream, properties=wanted)
    reply = await session.with_retry(
        lambda: controller.named(stream, controller.sarit_stub.changeStreamProperties, request)
    )
    return dict(sorted(reply.properties.items()))
