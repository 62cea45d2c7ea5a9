"""The state machine of one container number in a store, as a table, without I/O.

    ABSENT      the container is not open here; another store owns it, or will.
    OPENING     this store owns the container and opens it; attempts repeat until one succeeds.
    SERVING     this store owns the container and serves it.
    FLUSHING    the container is to leave; it serves on while it flushes, so that its next owner has little to replay.
    DRAINING    the container leaves: new requests wait, operations in flight complete, log and index are closed.
    REOPENING   as DRAINING, but this store owns the container and opens it again: it failed, or was given back.
    FAILED      this store owns the container and cannot open it: stored bytes are damaged.

Three kinds of events change the state.  *Commands* come from the owner of the map: own, release, drop.  A command may
come in any state and any number of times, and the newest one wins.  *Outcomes* come from the work of a state (`WORK`):
opened, damaged, flushed, closed.  *Faults* come from the container that serves: failed, fenced.

`TRANSITIONS` is the whole machine: a pair of state and event that is not in it is a bug.

A container that was fenced has another owner, which a newer map names.  A store that opened it again on the same map
would fence that owner in turn, and so on without end.  So it goes to ABSENT, and opens on a newer map only
(`Hosting.own`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class State(Enum):
    """The state of a container number (see the head of the module)."""

    ABSENT = "absent"
    OPENING = "opening"
    SERVING = "serving"
    FLUSHING = "flushing"
    DRAINING = "draining"
    REOPENING = "reopening"
    FAILED = "failed"


class Event(Enum):
    """An event that changes the state of a hosted container."""

    # The commands.
    OWN = "the map gives it to this store"
    RELEASE = "it is to leave after a flush"
    DROP = "it is to leave at once"
    # The outcomes.
    OPENED = "it is open"
    DAMAGED = "it cannot be opened"
    FLUSHED = "little is left to replay"
    CLOSED = "nothing of it is open"
    # The faults; FENCED is also an outcome of an attempt to open.
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
    """The work of a state, which ends in an outcome; a change of state interrupts it, except `CLOSE`."""

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
# The states in which requests wait: soon the container serves here, or it is known that another store has it.
UNDECIDED: Final = frozenset((State.OPENING, State.DRAINING, State.REOPENING))

_NONE: Final[tuple[Effect, ...]] = ()
_REPORT_FENCED: Final = (Effect.REPORT_FENCED,)
_REPORT_RELEASED: Final = (Effect.REPORT_RELEASED,)
_FENCED: Final = (Effect.WITHDRAW, Effect.REPORT_FENCED)

TRANSITIONS: Final[dict[tuple[State, Event], tuple[State, tuple[Effect, ...]]]] = {
    (State.ABSENT, Event.OWN): (State.OPENING, _NONE),
    # Report again at each command, since an earlier report may have been lost.
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
    # The flush may end in the turn of the loop in which the container is given back.
    (State.SERVING, Event.FLUSHED): (State.SERVING, _NONE),

    (State.FLUSHING, Event.OWN): (State.SERVING, _NONE),
    (State.FLUSHING, Event.RELEASE): (State.FLUSHING, _NONE),
    (State.FLUSHING, Event.DROP): (State.DRAINING, (Effect.END,)),
    (State.FLUSHING, Event.FLUSHED): (State.DRAINING, (Effect.HAND_OVER,)),
    (State.FLUSHING, Event.FAILED): (State.DRAINING, (Effect.WITHDRAW,)),
    (State.FLUSHING, Event.FENCED): (State.DRAINING, _FENCED),

    (State.DRAINING, Event.OWN): (State.REOPENING, _NONE),
    (State.DRAINING, Event.RELEASE): (State.DRAINING, _NONE),
    # The log may be stuck, so DROP ends operations in flight without an outcome.
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

    # Work may end in the turn of the loop in which a command interrupts it: the close covers what it opened.
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
    # The newest map that gave the container to this store.
    map_version: int = 0
    # The value of `map_version` when another store fenced the container.
    fenced_version: int = NEVER_FENCED

    def own(self, map_version: int) -> tuple[Effect, ...]:
        """Follow a map of this version that gives the container to this store.  Returns the effects, in order."""
        if map_version <= self.fenced_version:
            return _NONE
        self.map_version = max(self.map_version, map_version)
        return self.on(Event.OWN)

    def on(self, event: Event) -> tuple[Effect, ...]:
        """Change the state by an event.  Returns the effects, in order."""
        row = TRANSITIONS.get((self.state, event))
        assert row is not None, f"{self}: {event.value}"
        self.state, effects = row
        if Effect.REPORT_FENCED in effects:
            self.fenced_version = self.map_version
        return effects
