"""The progress of the continuous queries of a stream, as their job stores it, and what comes next.  Pure.

    matches in open transactions ─▶ save the intent: where the batch ends, and the transactions ─▶ commit them

An intent that is stored is carried out before anything else, by whoever has the job then.  Committing a transaction
again does no harm.  One that was aborted meanwhile, because its lease had ended, is written again: from the events of
the very same batch, which is why an intent has its `last` ones, and to the outputs that lack it alone.  Of one that the
controller has forgotten, `proof` is searched for in the output: transactions come whole, or not at all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from sarit.core import cuts
from sarit.core.errors import Corrupt, Invalid, SaritError
from sarit.core.names import StreamName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.core.cuts import StreamCut
    from sarit.search.ports import EventSlice

_FORMAT: Final = 1

# The kind and the name of the job of a stream's continuous queries.
CONTINUOUS_KIND: Final = "continuous"
CONTINUOUS_JOB: Final = "queries"


class Outcome(Enum):
    """The end of a transaction that was asked to commit: UNKNOWN: the controller does not know it (any more); GONE:
    its stream does not exist any more."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Proof:
    """One match of a transaction: the id of its query, and the place of its event."""

    query: str
    segment: int
    offset: int


@dataclass(frozen=True, slots=True)
class Written:
    """A transaction with the matches of a batch for one output.

    `before`: a cut of the output at which it had none of them.  `matches`: how many they are."""

    output: StreamName
    transaction: str
    before: StreamCut
    proof: Proof
    matches: int


@dataclass(frozen=True, slots=True)
class Intent:
    """A batch whose matches are written, and have to be committed.

    `last`: of each segment with events in the batch, the offset of the last of them.  `end`: the cut behind it."""

    end: StreamCut
    last: Mapping[int, int]
    written: tuple[Written, ...]

    def has(self, segment: int, offset: int) -> bool:
        """Return whether an event behind the begin of the batch is in the batch."""
        last = self.last.get(segment)
        return last is not None and offset <= last


@dataclass(frozen=True, slots=True)
class ContinuousState:
    """The progress of continuous queries.

    `stream_id`: the creation id of the stream; "": nothing was begun.  `cut`: matches of events before it are in the
    outputs.  `intent`: of the batch that begins there; None: there is none.  `events`, `matches`, `lost_bytes`,
    `unclear`: sums; `unclear`: transactions whose outcome nobody could tell.  `committed_ms`: of the last commit, since
    1970."""

    stream_id: str = ""
    cut: StreamCut | None = None
    intent: Intent | None = None
    events: int = 0
    matches: int = 0
    lost_bytes: int = 0
    unclear: int = 0
    committed_ms: int = 0

    def done(self, now_ms: int) -> ContinuousState:
        """Return the state after all transactions of the intent were committed."""
        assert self.intent is not None
        matches = self.matches + sum(each.matches for each in self.intent.written)
        return replace(self, cut=self.intent.end, intent=None, matches=matches, committed_ms=now_ms)

    def encode(self) -> bytes:
        """Return the state as it is stored: JSON."""
        written: dict[str, Any] = {name: value for name in _NUMBERS if (value := getattr(self, name))}
        written |= {"format": _FORMAT, "stream_id": self.stream_id}
        if self.cut is not None:
            written["cut"] = cuts.to_text(self.cut)
        if self.intent is not None:
            written["intent"] = {
                "end": cuts.to_text(self.intent.end),
                "last": [[segment, offset] for segment, offset in sorted(self.intent.last.items())],
                "written": [
                    [
                        str(each.output), each.transaction, cuts.to_text(each.before),
                        each.proof.query, each.proof.segment, each.proof.offset, each.matches,
                    ]
                    for each in self.intent.written
                ],
            }  # fmt: skip
        return json.dumps(written, sort_keys=True).encode()

    @staticmethod
    def decode(data: bytes) -> ContinuousState:
        """Return a stored state; of no bytes that of a new job.  Raises Corrupt."""
        if not data:
            return ContinuousState()
        try:
            found = json.loads(data)
            if found["format"] != _FORMAT:
                raise Corrupt(f"the state of continuous queries has another format than {_FORMAT}: update this server")
            return ContinuousState(
                str(found["stream_id"]),
                _cut(found["cut"]) if "cut" in found else None,
                _intent(found["intent"]) if "intent" in found else None,
                **{name: int(found.get(name, 0)) for name in _NUMBERS},
            )
        except Corrupt:
            raise
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, SaritError) as error:
            raise Corrupt(f"the state of continuous queries is damaged: {type(error).__name__}: {error}") from None


_NUMBERS: Final = tuple(each.name for each in fields(ContinuousState) if each.type == "int")


def _intent(found: Mapping[str, Any]) -> Intent:
    written = tuple(
        Written(StreamName.parse(output), str(transaction), _cut(before), Proof(str(query), segment, offset), matches)
        for output, transaction, before, query, segment, offset, matches in found["written"]
    )
    return Intent(_cut(found["end"]), {int(segment): int(offset) for segment, offset in found["last"]}, written)


def _cut(text: str) -> StreamCut:
    found = cuts.from_text(text)
    if found is None:
        raise Invalid("one of its cuts has no bounds")
    return found


def part_of(intent: Intent, found: EventSlice) -> EventSlice:
    """Return the part of a slice that belongs to a batch."""
    count = sum(intent.has(found.segment, offset) for offset in found.offsets)
    return replace(found, offsets=found.offsets[:count], events=found.events[:count])
