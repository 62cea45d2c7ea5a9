"""The life of one container number in a store, as a table.  Pure.

    ABSENT      nothing of it is open here; another store owns it, or will.
    OPENING     it is ours and is being opened; attempts repeat until one succeeds.
    SERVING     it is ours and serves.
    FLUSHING    it serves, and flushes first: it is to leave, and its next owner shall have little to replay.
    DRAINING    it leaves: new requests wait, what is in flight becomes durable, log and index are closed.
    REOPENING   as DRAINING, but it is ours and is opened again after that: it failed, or was given back meanwhile.
    FAILED      it is ours and cannot be opened: stored bytes are damaged.

Three things move it.  *Commands* come from the owner of the map: own, release, drop.  Each of them says what is wanted
from now on, may come in any state and any number of times, and the newest one wins.  *Outcomes* of the work that a
state does (`WORK`): opened, damaged, flushed, closed.  *Faults* of the container that serves: failed, fenced.

`TRANSITIONS` is the whole machine: a pair of state and event that is not in it is a bug.

A container that was fenced has another owner, which a newer map knows.  Whoever opened it again on the same map would
fence that owner in turn, without end.  So it ends in ABSENT, and opens on a newer map only (`Hosting.own`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class State(Enum):
    """Where a container number is in its life."""

    ABSENT = "absent"
    OPENING = "opening"
    SERVING = "serving"
    FLUSHING = "flushing"
    DRAINING = "draining"
    REOPENING = "reopening"
    FAILED = "failed"


class Event(Enum):
    """An event that changes the state of a hosted container."""

    # Commands.
    OWN = "the map gives it to this store"
    RELEASE = "it is to leave after a flush"
    DROP = "it is to leave at once"
    # Outcomes.
    OPENED = "it is open"
    DAMAGED = "it cannot be opened"
    FLUSHED = "little is left to replay"
    CLOSED = "nothing of it is open"
    # Faults; FENCED is also an outcome of an attempt to open.
    FAILED = "it has failed"
    FENCED = "another store has opened it"


class Effect(Enum):
    """An effect that a change of state has at once, before anything else happens."""

    SERVE = "requests find it"
    WITHDRAW = "requests find it no more; it has failed, and its writers' connections are closed"
    HAND_OVER = "requests find it no more, and its writers' appends wait"
    END = "as WITHDRAW, and everything in flight ends without an outcome"
    REPORT_FENCED = "the owner of the map is notified that another store has it"
    REPORT_RELEASED = "the owner of the map is notified that nothing of it is open"


class Work(Enum):
    """The work of a state until its outcome.  `CLOSE` is never interrupted; the others are when the state changes."""

    OPEN = "open"
    FLUSH = "flush"
    CLOSE = "close"


WORK: Final = {
    State.OPENING: Work.OPEN,
    State.FLUSHING: Work.FLUSH,
    State.DRAINING: Work.CLOSE,
    State.REOPENING: Work.CLOSE,
}
SERVES: Final = frozenset((State.SERVING, State.FLUSHING))
# A request waits in these: soon the container serves here, or it is known that another store has it.
UNDECIDED: Final = frozenset((State.OPENING, State.DRAINING, State.REOPENING))

_NONE: Final[tuple[Effect, ...]] = ()
_REPORT_FENCED: Final = (Effect.REPORT_FENCED,)
_REPORT_RELEASED: Final = (Effect.REPORT_RELEASED,)
_FENCED: Final = (Effect.WITHDRAW, Effect.REPORT_FENCED)

TRANSITIONS: Final[dict[tuple[State, Event], tuple[State, tuple[Effect, ...]]]] = {
    (State.ABSENT, Event.OWN): (State.OPENING, _NONE),
    # The report may have been lost: each command gets one.
    (State.ABSENT, Event.RELEASE): (State.ABSENT, _REPORT_RELEASED),
    (State.ABSENT, Event.DROP): (State.ABSENT, _REPORT_RELEASED),

    (State.OPENING, Event.OWN): (State.OPENING, _NONE),
    (State.OPENING, Event.RELEASE): (State.DRAINING, _NONE),
    (State.OPENING, Event.DROP): (State.DRAINING, _NONE),
    (State.OPENING, Event.OPENED): (State.SERVING, (Effect.SERVE,)),
    (State.OPENING, Event.DAMAGED): (State.FAILED, _NONE),
    (State.OPENING, Event.FENCED): (State.DRAINING, _REPORT_FENCED),

    (State.SERVING, Event.OWN): (State.SERVING, _NONE),
    (State.SERVING, Event.RELEASE): (State.FLUSHING, _NONE),
    (State.SERVING, Event.DROP): (State.DRAINING, (Effect.END,)),
    (State.SERVING, Event.FAILED): (State.REOPENING, (Effect.WITHDRAW,)),
    (State.SERVING, Event.FENCED): (State.DRAINING, _FENCED),
    # The flush ended in the turn in which it was given back.
    (State.SERVING, Event.FLUSHED): (State.SERVING, _NONE),

    (State.FLUSHING, Event.OWN): (State.SERVING, _NONE),
    (State.FLUSHING, Event.RELEASE): (State.FLUSHING, _NONE),
    (State.FLUSHING, Event.DROP): (State.DRAINING, (Effect.END,)),
    (State.FLUSHING, Event.FLUSHED): (State.DRAINING, (Effect.HAND_OVER,)),
    (State.FLUSHING, Event.FAILED): (State.DRAINING, (Effect.WITHDRAW,)),
    (State.FLUSHING, Event.FENCED): (State.DRAINING, _FENCED),

    (State.DRAINING, Event.OWN): (State.REOPENING, _NONE),
    (State.DRAINING, Event.RELEASE): (State.DRAINING, _NONE),
    # The log may be stuck, and what is in flight with it.
    (State.DRAINING, Event.DROP): (State.DRAINING, (Effect.END,)),
    (State.DRAINING, Event.FENCED): (State.DRAINING, _REPORT_FENCED),
    (State.DRAINING, Event.CLOSED): (State.ABSENT, _REPORT_RELEASED),

    (State.REOPENING, Event.OWN): (State.REOPENING, _NONE),
    (State.REOPENING, Event.RELEASE): (State.DRAINING, _NONE),
    (State.REOPENING, Event.DROP): (State.DRAINING, (Effect.END,)),
    (State.REOPENING, Event.FENCED): (State.DRAINING, _REPORT_FENCED),
    (State.REOPENING, Event.CLOSED): (State.OPENING, _NONE),

    (State.FAILED, Event.OWN): (State.FAILED, _NONE),
    (State.FAILED, Event.RELEASE): (State.ABSENT, _REPORT_RELEASED),
    (State.FAILED, Event.DROP): (State.ABSENT, _REPORT_RELEASED),

    # Work ended in the turn in which a command interrupted it: what it opened is closed with the rest.
    **{
        (state, event): (state, _NONE)
        for state in (State.DRAINING, State.REOPENING)
        for event in (Event.OPENED, Event.DAMAGED, Event.FLUSHED)
    },
}  # fmt: skip

NEVER_FENCED: Final = -1


@dataclass(slots=True)
class Hosting:
    """The state of one container number, and the versions of the map that its commands came with."""

    state: State = State.ABSENT
    # The newest under which it was given to this store.
    map_version: int = 0
    # The newest that was known when another store fenced it.
    fenced_version: int = NEVER_FENCED

    def own(self, map_version: int) -> tuple[Effect, ...]:
        """Return the map of this version gives it to this store; what is to be done at once."""
        if map_version <= self.fenced_version:
            return _NONE
        self.map_version = max(self.map_version, map_version)
        return self.on(Event.OWN)

    def on(self, event: Event) -> tuple[Effect, ...]:
        """Change the state; what is to be done at once, in order."""
        row = TRANSITIONS.get((self.state, event))
        assert row is not None, f"{self}: {event.value}"
        self.state, effects = row
        if Effect.REPORT_FENCED in effects:
            self.fenced_version = self.map_version
        return effects
