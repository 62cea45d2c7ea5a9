"""Long-term storage in which nothing is deleted once a copy of this node's data directory has started on it.

A clone of a disk has the ownership tokens of its original (`ownership.py`), so the first start on it is accepted while
the original runs.  Each of the two would delete what the other refers to.  The original therefore looks for a token of
a later start than its own: now and then, and before it deletes anything.  A token that is there ends the node.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from sarit.core.errors import Invalid, SaritError, Unavailable
from sarit.env.background import ignore_outcome, shielded
from sarit.process.limits import OWNERSHIP_CHECK_SECONDS
from sarit.process.ownership.tokens import newest_token

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from sarit.env.ports import Buffer, Clock
    from sarit.process.ownership.tokens import OwnershipToken
    from sarit.storage.port import Check, ChunkStorage, Observe, WriteLimiter

_log = logging.getLogger("sarit.process")


class GuardedStorage:
    """Long-term storage that a copy of the node's directory cannot change.  Until `guard` is called, deletions are not
    checked, because the claim itself makes them.

    `failure`: why this node must not go on, once that is known; `on_copy` is called then."""

    def __init__(self, storage: ChunkStorage, clock: Clock) -> None:
        self.failure: Invalid | None = None
        self._storage = storage
        self._clock = clock
        self._own: OwnershipToken | None = None
        self._on_copy: Callable[[], None] = lambda: None
        self._checked_at = float("-inf")
        self._checking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return repr(self._storage)

    def guard(self, own: OwnershipToken, on_copy: Callable[[], None] | None = None) -> None:
        """Check for later tokens than `own` before each deletion, and with `on_copy` also at intervals."""
        self._own = own
        if on_copy is not None:
            self._on_copy = on_copy
            self._watching = asyncio.ensure_future(self._watch())

    def raise_failure(self) -> None:
        """Raises Invalid when a copy has started."""
        if self.failure is not None:
            raise self.failure

    async def _watch(self) -> None:
        # An outage of the storage is met by the next check.
        while self.failure is None:
            await asyncio.sleep(OWNERSHIP_CHECK_SECONDS)
            with suppress(Unavailable):
                await self.require_ours()

    async def require_ours(self) -> None:
        """Check that no copy has started, unless that was done within OWNERSHIP_CHECK_SECONDS.

        Raises Unavailable: one has, or nobody can say."""
        due = self._clock.monotonic() >= self._checked_at + OWNERSHIP_CHECK_SECONDS
        if self.failure is None and self._own is not None and due:
            if self._checking is None or self._checking.done():
                self._checking = asyncio.ensure_future(self._check(self._own))
                self._checking.add_done_callback(ignore_outcome)
            # One check for all that ask; it goes on when one of them is cancelled.
            await shielded(self._checking)
        if self.failure is not None:
            raise Unavailable(str(self.failure))

    async def _check(self, own: OwnershipToken) -> None:
        began = self._clock.monotonic()
        try:
            found = await newest_token(self._storage)
        except SaritError as error:
            raise Unavailable(f"nobody can say whether a copy of this node has started: {error}") from error
        if found is not None and found.number >= own.number and found != own:
            self.failure = Invalid(
                "another copy of this data directory was started on its long-term storage, beside this one, which ends "
                "before it deletes anything more: start only the one that is to go on, or give the other one a "
                "--storage of its own"
            )
            _log.critical("%s", self.failure)
            self._on_copy()
        self._checked_at = began

    # -- the storage ----------------------------------------------------------------------------

    async def write(
        self, name: str, parts: Sequence[Buffer], limiter: WriteLimiter | None = None, observe: Observe | None = None
    ) -> None:
        await self._storage.write(name, parts, limiter, observe)

    async def read(self, name: str, offset: int, length: int, check: Check | None = None) -> Buffer:
        return await self._storage.read(name, offset, length, check)

    async def delete(self, name: str) -> None:
        """Delete a chunk if this node's claim still holds.  Raises Unavailable."""
        await self.require_ours()
        await self._storage.delete(name)

    def list(self, prefix: str) -> AsyncIterator[tuple[str, int]]:
        return self._storage.list(prefix)

    async def close(self) -> None:
        work = [task for task in (self._watching, self._checking) if task is not None]
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)
        await self._storage.close()
