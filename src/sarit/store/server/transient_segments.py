"""Transient segments: they go with the connection that asked for them, unless they were merged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sarit.core.errors import SaritError
from sarit.wire import commands as wire

if TYPE_CHECKING:
    from sarit.store.server.control_handler import ControlHandler
    from sarit.store.store import SegmentStore


class TransientSegments:
    """Those of one connection."""

    def __init__(self, store: SegmentStore, requests: ControlHandler) -> None:
        self._store = store
        self._requests = requests
        self._names: dict[str, None] = {}
        self._ended = False

    def __repr__(self) -> str:
        return f"<Transients {len(self._names)}>"

    def __len__(self) -> int:
        return len(self._names)

    async def create(self, command: wire.CreateTransientSegment) -> wire.Command | None:
        """The reply.  The segment goes with the connection also when that ends before it is there."""
        creation = asyncio.ensure_future(self._requests.answer(command))
        creation.add_done_callback(self._created)
        return await asyncio.shield(creation)

    def merged(self, name: str) -> None:
        """There is nothing to delete any more."""
        self._names.pop(name, None)

    def end(self) -> None:
        """The connection is gone."""
        self._ended = True
        if self._names:
            cleanup = asyncio.ensure_future(self._delete())
            cleanup.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _created(self, creation: asyncio.Task[wire.Command | None]) -> None:
        if creation.cancelled() or creation.exception() is not None:
            return
        reply = creation.result()
        if isinstance(reply, wire.SegmentCreated):
            self._names[reply.segment] = None
            if self._ended:
                self.end()

    async def _delete(self) -> None:
        names, self._names = self._names, {}
        for name in names:
            try:
                await self._store.container(name).delete(name)
            except SaritError:
                continue  # merged, or the container recovers: then recovery deletes it
