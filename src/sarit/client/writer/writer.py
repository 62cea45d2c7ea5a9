"""The event writer: `write` neither blocks nor awaits.

*The path of an event.*  `write` appends it to the *intake*, a plain list, and subtracts its bytes from a counter.  That
is all; it takes about 0.1 µs.  A *dispatch* takes the whole intake, finds the segment appender of each event, frames
the events in bulk and lets the appenders send (`segment_appender.py` says when they do).  A dispatch runs

* in the next turn of the loop, when a write finds the writer *idle* (next to nothing in flight): low latency;
* after acknowledgements: events written meanwhile are sent together;
* when the intake is full: high throughput.

*Threads.*  The intake is flat: an event as `bytes`, its key as `str` before it if it has one, or a `Bulk` from
`write_many`.  It is extended and cut at the front, both atomic under the GIL, and never replaced.  The blocking client
may therefore fill it from other threads while the loop's thread empties it.  A dispatch sets `_idle` before it reads
the intake a last time; `write` reads `_idle` after it has appended.  No wake-up is lost.

*Keys.*  A dict of recent keys gives the appender of a key; a key is hashed only when it is not there.  With one segment
keys are not read at all.  Events without keys stay with one segment for a while (`partitioner.py`).  Keys are retained,
unhashed, beside their events until these are acknowledged: when their segment is sealed, they are placed again by key.

*Values.*  With a serializer, `write` encodes each value at once, so that a value that does not fit is an error there.
Such a writer has another `write` as an attribute of its own, so that events of the others cost nothing more.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from sarit.client.core.typed import W
from sarit.client.limits import DEFAULT_WRITER_BUFFER_BYTES, EAGER_BLOCKS, MAX_INTAKE_BYTES, MIN_INTAKE_BYTES
from sarit.client.session.guard import guarded
from sarit.client.session.parts import Hooks, Unacknowledged, warn_of_loss
from sarit.client.streams import event_time as times
from sarit.client.writer.bulk import Bulk, as_event, as_key
from sarit.client.writer.partitioner import Partitioner
from sarit.client.writer.targets import StreamTarget
from sarit.core.envelope import Envelope
from sarit.core.errors import Invalid
from sarit.core.limits import EVENT_HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.client.session.session import Session
    from sarit.client.writer.encoding import Encoding
    from sarit.client.writer.targets import Target
    from sarit.core.names import StreamName


@guarded(
    "_session",
    local=("close", "abandon", "flush", "flush_barrier", "ack"),
    unguarded=(
        "write",
        "write_many",
        "drain",
        "open",
        "bind_foreign_thread",
        "client_closed",
        "dispatch_soon",
        "fail",
        "pending_bytes",
    ),
)
class EventWriter(Generic[W]):
    """Writes events to one stream, exactly once each and in order per key.  For use on one event loop.

    `drain` waits while more than `buffer_bytes` are not acknowledged.  `name` is what `note_time` notes under; a writer
    that continues another's work uses the same name.  Make one with `client.writer(...)`.
    """

    __slots__ = (
        "__dict__",
        "_barriers",
        "_closed",
        "_dispatch_due",
        "_drained",
        "_encode",
        "_encoding",
        "_full",
        "_idle",
        "_intake",
        "_intake_barriers",
        "_intake_free_bytes",
        "_intake_limit_bytes",
        "_name",
        "_noted",
        "_on_dispatched",
        "_opening",
        "_partitioner",
        "_put_both",
        "_session",
        "_wake",
        "_yield",
        "buffer_bytes",
        "failure",
        "stream",
    )

    def __init__(
        self,
        session: Session,
        stream: StreamName,
        buffer_bytes: int = DEFAULT_WRITER_BUFFER_BYTES,
        target: Target | None = None,
        name: str | None = None,
        encoding: Encoding[W] | None = None,
    ) -> None:
        self.stream = stream
        if buffer_bytes < 0:
            raise Invalid(f"a buffer of {buffer_bytes} bytes: 0 or more, please")
        self._name = name
        self._noted = False
        self._session = session
        self._encoding = encoding
        if encoding is not None:
            self._encode: Callable[[W], bytes] = partial(_refuse_unopened, stream)
            vars(self)["write"] = partial(_write_value, self)
        self._partitioner = Partitioner(session, target or StreamTarget(session, stream), self._progressed, self.fail)
        self.buffer_bytes = buffer_bytes
        self._intake: list[Any] = []
        # Bound once: `write` calls it for each event with a key.
        self._put_both = self._intake.extend
        # Counts down to the next dispatch: 64 to 512 KiB of intake (docs/decisions/0401).
        self._intake_free_bytes = self._intake_limit_bytes = max(MIN_INTAKE_BYTES, min(buffer_bytes, MAX_INTAKE_BYTES))
        # True: the next write schedules a dispatch.  False: one is due, or an acknowledgement or the opening brings it.
        self._idle = True
        self._closed = False
        self.failure: BaseException | None = None  # the failure, which every later call raises
        self._barriers: dict[asyncio.Future[None], None] = {}
        self._intake_barriers: list[asyncio.Future[None]] = []  # of `_barriers`: placed after what is in the intake
        self._opening: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._dispatch_due = False
        self._yield = False
        self._wake: Callable[[], None] = partial(_wake_here, self)
        self._full: Callable[[], None] = self._dispatch_full
        self._on_dispatched: Callable[[], None] | None = None
        # The events of a transaction that is not committed are not to be stored.
        unacknowledged = partial(_unacknowledged, self) if target is None else None
        session.register(self, Hooks(partial(_forked, self), unacknowledged))

    def __repr__(self) -> str:
        state = self._session.state(closed=self._closed, failed=self.failure is not None)
        return f"EventWriter({self.stream}, {state})"

    async def open(self) -> EventWriter[W]:
        """Register or look up the schema of the writer's serializer, as its block does; a writer of bytes needs none.

        Raises Invalid (the registry and the stream's header do not go together), Conflict (the registry refuses the
        schema), NotFound, Unavailable."""
        if self._encoding is not None:
            self._encode = await self._encoding.encoder()
        return self

    # -- writing ------------------------------------------------------------------------------

    def write(self, event: W, key: str | None = None) -> None:
        """Write one event; it is durable when a later `flush` returns.

        Events of one key stay in order; events without a key are distributed over the segments.  The key of an
        Envelope is its routing key, unless `key` is given.  Raises the writer's failure, if it has one; Invalid for
        something that is no event, or does not fit the writer's serializer.
        """
        if event.__class__ is not bytes:
            if key is None and event.__class__ is Envelope:
                key = event.key  # type: ignore[attr-defined]
            event = as_event(event)  # type: ignore[assignment]
        if key is None:
            self._intake.append(event)  # written like this, the interpreter does it without a call
        elif key.__class__ is str:
            # In one call: a dispatch on the thread of the loop cannot come between key and event.
            self._put_both((key, event))
        else:
            self._put_both((as_key(key), event))
        self._intake_free_bytes = free = self._intake_free_bytes - len(event) - EVENT_HEADER_BYTES  # type: ignore[arg-type]
        if free < 0 or self._idle:
            self._intake_changed()

    def write_many(self, events: Any, keys: Any = None) -> None:
        """Write a batch: a list of bytes, str or Envelopes, or an Arrow array of binary or string.

        `keys` is one key (or None) per event, as a list or an Arrow array of string; None: the keys of the Envelopes.
        A writer with a serializer takes a list of values; when one does not fit, none is written.
        """
        if self._encoding is not None:
            events = [self._encode(value) for value in events]
        bulk = Bulk.of(events, keys)
        if not bulk.count:
            return
        # One entry for the whole batch: `Bulk.place` divides it at the dispatch.
        self._intake.append(bulk)
        self._intake_free_bytes -= bulk.length
        if self._intake_free_bytes < 0 or self._idle:
            self._intake_changed()

    def _intake_changed(self) -> None:
        """Schedule a dispatch of the intake.  Raises the writer's failure, Invalid when the writer is closed."""
        # `fail` and `_release` set `_idle`, so that the next write comes here: `write` itself checks nothing.
        if self.failure is not None:
            self._intake.clear()
            raise self.failure.with_traceback(None)
        if self._closed:
            self._intake.clear()
            raise Invalid(f"the writer of {self.stream} is closed")
        if self._intake_free_bytes < 0:
            self._full()
        elif self._idle:
            self._idle = False
            self._wake()

    def bind_foreign_thread(
        self, wake: Callable[[], None], full: Callable[[], None], on_dispatched: Callable[[], None]
    ) -> None:
        """Let other threads write (`client/blocking`): `wake` and `full` are called there, `on_dispatched` is not."""
        self._wake = wake
        self._full = full
        self._on_dispatched = on_dispatched

    def dispatch_soon(self) -> None:
        """Dispatch in the next turn of the loop."""
        if not self._dispatch_due:
            self._dispatch_due = True
            self._session.loop.call_soon(self._dispatch_if_due)

    def _dispatch_if_due(self) -> None:
        if self._dispatch_due:  # otherwise a flush did it meanwhile
            self._dispatch()

    def _progressed(self) -> None:
        """Something was acknowledged, or an appender may send again: dispatch, unless nothing is left to do."""
        idle = self._idle and not self._partitioner.unacked_bytes and not self._intake
        if idle and (self._drained is None or self._drained.done()) and self._on_dispatched is None:
            return  # a slow writer is acknowledged after each of its turns: a dispatch would find nothing
        self.dispatch_soon()

    def _dispatch_full(self) -> None:
        self._session.check_caller()
        # The next `drain` lets the loop run once, even if it need not wait: else no reply would be read.
        self._yield = True
        self._dispatch()

    # -- waiting ------------------------------------------------------------------------------

    def pending_bytes(self) -> int:
        """Bytes written and not acknowledged yet."""
        return self._partitioner.unacked_bytes + self._intake_limit_bytes - self._intake_free_bytes

    async def drain(self) -> None:
        """Wait while more than `buffer_bytes` are not acknowledged.  Raises the writer's failure, Invalid when it is
        closed."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        if self._closed:
            raise Invalid(f"the writer of {self.stream} is closed")
        while self.pending_bytes() > self.buffer_bytes:
            self._session.check()
            # What is in the intake must be sent: otherwise no acknowledgement would end the wait.
            self._dispatch()
            if self._drained is None or self._drained.done():
                self._drained = self._session.loop.create_future()
            # By `wait`: several tasks may wait for this one future, and a cancelled one must not cancel it.
            await asyncio.wait((self._drained,))
            self._yield = False
            if self.failure is not None:
                raise self.failure
        if self._yield:
            self._yield = False
            await asyncio.sleep(0)

    def flush_barrier(self) -> asyncio.Future[None]:
        """Return a future that is done when everything written so far is durable; it fails when the writer fails.

        Events written right after it may be sent in the same block; then it waits for them, too."""
        return self._place_barrier(self._partitioner.place_barrier)

    def ack(self) -> asyncio.Future[None]:
        """Wait as `flush_barrier` does, but only for the segments that were given events since the last `ack`."""
        return self._place_barrier(self._partitioner.place_barrier_since_last)

    def _place_barrier(self, place: Callable[[Callable[[], None]], None]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._session.loop.create_future()
        if self.failure is not None:
            future.set_exception(self.failure)
            return future
        self._session.check_caller()
        if self._closed and self.pending_bytes():
            future.set_exception(Invalid(f"the writer of {self.stream} was closed before everything was durable"))
            return future
        self._barriers[future] = None
        partitioner = self._partitioner
        if self._intake and (not partitioner.opened or partitioner.key_ranges.only is not None):
            # One appender gets it all: what is before this barrier and after the one before leaves in one block most
            # often, and framing each part by itself would cost more than all else that a barrier does.  Before the
            # writer is open there is no appender yet.
            self._intake_barriers.append(future)
        else:
            self._take_intake()
            place(partial(self._complete_barriers, [future]))
        # If nothing can be sent now, an acknowledgement or the opening dispatches: no turn of the loop per barrier.
        if not self._dispatch_due and partitioner.due(self._intake_limit_bytes - self._intake_free_bytes):
            self.dispatch_soon()
        return future

    async def flush(self) -> None:
        """Wait until everything written so far is durable.  Raises the writer's failure."""
        # The barrier first: the dispatch sends what is before it.  Urgent, since somebody waits.
        durable = self._place_barrier(self._partitioner.place_barrier)
        self._dispatch(urgent=True)
        await durable

    @property
    def name(self) -> str:
        """The name under which the writer notes times; a random one when none was given."""
        if self._name is None:
            self._name = self._session.env.random.bytes(16).hex()
        return self._name

    async def note_time(self, time: int) -> None:
        """Flush, then note that all events of this writer so far are of `time` or before, and all to come of `time` or
        later.  `time` is an integer in whatever unit the events' times are.

        Readers get it as watermarks (`streams/event_time.py`).  Raises the writer's failure, Invalid when `time`
        goes back."""
        # Flushed first: the ends of the segments, requested next, must lie behind all that is written.
        await self.flush()
        positions = await times.written_up_to(self._session, self.stream, self._partitioner.written_segments())
        await times.note_time(self._session, self.stream, self.name, time, positions)
        self._noted = True

    async def close(self) -> None:
        """Flush, then release the writer.  Raises what `flush` raises; the writer is closed in any case."""
        if self._closed:
            return
        try:
            await self.flush()  # raises an earlier failure, too: it may not have been reported yet
        finally:
            self.abandon(quiet=True)
        if self._noted:
            # Watermarks wait for a writer that has noted a time, until it leaves.
            await times.forget_writer(self._session, self.stream, self.name)

    def abandon(self, *, quiet: bool = False) -> None:
        """Release the writer without waiting.  Logs how much may be lost, unless `quiet`.

        What is not acknowledged may or may not be stored; its flush barriers fail with Invalid."""
        if self._closed:
            return
        if not quiet:
            warn_of_loss(_unacknowledged(self))
        if self.pending_bytes():
            # `fail` fails the barriers, too, which nothing would complete any more.
            self.fail(Invalid(f"the writer of {self.stream} was closed before everything was durable"))
        self._closed = True
        self._release()

    def client_closed(self) -> None:
        """Stop, because the client is closed.  If anything may be lost, a later `close` raises Invalid."""
        if self.pending_bytes():
            self.fail(Invalid(f"the client was closed before the writer of {self.stream}: some events may be unstored"))
            # `_closed` stays False: a later `close` must raise the failure, not return.
            self._release()
        else:
            self.abandon(quiet=True)

    def _release(self) -> None:
        self._idle = True
        self._session.unregister(self)
        if self._opening is not None:
            self._opening.cancel()
        self._partitioner.release()
        # Whoever waits in `drain` evaluates again.
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)
        if self._on_dispatched is not None:
            self._on_dispatched()

    async def __aenter__(self) -> EventWriter[W]:
        return await self.open()

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            await self.close()
        else:
            self.abandon()

    # -- dispatch -----------------------------------------------------------------------------

    def _dispatch(self, urgent: bool = False) -> None:
        """Empty the intake into the appenders and let them send; `urgent`: without batching."""
        # If one is scheduled as well, it does nothing (`_dispatch_if_due`).
        self._dispatch_due = False
        if self._closed or self.failure is not None:
            return
        partitioner = self._partitioner
        try:
            self._take_intake()
            partitioner.dispatch(urgent)
        except Exception as error:  # a bug here must not look like a slow store
            self.fail(error)
            raise
        if partitioner.opened and partitioner.blocks_in_flight < EAGER_BLOCKS:
            # `_idle` first, then the intake: a write of another thread in between sees the one, or is seen here.
            self._idle = True
            if self._intake:
                self._idle = False
                self.dispatch_soon()
        if self._drained is not None and self.pending_bytes() <= self.buffer_bytes and not self._drained.done():
            self._drained.set_result(None)
        if self._on_dispatched is not None:
            self._on_dispatched()

    def _take_intake(self) -> None:
        if not self._partitioner.opened:
            if self._opening is None:
                self._opening = self._session.background.spawn(self._open(), f"open {self.stream}")
            return
        intake = self._intake
        count = len(intake)
        if count:
            # Another thread may append meanwhile: what comes after `count` stays for the next dispatch.
            batch = intake[:count]
            del intake[:count]
            try:
                self._partitioner.partition(batch)
                if self._intake_barriers:
                    # Place the barriers after the batch, when everything before them is on its appenders.
                    barriers, self._intake_barriers = self._intake_barriers, []
                    self._partitioner.place_barrier(partial(self._complete_barriers, barriers))
            except UnicodeEncodeError as error:
                self.fail(Invalid(f"a key is a str of valid Unicode, which {ascii(error.object)[:60]} is not"))
                raise
            except Exception as error:  # part of it is lost: no later flush may report it as stored
                self.fail(error)
                raise
        # Off by what another thread writes at this moment: the bound of `drain` is off by a few events.
        self._intake_free_bytes = self._intake_limit_bytes

    async def _open(self) -> None:
        try:
            await self._partitioner.open()
            self._take_intake()
        except Exception as error:  # any error: otherwise a flush would wait for ever
            self.fail(error)
            return
        self._dispatch()

    def fail(self, error: BaseException) -> None:
        """Stop the writer with an error, which every later call raises.  Later errors are ignored."""
        if self.failure is not None:
            return
        self.failure = error
        self._idle = True
        waiting = (*self._barriers, self._drained)
        self._barriers.clear()
        self._intake_barriers.clear()
        for future in waiting:
            if future is not None and not future.done():
                future.set_exception(error)
                # Retrieve the exception, or asyncio logs it when nobody waits for the future.
                future.exception()
        if self._on_dispatched is not None:
            self._on_dispatched()

    def _complete_barriers(self, futures: list[asyncio.Future[None]]) -> None:
        """Complete these barriers, because everything before them is durable."""
        for future in futures:
            self._barriers.pop(future, None)
            # The caller may have cancelled it.
            if not future.done():
                future.set_result(None)


def _write_value(writer: EventWriter[W], value: W, key: str | None = None) -> None:
    """Write one value, as `write` does: the `write` of a writer with a serializer."""
    EventWriter.write(writer, writer._encode(value), key)  # type: ignore[misc]


def _refuse_unopened(stream: StreamName, _: object) -> bytes:
    raise Invalid(f"the writer of {stream} has a serializer: open it first, as `async with` does, or by its `open`")


def _wake_here(writer: EventWriter[W]) -> None:
    """Have what was just written dispatched on this loop.  Raises Invalid when it is not the writer's."""
    try:
        writer._session.check_caller()
    except Invalid:
        # Forget what was written, which could never be sent, and have the next write come here again.
        writer._idle = True
        writer._intake.clear()
        writer._intake_free_bytes = writer._intake_limit_bytes
        raise
    writer.dispatch_soon()


def _forked(writer: EventWriter[W], error: Invalid) -> None:
    """Let the next `write` raise `error` in a child process."""
    writer.failure = error
    writer._idle = True


def _unacknowledged(writer: EventWriter[W]) -> Unacknowledged:
    intake = writer._intake
    count = sum(one.count if isinstance(one, Bulk) else 1 for one in intake if one.__class__ is not str)
    count += writer._partitioner.unacked_events()
    return Unacknowledged(count, f"events of {writer.stream}", writer.flush)
