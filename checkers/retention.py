"""Guarantees of a retention policy.  Pure.

| kind | meaning |
|---|---|
| `retention-early` | something was truncated that the policy retains: it is too young, or too near the tail |
| `retention-subscriber` | something was truncated that a subscriber had not released, without a forced maximum |
| `retention-late` | more is retained than the policy allows, long after the faults ended |
| `retention-held` | long after it was released, something is retained that the policy and all subscribers let go |
| `head-fell` | the head of the stream went back |

The head is observed now and then: each answer was right at some moment between `begun` and `ended`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from checkers.graph import Cut, Graph
from checkers.log import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Head:
    """An observed head.  `most_bytes`: bytes from there to a tail read later; -1 when unknown."""

    begun: float
    ended: float
    cut: Cut
    most_bytes: int = -1


@dataclass(frozen=True, slots=True)
class Policy:
    """The minimum to retain, in `seconds` or in `bytes`; 0: not limited by this.

    `forced`: there is a maximum that ignores subscribers."""

    seconds: float = 0.0
    bytes: int = 0
    forced: bool = False


@dataclass(slots=True)
class RetentionHistory:
    """Filled by a workload."""

    policy: Policy = Policy()
    graph: Graph = field(default_factory=Graph)
    heads: list[Head] = field(default_factory=list)
    events: dict[tuple[int, int], float] = field(default_factory=dict)
    releases: dict[str, list[tuple[float, Cut]]] = field(default_factory=dict)
    retained_at_end: tuple[int, int] = (0, 0)
    # A cut that all subscribers have released, after which the policy's minimum is left; and the head long after.
    released_at_end: tuple[Cut, Cut] | None = None

    def event(self, segment: int, offset: int, sent: float) -> None:
        """An event is at this place; it was written at `sent` or later."""
        self.events[segment, offset] = sent

    def released(self, subscriber: str, cut: Cut, begun: float) -> None:
        """A subscriber released, from `begun` on, everything before `cut`."""
        self.releases.setdefault(subscriber, []).append((begun, cut))


def check(history: RetentionHistory) -> list[Violation]:
    """Everything that is wrong; empty when nothing is."""
    out = [*_early(history), *_subscribers(history), *_fell(history)]
    retained, most = history.retained_at_end
    if retained > most:
        out.append(Violation("retention-late", f"{retained} bytes are retained, at most {most} are expected"))
    if history.released_at_end is not None:
        released, head = history.released_at_end
        if head != released:
            out.append(Violation("retention-held", f"the stream begins at {head}; all had released {released}"))
    return out


def _early(history: RetentionHistory) -> Iterator[Violation]:
    shown = 0
    first = history.heads[0].cut if history.heads else {}
    for head in history.heads:
        if head.cut == first or shown == _SHOWN:
            continue
        if 0 <= head.most_bytes < history.policy.bytes:
            shown += 1
            yield Violation(
                "retention-early",
                f"at {head.ended:.3f} s {head.most_bytes} bytes were left of {history.policy.bytes}: {head.cut}",
            )
        if not history.policy.seconds:
            continue
        for place, sent in history.events.items():
            if head.ended < sent + history.policy.seconds and history.graph.is_before(place, head.cut):
                shown += 1
                yield Violation(
                    "retention-early",
                    f"at {head.ended:.3f} s the stream began at {head.cut}, after {place} of {sent:.3f} s",
                )
                break


def _subscribers(history: RetentionHistory) -> Iterator[Violation]:
    if history.policy.forced:
        return
    for subscriber, releases in sorted(history.releases.items()):
        shown = 0
        for head in history.heads:
            known = [cut for begun, cut in releases if begun <= head.ended]
            if known and history.graph.goes_back(head.cut, known[-1]):
                shown += 1
                if shown <= _SHOWN:
                    yield Violation(
                        "retention-subscriber",
                        f"at {head.ended:.3f} s the stream began at {head.cut}; {subscriber} had released {known[-1]}",
                    )


def _fell(history: RetentionHistory) -> Iterator[Violation]:
    ordered = sorted(history.heads, key=lambda head: head.begun)
    for one, other in itertools.pairwise(ordered):
        if other.begun >= one.ended and history.graph.goes_back(one.cut, other.cut):
            yield Violation("head-fell", f"the stream began at {one.cut}, and later at {other.cut}")
            return
