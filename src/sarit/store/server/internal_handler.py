"""Answers the internal commands of controllers of the same installation (`wire/commands/internal.py`).

A connection is internal once it has introduced itself with the secret of the installation.  Before that each internal
command is refused, and the connection ends.  A store has one `InternalHandler`, and an `InternalSession` for each
internal connection: the segments that have grown, and the requests to scale that the controller has not fetched.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from typing import TYPE_CHECKING, Any, Final

from sarit.core.errors import Conflict, Exists, Invalid, SaritError, Truncated
from sarit.core.limits import MAX_SCALE_REQUESTS, NULL_ATTRIBUTE_VALUE
from sarit.core.metering import NO_RATES, ScaleAdvice
from sarit.security.quotas import Quotas
from sarit.store.backup_session import BackupEnded, Backups
from sarit.store.container.writer_session import WriterSession
from sarit.store.limits import MAX_BATCH_READ_BYTES, MAX_GROWN_PER_REPLY, MAX_INTERNAL_READ_BYTES
from sarit.store.metering.growth import GrowthMonitor
from sarit.store.metering.scope_use import scope_use
from sarit.store.server.batches import append_many, infos, outcome_of, read_many
from sarit.store.server.control_handler import merge_at
from sarit.store.server.held_requests import answer_request
from sarit.store.server.replies import error_reply
from sarit.wire import commands as wire
from sarit.wire.frames import Append
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.core.metering import Rates
    from sarit.store.backup_session import BackupSession
    from sarit.store.metering.load_meters import LoadMeters
    from sarit.store.metering.scale_requests import ScaleRequests
    from sarit.store.server.held_requests import Handler
    from sarit.store.store import SegmentStore

# The writer id of appends by all controllers; of two concurrent appends, one is refused.
_WRITER: Final = b"sarit-controller"
_ADVICE: Final = {ScaleAdvice.SPLIT: 1, ScaleAdvice.MERGE: 2}
_NO_POSITION: Final = -1
_REFUSED: Final = 0


class InternalHandler:
    """The handler of internal commands of one store."""

    def __init__(
        self, store: SegmentStore, secret: bytes, meters: LoadMeters | None = None, backups: Backups | None = None,
        scale_requests: ScaleRequests | None = None,
    ) -> None:  # fmt: skip
        """`secret`: the secret of the installation, not empty.  `scale_requests`: passed on to controllers."""
        if not secret:
            raise Invalid("the secret of an installation is not empty")
        self.store = store
        self.backups = backups or Backups(store)
        if scale_requests is not None:
            scale_requests.listen(self.request_scaling)
        self._secret = secret
        self._meters = meters
        self._sessions: dict[InternalSession, None] = {}

    def __repr__(self) -> str:
        return f"<InternalHandler, {len(self._sessions)} connections>"

    def introduce(self, secret: bytes) -> InternalSession | None:
        """Return a session for a connection that knows the secret, else None; close it at the end of the connection."""
        # Compare in constant time: the time of the answer must not reveal how much of a guess was right.
        if not hmac.compare_digest(secret, self._secret):
            return None
        session = InternalSession(self)
        self._sessions[session] = None
        return session

    def closed(self, session: InternalSession) -> None:
        """Forget a session."""
        self._sessions.pop(session, None)

    def request_scaling(self, segment: str, advice: ScaleAdvice) -> None:
        """Pass a request to scale on to every session, without blocking."""
        for session in self._sessions:
            session.request_scaling(segment, advice)

    def rates(self, segment: str) -> Rates:
        """Return the rates of a segment; zero without meters, and for a segment of another store."""
        if self._meters is None:
            return NO_RATES
        try:
            return self._meters.rates(segment)
        except SaritError:
            return NO_RATES


class InternalSession:
    """The session of one internal connection."""

    def __init__(self, handler: InternalHandler) -> None:
        self._handler = handler
        self._store = handler.store
        self._growth: GrowthMonitor | None = None
        self._grown: list[str] = []
        self._subscribed = False
        self._scale_requests: dict[str, ScaleAdvice] = {}
        self._wake = asyncio.Event()
        self._backup: BackupSession | None = None
        self._handlers: dict[type, Handler] = {
            wire.CreateFreshSegment: self._create_fresh_one,
            wire.CreateFreshSegments: self._create_fresh,
            wire.ChangeTable: self._change_table,
            wire.ChangeTableAt: self._change_table_at,
            wire.FollowTable: self._follow_table,
            wire.ScanTable: self._scan_table,
            wire.DeleteTable: self._delete_table,
            wire.ReadBytes: self._read,
            wire.AppendAt: self._append,
            wire.GetRates: self._rates,
            wire.GetGrown: self._get_grown,
            wire.AwaitScaleRequests: self._await_scale_requests,
            wire.UseQuotas: self._use_quotas,
            wire.MeasureScope: self._measure_scope,
            wire.BackupStep: self._back_up,
            wire.CreateSegmentAt: self._create_at,
            wire.SetMirror: self._set_mirror,
            wire.MergeAt: self._merge_at,
            wire.AppendBatch: self._append_batch,
            wire.ReadBatch: self._read_batch,
            wire.GetStates: self._states,
        }

    def handles(self, command: object) -> bool:
        """Return whether `answer` knows this request."""
        return type(command) in self._handlers

    async def answer(self, command: Any) -> wire.Command:
        """Answer an internal request.  Returns the reply.  Raises Opening when the container is being opened."""
        segment = getattr(command, "segment", "")

        def refusal(error: Exception) -> wire.Command:
            if isinstance(error, Conflict):
                return wire.ConditionFailed(command.request_id, segment, str(error))
            reply = error_reply(error, command.request_id, segment)
            return reply or wire.OutcomeUnknown(command.request_id, segment, str(error))

        return await answer_request(self._store, segment, self._handlers[type(command)], command, refusal)

    def close(self) -> None:
        """End the session, and its backup if one runs, since the connection has ended."""
        self._handler.closed(self)
        if self._backup is not None:
            self._backup.end("the backup has ended", again=False)

    def request_scaling(self, segment: str, advice: ScaleAdvice) -> None:
        """Keep a request until the controller fetches it; more than MAX_SCALE_REQUESTS are dropped."""
        if self._subscribed and len(self._scale_requests) < MAX_SCALE_REQUESTS:
            self._scale_requests[segment] = advice
            self._wake.set()

    # -- segments -----------------------------------------------------------------------------

    async def _create_fresh_one(self, c: wire.CreateFreshSegment) -> wire.Command:
        if not c.segment:
            # Controllers of some days of November 2026 sent a list under this code.  After this answer they send one
            # CreateSegment for each segment.
            return wire.WrongHost(c.request_id, "", "")
        await self._store.container(c.segment).create(
            c.segment, scale_type=c.scale_type, target_rate=c.target_rate, rollover=c.rollover_size_bytes, fresh=True
        )
        return wire.SegmentCreated(c.request_id, c.segment)

    async def _create_fresh(self, c: wire.CreateFreshSegments) -> wire.Command:
        await create_fresh(self._store, c.segments)
        return wire.SegmentsCreated(c.request_id)

    async def _read(self, c: wire.ReadBytes) -> wire.Command:
        data = await read_bytes(self._store, c.segment, c.offset, min(c.limit, MAX_INTERNAL_READ_BYTES))
        return wire.BytesRead(c.request_id, data)

    async def _append(self, c: wire.AppendAt) -> wire.Command:
        # Copy the data: a view would keep the whole payload in memory until the append is flushed.
        await append_at(self._store, c.segment, bytes(c.data), c.expected_offset)
        return wire.AppendedAt(c.request_id)

    # -- mirrors and batches --------------------------------------------------------------------

    async def _create_at(self, c: wire.CreateSegmentAt) -> wire.Command:
        if c.table:
            tables = self._store.tables(c.segment)
            await tables.create(c.segment, c.key_length, c.rollover_size_bytes, position=c.offset, mirror=c.mirror)
        else:
            await self._store.container(c.segment).create(
                c.segment, scale_type=c.scale_type, target_rate=c.target_rate, rollover=c.rollover_size_bytes,
                offset=c.offset, mirror=c.mirror,
            )  # fmt: skip
        return wire.SegmentCreated(c.request_id, c.segment)

    async def _set_mirror(self, c: wire.SetMirror) -> wire.Command:
        await self._store.container(c.segment).set_mirror(c.segment, c.mirror)
        return wire.SegmentPolicyUpdated(c.request_id, c.segment)

    async def _merge_at(self, c: wire.MergeAt) -> wire.Command:
        try:
            length = await merge_at(self._store, c.segment, c.source, c.expected_offset)
        except Conflict as conflict:
            if not isinstance(conflict.actual, int):
                raise
            return wire.MergedAt(c.request_id, False, conflict.actual)
        return wire.MergedAt(c.request_id, True, length)

    async def _append_batch(self, c: wire.AppendBatch) -> wire.Command:
        # Copy the data: a view would keep the whole payload in memory until every append is flushed.
        writes = [(write.segment, write.offset, bytes(write.data)) for write in c.writes]
        outcomes = await append_many(self._store, writes, begin_events=c.begin_events)
        return wire.BatchDone(c.request_id, tuple(map(outcome_of, outcomes)))

    async def _read_batch(self, c: wire.ReadBatch) -> wire.Command:
        asked = sum(max(0, one.length) for one in c.ranges)
        if asked > MAX_BATCH_READ_BYTES:
            raise Invalid(f"{asked} bytes were asked for at once; the most is {MAX_BATCH_READ_BYTES}")
        outcomes = await read_many(self._store, c.ranges)
        return wire.BatchDone(c.request_id, tuple(map(outcome_of, outcomes)))

    async def _states(self, c: wire.GetStates) -> wire.Command:
        found = await infos(self._store, c.segments)
        states = (
            wire.SegmentState(False, 0, 0, False, 0)
            if info is None
            else wire.SegmentState(True, info.length, info.start_offset, info.sealed, info.modified_ms)
            for info in found
        )
        return wire.StatesRead(c.request_id, tuple(states))

    # -- tables -------------------------------------------------------------------------------

    async def _change_table(self, c: wire.ChangeTable) -> wire.Command:
        changes = _changes(c.changes)
        fresh = {bytes(change.key) for change in c.changes if change.fresh}
        versions = await self._store.tables(c.segment).update(c.segment, changes, fresh=fresh)
        return wire.TableEntriesUpdated(c.request_id, tuple(versions))

    async def _change_table_at(self, c: wire.ChangeTableAt) -> wire.Command:
        position = await change_at(self._store, c.segment, _changes(c.changes), c.position)
        return wire.TableChangedAt(c.request_id, position)

    async def _follow_table(self, c: wire.FollowTable) -> wire.Command:
        found = await self._store.tables(c.segment).changes(c.segment, c.position, c.limit)
        entries, position = ([], c.position) if found is None else found
        changes = tuple(
            wire.TableChange(entry.key, NO_VERSION, False, entry.value is None, entry.value or b"") for entry in entries
        )
        return wire.TableFollowed(c.request_id, found is None, position, changes)

    async def _scan_table(self, c: wire.ScanTable) -> wire.Command:
        end = bytes(c.end) if c.bounded else None
        page = await self._store.tables(c.segment).scan(c.segment, bytes(c.start), end, c.limit)
        entries = tuple(wire.TableEntry(entry.key, entry.version, entry.value or b"") for entry in page)
        return wire.TableEntriesRead(c.request_id, c.segment, entries, b"")

    async def _delete_table(self, c: wire.DeleteTable) -> wire.Command:
        position = None if c.unchanged_since == _NO_POSITION else c.unchanged_since
        try:
            await self._store.tables(c.segment).delete(c.segment, c.must_be_empty, position)
        except Exists as error:
            return wire.TableSegmentNotEmpty(c.request_id, c.segment, str(error))
        return wire.SegmentDeleted(c.request_id, c.segment)

    # -- the store ----------------------------------------------------------------------------

    async def _rates(self, c: wire.GetRates) -> wire.Command:
        measured = (self._handler.rates(segment) for segment in c.segments)
        rates = tuple(wire.SegmentRates(*rate.events, *rate.bytes, rate.age) for rate in measured)
        return wire.RatesMeasured(c.request_id, rates)

    async def _get_grown(self, c: wire.GetGrown) -> wire.Command:
        if not self._grown:
            if self._growth is None:
                self._growth = GrowthMonitor(self._store, self._store.env.clock)
            self._grown = await self._growth.grown()
        found, self._grown = self._grown[:MAX_GROWN_PER_REPLY], self._grown[MAX_GROWN_PER_REPLY:]
        return wire.SegmentsGrown(c.request_id, tuple(found), bool(self._grown))

    async def _use_quotas(self, c: wire.UseQuotas) -> wire.Command:
        self._store.quotas.use(Quotas.decode(c.quotas), c.stores)
        return wire.QuotasUsed(c.request_id)

    async def _measure_scope(self, c: wire.MeasureScope) -> wire.Command:
        use = await scope_use(self._store, c.scope)
        return wire.ScopeMeasured(c.request_id, use.bytes, use.containers)

    async def _back_up(self, c: wire.BackupStep) -> wire.Command:
        answer: dict[str, Any]
        try:
            step = json.loads(c.step)
            if not isinstance(step, dict):
                raise ValueError("it is no object")
            if self._backup is None:
                self._backup = self._handler.backups.begin(step)
                answer = self._backup.begun()
            else:
                answer = await self._backup.answer(step)
        except (SaritError, ValueError) as error:
            answer = {"error": str(error), "again": isinstance(error, BackupEnded) and error.again}
        return wire.BackupStepDone(c.request_id, json.dumps(answer))

    async def _await_scale_requests(self, c: wire.AwaitScaleRequests) -> wire.Command:
        self._subscribed = True
        while not self._scale_requests:
            self._wake.clear()
            await self._wake.wait()
        requests, self._scale_requests = self._scale_requests, {}
        found = tuple(wire.ScaleRequest(segment, _ADVICE[advice]) for segment, advice in requests.items())
        return wire.ScaleRequests(c.request_id, found)


def refusal(command: Any) -> wire.Command:
    """Return the refusal of an internal command on a connection without an introduction, which ends after it."""
    text = f"{type(command).__name__} is for the processes of this installation: introduce the connection first"
    if isinstance(command, wire.Introduce):
        text = "the secret is not that of this installation"
    return wire.AuthTokenCheckFailed(command.request_id, text, _REFUSED)


def outcome_unknown(command: Any) -> wire.Command:
    """Return the answer to a controller's request for which the protocol has no other, as its outcome is unknown."""
    text = "the container of this segment does not serve now"
    return wire.OutcomeUnknown(command.request_id, getattr(command, "segment", ""), text)


async def create_fresh(store: SegmentStore, segments: Sequence[str]) -> None:
    """Create segments that never existed; a segment that an earlier attempt created counts as success.

    Raises Opening, before anything was done; Moved, Invalid (a name) and Unavailable, when some may exist."""
    containers = [store.container(segment) for segment in segments]
    creations = (container.create(segment, fresh=True) for container, segment in zip(containers, segments, strict=True))
    for outcome in await asyncio.gather(*creations, return_exceptions=True):
        if outcome is not None and not isinstance(outcome, Exists):
            raise outcome


async def read_bytes(store: SegmentStore, segment: str, offset: int, limit: int) -> bytes:
    """Return up to `limit` bytes from `offset`, none only at the end, without a wait for more.

    Raises NotFound, Truncated, Invalid (beyond the end), Unavailable."""
    if limit <= 0:
        raise Invalid(f"{limit} bytes were asked for")
    reads = store.reads(segment)
    found = await reads.find(segment)
    if offset > found.length:
        raise Invalid(f"offset {offset} is after the end {found.length} of segment {segment}")
    result = reads.from_memory(found, offset, limit) or await reads.from_chunks(found, offset, limit)
    return b"".join(bytes(part) for part in result.parts)


async def append_at(store: SegmentStore, segment: str, data: bytes, expected_offset: int) -> None:
    """Append one event if the segment ends at `expected_offset`.  Raises Conflict, NotFound, Sealed, Unavailable."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    session = WriterSession(_WRITER, _Reply(done))
    await store.container(segment).set_up_writer(segment, session)
    try:
        # Each append has its own session, whose event number follows the last one of this writer id.
        number = 1 if session.last == NULL_ATTRIBUTE_VALUE else session.last + 1
        # The segment refuses the append if another one came first, since its offset is expected.
        session.append(Append(_WRITER, [data], len(data), 1, number, 0), expected_offset)
        await done
    finally:
        session.close()


class _Reply:
    """A `ReplySink` that completes a future with the outcome of one append."""

    def __init__(self, done: asyncio.Future[None]) -> None:
        self._done = done

    def acknowledged(self, session: WriterSession, append: Append, previous: int, end_offset: int) -> None:
        """Complete the future: the append is durable."""
        if not self._done.done():
            self._done.set_result(None)

    def refused(self, session: WriterSession, append: Append, error: BaseException) -> None:
        """Fail the future: the append did not happen, or its outcome is unknown."""
        if not self._done.done():
            self._done.set_exception(error)

    def segment_missing(self, session: WriterSession) -> None:
        """Do nothing: the append has its outcome already, or will be refused."""

    def moved(self, session: WriterSession) -> None:
        """Do nothing: no append is pending, since the append follows the set-up at once."""


def _changes(changes: Sequence[wire.TableChange]) -> list[tuple[bytes, bytes | None, int]]:
    # Copy keys and values, as for the public command (`ControlHandler._update_table`).
    return [(bytes(change.key), None if change.removed else bytes(change.value), change.version) for change in changes]


async def change_at(
    store: SegmentStore, table: str, changes: Sequence[tuple[bytes, bytes | None, int]], position: int
) -> int:
    """Change a table if it is at a position.  Returns the position behind the changes.  Raises Conflict, NotFound."""
    tables = store.tables(table)
    if position < 0:
        raise Invalid(f"{position} is no position of a table")
    try:
        return await tables.update_at(table, changes, position)
    except Truncated as error:
        raise Conflict(f"table {table} is at another position", expected=position, actual=error.start_offset) from None
