"""One partition of a table: its requests, coalesced.

Changes wait in one queue; one request with changes is in flight at a time, so that they are applied in the order they
were made.  Meanwhile the next ones are coalesced (`changes.coalescible`); there is no timer.  Reads of single keys are
coalesced likewise, with several requests in flight: their order is irrelevant.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sarit.client.core.connection import REQUESTS
from sarit.client.core.replies import error_of
from sarit.client.tables.changes import coalescible
from sarit.core.errors import Conflict, Invalid, SaritError, Unavailable, Unreachable
from sarit.core.limits import NOT_EXISTS
from sarit.wire import commands as wire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.client.core.connection import Connection
    from sarit.client.session.session import Backoff, Session
    from sarit.client.tables.changes import Batch
    from sarit.core.names import SegmentId, StreamName

# That many of the largest values (1 MiB) always fit into one reply (16 MiB).
KEYS_PER_READ: Final = 15
_SHOWN_KEY: Final = 64
MAX_READS_AT_ONCE: Final = 8

Versions = list[int]


class Partition:
    """Belongs to one table handle.  `stream`: the name under which the controller finds the table's store."""

    def __init__(self, session: Session, table: StreamName, stream: StreamName, segment: SegmentId) -> None:
        self._session = session
        self._table = table
        self._place = stream, segment
        self._name = stream.segment(segment)
        self._token = ""
        self._changes: deque[_Waiting] = deque()
        self._changing = False
        # With the moment they were made: the time in which they wait for others counts, too.
        self._reads: deque[tuple[bytes, asyncio.Future[tuple[int, bytes]], float]] = deque()
        self._readers = 0

    def __repr__(self) -> str:
        return f"Partition({self._name}, {len(self._changes)} changes and {len(self._reads)} reads wait)"

    # -- changes --------------------------------------------------------------------------------

    def change(self, batch: Batch) -> asyncio.Future[Versions]:
        """Apply a batch after those before it: the versions of its keys, NOT_EXISTS for removed ones.

        Fails with Conflict, NotFound (the table was deleted), Invalid, or Unavailable: it may have been applied."""
        done: asyncio.Future[Versions] = asyncio.get_running_loop().create_future()
        self._changes.append((batch, done, self._session.backoff().begin()))
        # One task, one request at a time: the changes of a partition keep their order.
        if not self._changing:
            self._changing = True
            self._session.background.spawn(self._execute_changes(), f"changes of {self._name}")
        return done

    async def _execute_changes(self) -> None:
        group: list[_Waiting] = []
        try:
            while self._changes:
                count = coalescible(waiting[0] for waiting in self._changes)
                group = [self._changes.popleft() for _ in range(count)]
                # A cancelled caller's change is not sent.
                group = [waiting for waiting in group if not waiting[1].done()]
                if group:
                    await self._send(group)
        finally:
            self._changing = False
            for _, done, _ in (*group, *self._changes):
                if not done.done():
                    text = f"table {self._table}: the client was closed; the change may have been applied"
                    done.set_exception(Unavailable(text))
            self._changes.clear()

    async def _send(self, group: list[_Waiting]) -> None:
        uncertain = False
        if len(group) > 1:
            # The last one has the most time left; the others must not end it.
            backoff = group[-1][2]
            try:
                connection = await self._connect(backoff)
            except SaritError as error:
                for _, done, _ in group:
                    if not done.done():
                        done.set_exception(error)
                return
            try:
                versions = iter(await self._attempt([batch for batch, _, _ in group], connection))
            except SaritError as error:  # after any other error the outcome is unknown
                uncertain = isinstance(error, Unavailable) and not isinstance(error, _Moved)
            else:
                for batch, done, _ in group:
                    _complete(done, [next(versions) for _ in batch.items])
                return
        for batch, done, backoff in group:
            try:
                _complete(done, await self._send_alone(batch, uncertain, backoff))
            except SaritError as error:
                if not done.done():
                    done.set_exception(error)

    async def _send_alone(self, batch: Batch, uncertain: bool, backoff: Backoff) -> Versions:
        while True:
            if uncertain and not batch.repeatable:
                raise Unreachable(
                    f"table {self._table}: the reply to an insert was lost; it may be applied: read the key"
                )
            connection = await self._connect(backoff)
            try:
                return await self._attempt([batch], connection)
            # The store that replied applied nothing: the outcome is no less certain.
            except _Moved as error:
                await backoff.wait(error)
            except Unavailable as error:
                uncertain = True
                await backoff.wait(error)
            except Conflict as error:
                # The lost attempt may itself have changed the version.
                if uncertain:
                    raise Unreachable(
                        f"table {self._table}: a reply was lost and the key has changed: read it"
                    ) from error
                raise

    async def _attempt(self, group: Sequence[Batch], connection: Connection) -> Versions:
        items = [item for batch in group for item in batch.items]
        if group[0].removes:
            keys = tuple(wire.TableKey(item.key, item.expected) for item in items)
            reply = await connection.ask(lambda i: wire.RemoveTableKeys(i, self._name, self._token, keys), self._place)
            if type(reply) is wire.TableKeysRemoved:
                return [NOT_EXISTS] * len(items)
        else:
            entries = tuple(wire.TableEntry(item.key, item.expected, item.value or b"") for item in items)
            reply = await connection.ask(
                lambda i: wire.UpdateTableEntries(i, self._name, self._token, entries), self._place
            )
            if type(reply) is wire.TableEntriesUpdated:
                return list(reply.versions)
        if type(reply) in (wire.TableKeyBadVersion, wire.TableKeyDoesNotExist):
            raise self._conflict(group, missing=type(reply) is wire.TableKeyDoesNotExist)
        raise self._error(reply)

    def _conflict(self, group: Sequence[Batch], *, missing: bool) -> Conflict:
        if len(group) > 1 or len(group[0].items) > 1:
            return Conflict(f"table {self._table}: a key of the batch has another version; nothing was changed")
        expected = group[0].items[0].expected
        key = group[0].items[0].key
        actual = NOT_EXISTS if missing else None
        if expected == NOT_EXISTS:
            return Conflict(f"table {self._table}: key {key[:_SHOWN_KEY]!r} exists already", expected=expected)
        return Conflict(f"table {self._table}: key {key[:_SHOWN_KEY]!r} does not have version {expected}",
                        expected=expected, actual=actual)  # fmt: skip

    # -- reads ----------------------------------------------------------------------------------

    def read(self, key: bytes) -> asyncio.Future[tuple[int, bytes]]:
        """Return version and value of a key, NOT_EXISTS and b"" if absent.  Fails with NotFound, Unavailable, too."""
        answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._reads.append((key, answer, self._session.env.clock.monotonic()))
        # Rounded up.  Keys that come while all readers wait share their next requests.
        wanted = -(-len(self._reads) // KEYS_PER_READ)
        if self._readers < min(wanted, MAX_READS_AT_ONCE):
            self._readers += 1
            self._session.background.spawn(self._read(), f"reads of {self._name}")
        return answer

    async def _read(self) -> None:
        group: list[tuple[bytes, asyncio.Future[tuple[int, bytes]], float]] = []
        try:
            while self._reads:
                group = [self._reads.popleft() for _ in range(min(KEYS_PER_READ, len(self._reads)))]
                keys = tuple(wire.TableKey(key) for key, _, _ in group)
                try:
                    # The last one has the most time left.
                    reply = await self.ask(partial(self._read_request, keys), wire.TableRead, group[-1][2])
                except SaritError as error:
                    for _, answer, _ in group:
                        if not answer.done():
                            answer.set_exception(error)
                    continue
                for (_, answer, _), entry in zip(group, reply.entries, strict=True):
                    if not answer.done():
                        answer.set_result((entry.version, bytes(entry.value)))
        finally:
            self._readers -= 1
            # The last reader fails what is queued; another one would still serve it.
            left = (*group, *self._reads) if not self._readers else group
            for _, answer, _ in left:
                if not answer.done():
                    answer.set_exception(Invalid("the client is closed"))

    def _read_request(self, keys: tuple[wire.TableKey, ...], request_id: int) -> wire.ReadTable:
        return wire.ReadTable(request_id, self._name, self._token, keys)

    async def page(self, first: bytes, last: bytes, count: int) -> Sequence[wire.TableEntry]:
        """Return the first entries between two keys; none when there are no more.  Raises NotFound, Unavailable."""
        args = wire.IteratorArgs(from_key=first, to_key=last)
        reply = await self.ask(
            lambda i: wire.ReadTableEntries(i, self._name, self._token, count, args), wire.TableEntriesRead
        )
        found: Sequence[wire.TableEntry] = reply.entries
        return found

    async def key_page(self, first: bytes, last: bytes, count: int) -> Sequence[wire.TableKey]:
        """Return the same without values."""
        args = wire.IteratorArgs(from_key=first, to_key=last)
        reply = await self.ask(
            lambda i: wire.ReadTableKeys(i, self._name, self._token, count, args), wire.TableKeysRead
        )
        found: Sequence[wire.TableKey] = reply.keys
        return found

    async def ask(self, make: Callable[[int], Any], kind: type[Any], since: float | None = None) -> Any:
        """Send a read-only request, again until a store replies.  Raises NotFound, Invalid, Unavailable."""

        async def once() -> Any:
            reply = await (await self._connect_once()).ask(make, self._place)
            if type(reply) is kind:
                return reply
            raise self._error(reply)

        return await self._session.with_retry(once, since=since)

    # -- connections ----------------------------------------------------------------------------

    async def _connect(self, backoff: Backoff) -> Connection:
        while True:
            try:
                connection = await self._connect_once()
            except Unavailable as error:
                await backoff.wait(error)
            else:
                # A change may wait for as long as the store is throttled.
                backoff.answered()
                return connection

    async def _connect_once(self) -> Connection:
        try:
            connection, self._token = await self._session.connect(*self._place, REQUESTS)
            return connection
        except Unavailable:
            self._session.forget_endpoint(*self._place)
            raise

    def _error(self, reply: Any) -> SaritError:
        if type(reply) is wire.WrongHost:
            self._session.forget_endpoint(*self._place)
            return _Moved(f"table {self._table}: another store serves it now")
        return error_of(reply, self._name)


# A batch, who waits for it, and its attempts: they begin when it is made, for the time in a queue counts, too.
_Waiting = tuple["Batch", "asyncio.Future[Versions]", "Backoff"]


class _Moved(Unavailable):
    """Another store serves the partition; this one applied nothing."""


def _complete(done: asyncio.Future[Versions], versions: Versions) -> None:
    if not done.done():
        done.set_result(versions)
