"""The two sides of a link in memory, for tests: a source that scales, commits, truncates and forgets, a target, and
calls that get lost on their way.

The source notes every clean moment, and everything that it ever had (`SourceHistory`); the target notes its state
after every step (`Seen`).  `checkers/mirror.py` judges the two.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from checkers.mirror import Seen, SourceHistory
from sarit.controller.model.epochs import creation_epoch, first_epoch, next_epoch
from sarit.core.errors import Conflict, Forbidden, NotFound, Truncated, Unavailable
from sarit.core.keyspace import KeyRange
from sarit.core.names import StreamName
from sarit.core.policies import StreamConfig
from sarit.mirror.limits import MIRROR_PROTOCOL
from sarit.mirror.values import (
    FROM_TAIL,
    Lineage,
    MirrorState,
    MirrorStatus,
    Offer,
    Position,
    Site,
    StreamFacts,
    Written,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.controller.model.cuts import Cut
    from sarit.controller.model.epochs import Epoch
    from sarit.mirror.values import LinkIdentity, Range, Round, Write


class SourceStream:
    """A stream of the source."""

    def __init__(
        self, name: StreamName, segments: int, creation_id: bytes, created_ms: int = 1, first_number: int = 0
    ) -> None:  # fmt: skip
        self.name = name
        self.first_number = first_number
        self.creation_id = creation_id
        self.created_ms = created_ms
        self.epochs: list[Epoch] = [first_epoch(segments, first_number, created_ms)]
        self.data: dict[int, bytearray] = {s: bytearray() for s in self.epochs[0].ids}
        self.starts: dict[int, int] = {}
        self.gone: set[int] = set()
        self.sealed: set[int] = set()
        self.head: Cut = {s.segment: 0 for s in self.epochs[0].segments}
        self.version = 1
        self.config = StreamConfig()
        self.properties: dict[str, str] = {}
        self.is_sealed = self.is_fenced = False
        self.lineages: tuple[Lineage, ...] = ()
        self.moments: list[tuple[int, Cut]] = []
        self.merging: list[tuple[int, bytes]] = []
        self.note_moment()

    @property
    def active(self) -> list[int]:
        """The segments that take appends."""
        return [s.segment for s in self.epochs[-1].segments]

    def note_moment(self) -> None:
        """Note that no commit is under way now."""
        if not self.merging:
            self.moments.append((self.epochs[-1].number, {s: len(data) for s, data in self.data.items()}))

    def append(self, which: int, event: bytes) -> None:
        """Append an event to one of the active segments."""
        if not self.is_sealed and not self.is_fenced:
            self.data[self.active[which % len(self.active)]] += event
            self.note_moment()

    def begin_commit(self, parts: dict[int, bytes]) -> None:
        """Begin to merge a transaction: each call of `commit_next` merges one of its segments."""
        if not self.merging and not self.is_sealed and not self.is_fenced:
            self.merging = [(self.active[which % len(self.active)], data) for which, data in parts.items()]

    def commit_next(self) -> None:
        """Merge the next segment of a transaction."""
        if self.merging:
            segment, data = self.merging.pop(0)
            self.data[segment] += data
            self.note_moment()

    def commit_all(self) -> None:
        """Merge the rest of a transaction."""
        while self.merging:
            self.commit_next()

    def scale(self, which: int) -> None:
        """Split a segment in two, or merge it with its neighbour."""
        if self.is_sealed or self.is_fenced:
            return
        self.commit_all()
        current = self.epochs[-1]
        one = current.segments[which % len(current.segments)]
        if len(current.segments) > 2:
            at = min(which % len(current.segments), len(current.segments) - 2)
            pair = current.segments[at : at + 2]
            ranges, replaced = [KeyRange(pair[0].low, pair[1].high)], [s.segment for s in pair]
        else:
            middle = (one.low + one.high) / 2
            ranges, replaced = [KeyRange(one.low, middle), KeyRange(middle, one.high)], [one.segment]
        self.epochs.append(next_epoch(current, replaced, ranges, current.created_ms + 1))
        self.sealed.update(replaced)
        self.data |= {s: bytearray() for s in self.epochs[-1].ids - self.data.keys()}
        self.version += 1
        self.note_moment()

    def truncate(self, moment: int) -> None:
        """Truncate at one of the clean moments."""
        number, lengths = self.moments[moment % len(self.moments)]
        epoch = self.epochs[number]
        if any(s in self.gone or lengths[s] < self.starts.get(s, 0) for s in epoch.ids):
            return
        self.head = {s: lengths[s] for s in sorted(epoch.ids)}
        self.starts |= {s: at for s, at in self.head.items() if at}
        self.gone |= {s for s in self.data if s not in self.head and creation_epoch(s) <= number}
        self.version += 1

    def seal(self) -> None:
        """Seal the stream."""
        self.commit_all()
        self.is_sealed = True
        self.sealed.update(self.active)
        self.version += 1

    def facts(self, installation: str, start_ms: int) -> StreamFacts:
        """Return what the source tells of it."""
        head = dict(self.head)
        if start_ms == FROM_TAIL:
            number, lengths = self.moments[-1]
            head = {s: lengths[s] for s in sorted(self.epochs[number].ids)}
        first = self.epochs[min(creation_epoch(s) for s in head)]
        return StreamFacts(
            self.name, self.creation_id, self.first_number, self.created_ms, self.version, self.config,
            dict(self.properties), self.is_sealed, self.is_fenced, head, first, (installation,), self.lineages,
        )  # fmt: skip

    def offer(self, position: Position, limit: int, most_epochs: int) -> Offer:
        """Return what is behind a position, up to the first moment with `limit` bytes."""
        if not 0 <= position.epoch < len(self.epochs) or position.lengths.keys() - self.epochs[position.epoch].ids:
            raise Conflict(f"{position} is no position of {self.name}")
        later = [m for m in self.moments if m[0] >= position.epoch and self._is_behind(position, m[1])]
        if not later or position.lengths.keys() & self.gone:
            raise Conflict(f"{position} is no position of {self.name}")
        near = [m for m in later if m[0] <= position.epoch + most_epochs]
        chosen = next((m for m in near if self._distance(position, m) >= limit), near[-1])
        epochs = tuple(self.epochs[position.epoch + 1 : chosen[0] + 1])
        wanted = set(position.lengths).union(*(e.ids for e in epochs)) - self.gone
        sealed = frozenset(s for s in wanted & self.sealed if chosen[1][s] == len(self.data[s]))
        starts = {s: self.starts[s] for s in wanted if self.starts.get(s)}
        behind = sum(len(self.data[s]) for s in self.data) - sum(chosen[1].values())
        mine = self._distance(position, chosen)
        return Offer(
            self.name, {s: chosen[1][s] for s in sorted(wanted)}, sealed, starts, epochs, chosen != later[-1],
            self.version, mine + behind, 1 if mine + behind else 0,
        )  # fmt: skip

    def _is_behind(self, position: Position, lengths: Cut) -> bool:
        return all(lengths[s] >= at for s, at in position.lengths.items())

    def _distance(self, position: Position, moment: tuple[int, Cut]) -> int:
        return sum(
            at - position.lengths.get(s, 0)
            for s, at in moment[1].items()
            if s in position.lengths or creation_epoch(s) > position.epoch
        )

    def history(self) -> SourceHistory:
        """Return everything for the checker."""
        epochs = {e.number: tuple((s.low, s.high, s.segment) for s in e.segments) for e in self.epochs}
        data = {s: bytes(data) for s, data in self.data.items()}
        return SourceHistory(epochs, data, {s: len(data[s]) for s in self.sealed}, self.moments)


class MemorySource:
    """An installation whose streams are copied."""

    def __init__(self, installation: str = "edge", *, read_bytes: int = 1 << 20, most_epochs: int = 2) -> None:
        """`read_bytes`: the longest reply.  `most_epochs`: that one offer adds."""
        self.installation = installation
        self.streams_by_name: dict[StreamName, SourceStream] = {}
        self.held: dict[StreamName, Cut] = {}
        self.holders: set[tuple[bytes, StreamName]] = set()
        self.fenced: dict[StreamName, bytes] = {}
        self.wall_ms = 1_000
        self.protocol = MIRROR_PROTOCOL
        self._read_bytes = read_bytes
        self._most_epochs = most_epochs
        self._seen: dict[StreamName, tuple[object, ...]] = {}
        self._asked: set[tuple[bytes, str]] = set()
        self._created = 0

    def create(self, name: str, segments: int = 1, created_ms: int = 1) -> SourceStream:
        """Create a stream SCOPE/STREAM, also in place of one of that name: no segment's number is used again."""
        self._created += 1
        key = StreamName(*name.split("/"))
        before = self.streams_by_name.get(key)
        number = 0 if before is None else max(s & 0xFFFFFFFF for s in before.data) + 1
        made = SourceStream(key, segments, self._created.to_bytes(16, "big"), created_ms, number)
        self.streams_by_name[key] = made
        return made

    async def site(self) -> Site:
        return Site(self.installation, self.protocol, self.wall_ms)

    async def scopes(self, after: str) -> list[str]:
        return sorted({name.scope for name in self.streams_by_name if name.scope > after})[:2]

    async def streams(self, scope: str, after: str) -> list[StreamFacts]:
        names = sorted(n for n in self.streams_by_name if n.scope == scope and n.stream > after)
        return [self.streams_by_name[name].facts(self.installation, 0) for name in names[:3]]

    async def facts(self, scope: str, names: Sequence[StreamName], start_ms: int) -> list[StreamFacts | None]:
        found = [self.streams_by_name.get(name) for name in names]
        return [None if one is None else one.facts(self.installation, start_ms) for one in found]

    async def offers(self, scope: str, positions: Sequence[Position], limit: int) -> list[Offer | None]:
        found = [(p, self.streams_by_name.get(p.name)) for p in positions]
        return [None if one is None else self._offer(p, one, limit) for p, one in found]

    def _offer(self, position: Position, stream: SourceStream, limit: int) -> Offer:
        try:
            return stream.offer(position, limit, self._most_epochs)
        except Conflict:
            return Offer(position.name, {}, frozenset(), {}, (), False, stream.version, 0, 0)

    async def read(self, scope: str, ranges: Sequence[Range]) -> list[bytes]:
        found: list[bytes] = []
        left = self._read_bytes
        for one in ranges:
            stream = self.streams_by_name.get(one.name)
            if stream is None or one.segment not in stream.data or one.segment in stream.gone:
                raise NotFound(f"{one.name} has no segment {one.segment}")
            if one.offset < (start := stream.starts.get(one.segment, 0)):
                raise Truncated(f"{one.name} begins at {start}", start)
            if left <= 0:
                break
            found.append(bytes(stream.data[one.segment][one.offset : one.offset + min(one.length, left)]))
            left -= len(found[-1])
        return found

    async def grown(self, link: LinkIdentity, scope: str, wait_seconds: float) -> list[StreamName] | None:
        if (key := (link.link_id, scope)) not in self._asked:
            self._asked.add(key)
            return None
        for _ in range(20):
            if changed := [n for n, s in self.streams_by_name.items() if self._print(s) != self._seen.get(n)]:
                self._seen |= {n: self._print(self.streams_by_name[n]) for n in changed}
                return [n for n in changed if n.scope == scope]
            await asyncio.sleep(wait_seconds / 20)
        return []

    def _print(self, one: SourceStream) -> tuple[object, ...]:
        return one.creation_id, one.version, len(one.moments)

    async def hold(self, link: LinkIdentity, scope: str, cuts: Sequence[tuple[StreamName, Cut]]) -> None:
        self.held |= {name: dict(cut) for name, cut in cuts}
        of = link.link_id
        self.holders |= {(of, name) for name, cut in cuts if cut}
        gone = {name for name, cut in cuts if not cut} if cuts else {n for _, n in self.holders if n.scope == scope}
        self.holders -= {(of, name) for name in gone}

    async def fence(self, link: LinkIdentity, scope: str, names: Sequence[StreamName], lineage: bytes) -> None:
        for name in names:
            stream = self.streams_by_name[name]
            if not stream.is_fenced:
                stream.commit_all()
                stream.is_fenced = True
                stream.sealed.update(stream.active)
                stream.version += 1
                self.fenced[name] = lineage


@dataclass(slots=True)
class TargetStream:
    """A mirror, or a stream of a user."""

    facts: StreamFacts
    link_id: bytes
    epochs: list[Epoch]
    head: Cut
    data: dict[int, bytearray]
    sealed: set[int] = field(default_factory=set)
    staged: dict[int, bytearray] = field(default_factory=dict)
    decided: Round | None = None
    ended: bool = False
    lineage: Lineage | None = None
    seen: list[Seen] = field(default_factory=list)

    @property
    def position(self) -> Position:
        last = self.epochs[-1]
        lengths = {s: self.end(s) for s in sorted(last.ids & self.data.keys())}
        return Position(self.facts.name, last.number, lengths)

    def end(self, segment: int) -> int:
        """Return where a segment ends."""
        return self.head.get(segment, 0) + len(self.data.get(segment, b""))

    def note(self) -> None:
        """Note how the mirror looks now."""
        epochs = {e.number: tuple((s.low, s.high, s.segment) for s in e.segments) for e in self.epochs}
        starts = {s: self.head.get(s, 0) for s in self.data}
        data = {s: bytes(one) for s, one in self.data.items()}
        self.seen.append(Seen(epochs, starts, data, frozenset(self.sealed), self.decided is None))

    def state(self) -> MirrorState:
        """Return the state as the target tells it."""
        name = self.facts.name
        if self.lineage is not None:
            return MirrorState(name, MirrorStatus.PROMOTED, reason="it was promoted", lineage=self.lineage)
        # Of segments to come the target does not tell: what is staged of them is found when it is staged again.
        staged = {s: len(one) for s, one in self.staged.items() if one and s in self.position.lengths}
        return MirrorState(
            name, MirrorStatus.READY, self.position, staged, version=self.facts.version, head=dict(self.head)
        )


class MemoryTarget:
    """An installation that has mirrors.  `step`: called before each step of a round that was decided; it may raise."""

    def __init__(self, installation: str = "core", step: Callable[[], None] = lambda: None) -> None:
        self.installation = installation
        self.mirrors: dict[StreamName, TargetStream] = {}
        self.lost: dict[StreamName, int] = {}
        self.busy: set[StreamName] = set()
        self.wall_ms = 1_000
        self.protocol = MIRROR_PROTOCOL
        self.step = step

    async def site(self) -> Site:
        return Site(self.installation, self.protocol, self.wall_ms)

    async def begin(
        self, link: LinkIdentity, scope: str, streams: Sequence[StreamFacts], *, discard_divergent: bool = False
    ) -> list[MirrorState]:
        return [self._begin(link, facts) for facts in streams]

    def _begin(self, link: LinkIdentity, facts: StreamFacts) -> MirrorState:
        if self.installation in facts.path:
            return MirrorState(facts.name, MirrorStatus.REFUSED, reason="a link to itself, or a loop of links")
        if (mirror := self.mirrors.get(facts.name)) is None:
            data = {s: bytearray() for s in facts.first.ids & facts.head.keys()}
            mirror = TargetStream(facts, link.link_id, [facts.first], dict(facts.head), data)
            self.mirrors[facts.name] = mirror
            mirror.note()
        elif (state := self._other(link, mirror)) is not None:
            return state
        if mirror.facts.creation_id != facts.creation_id:
            return MirrorState(facts.name, MirrorStatus.REFUSED, reason="the source was created again")
        self._carry_out(mirror)
        if facts.version > mirror.facts.version:
            mirror.facts = facts
        return mirror.state()

    def _other(self, link: LinkIdentity, mirror: TargetStream) -> MirrorState | None:
        name = mirror.facts.name
        if mirror.link_id != link.link_id:
            return MirrorState(name, MirrorStatus.REFUSED, reason="another link has it")
        if name in self.busy:
            return MirrorState(name, MirrorStatus.BUSY)
        return mirror.state() if mirror.lineage is not None else None

    async def states(self, link: LinkIdentity, scope: str, names: Sequence[StreamName]) -> list[MirrorState]:
        return [self._state(link, name) for name in names]

    def _state(self, link: LinkIdentity, name: StreamName) -> MirrorState:
        if (mirror := self.mirrors.get(name)) is None:
            return MirrorState(name, MirrorStatus.READY)
        return self._other(link, mirror) or mirror.state()

    async def write(self, link: LinkIdentity, scope: str, writes: Sequence[Write]) -> list[Written]:
        return [self._write(link, one) for one in writes]

    def _write(self, link: LinkIdentity, one: Write) -> Written:
        mirror = self.mirrors.get(one.name)
        if mirror is None or self._other(link, mirror) is not None:
            return Written(-1, refused=True, reason="it is no mirror of this link")
        end = mirror.end(one.segment)
        if one.staged:
            staged = mirror.staged.setdefault(one.segment, bytearray())
            at = end + len(staged)
            if not end <= one.offset <= at:
                return Written(at, refused=True)
            staged += one.data[at - one.offset :]  # what is there already is the same
            return Written(one.offset + len(one.data))
        if end != one.offset or one.segment not in mirror.data or one.segment in mirror.sealed:
            return Written(end, refused=True)
        mirror.data[one.segment] += one.data
        mirror.staged.pop(one.segment, None)  # its name is of the offset at which the mirror ended
        mirror.note()
        return Written(one.offset + len(one.data))

    async def finish(self, link: LinkIdentity, scope: str, rounds: Sequence[Round]) -> list[MirrorState]:
        return [self._finish(link, one) for one in rounds]

    def _finish(self, link: LinkIdentity, one: Round) -> MirrorState:
        mirror = self.mirrors[one.name]
        if (state := self._other(link, mirror)) is not None:
            return state
        self._carry_out(mirror)
        begins = one.before == mirror.position.lengths and all(e.number > mirror.epochs[-1].number for e in one.epochs)
        missing = [s for s, at in one.after.items() if mirror.end(s) + len(mirror.staged.get(s, b"")) != at]
        if begins and not missing:
            mirror.decided = one
            self._carry_out(mirror)
        return mirror.state()

    def _carry_out(self, mirror: TargetStream) -> None:
        if (decided := mirror.decided) is None:
            return
        self._seal(mirror, decided.sealed - mirror.epochs[-1].ids)  # before there are bytes in their successors
        self._reach(mirror, decided)
        for epoch in decided.epochs:
            if epoch.number <= mirror.epochs[-1].number:
                continue
            self.step()
            replaced = mirror.epochs[-1].ids - epoch.ids
            mirror.data |= {s: bytearray() for s in epoch.ids & decided.after.keys() - mirror.data.keys()}
            mirror.epochs.append(epoch)
            mirror.note()
            self._seal(mirror, replaced & decided.sealed)
            self._reach(mirror, decided)
        self._seal(mirror, decided.sealed)
        if decided.head:
            self._truncate(mirror, decided.head)
        mirror.ended |= decided.ends
        self.step()
        mirror.decided = None
        mirror.staged.clear()
        mirror.note()

    def _reach(self, mirror: TargetStream, decided: Round) -> None:
        for segment in sorted(mirror.epochs[-1].ids & mirror.data.keys()):
            if missing := decided.after[segment] - mirror.end(segment):
                self.step()
                staged = mirror.staged[segment]
                mirror.data[segment] += staged[len(staged) - missing :]
                mirror.note()

    def _seal(self, mirror: TargetStream, segments: frozenset[int]) -> None:
        if segments & mirror.data.keys() - mirror.sealed:
            self.step()
            mirror.sealed |= segments & mirror.data.keys()
            mirror.note()

    def _truncate(self, mirror: TargetStream, head: Cut) -> None:
        for segment in list(mirror.data):
            if segment in head:
                cut = head[segment] - mirror.head.get(segment, 0)
                del mirror.data[segment][: max(0, cut)]
            elif creation_epoch(segment) <= max(map(creation_epoch, head)) and segment not in mirror.epochs[-1].ids:
                del mirror.data[segment]
        mirror.head = {s: at for s, at in mirror.head.items() if s in mirror.data} | dict(head)

    async def drop(self, link: LinkIdentity, scope: str, segments: Sequence[tuple[StreamName, int]]) -> None:
        for name, segment in segments:
            if (mirror := self.mirrors.get(name)) is not None and mirror.decided is None:
                mirror.staged.pop(segment, None)

    async def restart(self, link: LinkIdentity, scope: str, facts: StreamFacts) -> MirrorState:
        mirror = self.mirrors.get(facts.name)
        if mirror is not None:
            if (state := self._other(link, mirror)) is not None:
                return state
            if mirror.facts.head == facts.head and mirror.head == facts.head:
                return mirror.state()
            self.mirrors[StreamName(facts.name.scope, f"{facts.name.stream}.before-1")] = mirror
            self.lost[facts.name] = self.lost.get(facts.name, 0) + 1
            del self.mirrors[facts.name]
        return self._begin(link, facts)

    async def promote(self, link: LinkIdentity, scope: str, names: Sequence[StreamName]) -> list[MirrorState]:
        for name in names:
            if (mirror := self.mirrors.get(name)) is not None and mirror.lineage is None:
                self._carry_out(mirror)
                mirror.staged.clear()
                ends = mirror.position.lengths
                mirror.lineage = Lineage(b"L" * 16, mirror.epochs[-1].number + 1, self.installation, ends)
        return [self._state(link, name) for name in names]


class LossyCalls:
    """One side of a link, behind a network that loses calls and answers.

    `fate` is asked at each call: "ok"; "lost": it was never made; "unanswered": it was made; "late": it was made, and
    is made again behind the next call, by a copier that was thought dead; "forbidden"."""

    def __init__(self, side: Any, fate: Callable[[str], str] = lambda _: "ok", seconds: float = 0.0) -> None:
        """`seconds`: how long each call and each answer are on their way."""
        self._side = side
        self._fate = fate
        self._seconds = seconds
        self._late: list[Callable[[], Any]] = []
        self.calls: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._side, name)

        async def call(*args: Any, **chosen: Any) -> Any:
            self.calls[name] = self.calls.get(name, 0) + 1
            await asyncio.sleep(self._seconds)
            fate = self._fate(name)
            if fate == "lost":
                raise Unavailable("the call was lost")
            if fate == "forbidden":
                raise Forbidden("the link's user has no permission")
            found = await method(*args, **chosen)
            for again in self._late:
                await again()
            self._late.clear()
            if fate == "late":
                self._late.append(lambda: method(*args, **chosen))
            if fate != "ok":
                raise Unavailable("the answer was lost")
            await asyncio.sleep(self._seconds)
            return found

        return call
