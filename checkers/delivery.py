"""What a reader group owes its users who store their position with every event.  Pure.

A *sequence* is one writer's events of one routing key, numbered from 1.  Events are recorded in the order in which they
were delivered, whichever reader got them.  A lost reader is replaced at the position it had stored.

| kind | meaning |
|---|---|
| `delivered-twice` | an event was handed out twice, to whomever |
| `delivered-order` | a lane's events were handed out of order |
| `not-delivered` | in the end an acknowledged event was handed to nobody |
| `torn-checkpoint` | a checkpoint's cut has an event on one side, its reader had it on the other |
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
    """An event that `reader` was given.  Readers that come back bear another name."""

    reader: str
    segment: int
    offset: int
    sequence: int
    number: int


@dataclass(slots=True)
class DeliveryHistory:
    """Filled by a workload.  `acked`: lane -> the last number that is durable.  `drained`: everything must be read."""

    delivered: list[Delivered] = field(default_factory=list)
    acked: dict[int, int] = field(default_factory=dict)
    passed: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    cuts: dict[str, Cut] = field(default_factory=dict)
    graph: Graph = field(default_factory=Graph)
    drained: bool = False

    def met(self, reader: str, checkpoint: str) -> None:
        """A reader was handed a checkpoint: what it has had lies before, what comes lies behind."""
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
                "not-delivered", f"{len(missing)} events, the first of lane {missing[0][0]}: {missing[0][1]}"
            )


def _checkpoints(history: DeliveryHistory) -> Iterator[Violation]:
    for name, cut in sorted(history.cuts.items()):
        # Who was handed it more than once had passed it once without being believed: which time counts is not known.
        times = {reader: met[0] for reader, met in history.passed.get(name, {}).items() if len(met) == 1}
        shown = 0
        for at, one in enumerate(history.delivered):
            if one.reader not in times or shown == _SHOWN:
                continue
            before = at < times[one.reader]
            if history.graph.is_before((one.segment, one.offset), cut) != before:
                shown += 1
                where = "before" if before else "behind"
                yield Violation("torn-checkpoint", f"{name} at {cut}: its reader had {one} {where} it")
