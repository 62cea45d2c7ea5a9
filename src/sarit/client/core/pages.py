"""Long lists of the controller, a page at a time.

Pages are requested until an empty one comes; the token alone never marks the end.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sarit.client.core.iteration import Pulled
from sarit.rpc.generated import controller_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from sarit.client.core.controller import Token
    from sarit.client.session.session import Session
    from sarit.core.names import StreamName

T = TypeVar("T")


def pages(session: Session, page_after: Callable[[Token], Awaitable[tuple[list[T], Token]]]) -> AsyncIterator[list[T]]:
    """Iterate over all pages, none of them empty; each is requested when the one before is used up."""
    token = pb.ContinuationToken()

    async def pull() -> list[T] | None:
        nonlocal token
        found, token = await session.with_retry(partial(page_after, token))
        return found or None

    return Pulled(pull)


def scopes(session: Session) -> AsyncIterator[list[str]]:
    """Return the scopes."""
    return pages(session, session.controller.scopes)


def streams(session: Session, scope: str, tag: str | None = None) -> AsyncIterator[list[StreamName]]:
    """Return the streams of a scope; `tag`: only those with it.  Raises NotFound."""
    return pages(session, partial(session.controller.streams, scope, tag))
