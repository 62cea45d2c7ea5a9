"""The log and its owners: two processes believe to be the owner, one is.

An owner opens the log in two steps: it takes the next epoch (which fences), then reads what is there.  It queues
frames, numbered on from the last it knows; each lands in the log or is refused; then it is acknowledged.  Owners may
stop or die at any point, with frames in flight that may still land.

Invariants: an acknowledged frame is in the log for ever, under its number; numbers have no gaps and no duplicates;
epochs never fall.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Frame(NamedTuple):
    """`value`: its owner, and the number of the frame."""

    number: int
    epoch: int
    value: tuple[int, int]


class Owner(NamedTuple):
    """`phase`: idle, opened (has an epoch), read (a mutant), serves, dead.

    `on_way`: queued, not landed.  `landed`: not acknowledged."""

    phase: str = "idle"
    epoch: int = 0
    known: int = 0
    on_way: tuple[Frame, ...] = ()
    landed: tuple[Frame, ...] = ()
    queued: int = 0


class State(NamedTuple):
    """The log, its epoch, its owners, and the acknowledged frames."""

    log: tuple[Frame, ...] = ()
    epoch: int = 0
    owners: tuple[Owner, ...] = (Owner(), Owner())
    acked: frozenset[Frame] = frozenset()


@dataclass(frozen=True, slots=True)
class Fencing:
    """Bounds, and the mutants to apply."""

    frames: int = 2
    opens: int = 4
    window: int = 2
    lands_unfenced: bool = False
    reads_before_fencing: bool = False
    acks_before_landing: bool = False

    def first(self) -> State:
        """Nobody owns an empty log."""
        return State()

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """See the head of the module."""
        for at, owner in enumerate(state.owners):
            for name, after, shared in self._steps(state, at, owner):
                owners = (*state.owners[:at], after, *state.owners[at + 1 :])
                yield f"{at} {name}", shared._replace(owners=owners)

    def _steps(self, state: State, at: int, owner: Owner) -> Iterator[tuple[str, Owner, State]]:
        if owner.phase in ("idle", "dead") and not owner.on_way and state.epoch < self.opens:
            if self.reads_before_fencing:
                yield "reads", self._read(Owner(queued=owner.queued), state)._replace(phase="read"), state
            else:
                epoch = state.epoch + 1
                yield "fences", Owner("opened", epoch, queued=owner.queued), state._replace(epoch=epoch)
        if owner.phase == "read":
            epoch = state.epoch + 1
            yield "fences", owner._replace(phase="serves", epoch=epoch), state._replace(epoch=epoch)
        if owner.phase == "opened":
            if owner.epoch == state.epoch:
                yield "reads", self._read(owner, state), state
            else:
                yield "is refused", owner._replace(phase="dead"), state
        if owner.phase == "serves" and owner.queued < self.frames and len(owner.on_way) < self.window:
            frame = Frame(owner.known + 1, owner.epoch, (at, owner.queued + 1))
            after = owner._replace(known=frame.number, on_way=(*owner.on_way, frame), queued=owner.queued + 1)
            if self.acks_before_landing:
                yield "queues and acknowledges", after, state._replace(acked=state.acked | {frame})
            else:
                yield "queues", after, state
        if owner.on_way:
            frame, rest = owner.on_way[0], owner.on_way[1:]
            if owner.epoch == state.epoch or self.lands_unfenced:
                landed = (*owner.landed, frame) if owner.phase == "serves" else ()
                yield "lands", owner._replace(on_way=rest, landed=landed), state._replace(log=(*state.log, frame))
            else:
                yield "is fenced", owner._replace(phase="dead", on_way=(), landed=()), state
            if owner.phase == "dead":
                yield "loses", owner._replace(on_way=()), state
        if owner.phase == "serves":
            if owner.landed and not self.acks_before_landing:
                acked = state.acked | {owner.landed[0]}
                yield "acknowledges", owner._replace(landed=owner.landed[1:]), state._replace(acked=acked)
            yield "dies", owner._replace(phase="dead", landed=()), state

    def _read(self, owner: Owner, state: State) -> Owner:
        return owner._replace(phase="serves", known=state.log[-1].number if state.log else 0)

    def wrong(self, state: State) -> str:
        """See the head of the module."""
        if [frame.number for frame in state.log] != list(range(1, len(state.log) + 1)):
            return "numbers have gaps or doubles"
        if any(one.epoch > other.epoch for one, other in zip(state.log, state.log[1:], strict=False)):
            return "an earlier owner wrote after a later one"
        frames_of_log = set(state.log)
        for frame in state.acked:
            on_way = any(frame in owner.on_way and owner.phase == "serves" for owner in state.owners)
            if frame not in frames_of_log and not on_way:
                return f"{frame} was acknowledged and is lost"
        return ""

    def unfinished(self, state: State) -> str:
        """All owners may have died: then no work is left."""
        return ""


__all__ = ["Fencing"]
