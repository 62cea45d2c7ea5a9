"""The blocking face of reader groups: each method waits for its twin of `group.py`, `reader.py` or `registry.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.client.groups.group import CHECKPOINT_SECONDS
from sarit.client.groups.reader import CheckpointEvent, GroupEvent

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sarit.client.blocking.loop_thread import LoopThread
    from sarit.client.groups import group, reader, registry
    from sarit.client.groups.group import GroupInfo
    from sarit.client.groups.position import Checkpoint, Position
    from sarit.client.groups.reader import ArrowBatch, EventBatch
    from sarit.client.groups.starting import Place
    from sarit.client.groups.values import GroupConfig, GroupSegment
    from sarit.client.streams.event_time import TimeWindow
    from sarit.core.cuts import StreamCut
    from sarit.core.names import StreamName


class GroupReader:
    """Reads its share of what a group reads; for one thread at a time.  Whatever is handed out counts as consumed when
    the next thing is asked for, or the reader is closed; when an error leaves its block, it comes again.

    All that reads raises Conflict when the reader is not in the group any more, Truncated, Invalid (it is closed)."""

    def __init__(self, thread: LoopThread, made: reader.GroupReader) -> None:
        self._thread = thread
        self._made = made
        self.name = made.name

    def __repr__(self) -> str:
        return f"blocking {self._made!r}"

    @property
    def segments(self) -> list[GroupSegment]:
        """The segments that are this reader's now."""
        return self._made.segments

    @property
    def at_end(self) -> bool:
        """Whether the whole group has read everything, at last sight: the ends given, or sealed streams."""
        return self._made.at_end

    def position(self) -> Position:
        """Behind the last event handed out, exactly."""
        return self._made.position()

    def time_window(self, stream: StreamName | str) -> TimeWindow:
        """Between which times the group stands in one of its streams; see the twin.  Raises Invalid, Unavailable."""
        return self._thread.run(self._made.time_window(stream))

    def read(self, timeout: float | None = None) -> GroupEvent | CheckpointEvent | None:
        """The next event; or a checkpoint; None after `timeout` seconds without one, or when all is read (`at_end`)."""
        return self._thread.run(self._made.read(timeout))

    def read_batch(self, most: int = 10_000, timeout: float | None = None) -> EventBatch | CheckpointEvent | None:
        """Up to `most` events of one segment, as `read` has one."""
        return self._thread.run(self._made.read_batch(most, timeout))

    def read_arrow(self, timeout: float | None = None) -> ArrowBatch | CheckpointEvent | None:
        """Events of one segment as a record batch, as `read` has one."""
        return self._thread.run(self._made.read_arrow(timeout))

    def __iter__(self) -> Iterator[GroupEvent]:
        """The events, one by one, until everything is read; checkpoints are passed on the way."""
        while (found := self.read()) is not None:
            if not isinstance(found, CheckpointEvent):
                yield found

    def close(self, position: Position | None = None) -> None:
        """Leave the group; others go on at `position`, or behind the last event handed out.

        Raises Unavailable: the group may not know it, and the reader's segments are nobody else's; close it again."""
        self._thread.run(self._made.close(position))

    def __enter__(self) -> GroupReader:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._thread.run(self._made.__aexit__(kind, error, trace))


class ReaderGroup:
    """One group.  All methods raise NotFound when it is deleted, Unavailable when its state cannot be reached."""

    def __init__(self, thread: LoopThread, made: group.ReaderGroup) -> None:
        self._thread = thread
        self._made = made
        self.name = made.name

    def __repr__(self) -> str:
        return f"blocking {self._made!r}"

    def reader(self, name: str, *, skip_truncated: bool = False, death_timeout: float | None = None) -> GroupReader:
        """Join as `name`.  Raises Conflict when a reader of that name is in the group, Invalid (the name).

        `skip_truncated`: go on behind data that was truncated instead of raising Truncated.
        `death_timeout`: declare other readers offline that said nothing for so many seconds."""
        opened = self._made.reader(name, skip_truncated=skip_truncated, death_timeout=death_timeout)
        return GroupReader(self._thread, self._thread.run(opened))

    def online_readers(self) -> list[str]:
        """The readers in the group, in the order of joining."""
        return self._thread.run(self._made.online_readers())

    def reader_offline(self, name: str, position: Position | None = None) -> bool:
        """Declare a reader lost: others go on at `position`, its last one, or at its last checkpoint.

        Whether it was in the group.  Events behind that are read again."""
        return self._thread.run(self._made.reader_offline(name, position))

    def info(self) -> GroupInfo:
        """Who reads what."""
        return self._thread.run(self._made.info())

    def checkpoint(self, name: str, timeout: float = CHECKPOINT_SECONDS) -> Checkpoint:
        """Begin a checkpoint and wait until all readers have passed it.

        Raises Conflict (the name was used; too many are under way; it was given up; the readers were between two scales
        of a stream, where no cut is), Unavailable after `timeout` seconds: it may be completed later."""
        return self._thread.run(self._made.checkpoint(name, timeout))

    def stream_cuts(self, timeout: float = CHECKPOINT_SECONDS) -> dict[StreamName, StreamCut]:
        """Where the readers are now, all at once; they are not told.  Raises as `checkpoint` does."""
        return self._thread.run(self._made.stream_cuts(timeout))

    def give_up_checkpoints(self) -> None:
        """Give up the checkpoints that are not completed."""
        self._thread.run(self._made.give_up_checkpoints())

    def last_checkpoint(self) -> dict[StreamName, StreamCut] | None:
        """The cuts of the last completed checkpoint; None if there was none in this generation."""
        return self._thread.run(self._made.last_checkpoint())

    def unread_bytes(self) -> int:
        """How much there is behind the last checkpoint (behind where readers began, when there was none)."""
        return self._thread.run(self._made.unread_bytes())

    def update_retention_cut(self, *cuts: StreamCut) -> None:
        """Say that nothing before these cuts is needed.  Raises Invalid unless the group's retention is "manual"."""
        self._thread.run(self._made.update_retention_cut(*cuts))

    def reset(self, to: Place = None, *, config: GroupConfig | None = None) -> int:
        """Begin anew: at a checkpoint, at cuts, or (None) at the last checkpoint, or where the group began.

        All readers have to be opened again; theirs raise Conflict.  `config`: other streams, ends and settings.
        Returns the new generation.  Raises Invalid (cuts of other streams)."""
        return self._thread.run(self._made.reset(to, config=config))

    def segments_changed(self) -> Iterator[tuple[int, int]]:
        """How many segments can be read and how many readers there are: now, and whenever that changes."""
        return self._thread.iterate(self._made.segments_changed())

    def end_of_data(self, timeout: float | None = None) -> None:
        """Wait until everything was read: up to the ends given, or of streams that are sealed.

        Raises Unavailable after `timeout` seconds."""
        self._thread.run(self._made.end_of_data(timeout))

    def delete(self) -> None:
        """Delete the group; its readers fail."""
        self._thread.run(self._made.delete())


class ReaderGroups:
    """The reader groups of a client: `client.reader_groups`.  Groups are named "scope/group"."""

    def __init__(self, thread: LoopThread, made: registry.ReaderGroups) -> None:
        self._thread = thread
        self._made = made

    def __repr__(self) -> str:
        return f"blocking {self._made!r}"

    def create(
        self,
        name: str,
        streams: str | StreamName | Iterable[str | StreamName],
        *,
        start: Place = "head",
        end: Place = None,
        automatic_checkpoint: float | None = 30.0,
        retention: str = "none",
        max_outstanding_checkpoints: int = 3,
    ) -> ReaderGroup:
        """A group that reads these streams; the one there is, as it was made, if it reads the same streams.

        `start`, `end`: "head", "tail" (as of now), a cut or its text, or several cuts; `end` None: follow the tail
        until the streams are sealed.  `automatic_checkpoint`: every so many seconds; None: only those asked for.
        `retention` ("none", "manual", "checkpoint"): what of streams with retention by consumption is kept until the
        group has read it.  Raises NotFound (scope, stream), Invalid, Exists (it reads other streams)."""
        made = self._made.create(
            name,
            streams,
            start=start,
            end=end,
            automatic_checkpoint=automatic_checkpoint,
            retention=retention,
            max_outstanding_checkpoints=max_outstanding_checkpoints,
        )
        return ReaderGroup(self._thread, self._thread.run(made))

    def open(self, name: str) -> ReaderGroup:
        """A group that exists.  Raises NotFound."""
        return ReaderGroup(self._thread, self._thread.run(self._made.open(name)))

    def list(self, scope: str) -> list[str]:
        """The names of the groups of a scope.  Raises NotFound."""
        return self._thread.run(self._made.list(scope))

    def delete(self, name: str) -> None:
        """Delete a group; its readers fail.  Raises NotFound."""
        self._thread.run(self._made.delete(name))
