"""One process's copy of a structure that a synchronizer holds: its reads, changes and watchers.

Theory of operation.  The whole state is in the memory of each process that has opened the structure.  The order of the
stream is the order of all changes: a change is decided from the newest state, and written on the condition that it
still is the newest (`sync/synchronizer.py`).  So changes are linearizable.  A fresh read asks the store where the
stream ends and applies all up to there: it includes every change that was acknowledged before it began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from sarit.client.core.iteration import Items
from sarit.client.sync.revisioned_stream import open_or_create
from sarit.client.sync.synchronizer import StateFollower, StateSynchronizer
from sarit.core.errors import SaritError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from sarit.client.session.session import Session
    from sarit.client.sync.revisioned_stream import Revision
    from sarit.core.names import StreamName

S = TypeVar("S")
T = TypeVar("T")


class SharedCopy(Generic[S]):
    """The state of one structure, as this process knows it."""

    def __init__(self, shared: StateSynchronizer[S]) -> None:
        self.shared = shared

    def __repr__(self) -> str:
        return f"SharedCopy({self.shared!r})"

    async def read(self, *, fresh: bool) -> S:
        """Return the state; `fresh` False: as of the last fetch or change of this process, without a request."""
        if fresh:
            await self.shared.fetch()
        return self.shared.state

    async def change(self, decide: Callable[[S], Sequence[bytes]]) -> None:
        """Write the updates that `decide` returns for the newest state, once or not at all.

        An error of Sarit that it raises is raised here, if it holds for a state as new as this call."""

        def decided(state: S) -> Sequence[bytes]:
            try:
                return decide(state)
            except SaritError as error:
                raise _Refused from error

        while True:
            try:
                await self.shared.update(decided)
                return
            except _Refused:
                # The state may be older than this call: what it refuses may be right by now.
                await self.shared.fetch()
                decide(self.shared.state)

    def watch(self, difference: Callable[[S | None, S], Sequence[T]]) -> AsyncIterator[T]:
        """Return what `difference` says of the state now, after None, and then of every later one."""
        return Items(Watcher(self.shared, difference))


class _Refused(Exception):
    """A signal to `change`: a state as this process knew it refused the change."""


class Watcher(Generic[S, T]):
    """The differences of a state, as they come.  A cancelled call loses none."""

    def __init__(self, shared: StateSynchronizer[S], difference: Callable[[S | None, S], Sequence[T]]) -> None:
        self._shared = shared
        self._difference = difference
        self._follower = StateFollower(shared)
        self._seen: S | None = None

    def __repr__(self) -> str:
        return f"Watcher({self._shared!r})"

    def __aiter__(self) -> Watcher[S, T]:
        return self

    async def __anext__(self) -> Sequence[T]:
        while self._follower.failure is None:
            await self._shared.fetch()
            now = self._shared.state
            found = self._difference(self._seen, now)
            self._seen = now
            if found:
                return found
            await self._follower.wait(None)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the wait for more."""
        self._follower.end()


async def open_copy(
    session: Session,
    stream: StreamName,
    empty: bytes,
    initial: Callable[[bytes], S],
    apply: Callable[[S, bytes, Revision], S],
    snapshot: Callable[[S], bytes],
) -> SharedCopy[S]:
    """Return a copy of the structure of a stream, which is created when there is none; `empty`: its first state.

    Raises NotFound (the scope), Invalid (it is something else), Corrupt, Unavailable."""
    entries = await open_or_create(session, stream)
    shared = StateSynchronizer(entries, initial, apply, snapshot=snapshot)
    await shared.initialize(empty)
    return SharedCopy(shared)
