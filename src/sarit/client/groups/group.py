"""Reader groups for callers that do not read: readers, checkpoints, unread bytes, resets, the end of the data.

`ReaderGroups` is `client.reader_groups`: it creates, opens, lists and deletes groups.
"""

from __future__ import annotations

import asyncio
import base64
import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from sarit.client.core import pages as listing
from sarit.client.core.identity import creation_id
from sarit.client.core.iteration import Items, Mapped, Pulled
from sarit.client.groups import calls, generations, progress, stream_cuts
from sarit.client.groups import state as group_state
from sarit.client.groups.checkpoints import SILENT
from sarit.client.groups.position import Checkpoint, Position
from sarit.client.groups.reader import GroupReader
from sarit.client.groups.shared_state import GroupName, SharedState
from sarit.client.groups.state import (
    ClearCheckpointsBefore,
    CreateCheckpoint,
    RemoveOutstandingCheckpoints,
    Update,
    UpdatingConfig,
)
from sarit.client.groups.values import GroupConfig, Retention
from sarit.client.limits import GROUP_CHECKPOINT_TIMEOUT_SECONDS, GROUP_POLL_SECONDS, MIN_DEATH_TIMEOUT_SECONDS
from sarit.client.reader.decoding import decoding_of
from sarit.client.session.guard import guarded
from sarit.client.sync.synchronizer import StateFollower
from sarit.client.writer.writer import EventWriter
from sarit.core.errors import Conflict, Invalid, NotFound, SaritError, TimedOut, Unavailable
from sarit.core.names import READER_GROUP_PREFIX, StreamName, is_user_name
from sarit.core.public import public

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from sarit.client.core.typed import V
    from sarit.client.groups.position import CutLike
    from sarit.client.groups.progress import SegmentProgress
    from sarit.client.groups.state import GroupState
    from sarit.client.groups.values import GroupSegment, Offsets
    from sarit.client.session.session import Session
    from sarit.core.cuts import StreamCut
    from sarit.serializers.protocols import Deserializer


T = TypeVar("T")


@public
@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group as last fetched.  `readers`: reader -> its segments.  `waiting`: segments whose predecessors are not
    read to their ends.  `checkpoints`: the pending ones."""

    name: str
    generation: int
    config: GroupConfig
    readers: Mapping[str, tuple[GroupSegment, ...]]
    unassigned: tuple[GroupSegment, ...]
    waiting: tuple[GroupSegment, ...]
    checkpoints: tuple[str, ...]
    at_end: bool


@guarded("_session")
class ReaderGroup:
    """One group.  All methods raise NotFound when it is deleted, Unavailable when its state cannot be reached."""

    def __init__(self, session: Session, shared: SharedState) -> None:
        self.name = str(shared.name)
        self._session = session
        self._shared = shared

    def __repr__(self) -> str:
        return f"ReaderGroup({self.name}, {self._session.state()})"

    # -- readers ----------------------------------------------------------------------------------

    async def reader(
        self,
        name: str,
        *,
        skip_truncated: bool = False,
        death_timeout: float | None = None,
        deserializer: Deserializer[V] | None = None,
        on_error: str | StreamName = "raise",
    ) -> GroupReader[V]:
        """Join as `name`.  Raises Conflict when a reader of that name is in the group, Invalid.

        `skip_truncated`: continue after truncated data instead of raising Truncated.
        `death_timeout`: declare other readers offline that sent no heartbeat for this many seconds.  Give it to all
        readers: each then sends heartbeats in time (Java's readers only while they are asked for events).
        `deserializer`, `on_error`: as of `Client.reader`; values are in `GroupEvent.value` and `EventBatch.values`."""
        if not is_user_name(name):
            raise Invalid(f"{name!r} is no name for a reader: letters, digits, '.' and '-', at most 250")
        if death_timeout is not None and death_timeout < MIN_DEATH_TIMEOUT_SECONDS:
            raise Invalid(f"a death timeout of {death_timeout} s: it must be {MIN_DEATH_TIMEOUT_SECONDS} s or more")
        session = self._session
        decoding = decoding_of(session, deserializer, on_error, functools.partial(EventWriter, session))
        shared = await SharedState.open(session, self._shared.name)
        reader = GroupReader(
            session, shared, name, skip_truncated=skip_truncated, death_timeout=death_timeout, decoding=decoding
        )
        return await reader.open()

    async def online_readers(self) -> list[str]:
        """Return the readers in the group, in the order of joining."""
        return list((await self._shared.fetch()).readers)

    async def reader_offline(self, name: str, position: Position | None = None, *, rewind: bool = False) -> bool:
        """Declare a reader lost: others continue at `position`, its last one, or at its last checkpoint.

        Returns whether it was in the group.  Events after that position are read again.  Where the group knows that the
        reader was further (a checkpoint; a segment that it got later), others continue there; `rewind`: at `position`
        all the same."""

        def remove(state: GroupState) -> list[Update]:
            known = position.offsets if position is not None else {}
            return [group_state.removal(state, name, known, rewind=rewind)] if name in state.assigned else []

        return await self._shared.update(remove)

    async def creation_id(self) -> bytes | None:
        """Return 16 bytes that tell the group from earlier and later ones of its name.

        None if the server has no such call."""
        return await creation_id(self._session, self._shared.name.scope, group=self._shared.name.group)

    async def info(self) -> GroupInfo:
        """Return the assignment of segments to readers, and what is not assigned."""
        state = await self._shared.fetch()
        return GroupInfo(
            self.name,
            state.config.generation,
            state.config,
            {reader: tuple(sorted(owned)) for reader, owned in state.assigned.items()},
            tuple(sorted(state.unassigned)),
            tuple(sorted(state.future)),
            tuple(state.checkpoints.outstanding),
            state.at_end,
        )

    async def progress(self) -> list[SegmentProgress]:
        """Return where the group is in each segment that holds unread events, or that it reads now.

        Readers report their positions every few seconds, so these may be older than what they have read."""
        return await progress.of(self._session, await self._shared.fetch())

    # -- checkpoints and cuts ---------------------------------------------------------------------

    async def checkpoint(self, name: str, timeout: float = GROUP_CHECKPOINT_TIMEOUT_SECONDS) -> Checkpoint:
        """Begin a checkpoint and wait until all readers have passed it.

        Raises Conflict (the name was used; too many are pending; it was abandoned; the readers were between two scales
        of a stream, where no cut exists), TimedOut after `timeout` seconds: it may be completed later."""

        def begin(state: GroupState) -> list[Update]:
            if name in state.checkpoints.positions:
                raise Conflict(f"group {self.name} has a checkpoint {name} already")
            pending = state.checkpoints.outstanding
            if len(pending) >= state.config.max_outstanding:
                raise Conflict(f"group {self.name} has {len(pending)} checkpoints pending: {', '.join(pending)}")
            return [CreateCheckpoint(name)]

        await self._shared.update(begin)
        return await self._wait_completed(name, timeout)

    async def stream_cuts(self, timeout: float = GROUP_CHECKPOINT_TIMEOUT_SECONDS) -> dict[StreamName, StreamCut]:
        """Return a consistent cut of the readers' positions without handing out a checkpoint.

        Raises the errors of `checkpoint`."""
        name = base64.b64encode(self._session.env.random.bytes(32)).decode() + SILENT
        await self._shared.update(lambda _: [CreateCheckpoint(name)])
        return dict((await self._wait_completed(name, timeout)).cuts)

    async def _wait_completed(self, name: str, timeout: float) -> Checkpoint:
        def find(state: GroupState) -> tuple[Offsets | None] | None:
            return None if name in state.checkpoints.pending else (state.checkpoints.completed(name),)

        (positions,) = await self._wait_for(find, timeout)
        if positions is None:
            raise Conflict(f"checkpoint {name} of group {self.name} was abandoned, or the group was reset")
        # This update needs no condition: it changes nothing if another process has cleared the checkpoint already.
        await self._shared.write(ClearCheckpointsBefore(name))
        # The positions from above: the state may not have them any more.
        cuts = await stream_cuts.cuts_of(self._session, positions, exact=True)
        return Checkpoint(name, {cut.stream: cut for cut in cuts})

    async def give_up_checkpoints(self) -> None:
        """Abandon the pending checkpoints."""
        await self._shared.update(
            lambda state: [RemoveOutstandingCheckpoints()] if state.checkpoints.outstanding else []
        )

    async def last_checkpoint(self) -> dict[StreamName, StreamCut] | None:
        """Return the cuts of the last completed checkpoint; None if there was none in this generation."""
        last = (await self._shared.fetch()).checkpoints.last
        return None if last is None else {cut.stream: cut for cut in await stream_cuts.cuts_of(self._session, last)}

    async def unread_bytes(self) -> int:
        """Return the unread bytes after the last checkpoint (after the segments' starting offsets, when there was
        none)."""
        state = await self._shared.fetch()
        at = state.checkpoints.last or state.positions()
        ends = [cut for cut in generations.end_cuts(state.config) if cut is not None]
        counted = await generations.unread_bytes_after(self._session, at, {cut.stream: cut for cut in ends})
        return counted

    async def update_retention_cut(self, *cuts: StreamCut) -> None:
        """Release the data before these cuts to retention.  Raises Invalid unless the group's retention is "manual"."""
        state = await self._shared.fetch()
        if state.config.retention != Retention.MANUAL:
            raise Invalid(f"group {self.name} was created without retention='manual'")
        for cut in cuts:
            await calls.release(self._session, *self._shared.name, state.config, cut)

    # -- changes ------------------------------------------------------------------------------------

    async def reset(
        self,
        to: CutLike = None,
        *,
        config: GroupConfig | None = None,
    ) -> int:
        """Start again: at a checkpoint, at cuts, or (None) at the last checkpoint, or where the group began.

        All readers must be opened again; the present ones raise Conflict.  `config`: other streams, ends and settings.
        Returns the new generation.  Raises Invalid (cuts of other streams)."""
        for _ in range(generations.MAX_ATTEMPTS):
            state = await self._shared.fetch()
            # Three writes: the flag in the state, the configuration at the controller, the new state of the group.
            # After a crash behind the second, the heartbeat of a reader does the third.
            wanted = await self._wanted(state, to, config)
            if not await self._shared.update(
                lambda newest, seen=state.config: [UpdatingConfig(True)] if newest.config == seen else []  # type: ignore[misc]
            ):
                continue
            # Take id and generation from the state on which the flag was set: the controller refuses any other.
            present = state.config
            wanted = replace(wanted, group_id=present.group_id, generation=present.generation)
            try:
                generation = await calls.update(self._session, *self._shared.name, wanted)
            except Conflict:
                # Another change was first at the controller, or ours was made and its reply lost: begin the
                # generation if nobody has, then try again.
                await generations.adopt_generation(self._session, self._shared)
                continue
            await generations.begin_generation(self._session, self._shared, replace(wanted, generation=generation))
            return generation
        raise Unavailable(f"group {self.name} is changed by too many processes at once; try again")

    async def _wanted(
        self,
        state: GroupState,
        to: CutLike,
        config: GroupConfig | None,
    ) -> GroupConfig:
        base = config or state.config
        # A new configuration has starts of its own; only without one the last checkpoint is meant.
        if to is None and config is None:
            cuts = (
                None
                if state.checkpoints.last is None
                else await stream_cuts.cuts_of(self._session, state.checkpoints.last)
            )
            found = {cut.stream: cut for cut in cuts or ()}
        else:
            found = generations.cuts_by_stream(to)
        for stream in found:
            if stream not in base.starts:
                raise Invalid(f"group {self.name} does not read {stream}")
        return replace(base, starts={**base.starts, **{stream: dict(cut.positions) for stream, cut in found.items()}})

    async def delete(self) -> None:
        """Delete the group.  Its readers fail from then on."""
        # The id of the group that there is now: a new one of the same name must not be deleted by a repeated call.
        config = await calls.config_of(self._session, *self._shared.name)
        await calls.delete(self._session, *self._shared.name, config.group_id)

    # -- notifications --------------------------------------------------------------------------------

    def segments_changed(self) -> AsyncIterator[tuple[int, int]]:
        """Return the number of readable segments and the number of readers: now, and after every change."""
        seen: tuple[int, int] | None = None

        async def changed() -> tuple[int, int]:
            nonlocal seen
            seen = await self._wait_for(functools.partial(_counts, last=seen), None)
            return seen

        return Pulled(changed)

    async def end_of_data(self, timeout: float | None = None) -> None:
        """Wait until everything was read: up to the ends given, or of streams that are sealed.

        Raises TimedOut after `timeout` seconds."""
        await self._wait_for(lambda state: True if state.at_end else None, timeout)

    async def _wait_for(self, find: Callable[[GroupState], T | None], timeout: float | None) -> T:
        """Return the result of `find(state)` once it is not None."""
        follower = StateFollower(self._shared.synchronizer)
        try:
            async with asyncio.timeout(timeout):
                while True:
                    found = find(await self._shared.fetch())
                    if found is not None:
                        return found
                    await follower.wait(GROUP_POLL_SECONDS)
        except SaritError:  # also one that is a TimeoutError
            raise
        except TimeoutError:
            raise TimedOut(f"group {self.name}: the condition was not met within {timeout} s") from None
        finally:
            follower.end()


def _counts(state: GroupState, last: tuple[int, int] | None) -> tuple[int, int] | None:
    counts = (state.segment_count, len(state.assigned))
    return None if counts == last else counts


@guarded("_session")
class ReaderGroups:
    """The reader groups of one client.  A group is named "scope/group"."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"ReaderGroups({self._session.controller.address}, {self._session.state()})"

    async def create(
        self,
        name: str,
        streams: str | StreamName | Iterable[str | StreamName],
        *,
        start: CutLike = "head",
        end: CutLike = None,
        automatic_checkpoint: float | None = 30.0,
        retention: str = "none",
        max_outstanding_checkpoints: int = 3,
    ) -> ReaderGroup:
        """Create a group that reads these streams; an existing group of the same streams is returned unchanged.

        `start`, `end`: "head", "tail" (as of now), a cut or its text, or several cuts; `end` None: follow the tail
        until the streams are sealed.  `automatic_checkpoint`: the interval in seconds; None: explicit checkpoints only.
        `retention` ("none", "manual", "checkpoint"): of streams with a retention policy, what is retained for the
        group: nothing, what it has not released, or the data after its last checkpoint.
        Raises NotFound (scope, stream), Invalid, Exists (it reads other streams)."""
        group = group_name(name)
        names = [streams] if isinstance(streams, str | StreamName) else list(streams)
        parsed = [found if isinstance(found, StreamName) else StreamName.parse(found) for found in names]
        config = GroupConfig(
            await generations.resolve_bounds(self._session, parsed, start),
            await generations.resolve_bounds(self._session, parsed, end),
            checkpoint_ms=generations.checkpoint_ms(automatic_checkpoint),
            retention=generations.retention(retention),
            max_outstanding=max_outstanding_checkpoints,
        )
        return ReaderGroup(self._session, (await generations.create_group(self._session, group, config))[0])

    async def open(self, name: str) -> ReaderGroup:
        """Open a group that exists.  Raises NotFound."""
        shared = await SharedState.open(self._session, group_name(name))
        if not shared.synchronizer.known:
            raise NotFound(f"reader group {name} was not completed by its creator: create it again")
        return ReaderGroup(self._session, shared)

    def list(self, scope: str) -> AsyncIterator[str]:
        """Return the names of the groups of a scope, a page at a time.  Raises NotFound."""

        def groups(page: Iterable[StreamName]) -> Iterable[str]:
            names = [found.stream for found in page if found.stream.startswith(READER_GROUP_PREFIX)]
            return [f"{scope}/{name.removeprefix(READER_GROUP_PREFIX)}" for name in names]

        return Items(Mapped(listing.streams(self._session, scope), groups))

    async def delete(self, name: str) -> None:
        """Delete a group; its readers fail.  Raises NotFound."""
        group = group_name(name)
        config = await calls.config_of(self._session, *group)
        await calls.delete(self._session, *group, config.group_id)


def group_name(text: str) -> GroupName:
    """Read "scope/group".  Raises Invalid."""
    scope, _, group = text.partition("/")
    if not is_user_name(group) or not scope:
        raise Invalid(f"{text!r} is not SCOPE/GROUP (letters, digits, '.' and '-', at most 250 characters each)")
    return GroupName(scope, group)
