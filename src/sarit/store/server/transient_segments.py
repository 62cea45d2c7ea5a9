"""Transient segments: deleted when the connection that created them ends, unless they were merged before."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sarit.core.errors import SaritError
from sarit.env.background import ignore_outcome, shielded
from sarit.store.limits import MAX_TRANSIENT_SEGMENTS
from sarit.wire import commands as wire

if TYPE_CHECKING:
    from sarit.store.server.control_handler import ControlHandler
    from sarit.store.store import SegmentStore


_REFUSED: Final = 0


class TransientSegments:
    """The transient segments of one connection."""

    def __init__(self, store: SegmentStore, control: ControlHandler) -> None:
        self._store = store
        self._control = control
        self._names: dict[str, None] = {}
        self._making = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"<TransientSegments {len(self._names)}>"

    def __len__(self) -> int:
        return len(self._names)

    async def create(self, command: wire.CreateTransientSegment) -> wire.Command | None:
        """Create a transient segment, to be deleted at the end of the connection, even an earlier one.

        Returns the reply; None: close the connection."""
        if len(self._names) + self._making >= MAX_TRANSIENT_SEGMENTS:
            text = f"a connection has at most {MAX_TRANSIENT_SEGMENTS} transient segments: merge some, or connect again"
            return wire.ErrorMessage(command.request_id, command.parent_segment, text, _REFUSED)
        self._making += 1
        creation = asyncio.ensure_future(self._control.answer(command, client=True))
        # Use a callback, since the end of the connection cancels this await, but not the creation.
        creation.add_done_callback(self._created)
        return await shielded(creation)

    def merged(self, name: str) -> None:
        """Forget a segment that was merged, which need not be deleted."""
        self._names.pop(name, None)

    def connection_closed(self) -> None:
        """Delete the connection's transient segments."""
        self._closed = True
        if self._names:
            cleanup = asyncio.ensure_future(self._delete())
            cleanup.add_done_callback(ignore_outcome)

    def _created(self, creation: asyncio.Task[wire.Command | None]) -> None:
        self._making -= 1
        if creation.cancelled() or creation.exception() is not None:
            return
        reply = creation.result()
        if isinstance(reply, wire.SegmentCreated):
            self._names[reply.segment] = None
            # Delete the segment if the connection ended during the creation, without this segment in its clean-up.
            if self._closed:
                self.connection_closed()

    async def _delete(self) -> None:
        # Take the names before the first await: a creation that ends meanwhile starts another clean-up.
        names, self._names = self._names, {}
        for name in names:
            try:
                await self._store.container(name).delete(name)
            except SaritError:
                continue  # the segment was merged, or its container recovers, and recovery deletes it
