"""Creation ids: what tells a stream, table or reader group from others of its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.client.core.controller import UnknownCall
from sarit.rpc.generated import sarit_pb2

if TYPE_CHECKING:
    from sarit.client.session.session import Session


async def creation_id(
    session: Session, scope: str, *, stream: str | None = None, group: str | None = None, table: str | None = None
) -> bytes | None:
    """Return the 16 bytes of one thing, or of the scope; None from a server that has none.  Raises NotFound."""
    controller = session.controller
    request = sarit_pb2.CreationIdRequest(scope=scope, stream=stream, readerGroup=group, table=table)
    try:
        reply = await session.with_retry(lambda: controller.call(controller.sarit_stub.creationId, request))
    except UnknownCall:
        return None
    return bytes(reply.creationId)
