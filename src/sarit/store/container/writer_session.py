"""One writer on one segment over one connection: a state machine from SetupAppend to the end.

Theory of operation.  A `WriterSession` begins when its connection reads SetupAppend.  While it is OPEN it owns the
writer's attribute on the segment (the number of the writer's last event), and nobody else may append as this writer.
That and the check of the number in `ContainerState.append` make appends exactly once.

    SETTING_UP  the container loads segment and attribute, and waits until the writer's older appends are durable.
                Appends that come meanwhile are pending in the session, in order.
    OPEN        appends go to the container: through the append gate, then in one step, without an await, through the
                check and the assignment of an offset to the group commit.
    FENCED      another connection has set the writer up and owns the attribute.  Appends still go to the container,
                which refuses them after everything before them: the client gets its answers in order.
    LEAVING     the container leaves this store.  Appends are pending until it has left, and are dropped then.
    REPLACED    the connection has set the writer up again.
    MISSING     the segment does not exist (any more): the connection answers that to each append.
    REFUSED     the client has its answer, to the set-up or to an append; what it sent before it knew is dropped.
    CLOSED      the connection ended, or the code that opened the session does not need it any more.

The last four are the ends.  `TRANSITIONS` is the whole machine: a pair of state and event that is not in it is a bug.
An append and its acknowledgement change no state, so they are not events: no table lookup for each append.

Two warnings.

- Leaving OPEN gives up the attribute and the pin at once (`_give_up`), though appends may be unanswered.  Those in the
  log are acknowledged as they become durable; those in the gate are refused by the container, as the session does not
  own the attribute any more.  Their answers arrive in an end state.
- A set-up that was replaced is not cancelled: its own answer still has to be sent, in order.  It ends in REPLACED
  and never owns the attribute.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from sarit.core.errors import SaritError
from sarit.core.limits import NULL_ATTRIBUTE_VALUE
from sarit.store.container.state import WrongEventNumber

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sarit.store.container.group_commit import GroupCommit
    from sarit.store.container.segment import Attribute, Segment
    from sarit.store.container.state import ContainerState
    from sarit.store.flow_control.append_gate import AppendGate
    from sarit.store.flow_control.memory_budget import MemoryBudget
    from sarit.wire.frames import Append


class State(Enum):
    """The state of a session (see the head of the module)."""

    SETTING_UP = "setting up"
    OPEN = "open"
    FENCED = "fenced"
    LEAVING = "leaving"
    REPLACED = "replaced"
    MISSING = "missing"
    REFUSED = "refused"
    CLOSED = "closed"


class Event(Enum):
    """An event in the life of a session."""

    SET_UP = "the set-up is done"
    SET_UP_REFUSED = "the set-up is refused"
    SET_UP_AGAIN = "the connection sets the writer up again"
    FENCE = "another session takes the writer over"
    LEAVE = "the container leaves this store"
    SEGMENT_MISSING = "the segment does not exist"
    APPEND_REFUSED = "an append is refused: the segment is sealed or does not exist"
    CLOSE = "the connection ends"


OPEN: Final = State.OPEN

TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (State.SETTING_UP, Event.SET_UP): State.OPEN,
    (State.SETTING_UP, Event.SET_UP_REFUSED): State.REFUSED,
    (State.SETTING_UP, Event.SET_UP_AGAIN): State.REPLACED,
    (State.SETTING_UP, Event.SEGMENT_MISSING): State.MISSING,
    (State.SETTING_UP, Event.CLOSE): State.CLOSED,
    (State.OPEN, Event.FENCE): State.FENCED,
    (State.OPEN, Event.LEAVE): State.LEAVING,
    (State.OPEN, Event.SET_UP_AGAIN): State.REPLACED,
    (State.OPEN, Event.SEGMENT_MISSING): State.MISSING,
    (State.OPEN, Event.APPEND_REFUSED): State.REFUSED,
    (State.OPEN, Event.CLOSE): State.CLOSED,
    (State.FENCED, Event.SET_UP_AGAIN): State.REPLACED,
    (State.FENCED, Event.APPEND_REFUSED): State.REFUSED,
    (State.FENCED, Event.CLOSE): State.CLOSED,
    (State.LEAVING, Event.SET_UP_AGAIN): State.REPLACED,
    (State.LEAVING, Event.APPEND_REFUSED): State.REFUSED,
    (State.LEAVING, Event.CLOSE): State.CLOSED,
    # A replaced set-up continues, and may end either way.
    (State.REPLACED, Event.SET_UP): State.REPLACED,
    (State.REPLACED, Event.SET_UP_REFUSED): State.REPLACED,
    (State.REPLACED, Event.SEGMENT_MISSING): State.REPLACED,
    (State.REPLACED, Event.CLOSE): State.CLOSED,
    # Between the connection's close and its last callback a set-up may end, and another one begin.
    (State.CLOSED, Event.SET_UP): State.CLOSED,
    (State.CLOSED, Event.SET_UP_REFUSED): State.CLOSED,
    (State.CLOSED, Event.SEGMENT_MISSING): State.CLOSED,
    (State.CLOSED, Event.SET_UP_AGAIN): State.CLOSED,
    (State.CLOSED, Event.CLOSE): State.CLOSED,
    (State.MISSING, Event.CLOSE): State.CLOSED,
    (State.REFUSED, Event.CLOSE): State.CLOSED,
}  # fmt: skip


class ReplySink(Protocol):
    """The receiver of a session's answers: its connection.

    Each append is answered once, by `acknowledged` or `refused`, in the order in which the container took them."""

    def acknowledged(self, session: WriterSession, append: Append, previous: int, end_offset: int) -> None:
        """Answer that the append is durable; `previous` is the event number acknowledged before it."""

    def refused(self, session: WriterSession, append: Append, error: BaseException) -> None:
        """Answer that the append is not stored, or with Unavailable, that nobody knows whether it is."""

    def segment_missing(self, session: WriterSession) -> None:
        """Tell the client that the segment is durably deleted or merged; no append of the session is unanswered."""

    def moved(self, session: WriterSession) -> None:
        """Tell the client that the container has left this store; the session's pending appends are not stored."""


class AppendTarget(Protocol):
    """The calls that a session needs of its container."""

    number: int
    state: ContainerState
    group_commit: GroupCommit
    append_gate: AppendGate
    budget: MemoryBudget
    failure: BaseException | None

    @property
    def may_answer(self) -> bool:
        """Whether no other owner can have changed the facts that an answer is based on."""


class WriterSession:
    """One writer on one segment over one connection, from one SetupAppend to the next.

    `last`: the number of the last event that was assigned.  `acknowledged`: that of the last durable event."""

    __slots__ = (
        "acknowledged", "attribute", "container", "in_log", "last", "pending", "segment", "sink", "state", "unanswered",
        "writer",
    )  # fmt: skip

    segment: Segment
    attribute: Attribute

    def __init__(self, writer: bytes, sink: ReplySink) -> None:
        self.writer = writer
        self.sink = sink
        self.state = State.SETTING_UP
        # `container` is None until the session is OPEN, and from LEAVING on.
        self.container: AppendTarget | None = None
        self.last = self.acknowledged = NULL_ATTRIBUTE_VALUE
        # Appends that came while `container` was None, with their expected offsets.
        self.pending: list[tuple[Append, int | None]] = []
        self.unanswered = 0
        # The appends that the group commit has, in its order, each with the offset of its end.
        self.in_log: deque[tuple[Append, int]] = deque()

    def __repr__(self) -> str:
        return f"<WriterSession {self.writer.hex()}, {self.state.value}, {self.unanswered} appends unanswered>"

    @property
    def is_open(self) -> bool:
        """Whether appends of this session may be accepted."""
        return self.state is OPEN

    def check(self) -> None:
        """Assert the invariants of a session."""
        assert self.unanswered >= 0, self
        if self.state is OPEN:
            assert self.attribute.owner is self, self
            assert self.segment.pins > 0, self
            assert not self.pending, self
        elif self.state not in (State.SETTING_UP, State.LEAVING):
            assert getattr(getattr(self, "attribute", None), "owner", None) is not self, self

    def _move(self, event: Event) -> None:
        before = self.state
        after = TRANSITIONS.get((before, event))
        assert after is not None, f"{self}: {event.value}"
        self.state = after
        if before is OPEN:  # every event leaves OPEN
            self._give_up()

    def _give_up(self) -> None:
        self.segment.pins -= 1
        assert self.segment.pins >= 0, self.segment
        assert self.attribute.owner is self, self  # `set_up` alone sets an owner, and this alone removes it
        self.attribute.owner = None

    # -- set-up -------------------------------------------------------------------------------

    def set_up(self, container: AppendTarget, segment: Segment, attribute: Attribute) -> None:
        """Open the session: the container has found the segment, and the writer has no append in flight."""
        # `Container.set_up_writer` has fenced the former owner and waited for its appends, without an await since.
        assert attribute.owner is None, self
        assert attribute.assigned == attribute.applied, self
        self.last = self.acknowledged = attribute.assigned
        # If the state is REPLACED or CLOSED by now, this session never owns the writer's attribute.
        self._move(Event.SET_UP)
        if self.state is OPEN:
            # From here on `append` submits.  The caller submits `pending` in the same turn of the loop, so that no
            # later append overtakes it.
            self.container = container
            self.segment = segment
            self.attribute = attribute
            attribute.owner = self
            segment.pins += 1

    def refuse_set_up(self) -> None:
        """Move to the state of a refused set-up; the caller then sends the refusal to the client."""
        self._move(Event.SET_UP_REFUSED)

    def segment_missing(self) -> None:
        """Record that the segment does not exist, or not any more."""
        self._move(Event.SEGMENT_MISSING)

    # -- appends: no await between here and the group commit ------------------------------------

    def append(self, append: Append, expected_offset: int | None = None) -> None:
        """Submit an append, or queue it until it may be submitted; the answer comes through the sink."""
        container = self.container
        if container is None:  # not set up yet
            self.pending.append((append, expected_offset))
            return
        self.unanswered += 1
        # Throttle also while the queue has others: an append of this writer may be among them, and must stay first.
        if container.budget.over_append_limit or container.append_gate.queue:
            container.append_gate.throttle(self, append, expected_offset)
        else:
            self.submit(append, expected_offset)

    def submit(self, append: Append, expected_offset: int | None) -> None:
        """Check the append, assign its offset and queue it to the log; or refuse it, after everything before it."""
        container = self.container
        assert container is not None, self  # without a container, appends are pending
        number = append.last_event_number
        try:
            # Check the order again, because the connection could not for a throttled append: `last` was older then.
            if number < self.last:
                raise WrongEventNumber(f"event {number} of {self.writer.hex()} came after {self.last}")
            # Pass all arguments by position, which is the interpreter's quickest call.
            operation = container.state.append(
                self.segment, self.attribute, self, self.last, self.writer, number, append.events, append.parts,
                append.length, expected_offset,
            )  # fmt: skip
        except SaritError as error:
            self._refuse_in_order(container, append, error)
            return
        # Set `last` before the append is durable, since the next append is checked against it.
        self.last = number
        if container.failure is None:  # a failed container's charge is dropped already; a new one would stay for ever
            container.budget.report(container.number, container.state.dirty)
        try:
            # Queue the append in the same step as the assignment, so that the log has the order of the offsets.
            container.group_commit.add(operation, self._durable)
        except SaritError as error:
            self.refuse(append, error)
            return
        self.in_log.append((append, operation.offset + append.length))

    def _durable(self, error: BaseException | None) -> None:
        """Answer the oldest append in the log: it is durable, or the container has failed."""
        append, end_offset = self.in_log.popleft()
        if error is None:
            # DataAppended also holds the event number that was acknowledged before.
            previous, self.acknowledged = self.acknowledged, append.last_event_number
            self.unanswered -= 1
            self.sink.acknowledged(self, append, previous, end_offset)
        else:
            self.refuse(append, error)

    def _refuse_in_order(self, container: AppendTarget, append: Append, refusal: SaritError) -> None:
        """Refuse after everything in flight, so that answers come in order and the facts of the refusal are durable."""
        commit = container.group_commit
        answer_after = commit.barrier if container.may_answer else commit.prove
        answer_after(lambda failure: self.refuse(append, failure or refusal))

    def refuse(self, append: Append, error: BaseException) -> None:
        """Answer that the append is not stored, or that nobody knows whether it is (Unavailable)."""
        self.unanswered -= 1
        self.sink.refused(self, append, error)

    # -- the end ------------------------------------------------------------------------------

    def replace(self) -> None:
        """End the session, because the connection sets the writer up again."""
        self._move(Event.SET_UP_AGAIN)

    def leave(self) -> None:
        """Keep appends pending from now on, because the container leaves this store."""
        self._move(Event.LEAVE)
        self.container = None

    def append_refused(self) -> None:
        """Record that the client was answered that the segment is sealed or missing."""
        self._move(Event.APPEND_REFUSED)

    def close(self) -> None:
        """Close the session, because the connection ended or does not need it any more."""
        self._move(Event.CLOSE)


def fence_owner(attribute: Attribute) -> None:
    """Fence the session that owns a writer's attribute, if one does."""
    if isinstance(attribute.owner, WriterSession):
        # The fenced session's appends still reach the container, which refuses them in order.
        attribute.owner._move(Event.FENCE)


def leave_owners(segments: Iterable[Segment]) -> list[WriterSession]:
    """Move all sessions that own a writer's attribute to LEAVING.  Returns these sessions."""
    owners = [attribute.owner for segment in segments for attribute in segment.attributes.values() if attribute.owner]
    sessions = [owner for owner in owners if isinstance(owner, WriterSession)]
    for session in sessions:
        session.leave()
    return sessions


def segment_missing(segment: Segment) -> None:
    """Notify the writers of a deleted or merged segment, whose sessions would keep it in memory.

    A session with unanswered appends ends when these are refused instead, so that its client gets one answer."""
    owners = [attribute.owner for attribute in segment.attributes.values() if attribute.owner is not None]
    for owner in owners:
        if isinstance(owner, WriterSession) and not owner.unanswered:
            owner.sink.segment_missing(owner)
