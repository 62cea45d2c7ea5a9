"""What a reader group owes its users who store their position with every event.  Pure.

Events are numbered by lane (one writer's events of one key) from 1.  They are entered in the order in which they were
handed out, whoever they were handed to; a reader that is lost was replaced at the very position it had stored.

| kind | meaning |
|---|---|
| `handed-twice` | an event was handed out twice, to whomever |
| `handed-order` | a lane's events were handed out of order |
| `not-handed` | in the end an acknowledged event was handed to nobody |
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
class Handed:
    """An event that `reader` was given.  Readers that come back bear another name."""

    reader: str
    segment: int
    offset: int
    lane: int
    number: int


@dataclass(slots=True)
class DeliveryHistory:
    """Filled by a workload.  `acked`: lane -> the last number that is durable.  `drained`: everything must be read."""

    handed: list[Handed] = field(default_factory=list)
    acked: dict[int, int] = field(default_factory=dict)
    passed: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    cuts: dict[str, Cut] = field(default_factory=dict)
    graph: Graph = field(default_factory=Graph)
    drained: bool = False

    def met(self, reader: str, checkpoint: str) -> None:
        """A reader was handed a checkpoint: what it has had lies before, what comes lies behind."""
        self.passed.setdefault(checkpoint, {}).setdefault(reader, []).append(len(self.handed))


def check(history: DeliveryHistory) -> list[Violation]:
    """Everything that is wrong; empty when nothing is."""
    return [*_lanes(history), *_checkpoints(history)]


def _lanes(history: DeliveryHistory) -> Iterator[Violation]:
    last: dict[int, int] = {}
    seen: set[tuple[int, int]] = set()
    shown = 0
    for one in history.handed:
        twice = (one.lane, one.number) in seen
        if (twice or one.number != last.get(one.lane, 0) + 1) and shown < _SHOWN:
            shown += 1
            kind = "handed-twice" if twice else "handed-order"
            yield Violation(kind, f"{one} after {last.get(one.lane, 0)}")
        seen.add((one.lane, one.number))
        last[one.lane] = one.number
    if history.drained:
        missing = [(lane, n) for lane, to in history.acked.items() for n in range(1, to + 1) if (lane, n) not in seen]
        if missing:
            yield Violation("not-handed", f"{len(missing)} events, the first of lane {missing[0][0]}: {missing[0][1]}")


def _checkpoints(history: DeliveryHistory) -> Iterator[Violation]:
    for name, cut in sorted(history.cuts.items()):
        # Who was handed it more than once had passed it once without being believed: which time counts is not known.
        times = {reader: met[0] for reader, met in history.passed.get(name, {}).items() if len(met) == 1}
        shown = 0
        for at, one in enumerate(history.handed):
            if one.reader not in times or shown == _SHOWN:
                continue
            before = at < times[one.reader]
            if history.graph.is_before((one.segment, one.offset), cut) != before:
                shown += 1
                where = "before" if before else "behind"
                yield Violation("torn-checkpoint", f"{name} at {cut}: its reader had {one} {where} it")
