"""Delivery guarantees of a reader group whose users store their position with every event.  Pure.

A *sequence* is one writer's events of one routing key, numbered from 1.  Events are recorded in the order in which they
were delivered, whichever reader got them.  A lost reader is replaced at the position it had stored.

| kind | meaning |
|---|---|
| `delivered-twice` | an event was delivered twice, to any reader |
| `delivered-out-of-order` | events of a sequence were delivered out of order |
| `not-delivered` | at the end, an acknowledged event was delivered to no reader |
| `torn-checkpoint` | an event is before a checkpoint's cut but its reader got it after the checkpoint, or vice versa |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from checkers.graph import Cut, Graph
from checkers.log import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Delivered:
    """An event that `reader` got.  A reader that restarts has a new name."""

    reader: str
    segment: int
    offset: int
    sequence: int
    number: int


@dataclass(slots=True)
class DeliveryHistory:
    """Filled by a workload.  `acked`: sequence -> its last durable number.  `drained`: everything must be read."""

    delivered: list[Delivered] = field(default_factory=list)
    acked: dict[int, int] = field(default_factory=dict)
    passed: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    cuts: dict[str, Cut] = field(default_factory=dict)
    graph: Graph = field(default_factory=Graph)
    drained: bool = False

    def met(self, reader: str, checkpoint: str) -> None:
        """A reader reached a checkpoint: what it got so far lies before the cut, what it gets later lies after it."""
        self.passed.setdefault(checkpoint, {}).setdefault(reader, []).append(len(self.delivered))


def check(history: DeliveryHistory) -> list[Violation]:
    """Everything that is wrong; empty when nothing is."""
    return [*_sequences(history), *_checkpoints(history)]


def _sequences(history: DeliveryHistory) -> Iterator[Violation]:
    last: dict[int, int] = {}
    seen: set[tuple[int, int]] = set()
    shown = 0
    for one in history.delivered:
        twice = (one.sequence, one.number) in seen
        if (twice or one.number != last.get(one.sequence, 0) + 1) and shown < _SHOWN:
            shown += 1
            kind = "delivered-twice" if twice else "delivered-out-of-order"
            yield Violation(kind, f"{one} after {last.get(one.sequence, 0)}")
        seen.add((one.sequence, one.number))
        last[one.sequence] = one.number
    if history.drained:
        missing = [
            (sequence, n)
            for sequence, to in history.acked.items()
            for n in range(1, to + 1)
            if (sequence, n) not in seen
        ]
        if missing:
            yield Violation(
                "not-delivered", f"{len(missing)} events, the first of sequence {missing[0][0]}: {missing[0][1]}"
            )


def _checkpoints(history: DeliveryHistory) -> Iterator[Violation]:
    for name, cut in sorted(history.cuts.items()):
        # A reader that reached a checkpoint twice had its first report lost: which of the two counts is unknown.
        times = {reader: met[0] for reader, met in history.passed.get(name, {}).items() if len(met) == 1}
        shown = 0
        for at, one in enumerate(history.delivered):
            if one.reader not in times or shown == _SHOWN:
                continue
            before = at < times[one.reader]
            if history.graph.is_before((one.segment, one.offset), cut) != before:
                shown += 1
                where = "before" if before else "after"
                yield Violation("torn-checkpoint", f"{name} at {cut}: its reader had {one} {where} it")
