"""Checks that every acknowledged event was read exactly once, in order per key.  Pure; for tens of millions of events.

Order and gaps within one life's events of one key, predecessors before successors, and ranges that tile the key space
are checked by `checkers/stream.py`: a *sequence* is one key of one life, numbered from 1.  Beyond that:

| kind | meaning |
|---|---|
| `lost` | an acknowledged event was not read |
| `phantom` | an event was read that was never passed to a client |
| `life-order` | an event acknowledged to a life was read after one of its key that a later life wrote |

Unacknowledged events of a killed writer may be there or not; those that are there are in order without gaps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from checkers.log import Violation
from checkers.stream import StreamHistory
from tests.scale.records import KEYS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SHOWN: Final = 5


@dataclass(slots=True)
class Life:
    """One life of a writer: the writer, the number of events passed to the client, the number acknowledged."""

    writer: int
    delivered: int
    acked: int


@dataclass(slots=True)
class Written:
    """What was written, and the segments it was written to."""

    lives: dict[int, Life] = field(default_factory=dict)
    predecessors: dict[int, Sequence[int]] = field(default_factory=dict)
    active: list[Sequence[tuple[float, float]]] = field(default_factory=list)

    @property
    def acked(self) -> int:
        """Events acknowledged, over all lives."""
        return sum(life.acked for life in self.lives.values())


def judge(written: Written, reader: int, columns: tuple[Any, Any, Any], *, keep_order: bool = True) -> list[Violation]:
    """All violations in the events of a reader (lives, numbers, segments), in order of delivery.

    `keep_order` False: they come from several readers of a group, put together by segment."""
    lives, numbers, segments = columns
    found = list(_phantoms(reader, written.lives, lives, numbers))
    if found:
        return found
    sequences = lives * KEYS + numbers % KEYS
    history = StreamHistory()
    history.delivered_many(reader, segments, sequences, numbers // KEYS + 1)
    if keep_order:
        for segment, before in written.predecessors.items():
            history.follows(segment, before)
    for ranges in written.active:
        history.active(ranges)
    found += history.check()
    found += _lost(reader, written.lives, sequences)
    found += _life_order(reader, written.lives, sequences)
    return found


def _phantoms(reader: int, known: Mapping[int, Life], lives: Any, numbers: Any) -> Iterator[Violation]:
    for life in np.unique(lives):
        delivered = known[int(life)].delivered if int(life) in known else 0
        wrong = numbers[(lives == life) & ((numbers >= delivered) | (numbers < 0))]
        for number in wrong[:_SHOWN]:
            yield Violation("phantom", f"reader {reader}: life {life} event {number}, but it wrote {delivered}")


def _acked_per_sequence(known: Mapping[int, Life]) -> tuple[Any, Any]:
    """Sequences with acknowledged events, and how many."""
    ids = np.array(sorted(known), np.int64)
    acked = np.array([known[int(life)].acked for life in ids], np.int64)
    key = np.arange(KEYS)
    counts = acked[:, None] // KEYS + (key[None, :] < acked[:, None] % KEYS)
    sequences = ids[:, None] * KEYS + key[None, :]
    return sequences.ravel(), counts.ravel()


def _lost(reader: int, known: Mapping[int, Life], sequences: Any) -> Iterator[Violation]:
    if not known:
        return
    wanted, acked = _acked_per_sequence(known)
    read = np.bincount(sequences, minlength=int(wanted.max()) + 1)[wanted]
    for at in np.flatnonzero(read < acked)[:_SHOWN]:
        yield Violation(
            "lost",
            f"reader {reader}: {acked[at]} events of life {wanted[at] // KEYS} key {wanted[at] % KEYS} were "
            f"acknowledged, {read[at]} were read",
        )


def _life_order(reader: int, known: Mapping[int, Life], sequences: Any) -> Iterator[Violation]:
    """Per key of a writer: the last acknowledged event of each life comes before the first of every later one."""
    order = np.argsort(sequences, kind="stable")
    sequence, first = np.unique(sequences[order], return_index=True)
    begins = dict(zip(sequence.tolist(), order[first].tolist(), strict=True))
    wanted, acked = _acked_per_sequence(known)
    counts = dict(zip(wanted.tolist(), acked.tolist(), strict=True))
    start = dict(zip(sequence.tolist(), first.tolist(), strict=True))
    shown = 0
    of_writer: dict[int, list[int]] = {}
    for life in sorted(known):
        of_writer.setdefault(known[life].writer, []).append(life)
    for lives in of_writer.values():
        for key in range(KEYS):
            latest, whose = -1, -1
            for life in lives:
                one = life * KEYS + key
                if one not in begins:
                    continue
                if begins[one] < latest and shown < _SHOWN:
                    shown += 1
                    yield Violation(
                        "life-order", f"reader {reader}: key {key}: life {life} before the end of life {whose}"
                    )
                if counts[one]:
                    at = int(order[start[one] + counts[one] - 1])
                    latest, whose = max(latest, at), life
