"""A state that many processes share: each has a copy, all apply the same updates in the same order.

Updates are entries of a revisioned stream, in the layout of Pravega's Java client (client_behaviour.md par. 5; Pravega
`StateSynchronizerImpl`, `UpdateOrInitSerializer`).  The value of an entry, all numbers int32 big-endian:

    1, initial state                        the whole state, to the end
    2, {length, update}, {length, update}…  one or more updates, applied atomically

Theory of operation.  This is optimistic concurrency control.  A process reads the entries it has not applied, decides
on an update from the state it then has, and appends it on the condition that no other entry came between.  When one
did, it reads and decides again.  So every decision is taken from the newest state, as if there were one process only.

Compaction writes the whole state as a new initial one, sets the mark of the stream to the position before it, and
truncates what lies before the *previous* mark, so that one compaction does not cut off a process that reads slowly.  A
new process begins at the mark; one that was cut off begins there again.  Updates before the first initial state are
skipped.

Fairness: `write_turns.py`.

Warning: `apply` and `initial` must be pure and give the same result in every process and every version of the
program; `apply` must return a new state, and may not change the one it is given.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from sarit.client.limits import COMPACT_AFTER_BYTES, MAX_CONFLICT_PAUSE_SECONDS
from sarit.client.session.guard import guarded
from sarit.client.sync.revisioned_stream import Revision
from sarit.client.sync.write_turns import WriteTurns
from sarit.core.errors import Conflict, Corrupt, Invalid, NotFound, SaritError, Truncated, Unavailable
from sarit.core.limits import EVENT_HEADER_BYTES
from sarit.env.background import ignore_outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sarit.client.sync.revisioned_stream import RevisionedStream

log = logging.getLogger(__name__)

COMPACTION_ODDS: Final = 20
MAX_CONFLICTS: Final = 10_000
COMPACT_AFTER_UPDATES: Final = 64
YIELDING_CONFLICTS: Final = 8
_INIT: Final = 1
_UPDATES: Final = 2
_INT: Final = struct.Struct(">i")

S = TypeVar("S")
T = TypeVar("T")


def encode_initial(state: bytes) -> bytes:
    """Return the entry of an initial state."""
    return _INT.pack(_INIT) + state


def encode_updates(updates: Iterable[bytes]) -> bytes:
    """Encode updates as one entry of the stream."""
    parts = [_INT.pack(_UPDATES)]
    for update in updates:
        parts += (_INT.pack(len(update)), update)
    return b"".join(parts)


def decode_entry(value: bytes) -> bytes | list[bytes]:
    """Return an initial state, or a list of updates.  Raises Corrupt."""
    kind = _INT.unpack_from(value)[0] if len(value) >= _INT.size else 0
    if kind == _INIT:
        return value[_INT.size :]
    if kind != _UPDATES:
        raise Corrupt("an entry that is neither an initial state nor updates: is this the stream of a synchronizer?")
    updates: list[bytes] = []
    at = _INT.size
    while at < len(value):
        length = _INT.unpack_from(value, at)[0] if at + _INT.size <= len(value) else -1
        at += _INT.size
        if length < 0 or at + length > len(value):
            raise Corrupt("an entry of updates that ends in the middle of one")
        updates.append(value[at : at + length])
        at += length
    return updates


class _History(NamedTuple):
    """The updates after the newest initial state: the offset after that, its bytes, and how many updates have come
    since."""

    offset: int
    initial_bytes: int
    updates: int = 0

    def longer(self) -> _History:
        return self._replace(updates=self.updates + 1)


@guarded("stream.session")
class StateSynchronizer(Generic[S]):
    """One process's copy of a shared state.  Create one with `await client.coordination.synchronizer(...)`.

    `initial` decodes an initial state; `apply(state, update, revision)` returns the next state.  `snapshot`: encodes
    the state for `initial`; with it the stream is compacted automatically, with some probability per write, once
    `compact_after_bytes` follow the newest initial state, or so many updates that they take longer to apply than it.

    An error of these functions is raised by the method that called them.  Of the entries that were read with the one
    that failed none is applied: the state is the one before that read.
    """

    def __init__(
        self,
        stream: RevisionedStream,
        initial: Callable[[bytes], S],
        apply: Callable[[S, bytes, Revision], S],
        *,
        snapshot: Callable[[S], bytes] | None = None,
        compact_after_bytes: int = COMPACT_AFTER_BYTES,
    ) -> None:
        self.stream = stream
        self._initial = initial
        self._apply = apply
        self._snapshot = snapshot
        self._compact_after_bytes = compact_after_bytes
        self._current: tuple[S, Revision] | None = None
        self._history = _History(0, 0)
        self._lock = asyncio.Lock()
        self._clock = stream.session.env.clock
        self._turns = WriteTurns(self._clock)

    def __repr__(self) -> str:
        at = "no state" if self._current is None else f"state at {self._current[1].offset}"
        return f"StateSynchronizer({self.stream.stream}, {at})"

    @property
    def known(self) -> bool:
        """Whether there is a state: it was initialized, and fetched."""
        return self._current is not None

    @property
    def state(self) -> S:
        """The state as last fetched or updated by this process.  Raises NotFound when it was not initialized."""
        return self._expect()[0]

    @property
    def revision(self) -> Revision:
        """The revision that `state` includes.  Raises NotFound."""
        return self._expect()[1]

    def _expect(self) -> tuple[S, Revision]:
        if self._current is None:
            raise NotFound(f"{self.stream.stream} has no state yet: initialize it, or fetch what another process wrote")
        return self._current

    # -- reading --------------------------------------------------------------------------------

    async def fetch(self) -> None:
        """Apply what was written since the last fetch.  Raises Corrupt."""
        async with self._lock:
            await self._fetch()

    async def _fetch(self, news: bool = False) -> None:
        """`news`: the caller knows of an entry after the one last applied."""
        # Whether `_current` includes everything before `start`.  Invariant: updates are applied to such a state only.
        complete = self._current is not None
        before = self._current, self._history
        start = await self._initial_revision() if self._current is None else self._current[1]
        while True:
            try:
                read = self.stream.read_news if news else self.stream.read_from
                async for revision, value in read(start):
                    entry = decode_entry(value)
                    try:
                        if isinstance(entry, bytes):
                            self._current, complete = (self._initial(entry), revision), True
                            self._history = _History(revision.offset, len(value))
                        # Updates before the first initial state, or after entries that were truncated, are skipped.
                        elif self._current is not None and complete:
                            self._current = (self._apply_all(self._current[0], revision, entry), revision)
                            self._history = self._history.longer()
                    except BaseException:  # of the user's functions: as if nothing had been fetched
                        self._current, self._history = before
                        raise
                break
            except Truncated:
                # Entries after our state were truncated: only an initial state makes it complete again.
                start, complete, news = await self._initial_revision(), False, False
        if self._current is not None and not complete:
            raise Corrupt(
                f"{self.stream.stream} was truncated, and no initial state follows: it was not compacted first"
            )

    async def _initial_revision(self) -> Revision:
        """Return the revision from which an initial state can be found."""
        mark, oldest = await self.stream.get_mark(), await self.stream.oldest()
        return oldest if mark is None else max(mark, oldest)

    def _apply_all(self, state: S, revision: Revision, updates: Iterable[bytes]) -> S:
        for index, update in enumerate(updates):
            state = self._apply(state, update, Revision(revision.offset, index))
        return state

    # -- writing --------------------------------------------------------------------------------

    async def initialize(self, state: bytes) -> bool:
        """Write the first state if there is none.  Returns whether this call wrote it.

        Raises Sealed, Unavailable (it may have been written or not)."""
        async with self._lock:
            await self._fetch()
            if self._current is not None:
                return False
            # Decode the state before writing it: what cannot be decoded must never get into the stream.
            first = self._initial(state)
            # Write on the condition that the stream is empty: only one of several processes succeeds.
            value = encode_initial(state)
            written = await self.stream.write_conditionally(Revision(0), value)
            if written is not None:
                self._current, self._history = (first, written), _History(written.offset, len(value))
                return True
            await self._fetch()
            self._expect()
            return False

    async def update(self, decide: Callable[[S], Sequence[bytes]]) -> bool:
        """Write the updates that `decide` returns for the newest state, atomically; an empty list writes nothing.

        `decide` is called again when another process wrote first; what it raises is raised here, with nothing written.
        Returns whether anything was written.  Raises NotFound (the state was not initialized), Conflict (other
        processes wrote first ten thousand times), Invalid (too long), Sealed, Unavailable (it may have been
        written)."""
        return await self._write_locked(decide)

    async def update_unconditionally(self, updates: Sequence[bytes]) -> None:
        """Write updates without a condition; this copy has them after the next `fetch`.

        Raises Invalid, Sealed, Unavailable (they may have been written or not)."""
        if updates:
            await self.stream.write_unconditionally(encode_updates(updates))

    async def compact(self, make: Callable[[S], bytes]) -> None:
        """Write the whole state, encoded by `make`, and truncate what came before the previous compaction.

        Raises as `update` does."""
        async with self._lock:
            before = await self._write_optimistically(lambda state, _: encode_initial(make(state)))
            assert before is not None
            await self._truncate_history(before)

    async def _write_locked(self, decide: Callable[[S], Sequence[bytes]]) -> bool:
        def entry(state: S, _: Revision) -> bytes | None:
            updates = decide(state)
            return encode_updates(updates) if updates else None

        async with self._lock:
            began = self._clock.monotonic()
            written = await self._write_optimistically(entry) is not None
            if written:
                await self._turns.yield_to_others(began)
            if written and self._snapshot is not None and self._compaction_due():
                await self._compact_automatically(self._snapshot)
            return written

    async def _write_optimistically(self, make: Callable[[S, Revision], bytes | None]) -> Revision | None:
        """Write the entry that `make` returns for the newest state; the revision before it, None when there was
        none."""
        if self._current is None:
            await self._fetch()
        for conflicts in range(MAX_CONFLICTS):
            state, revision = self._expect()
            value = make(state, revision)
            if value is None:
                await self._fetch()
                if self.revision == revision:  # a decision to write nothing, too, needs the newest state
                    return None
                continue
            # Applied before it is written: an update that cannot be applied must never get into the stream.
            after = Revision(revision.offset + EVENT_HEADER_BYTES + len(value))
            entry = decode_entry(value)
            fresh = isinstance(entry, bytes)
            new = self._initial(entry) if isinstance(entry, bytes) else self._apply_all(state, after, entry)
            if await self.stream.write_conditionally(revision, value) is not None:
                self._current = (new, after)
                self._history = _History(after.offset, len(value)) if fresh else self._history.longer()
                return revision
            if 0 < conflicts < YIELDING_CONFLICTS:  # the process that has tried longer goes first
                await asyncio.sleep(MAX_CONFLICT_PAUSE_SECONDS * self.stream.session.env.random.random())
            # The refused condition proves that there is a newer entry: one request reads it.
            await self._fetch(news=True)
        raise Conflict(f"{self.stream.stream}: other processes wrote first {MAX_CONFLICTS} times")

    # -- compaction -----------------------------------------------------------------------------

    def _compaction_due(self) -> bool:
        """Return whether to compact now; random, so that not all processes do."""
        size = self.revision.offset - self._history.offset
        # Who opens the state replays all of it.  Not shorter than the state: else this would write more than it saves.
        many = self._history.updates >= COMPACT_AFTER_UPDATES and size >= self._history.initial_bytes
        long = many or size > self._compact_after_bytes
        return long and self.stream.session.env.random.random() * COMPACTION_ODDS < 1

    async def _compact_automatically(self, snapshot: Callable[[S], bytes]) -> None:
        """Try once to compact the stream.  The caller's update is stored, so a failure is logged, not raised."""
        state, revision = self._expect()
        try:
            value = encode_initial(snapshot(state))
            written = await self.stream.write_conditionally(revision, value)
            if written is not None:
                self._current, self._history = (state, written), _History(written.offset, len(value))
                await self._truncate_history(revision)
        except SaritError as error:
            log.warning("%s could not be compacted, and will be at a later update: %s", self.stream.stream, error)
        except Exception:
            log.exception("%s was not compacted: the snapshot failed", self.stream.stream)

    async def _truncate_history(self, before: Revision) -> None:
        """Set the mark before a new initial state, and truncate at the previous mark."""
        # The mark before the truncation: at every moment an initial state follows the mark.
        old = await self.stream.get_mark()
        if old is None or old < before:
            await self.stream.compare_and_set_mark(old, before)
        if old is not None:
            await self.stream.truncate(old)


class StateFollower(Generic[S]):
    """Waits for what other processes write to a state; `notify` wakes the callers of `until`."""

    def __init__(self, shared: StateSynchronizer[S]) -> None:
        self.shared = shared
        self.failure: BaseException | None = None
        self._more: asyncio.Task[None] | None = None
        self._waiting: list[asyncio.Future[None]] = []

    def __repr__(self) -> str:
        return f"StateFollower({self.shared!r}, {len(self._waiting)} waiting)"

    async def wait(self, seconds: float | None) -> None:
        """Wait until there may be more to fetch, at most `seconds`.  Raises what the store replies, except
        Unavailable."""
        # One request for many waits: an abandoned request would stay parked at the store.
        if self._more is None:
            self._more = asyncio.get_running_loop().create_task(
                self._wait_beyond(), name=f"follow {self.shared.stream}"
            )
            # The task goes on after this call, and may fail when nobody waits: then no exception is lost.
            self._more.add_done_callback(ignore_outcome)
        await asyncio.wait((self._more,), timeout=seconds)
        if self._more.done():
            ended, self._more = self._more, None
            ended.result()

    async def _wait_beyond(self) -> None:
        try:
            await self.shared.stream.wait_beyond(self.shared.revision)
        except Unavailable:
            return  # the next fetch retries

    async def until(self, condition: Callable[[], T | None], seconds: Callable[[], float | None] = lambda: None) -> T:
        """Return what `condition` returns, called after every `notify` and after `seconds()`, once it is not None.

        Raises the failure that ended the following."""
        while True:
            if self.failure is not None:
                raise self.failure
            found = condition()
            if found is not None:
                return found
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await asyncio.wait((waiter,), timeout=seconds())
            finally:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)

    def notify(self) -> None:
        """Something changed."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def end(self, failure: BaseException | None = None) -> None:
        """Stop; callers of `until` raise `failure`."""
        if self.failure is None:
            self.failure = failure or Invalid(f"{self.shared.stream.stream} was closed here")
        if self._more is not None:
            self._more.cancel()
            self._more = None
        self.notify()
