"""The streams of a link as its copier knows them, and which of them are to be worked on, in order.

A track is *waiting* (nothing is to be done), *ready* (in a queue of its class and scope), or *taken* (in a batch).
What happens to a taken one makes it ready again when it is put back.
"""

from __future__ import annotations

import asyncio
import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sarit.core.links import StreamProblem
from sarit.core.texts import cut_text
from sarit.mirror.limits import (
    MAX_LINK_NOTE_CHARACTERS,
    MAX_LINK_PROBLEMS,
    MAX_MIRROR_STREAM_RETRY_SECONDS,
    MIRROR_STREAM_RETRY_SECONDS,
)
from sarit.mirror.order import Turn, timer_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sarit.controller.model.cuts import Cut
    from sarit.core.names import StreamName
    from sarit.mirror.values import MirrorState, Position, StreamFacts


@dataclass(slots=True, eq=False)
class Track:
    """One stream.

    `facts`: as the source sent them at `asked`; None, or `stale`: ask it.  `state`: of the mirror; None: begin (again).
    `behind`, `oldest_ms`: what the mirror has not at `position`, its last known one, and since when.  `held`: the cut
    that the source keeps for it.
    `problem`: why it is not copied, and `tries` how often in a row.  `over`: it is promoted, or deleted at the source,
    with `note` saying which.  `ended`: the mirror is sealed as its source is.  `drained`: it has all of a source that
    is read-only.  `refused`: the target does not take it.  `begun`: there is a mirror.  `due`: the end of its pause.
    `fresh`: it was copied since its recorded cuts were."""

    name: StreamName
    level: int
    facts: StreamFacts | None = None
    asked: float = 0.0
    state: MirrorState | None = None
    position: Position | None = None
    behind: int = 0
    oldest_ms: int = 0
    held: Cut | None = None
    problem: str = ""
    tries: int = 0
    stale: bool = False
    over: bool = False
    promoted: bool = False
    note: str = ""
    ended: bool = False
    drained: bool = False
    refused: bool = False
    begun: bool = False
    fresh: bool = False
    due: float | None = None
    taken: bool = False
    again: bool = False
    ready: bool = False

    @property
    def turn(self) -> Turn:
        """Its place among those that wait."""
        return Turn(-self.level, self.oldest_ms)


class Tracks:
    """All streams of a link."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._tracks: dict[StreamName, Track] = {}
        self._scopes: dict[str, list[Track]] = {}
        self.promoted = 0  # of how many the mirror was promoted
        self._queues: dict[tuple[int, str], list[tuple[int, int, Track]]] = {}  # by the class, negated, and the scope
        self._later: list[tuple[float, int, Track]] = []
        self._count = 0
        self.changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Tracks, {len(self._tracks)} streams>"

    def __len__(self) -> int:
        return len(self._tracks)

    def __iter__(self) -> Iterator[Track]:
        return iter(list(self._tracks.values()))

    def get(self, name: StreamName) -> Track | None:
        """Return the track of a stream, if the link copies it."""
        return self._tracks.get(name)

    def of_scope(self, scope: str) -> list[Track]:
        """Return the tracks of a scope."""
        return list(self._scopes.get(scope, ()))

    def add(self, name: StreamName, level: int) -> Track:
        """Return the track of a stream, which is ready if it is new."""
        if (found := self._tracks.get(name)) is None:
            found = self._tracks[name] = Track(name, level)
            self._scopes.setdefault(name.scope, []).append(found)
            self.mark(found, 0)
        return found

    def mark(self, track: Track, now_ms: int) -> None:
        """Have a track worked on: its stream may have changed.  `now_ms`: at the source."""
        if track.taken:
            track.again = True
        elif not track.ready and not track.problem and not track.over:
            self._put(track, now_ms)

    def retry(self, track: Track, problem: str) -> None:
        """Record why a stream cannot be copied, and have it worked on after a pause."""
        track.problem = cut_text(problem, MAX_LINK_NOTE_CHARACTERS)
        pause = min(MIRROR_STREAM_RETRY_SECONDS * 2 ** min(track.tries, 16), MAX_MIRROR_STREAM_RETRY_SECONDS)
        track.tries += 1
        self.after(track, pause)

    def after(self, track: Track, seconds: float) -> None:
        """Have a track worked on after a pause, in place of any other pause."""
        self._count += 1
        track.due = self._monotonic() + seconds
        heapq.heappush(self._later, (track.due, self._count, track))
        self.changed.set()

    def revive(self, track: Track) -> None:
        """Have a track worked on whose stream was deleted, and exists again."""
        track.over, track.note, track.facts, track.state = False, "", None, None
        self.mark(track, 0)

    def take(self, most: int, is_free: Callable[[int], bool]) -> list[Track]:
        """Take the tracks of one batch: of one scope, and of the highest class that `is_free`; none if there are
        none."""
        best: tuple[int, int, str] | None = None
        for (level, scope), queue in self._queues.items():
            if is_free(-level) and (best is None or (level, queue[0][0]) < best[:2]):
                best = level, queue[0][0], scope
        if best is None:
            return []
        queue = self._queues[best[0], best[2]]
        found = [heapq.heappop(queue)[2] for _ in range(min(most, len(queue)))]
        if not queue:
            del self._queues[best[0], best[2]]
        for one in found:
            one.ready, one.taken, one.again = False, True, False
        return found

    def put_back(self, track: Track, now_ms: int, *, again: bool = False) -> None:
        """Return a track that was taken.  `again`: there is more to do."""
        track.taken = False
        if track.over:
            return
        if (again or track.again) and not track.problem:
            self._put(track, now_ms)

    def forgive(self, track: Track) -> None:
        """Record that a stream is copied."""
        track.problem, track.tries = "", 0

    def wake(self, now_ms: int) -> float | None:
        """Make those ready whose pause is over.  Returns the seconds to the next one."""
        now = self._monotonic()
        while self._later and not timer_seconds(self._later[0][0] - now):
            due, _, track = heapq.heappop(self._later)
            if due != track.due:
                continue
            track.due = None
            track.again |= track.taken
            if not track.over and not track.ready and not track.taken:
                self._put(track, now_ms)
        return timer_seconds(self._later[0][0] - now) if self._later else None

    def problems(self) -> tuple[int, tuple[StreamProblem, ...]]:
        """Return how many streams are not copied, and why some of them are not; and what else is to be known."""
        failing = [one for one in self._tracks.values() if one.problem]
        noted = [one for one in self._tracks.values() if one.note and not one.problem]
        shown = [
            StreamProblem(str(one.name), one.problem or one.note) for one in [*failing, *noted][:MAX_LINK_PROBLEMS]
        ]
        return len(failing), tuple(shown)

    def _put(self, track: Track, now_ms: int) -> None:
        if not track.oldest_ms:
            track.oldest_ms = now_ms
        track.ready, track.again = True, False
        self._count += 1
        queue = self._queues.setdefault((-track.level, track.name.scope), [])
        heapq.heappush(queue, (track.oldest_ms, self._count, track))
        self.changed.set()
