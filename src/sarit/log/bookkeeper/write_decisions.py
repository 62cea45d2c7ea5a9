"""The decisions of the writer of one ledger: answers of bookies in, effects out, without I/O.

Theory of operation.  `LedgerWriting` gets events and returns effects.  An entry goes to all bookies of its write set,
and is *done* when the ack quorum has it and every entry before it is done.  A bookie that fails gets no more entries
(`down`), and is replaced by a spare one, by a compare-and-set of the metadata: the new ensemble begins with the first
entry that is not done yet.  Without a spare bookie, the old one gets entries again as soon as it is back, since the
next failure may leave too few.

While such a change is in progress, nobody knows which of the two ensembles is in force.  So only bookies that are in
both count.  A bookie that answers "fenced" ends the writing, since somebody recovers the ledger.

An acknowledgement proves ownership only while the ledger cannot have been deleted: the last entry that is done must
have been sent less than LEDGER_PROOF_SECONDS ago.  After a longer pause the owner's record is read first (`AskOwner`),
and also when the wall clock shows a pause that the monotonic clock has not counted (`stood_still`).

Times are seconds of the owner's monotonic clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from sarit.log.bookkeeper.limits import (
    BUSY_BOOKIE_SECONDS,
    LEDGER_PROOF_SECONDS,
    LOST_BOOKIE_RETRY_SECONDS,
    NEEDED_BOOKIE_RETRY_SECONDS,
    NO_QUORUM_SECONDS,
    SLOW_BOOKIE_SECONDS,
    SPARE_BOOKIE_RETRY_SECONDS,
)
from sarit.log.bookkeeper.metadata import LedgerMetadata, LedgerState
from sarit.log.bookkeeper.port import Code

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# -- effects -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """The effect: send an entry to a bookie, `after` so many seconds."""

    bookie: str
    entry: int
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Store:
    """The effect: replace the metadata, and retry until the outcome is known, then call `stored` or `store_refused`.

    At most one `Store` is in progress."""

    metadata: LedgerMetadata


@dataclass(frozen=True, slots=True)
class Done:
    """The effect: report that all entries up to this one are durable."""

    entry: int


@dataclass(frozen=True, slots=True)
class AskOwner:
    """The effect: read who owns the log, then call `owner_confirmed` or `fenced`."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The effect: report that no more entries become durable (`LedgerWriting.state` says why)."""

    reason: str


Effect = Send | Store | Done | AskOwner | Ended


class State(Enum):
    """The state of a ledger's writer.  FENCED: somebody else recovers the ledger, or has closed it.  FAILED: too few
    bookies answer; entries that are not done may go to another ledger once this one is closed.  CLOSED: the metadata
    has the end of the ledger."""

    OPEN = "open"
    FAILED = "failed"
    CLOSING = "closing"
    CLOSED = "closed"
    FENCED = "fenced"


NO_CHANGE: Final[list[Effect]] = []


@dataclass(slots=True)
class _Pending:
    sent_at: float
    length: int  # the bytes of all payloads up to this entry
    acked: set[str]


@dataclass(frozen=True, slots=True)
class _Down:
    """A bookie that gets no entries.  `pause`: the seconds until it gets entries again, if there are enough others."""

    since: float
    pause: float


def write_set(metadata: LedgerMetadata, ensemble: Sequence[str], entry: int) -> list[str]:
    """Return the bookies that store an entry."""
    size = metadata.ensemble_size
    return [ensemble[(entry + at) % size] for at in range(metadata.write_quorum)]


class LedgerWriting:
    """The decisions of the writer of one ledger.  `now`: a time at which its owner still owned the log."""

    def __init__(self, metadata: LedgerMetadata, now: float) -> None:
        self.metadata = metadata
        self.state = State.OPEN
        self.next_entry = 0
        self.length = 0
        self.last_add_confirmed = -1
        self.confirmed_length = 0
        self.changes = 0
        self._pending: dict[int, _Pending] = {}
        # The entries without an answer of each bookie, oldest first, with the time when they were sent.
        self._unanswered: dict[str, dict[int, float]] = {}
        self._down: dict[str, _Down] = {}
        self._spares: tuple[str, ...] = ()
        self._proof = now
        self._proof_from = now  # a proof from before this time is invalid
        self._asked = False
        self._storing: LedgerMetadata | None = None
        self._next_try = now

    def __repr__(self) -> str:
        return f"<LedgerWriting {self.state.value}, {self.last_add_confirmed} of {self.next_entry} done>"

    @property
    def ensemble(self) -> tuple[str, ...]:
        """The bookies that get entries now."""
        return self.metadata.ensembles[-1][1]

    @property
    def unfinished(self) -> int:
        """The number of entries that are not done."""
        return len(self._pending)

    # -- events ----------------------------------------------------------------------------------

    def add(self, size: int, now: float) -> tuple[int, list[Effect]]:
        """Add an entry of `size` bytes.  Returns its number, and the effects that send it."""
        assert self.state is State.OPEN, self
        entry = self.next_entry
        self.next_entry += 1
        self.length += size
        self._pending[entry] = _Pending(now, self.length, set())
        return entry, self._send(entry, write_set(self.metadata, self.ensemble, entry), now)

    def answered(self, bookie: str, entry: int, code: Code, now: float) -> list[Effect]:
        """Handle a bookie's answer to an entry, or the loss of its connection.  Returns the effects."""
        unanswered = self._unanswered.get(bookie)
        if unanswered is not None and code is not Code.TOO_MANY_REQUESTS:
            unanswered.pop(entry, None)
        if code is Code.FENCED:
            return self.fenced(f"{bookie} has fenced the ledger")
        if self.state is not State.OPEN:
            return NO_CHANGE
        if code is Code.OK:
            pending = self._pending.get(entry)
            if pending is None:
                return NO_CHANGE
            pending.acked.add(bookie)
            return self._advance(now)
        if bookie not in self.ensemble or bookie in self._down:
            return NO_CHANGE
        if code is Code.TOO_MANY_REQUESTS:
            return [Send(bookie, entry, BUSY_BOOKIE_SECONDS)]
        return self.bookie_failed(bookie, now)

    def bookie_failed(self, bookie: str, now: float, pause: float = LOST_BOOKIE_RETRY_SECONDS) -> list[Effect]:
        """Send no more entries to a bookie, and replace it if there is a spare one.  Returns the effects."""
        if bookie not in self.ensemble or self.state is not State.OPEN:
            return NO_CHANGE
        self._down[bookie] = _Down(now, pause)
        self._unanswered.pop(bookie, None)
        effects = self._change_ensemble(now)
        # Below a quorum, let bookies that are back resume at once, not at the next tick.
        return effects if effects or self._has_enough_bookies() else self._resume(now)

    def spares(self, bookies: Iterable[str]) -> None:
        """Set the bookies that may be used from now on, the best first."""
        known, self._spares = self._spares, tuple(bookies)
        for bookie in set(self._spares).difference(known):
            self._next_try = -math.inf  # try a replacement at once
            if bookie in self._down:
                self._down[bookie] = _Down(-math.inf, 0.0)  # use a bookie again that has registered again

    def tick(self, now: float) -> list[Effect]:
        """Find slow bookies, and fail the ledger without a quorum for NO_QUORUM_SECONDS.  Returns the effects.

        To be called a few times a second."""
        if self.state is not State.OPEN:
            return NO_CHANGE
        oldest = next(iter(self._pending.values()), None)
        if oldest is not None and not self._asked and now - oldest.sent_at >= NO_QUORUM_SECONDS:
            self.state = State.FAILED
            return [Ended(f"too few bookies answered for {NO_QUORUM_SECONDS:.0f} s")]
        effects: list[Effect] = []
        for bookie in self.ensemble:
            entry, sent = next(iter(self._unanswered.get(bookie, {}).items()), (0, now))
            # Only a bookie whose entry others have stored is slow; otherwise the network, or all bookies, are.
            if now - sent >= SLOW_BOOKIE_SECONDS and entry <= self.last_add_confirmed:
                effects += self.bookie_failed(bookie, now, SPARE_BOOKIE_RETRY_SECONDS)
        if self._down.keys() & set(self.ensemble):
            if now >= self._next_try or not self._has_enough_bookies():
                effects += self._change_ensemble(now)
            if self._storing is None:
                effects += self._resume(now)
        return effects

    def stored(self, metadata: LedgerMetadata, now: float) -> list[Effect]:
        """Record that the metadata of `Store` is stored.  Returns the effects."""
        assert metadata == self._storing, (metadata, self._storing)
        before, self._storing, self.metadata = self.ensemble, None, metadata
        if metadata.state is LedgerState.CLOSED:
            self.state = State.CLOSED
            return NO_CHANGE
        if self.state is not State.OPEN:
            return NO_CHANGE
        self.changes += 1
        gone, new = set(before) - set(self.ensemble), set(self.ensemble) - set(before)
        effects: list[Effect] = []
        for entry, pending in self._pending.items():
            pending.acked -= gone
            coming = [bookie for bookie in write_set(metadata, self.ensemble, entry) if bookie in new]
            effects += self._send(entry, coming, now)
        for bookie in new:
            self._down.pop(bookie, None)
        # Replace another bookie that has failed meanwhile.
        return effects + self._advance(now) + self._change_ensemble(now)

    def store_refused(self, reason: str) -> list[Effect]:
        """End the ledger as fenced: somebody else has changed the metadata, to recover or close the ledger."""
        self._storing = None
        return self.fenced(reason)

    def owner_confirmed(self, asked_at: float, now: float) -> list[Effect]:
        """Record that the log named this owner at a moment not before `asked_at`.  Returns the effects."""
        self._asked = False
        self._proof = max(self._proof, asked_at)
        return self._advance(now) if self.state is State.OPEN else NO_CHANGE

    def stood_still(self, now: float) -> None:
        """Invalidate all earlier proofs: the machine may have been suspended, and its monotonic clock with it."""
        self._proof_from = now

    def fenced(self, reason: str) -> list[Effect]:
        """End the ledger, since somebody recovers it: no more entries become done, nor may they go elsewhere."""
        if self.state in (State.FENCED, State.CLOSED):
            return NO_CHANGE
        self.state = State.FENCED
        return [Ended(reason)]

    def give_up(self, reason: str) -> list[Effect]:
        """Fail the ledger: entries that are not done stay without an outcome.  Returns the effects."""
        if self.state is not State.OPEN:
            return NO_CHANGE
        self.state = State.FAILED
        return [Ended(reason)]

    def close(self) -> list[Effect]:
        """Close the ledger after the last entry that is done.  Returns the effects."""
        assert self.state in (State.OPEN, State.FAILED), self
        if self._storing is not None:
            return NO_CHANGE  # the caller calls again after the change of the ensemble in progress
        self.state = State.CLOSING
        self._storing = replace(
            self.metadata, state=LedgerState.CLOSED, last_entry=self.last_add_confirmed, length=self.confirmed_length
        )
        return [Store(self._storing)]

    # -- decisions -------------------------------------------------------------------------------

    def _send(self, entry: int, bookies: Iterable[str], now: float) -> list[Effect]:
        effects: list[Effect] = []
        for bookie in bookies:
            if bookie not in self._down:
                self._unanswered.setdefault(bookie, {})[entry] = now
                effects.append(Send(bookie, entry))
        return effects

    def _has_quorum(self, entry: int, pending: _Pending) -> bool:
        members = set(write_set(self.metadata, self.ensemble, entry))
        if self._storing is not None:
            members &= set(write_set(self._storing, self._storing.ensembles[-1][1], entry))
        return len(pending.acked & members) >= self.metadata.ack_quorum

    def _advance(self, now: float) -> list[Effect]:
        before = self.last_add_confirmed
        effects: list[Effect] = []
        while (pending := self._pending.get(self.last_add_confirmed + 1)) is not None:
            if not self._has_quorum(self.last_add_confirmed + 1, pending):
                break
            if self._proof < self._proof_from or now - self._proof >= LEDGER_PROOF_SECONDS:
                if not self._asked:
                    self._asked = True
                    effects.append(AskOwner())
                break
            self.last_add_confirmed += 1
            self.confirmed_length = pending.length
            self._proof = max(self._proof, pending.sent_at)
            del self._pending[self.last_add_confirmed]
        if self.last_add_confirmed > before:
            effects.insert(0, Done(self.last_add_confirmed))
        return effects

    def _resume(self, now: float) -> list[Effect]:
        """Send entries again to bookies that are back, without those done meanwhile.  Returns the effects."""
        effects: list[Effect] = []
        # Shorten the pause without a quorum, as no entry is done until a bookie is back.
        longest = math.inf if self._has_enough_bookies() else NEEDED_BOOKIE_RETRY_SECONDS
        for bookie in self.ensemble:
            down = self._down.get(bookie)
            if down is not None and bookie in self._spares and now - down.since >= min(down.pause, longest):
                del self._down[bookie]
                for entry, pending in self._pending.items():
                    if bookie in write_set(self.metadata, self.ensemble, entry) and bookie not in pending.acked:
                        effects += self._send(entry, [bookie], now)
        return effects

    def _has_enough_bookies(self) -> bool:
        return sum(bookie not in self._down for bookie in self.ensemble) >= self.metadata.ack_quorum

    def _change_ensemble(self, now: float) -> list[Effect]:
        """Replace bookies that are down, as far as there are spare ones.  Returns the effects."""
        down = [bookie for bookie in self.ensemble if bookie in self._down]
        if not down or self._storing is not None or self.state is not State.OPEN:
            return NO_CHANGE
        self._next_try = now + SPARE_BOOKIE_RETRY_SECONDS
        fresh = [
            bookie
            for bookie in self._spares
            if bookie not in self.ensemble
            and (bookie not in self._down or now - self._down[bookie].since >= SPARE_BOOKIE_RETRY_SECONDS)
        ]
        changes = dict(zip(down, fresh, strict=False))
        if not changes:
            return NO_CHANGE
        ensemble = tuple(changes.get(bookie, bookie) for bookie in self.ensemble)
        first = self.last_add_confirmed + 1
        earlier = self.metadata.ensembles
        if earlier[-1][0] == first:
            earlier = earlier[:-1]
        self._storing = replace(self.metadata, ensembles=(*earlier, (first, ensemble)))
        return [Store(self._storing)]


__all__ = ["AskOwner", "Done", "Effect", "Ended", "LedgerWriting", "Send", "State", "Store", "write_set"]
