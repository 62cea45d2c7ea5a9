"""A second installation with a mirror of the stream of `streams.py`, and the link between the two.

The peer is a node of its own on another machine, which dies and starts again by itself.  The first node runs the link's
job as production does: by its worker role, with a client's channel to the peer over the simulated network.  What both
have is read in their processes: now and then while faults go on, and at the end, when the mirror has caught up; in half
of the seeds the peer is cut off before, and its mirror is promoted as it is.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from checkers import mirror as checker
from checkers.log import Violation
from checkers.mirror import Seen, SourceHistory
from sarit.controller import keys
from sarit.controller.limits import PROMOTED_EPOCHS
from sarit.controller.model.epochs import known_segments
from sarit.controller.model.streams import mark_of
from sarit.core.errors import Exists, NotFound, SaritError, Unavailable
from sarit.core.limits import MIB
from sarit.core.links import Link, LinkDirection, LinkRole, LinkSettings, LinkState
from sarit.core.names import SegmentId
from sarit.core.policies import StreamConfig
from sarit.mirror.link_table import KIND, job_of, stream_of
from sarit.mirror.mirror_records import read_mirror
from sarit.mirror.values import LinkIdentity, MirrorStatus
from sarit.process.job_kinds import JobStatistics
from sarit.process.jobs.link import runner
from simulation.actors.clients import SCOPE, connect_client
from simulation.actors.controllers import in_process, running_controller
from simulation.actors.streams import STREAM
from simulation.cluster import CONTROLLER_PORT, Cluster
from simulation.events import HEAD_BYTES, parse
from simulation.world import now

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from checkers.mirror import Segments
    from sarit.controller.assembly import Controller
    from sarit.controller.jobs import Job, Runner, Save
    from sarit.env.ports import Env
    from sarit.mirror.site import MirrorSite
    from simulation.actors.streams import Streams
    from simulation.world import Process

PEER: Final = "10.0.2.1"
LINK: Final = "edge"
_FRAME_BYTES: Final = 8
_PROMOTED: Final = 0.5
_CONVERGE_SECONDS: Final = 240.0
_OBSERVE_SECONDS: Final = 4.0
_LIFE_SECONDS: Final = 8.0
_DOWN_SECONDS: Final = 1.0
_CUT_SECONDS: Final = 20.0
_WRITE_SECONDS: Final = 20.0
_AFTER: Final = b"written after the promotion"


@dataclass(frozen=True, slots=True)
class LinkWorld:
    """What the job of a link uses of a `JobWorld`."""

    env: Env
    mirror: Callable[[], MirrorSite]
    statistics: JobStatistics


class Mirrors:
    """The peer, the link, and what was seen of the mirror."""

    def __init__(self, cluster: Cluster, streams: Streams) -> None:
        self.cluster = cluster
        self.streams = streams
        self.on = cluster.options.mirrored and bool(cluster.options.stream_writers)
        self.rng = cluster.rng("the link")
        self.promoted = self.on and self.rng.random() < _PROMOTED
        self.peer = Cluster(cluster.world, cluster.options, PEER) if self.on else None
        self.source = SourceHistory()
        self.seen: list[Seen] = []
        self._caught_up = False
        self._cut_at = self.rng.random() * _CUT_SECONDS  # since the start, if it is promoted
        self._joined = asyncio.Event()
        self._new = b""  # what was written to the promoted mirror
        if self.on:
            cluster.job_kinds[KIND] = self._runner

    def __repr__(self) -> str:
        return f"<Mirrors, seen {len(self.seen)} times>"

    def start(self) -> tuple[list[asyncio.Task[Any]], list[asyncio.Task[Any]]]:
        """Tasks that end by themselves, and tasks to cancel."""
        if self.peer is None:
            return [], []
        spawn = self.cluster.spawn
        work = [spawn(self._create(), "link")]
        return work, [spawn(self._live(), "peer"), spawn(self._observe(), "observer of the mirror")]

    def crash(self, host: str, *, power: bool) -> bool:
        """The process of the peer dies at a crash point, if it is that host's."""
        if self.peer is None or host != self.peer.host:
            return False
        self.peer.end(power=power)
        return True

    def check(self) -> list[Violation]:
        """All violations."""
        if not self.on or not self.source.epochs:
            return []
        found = checker.check(self.source, self.seen, caught_up=self._caught_up)
        return [*found, *self._torn()]

    @property
    def failures(self) -> list[str]:
        """What the peer could not do."""
        return [] if self.peer is None else self.peer.failures

    # -- the peer -----------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """Start the peer whenever it has died, and kill it now and then, until cancelled."""
        peer, options = self.peer, self.cluster.options
        assert peer is not None
        begun = now()
        while True:
            cut = self.promoted and now() >= begun + self._cut_at
            if cut:  # the source is lost, as far as the mirror knows: it is promoted as it is
                await self._joined.wait()
            if peer.process is None and not await peer.start():
                await asyncio.sleep(0.2)
                continue
            ended = asyncio.ensure_future(peer.ended())
            life = self.rng.expovariate(1.0) * _LIFE_SECONDS
            if self.promoted and not cut:
                life = min(life, max(0.0, begun + self._cut_at - now()))
            done, _ = await asyncio.wait([ended], timeout=life)
            if not done and self.promoted and not cut and now() >= begun + self._cut_at:
                peer.end(power=False)
            elif not done and not self.cluster.quiet and (options.kills or options.power_cuts):
                peer.end(power=options.power_cuts and (not options.kills or self.rng.random() < 0.5))
                self.cluster.trace.probe("peer_died")
            if self.cluster.quiet:
                peer.quiet = True
            await ended
            await asyncio.sleep(0.0 if peer.quiet else self.rng.random() * _DOWN_SECONDS)

    def _runner(self, process: Process) -> Runner:
        """Return the kind of job that nodes run, on the parts of links of the node in this process."""

        async def run(job: Job, save: Save) -> None:
            node = self.cluster.node
            if node is None:  # the worker begins before the node is known to serve
                raise Unavailable("the node starts")
            world: Any = LinkWorld(process.env, node.controller_role.mirror, JobStatistics())
            await runner(world)(job, save)

        return run

    async def _create(self) -> None:
        settings = LinkSettings(LinkDirection.PUSH, f"{PEER}:{CONTROLLER_PORT}", include=(str(STREAM),), tables=False)
        link = Link(LINK, bytes(range(16)), 0, LinkRole.ACTIVE, LinkState.ACTIVE, settings)

        async def created(controller: Controller) -> None:
            assert self.cluster.node is not None
            with suppress(Exists):
                await self.cluster.node.controller_role.mirror().links.create(link)
            with suppress(Exists):
                await controller.streams.create(stream_of(LINK), StreamConfig())
            with suppress(Exists):
                await controller.jobs.create(job_of(LINK), link.link_id)

        while True:
            try:
                await self._in(self.cluster, created)
                break
            except SaritError as error:
                self.cluster.trace.note("link", repr(error))
            await asyncio.sleep(0.2)
        self.cluster.trace.probe("link_created")

    # -- what both sides have -----------------------------------------------------------------------------

    async def _in(self, cluster: Cluster, call: Callable[[Controller], Awaitable[Any]]) -> Any:
        """Make a call in the process of an installation.  Raises Unavailable: none runs, or it died."""
        place = running_controller(cluster, self.rng)
        if place is None:
            raise Unavailable("no process runs")
        process, controller = place
        return await in_process(cluster, process, lambda: call(controller), "mirrors")

    async def _observe(self) -> None:
        """Look at the mirror now and then, until cancelled."""
        assert self.peer is not None
        while True:
            await asyncio.sleep(self.rng.random() * _OBSERVE_SECONDS)
            try:
                seen = await self._in(self.peer, whole_stream)
            except (SaritError, OSError) as error:
                self.cluster.trace.note("mirror not seen", repr(error))
                continue
            # What is seen while the mirror is promoted would be sealed where the source is not.
            if seen is not None and not self._joined.is_set():
                self.seen.append(seen)
                self.cluster.trace.probe("mirror_seen")

    async def _until(self, what: str, ready: Callable[[], Awaitable[bool]]) -> None:
        until = now() + _CONVERGE_SECONDS
        while now() < until:
            try:
                if await ready():
                    return
            except (SaritError, OSError) as error:
                self.cluster.trace.note(what, repr(error))
            await asyncio.sleep(0.5)
        self.cluster.failures.append(f"liveness: {what} within {_CONVERGE_SECONDS:.0f} s")

    async def converge(self) -> None:
        """Wait until the mirror has all, or promote it as it is; then read both."""
        if self.peer is None:
            return
        self._joined.set()
        if self.promoted:
            await self._until("the mirror is promoted", self._promote)
            self.cluster.trace.probe("mirror_promoted")
            await self._until("the promoted mirror takes an event", self._write)
        else:
            await self._until("the mirror has caught up", self._equals)
            self._caught_up = True
        await self._until("both sides are read", self._read)

    async def _promote(self) -> bool:
        assert self.peer is not None
        node, identity = self.peer.node, LinkIdentity(bytes(range(16)), LINK, f"installation-{self.cluster.host}")
        if node is None:
            return False
        site, names = node.controller_role.mirror(), [STREAM, mark_of(STREAM)]
        states = await self._in(self.peer, lambda _: site.target.promote(identity, SCOPE, names))
        self.cluster.trace.note("promoted", repr(states))
        return all(state.status is MirrorStatus.PROMOTED for state in states)

    async def _write(self) -> bool:
        assert self.peer is not None
        client = await connect_client(self.peer)
        try:
            async with asyncio.timeout(_WRITE_SECONDS), client.writer(STREAM) as writer:
                writer.write(_AFTER)
                await writer.flush()
        except TimeoutError:
            return False
        finally:
            await client.close()
        return True

    async def _equals(self) -> bool:
        assert self.peer is not None
        ours, theirs = await self._in(self.cluster, whole_stream), await self._in(self.peer, whole_stream)
        return ours is not None and theirs is not None and ours.lengths == theirs.lengths

    async def _read(self) -> bool:
        assert self.peer is not None
        ours, theirs = await self._in(self.cluster, whole_stream), await self._in(self.peer, whole_stream)
        if ours is None:
            return False
        history = self.source
        history.epochs, history.data = dict(ours.epochs), dict(ours.data)
        history.sealed = {segment: ours.lengths[segment] for segment in ours.sealed}
        if theirs is not None:
            self.seen.append(_as_copied(theirs, history))
            self._new = b"".join(data for segment, data in theirs.data.items() if _is_new(segment))
        return True

    def _torn(self) -> list[Violation]:
        """Return what a mirror has half between two rounds, and what a promoted one lacks."""
        found = [one for seen in self.seen if seen.quiet or seen is self.seen[-1] for one in self._halves(seen)]
        if self.promoted and _AFTER not in self._new:
            found.append(Violation("lost", "the promoted mirror does not have the event that it acknowledged"))
        return found

    def _halves(self, seen: Seen) -> Iterator[Violation]:
        numbers: dict[int, set[int]] = {}
        for data in seen.data.values():
            for writer, number in events_of(data):
                numbers.setdefault(writer, set()).add(number)
        for request in self.streams.commit_requests:
            there = [len(numbers.get(sequence, ())) for sequence in request]
            if any(there) and there != list(request.values()):
                yield Violation("half", f"the mirror has {there} events of a transaction with {request}")


def _is_new(segment: int) -> bool:
    return SegmentId.unpack(segment).epoch >= PROMOTED_EPOCHS


def _as_copied(seen: Seen, source: SourceHistory) -> Seen:
    """Return a promoted mirror without its promotion: what was copied, sealed where the source was."""
    data = {segment: data for segment, data in seen.data.items() if not _is_new(segment)}
    epochs = {number: segments for number, segments in seen.epochs.items() if number < PROMOTED_EPOCHS}
    sealed = {segment for segment in seen.sealed & data.keys() if source.sealed.get(segment) == seen.lengths[segment]}
    return Seen(epochs, seen.starts, data, frozenset(sealed), quiet=False)


async def whole_stream(controller: Controller) -> Seen | None:
    """Everything that an installation has of the stream; None: it does not exist, or begins no more at its head."""
    try:
        record = (await controller.catalog.require(STREAM)).record
    except NotFound:
        return None
    epochs = await controller.catalog.epochs(STREAM, record, 0)
    starts, data, sealed, lengths = {}, {}, set(), {}
    before = await _state_of(controller)
    # Later segments first: what one of them has must find its predecessors complete.
    for segment in sorted(known_segments(epochs), reverse=True):
        name = STREAM.segment(SegmentId.unpack(segment))
        try:
            info = await controller.segments.info(name)
        except NotFound:
            continue
        starts[segment], found = info.start_offset, b""
        while info.start_offset + len(found) < info.length:
            found += await controller.segments.read(name, info.start_offset + len(found), MIB)
        data[segment] = found[: info.length - info.start_offset]
        lengths[segment] = info.length
        if info.sealed:
            sealed.add(segment)
    shown: dict[int, Segments] = {e.number: tuple((s.low, s.high, s.segment) for s in e.segments) for e in epochs}
    again = await controller.segments.infos([STREAM.segment(SegmentId.unpack(segment)) for segment in lengths])
    still = all(info and info.length == length for info, length in zip(again, lengths.values(), strict=True))
    quiet = still and before == await _state_of(controller) and not before[0]
    return Seen(shown, starts, data, frozenset(sealed), quiet)


async def _state_of(controller: Controller) -> tuple[bool, int]:
    """Return whether a round is decided, and the version of the stream's record, which changes with that."""
    stream, row = await controller.catalog.get(SCOPE, [keys.stream_key(STREAM.stream), keys.mirror_key(STREAM.stream)])
    mirror = read_mirror(STREAM, row)
    return mirror is not None and mirror.decided is not None, -1 if stream is None else stream.version


def events_of(data: bytes) -> list[tuple[int, int]]:
    """Writer and number of each event of a segment.  Raises ValueError: something else is there."""
    found, at = [], 0
    while at < len(data):
        end = at + _FRAME_BYTES + int.from_bytes(data[at + 4 : at + 8], "big")
        parsed = parse(data[at + _FRAME_BYTES : end]) if end <= len(data) and end >= at + HEAD_BYTES else None
        if parsed is None:
            raise ValueError(f"no event is at {at} of {len(data)}")
        found.append(parsed)
        at = end
    return found


__all__ = ["LINK", "PEER", "Mirrors"]
