"""What processes agree on, over streams: `client.coordination`.

Each is a stream of one segment, made when it is first used; its scope must exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from sarit.client.revisioned import Revision, RevisionedStream, open_or_create
from sarit.client.synchronizer import COMPACT_AFTER_BYTES, StateSynchronizer
from sarit.core.names import StreamName

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.client.session import Session

S = TypeVar("S")


class Coordination:
    """Belongs to one client.  All methods raise NotFound (the scope), Invalid (the name; several segments)."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"Coordination({self._session.controller!r})"

    async def revisioned(self, stream: str | StreamName) -> RevisionedStream:
        """A stream whose entries are appended on condition."""
        return await open_or_create(self._session, _name(stream))

    async def synchronizer(
        self,
        stream: str | StreamName,
        initial: Callable[[bytes], S],
        apply: Callable[[S, bytes, Revision], S],
        *,
        snapshot: Callable[[S], bytes] | None = None,
        compact_after_bytes: int = COMPACT_AFTER_BYTES,
    ) -> StateSynchronizer[S]:
        """A shared state, fetched; `known` is False when nobody initialised it.  See `StateSynchronizer`."""
        entries = await open_or_create(self._session, _name(stream))
        made = StateSynchronizer(entries, initial, apply, snapshot=snapshot, compact_after_bytes=compact_after_bytes)
        await made.fetch()
        return made


def _name(stream: str | StreamName) -> StreamName:
    return stream if isinstance(stream, StreamName) else StreamName.parse(stream)
