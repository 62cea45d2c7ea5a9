"""The recovery of one ledger that its writer may still write: fence it, find its end, make its end durable.

Theory of operation.  The machine does no I/O: it gets answers and returns effects.  (1) Every bookie of the last
ensemble is asked for its last entry, *with a fence*: from then on it refuses the writer.  When every write set has too
few other bookies for an ack quorum, the writer cannot get another acknowledgement.  The search begins at the highest
"last add confirmed" that a bookie knows.  (2) Entries after that are read from their whole write set, with the fence
again, because an answer "no entry" must stay true.  An entry that any bookie has is written again to an ack quorum,
since its writer may have acknowledged it.  The end is before the first entry that so many bookies lack that it never
had an ack quorum.  (3) The ledger is closed there.

If too few bookies answer to decide, the outcome is `Inconclusive`: the ledger is never closed on a guess.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sarit.log.bookkeeper.limits import RECOVERY_READS_AHEAD
from sarit.log.bookkeeper.port import Code
from sarit.log.bookkeeper.write_decisions import write_set

if TYPE_CHECKING:
    from sarit.log.bookkeeper.metadata import LedgerMetadata
    from sarit.log.bookkeeper.port import EntryReply


@dataclass(frozen=True, slots=True)
class Read:
    """The effect: read an entry of a bookie with a fence (-1: its last entry), then call `LedgerRecovering.read`."""

    bookie: str
    entry: int


@dataclass(frozen=True, slots=True)
class AddAgain:
    """The effect: store an entry again, as part of a recovery, then call `LedgerRecovering.added`.

    `length`: the bytes of all payloads up to this entry."""

    bookie: str
    entry: int
    last_add_confirmed: int
    length: int
    payload: memoryview


@dataclass(frozen=True, slots=True)
class Close:
    """The outcome that the ledger ends with this entry (-1: it has none), and has `length` bytes."""

    last_entry: int
    length: int


@dataclass(frozen=True, slots=True)
class Inconclusive:
    """The outcome that too few bookies answer to find the end, so that the ledger is not closed."""

    reason: str


Effect = Read | AddAgain | Close | Inconclusive


@dataclass(slots=True)
class _Search:
    """The search for one entry: which bookies have it, lack it or did not answer."""

    unknown: set[str]
    lacking: int = 0
    found: EntryReply | None = None
    acked: int = 0
    adding: set[str] = field(default_factory=set)
    durable: bool = False


class LedgerRecovering:
    """The decisions of the recovery of one ledger."""

    def __init__(self, metadata: LedgerMetadata) -> None:
        self._metadata = metadata
        self._fencing = set(metadata.ensembles[-1][1])
        self._fenced: set[str] = set()
        self._refused: set[str] = set()
        # None until enough bookies are fenced.
        self.last_add_confirmed: int | None = None
        self._highest = metadata.ensembles[-1][0] - 1
        self._searches: dict[int, _Search] = {}
        self._next = 0  # the first entry that is not requested yet
        self._end: int | None = None  # the last entry, once it is known
        self.outcome: Close | Inconclusive | None = None

    def __repr__(self) -> str:
        return f"<LedgerRecovering from {self.last_add_confirmed} to {self._end}, {self.outcome or 'under way'}>"

    def start(self) -> list[Effect]:
        """Return the effects that fence the bookies of the last ensemble."""
        return [Read(bookie, -1) for bookie in self._metadata.ensembles[-1][1]]

    # -- answers ---------------------------------------------------------------------------------

    def read(self, bookie: str, entry: int, reply: EntryReply) -> list[Effect]:
        """Handle a bookie's answer to `Read`, or the loss of its connection.  Returns the next effects."""
        if self.outcome is not None:
            return []
        return self._fence_answered(bookie, reply) if entry == -1 else self._entry_answered(bookie, entry, reply)

    def added(self, bookie: str, entry: int, code: Code) -> list[Effect]:
        """Handle a bookie's answer to `AddAgain`.  Returns the next effects."""
        search = self._searches.get(entry)
        if self.outcome is not None or search is None or bookie not in search.adding:
            return []
        search.adding.discard(bookie)
        if code is Code.OK:
            search.acked += 1
        if search.acked >= self._metadata.ack_quorum:
            search.durable = True
        elif search.acked + len(search.adding) < self._metadata.ack_quorum:
            return self._give_up(f"entry {entry} cannot be stored by enough bookies")
        return self._finish()

    # -- fencing ---------------------------------------------------------------------------------

    def _fence_answered(self, bookie: str, reply: EntryReply) -> list[Effect]:
        self._fencing.discard(bookie)
        if reply.code in (Code.OK, Code.NO_ENTRY, Code.NO_LEDGER):
            self._fenced.add(bookie)
            if self.last_add_confirmed is None:
                self._highest = max(self._highest, reply.last_add_confirmed)
        else:
            self._refused.add(bookie)
        if self.last_add_confirmed is not None:
            return []
        if self._is_fenced(self._fenced):
            self.last_add_confirmed = self._highest
            # Begin with the last confirmed entry itself, whose length includes all entries before it.
            self._next = max(self._highest, 0)
            return self._read_ahead()
        if not self._is_fenced(self._fenced | self._fencing):
            return self._give_up(f"too few bookies can be fenced: no answer of {', '.join(sorted(self._refused))}")
        return []

    def _is_fenced(self, fenced: set[str]) -> bool:
        """Return whether in every write set too few bookies outside `fenced` are left for an ack quorum."""
        metadata, ensemble = self._metadata, self._metadata.ensembles[-1][1]
        return all(
            len(set(write_set(metadata, ensemble, entry)) - fenced) < metadata.ack_quorum
            for entry in range(metadata.ensemble_size)
        )

    # -- the search for the end ------------------------------------------------------------------

    def _read_ahead(self) -> list[Effect]:
        effects: list[Effect] = []
        low = next((entry for entry, search in self._searches.items() if not search.durable), self._next)
        while self._end is None and self._next < low + RECOVERY_READS_AHEAD:
            entry = self._next
            self._next += 1
            ensemble = next(each for first, each in reversed(self._metadata.ensembles) if first <= entry)
            bookies = write_set(self._metadata, ensemble, entry)
            self._searches[entry] = _Search(set(bookies))
            effects += [Read(bookie, entry) for bookie in bookies]
        return effects

    def _entry_answered(self, bookie: str, entry: int, reply: EntryReply) -> list[Effect]:
        search = self._searches.get(entry)
        if search is None or bookie not in search.unknown:
            return []
        search.unknown.discard(bookie)
        if search.found is None and reply.code is Code.OK:
            search.found = reply
        elif reply.code in (Code.NO_ENTRY, Code.NO_LEDGER):
            search.lacking += 1
        return self._decide()

    def _decide(self) -> list[Effect]:
        """Decide the entries in order, up to the first that cannot be decided yet.  Returns the next effects."""
        metadata, confirmed = self._metadata, self.last_add_confirmed
        assert confirmed is not None
        effects: list[Effect] = []
        for entry, search in self._searches.items():
            if search.durable or search.acked or search.adding:
                continue
            if search.found is not None:
                if entry <= confirmed:
                    search.durable = True
                    continue
                effects += self._add_again(entry, search, confirmed)
            elif entry > confirmed and search.lacking > metadata.write_quorum - metadata.ack_quorum:
                self._end = entry - 1
                break
            elif not search.unknown:
                return self._give_up(f"entry {entry} was neither found nor found missing")
            else:
                break
        return effects + self._read_ahead() + self._finish()

    def _add_again(self, entry: int, search: _Search, confirmed: int) -> list[Effect]:
        found = search.found
        assert found is not None
        assert found.payload is not None, search
        ensemble = next(each for first, each in reversed(self._metadata.ensembles) if first <= entry)
        bookies = write_set(self._metadata, ensemble, entry)
        search.adding = set(bookies)
        return [AddAgain(bookie, entry, confirmed, found.length, found.payload) for bookie in bookies]

    def _finish(self) -> list[Effect]:
        if self._end is None:
            return self._read_ahead()
        if self.outcome is not None:
            return []
        known = [search for entry, search in self._searches.items() if entry <= self._end]
        if not all(search.durable for search in known):
            return []
        last = self._searches.get(self._end)
        length = last.found.length if last is not None and last.found is not None else 0
        self.outcome = Close(self._end, length)
        return [self.outcome]

    def _give_up(self, reason: str) -> list[Effect]:
        self.outcome = Inconclusive(reason)
        return [self.outcome]


__all__ = ["AddAgain", "Close", "Effect", "Inconclusive", "LedgerRecovering", "Read"]
