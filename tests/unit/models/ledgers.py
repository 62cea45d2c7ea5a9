"""A ledger of BookKeeper: its writer, and owners that recover it at the same time.

The writer has sent its entries to three bookies; each copy lands at any time, or never, also after the writer's death.
Where two copies have landed, and the entry before is acknowledged, it may acknowledge the entry, at any later time.  An
opener fences two of three bookies, reads entry after entry, stores again what it finds, and closes the ledger where two
bookies lack an entry.  The close is a compare-and-set.  A bookie that is away is one that nobody asks; an opener that
dies takes no further step.

Invariants: what was acknowledged, before or after the close, is below the end that the ledger was closed at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

BOOKIES = (1, 2, 4)  # bits of a mask
QUORUM = 2


class Opener(NamedTuple):
    """`phase`: fencing, reading, storing, closing, done.

    Masks of bookies: those it fenced; those that have the entry, and that lack it; where it stored it again."""

    phase: str = "fencing"
    fenced: int = 0
    entry: int = 0
    having: int = 0
    lacking: int = 0
    stored: int = 0


class State(NamedTuple):
    """`landed`: by entry, where the writer's copies are; `copies`: and those of openers.  `end`: -1 while open."""

    landed: tuple[int, ...]
    copies: tuple[int, ...]
    openers: tuple[Opener, ...]
    fenced: int = 0
    acknowledged: int = 0
    end: int = -1


@dataclass(frozen=True, slots=True)
class Ledgers:
    """Bounds, and the mutants to apply."""

    entries: int = 1
    openers: int = 2
    acknowledges_one_copy: bool = False
    reads_without_fence: bool = False
    closes_where_one_lacks: bool = False
    closes_without_search: bool = False

    def first(self) -> State:
        """Nothing has landed."""
        return State((0,) * self.entries, (0,) * self.entries, (Opener(),) * self.openers)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """See the head of the module."""
        for entry in range(self.entries):
            for bookie in BOOKIES:
                if not (state.landed[entry] | state.fenced) & bookie:
                    landed = _with(state.landed, entry, bookie)
                    copies = _with(state.copies, entry, bookie)
                    yield f"{entry} lands at {bookie}", state._replace(landed=landed, copies=copies)
        quorum = 1 if self.acknowledges_one_copy else QUORUM
        if state.acknowledged < self.entries and state.landed[state.acknowledged].bit_count() >= quorum:
            yield "acknowledges", state._replace(acknowledged=state.acknowledged + 1)
        for at, opener in enumerate(state.openers):
            for name, after, shared in self._open(state, opener):
                openers = (*state.openers[:at], after, *state.openers[at + 1 :])
                yield f"{at} {name}", shared._replace(openers=openers)

    def _open(self, state: State, opener: Opener) -> Iterator[tuple[str, Opener, State]]:
        if opener.phase == "fencing":
            if opener.fenced.bit_count() >= QUORUM:
                phase = "closing" if self.closes_without_search else "reading"
                yield "begins to read", Opener(phase), state
            for bookie in BOOKIES:
                if not opener.fenced & bookie:
                    fenced = state._replace(fenced=state.fenced | bookie)
                    yield f"fences {bookie}", opener._replace(fenced=opener.fenced | bookie), fenced
        if opener.phase == "reading":
            yield from self._read(state, opener)
        if opener.phase == "storing":
            for bookie in BOOKIES:
                if not opener.stored & bookie:
                    copies = _with(state.copies, opener.entry, bookie)
                    yield (
                        f"stores at {bookie}",
                        opener._replace(stored=opener.stored | bookie),
                        state._replace(copies=copies),
                    )
            if opener.stored.bit_count() >= QUORUM:
                following = opener.entry + 1
                yield "goes on", Opener("reading" if following < self.entries else "closing", entry=following), state
        if opener.phase == "closing":
            # The second one finds it closed, and takes that end.
            end = opener.entry if state.end == -1 else state.end
            yield "closes", Opener("done"), state._replace(end=end)

    def _read(self, state: State, opener: Opener) -> Iterator[tuple[str, Opener, State]]:
        for bookie in BOOKIES:
            if not (opener.having | opener.lacking) & bookie:
                shared = state if self.reads_without_fence else state._replace(fenced=state.fenced | bookie)
                if state.copies[opener.entry] & bookie:
                    yield f"finds at {bookie}", opener._replace(having=opener.having | bookie), shared
                else:
                    yield f"misses at {bookie}", opener._replace(lacking=opener.lacking | bookie), shared
        if opener.having:
            yield "found it", Opener("storing", entry=opener.entry), state
        elif opener.lacking.bit_count() >= (1 if self.closes_where_one_lacks else QUORUM):
            yield "found the end", Opener("closing", entry=opener.entry), state

    def wrong(self, state: State) -> str:
        """See the head of the module."""
        if state.end != -1 and state.acknowledged > state.end:
            return f"{state.acknowledged} entries were acknowledged, and the ledger ends after {state.end}"
        return ""

    def unfinished(self, state: State) -> str:
        """Everybody may have died."""
        return ""


def _with(masks: tuple[int, ...], entry: int, bookie: int) -> tuple[int, ...]:
    return (*masks[:entry], masks[entry] | bookie, *masks[entry + 1 :])


__all__ = ["Ledgers"]
