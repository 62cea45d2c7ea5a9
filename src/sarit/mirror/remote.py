"""The peer of a link as its source or its target: the ports of `ports.py` over MirrorService.

A reply may have less than was asked for, if it would be too long: the rest is asked for again.  Requests are cut below
what the server takes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from sarit.core.errors import Invalid, Truncated
from sarit.mirror import messages
from sarit.mirror.compression import Compressor, split, unpack
from sarit.mirror.limits import (
    MAX_MIRROR_STREAMS_PER_CALL,
    MAX_MIRROR_WAIT_SECONDS,
    MIRROR_CALL_SECONDS,
)
from sarit.mirror.remote_attached import RemoteAttachedSource, RemoteAttachedTarget
from sarit.mirror.values import Written
from sarit.rpc.generated import mirror_pb2 as pb
from sarit.rpc.mirror_methods import MIRROR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sarit.controller.model.cuts import Cut
    from sarit.core.names import StreamName
    from sarit.mirror.peer import Peer
    from sarit.mirror.values import (
        LinkIdentity,
        MirrorState,
        Offer,
        Position,
        Range,
        Round,
        Site,
        StreamFacts,
        Write,
    )
    from sarit.rpc.methods import Method

T = TypeVar("T")


class RemoteSource:
    """A peer whose streams are copied."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.attached = RemoteAttachedSource(peer)
        self._replies: dict[tuple[bytes, str], int] = {}  # the number of the last one about growth, by link and scope

    def __repr__(self) -> str:
        return f"<RemoteSource {self._peer!r}>"

    async def site(self) -> Site:
        """Return which installation it is.  Raises Invalid: it may not be the peer."""
        return await self._peer.site()

    async def scopes(self, after: str) -> list[str]:
        """Return a page of scopes that the link's user may copy."""
        reply = await self._peer.call(MIRROR.mirrorScopes, pb.MirrorScopesRequest(after=after))
        return list(reply.scopes)

    async def streams(self, scope: str, after: str) -> list[StreamFacts]:
        """Return a page of a scope's streams."""
        reply = await self._peer.call(MIRROR.mirrorStreams, pb.MirrorStreamsRequest(scope=scope, after=after))
        messages.bounded(reply.streams)
        return [messages.facts_of(each, scope) for each in reply.streams]

    async def facts(self, scope: str, names: Sequence[StreamName], start_ms: int) -> list[StreamFacts | None]:
        """Return streams by name."""
        found: list[StreamFacts | None] = []
        while len(found) < len(names):
            asked = names[len(found) : len(found) + MAX_MIRROR_STREAMS_PER_CALL]
            request = pb.MirrorFactsRequest(scope=scope, streams=_texts(asked), startMs=start_ms)
            reply = await self._peer.call(MIRROR.mirrorFacts, request)
            _check_part(reply.streams, _texts(asked))
            found += [messages.facts_of(each, scope) if each.stream else None for each in reply.streams]
        return found

    async def offers(self, scope: str, positions: Sequence[Position], limit: int) -> list[Offer | None]:
        """Return what is behind positions."""
        found: list[Offer | None] = []
        for made in messages.parts(positions, messages.position_message):
            done = 0
            while done < len(made):
                request = pb.MirrorOffersRequest(scope=scope, positions=made[done:], limit=limit)
                reply = await self._peer.call(MIRROR.mirrorOffers, request)
                _check_part(reply.offers, [each.stream for each in made[done:]])
                found += [messages.offer_of(each, scope) if each.stream else None for each in reply.offers]
                done += len(reply.offers)
        return found

    async def read(self, scope: str, ranges: Sequence[Range]) -> list[bytes]:
        """Return bytes, of the first ranges if all would be too long.  Raises Truncated, NotFound."""
        asked, left = [], self._peer.batch.bytes
        for wanted in ranges[:MAX_MIRROR_STREAMS_PER_CALL]:
            made = messages.range_message(wanted)
            made.length = min(wanted.length, left)
            asked.append(made)
            left -= made.length
            if not left:
                break
        request = pb.MirrorReadRequest(scope=scope, ranges=asked, zstd=self._peer.compresses)
        reply = await self._peer.carry(MIRROR.mirrorRead, request)
        if reply.truncated:
            raise Truncated(f"bytes of a stream in scope {scope} are gone at the peer", reply.startOffset)
        lengths = list(reply.lengths)
        if len(lengths) > len(asked) or any(length > made.length for length, made in zip(lengths, asked, strict=False)):
            raise Invalid("the peer of the link answers a read with more than was asked for")
        return split(unpack(reply.data, sum(made.length for made in asked)), lengths)

    async def grown(self, link: LinkIdentity, scope: str, wait_seconds: float) -> list[StreamName] | None:
        """Wait for growth, and return the names of streams."""
        wait = min(wait_seconds, MAX_MIRROR_WAIT_SECONDS)
        key = link.link_id, scope
        request = pb.MirrorGrownRequest(
            scope=scope, link=messages.link_message(link), waitSeconds=wait, after=self._replies.get(key, 0)
        )
        reply = await self._peer.call(MIRROR.mirrorGrown, request, wait + MIRROR_CALL_SECONDS)
        self._replies[key] = reply.number
        return None if reply.any else [messages.stream_of(scope, name) for name in reply.streams]

    async def hold(self, link: LinkIdentity, scope: str, cuts: Sequence[tuple[StreamName, Cut]]) -> None:
        """Have the peer keep what is behind cuts; no cuts: nothing in the scope any more."""
        for made in list(messages.parts(cuts, _held)) or [[]]:
            request = pb.MirrorHoldRequest(scope=scope, link=messages.link_message(link), cuts=made)
            await self._peer.call(MIRROR.mirrorHold, request)

    async def fence(self, link: LinkIdentity, scope: str, names: Sequence[StreamName], lineage: bytes) -> None:
        """Make streams read-only."""
        for at in range(0, len(names), MAX_MIRROR_STREAMS_PER_CALL):
            asked = _texts(names[at : at + MAX_MIRROR_STREAMS_PER_CALL])
            request = pb.MirrorFenceRequest(
                scope=scope, link=messages.link_message(link), streams=asked, lineage=lineage
            )
            await self._peer.call(MIRROR.mirrorFence, request)


class RemoteTarget:
    """A peer that has the mirrors."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.attached = RemoteAttachedTarget(peer)
        self._compressor = Compressor()

    def __repr__(self) -> str:
        return f"<RemoteTarget {self._peer!r}>"

    async def site(self) -> Site:
        """Return which installation it is.  Raises Invalid: it may not be the peer."""
        return await self._peer.site()

    async def begin(
        self, link: LinkIdentity, scope: str, streams: Sequence[StreamFacts], *, discard_divergent: bool = False
    ) -> list[MirrorState]:
        """Make mirrors of streams, and return their states."""
        return await self._states(
            MIRROR.mirrorBegin, scope, streams, messages.facts_message,
            lambda made: pb.MirrorBeginRequest(
                scope=scope, link=messages.link_message(link), streams=made, discardDivergent=discard_divergent
            ),
        )  # fmt: skip

    async def states(self, link: LinkIdentity, scope: str, names: Sequence[StreamName]) -> list[MirrorState]:
        """Return the states of mirrors."""
        return await self._of_names(MIRROR.mirrorStates, link, scope, names)

    async def write(self, link: LinkIdentity, scope: str, writes: Sequence[Write]) -> list[Written]:
        """Append or stage bytes."""
        written: dict[int, Written] = {}
        for part in _batches(writes, self._peer.batch.bytes):
            results = await self._write(link, scope, [piece for _, piece in part])
            for (which, _), result in zip(part, results, strict=True):
                # What was refused of a write stays its result: the pieces behind it are refused, too.
                if not (which in written and _has_failed(written[which])):
                    written[which] = result
        return [written[which] for which in range(len(writes))]

    async def _write(self, link: LinkIdentity, scope: str, part: Sequence[Write]) -> list[Written]:
        request = pb.MirrorWriteRequest(
            scope=scope,
            link=messages.link_message(link),
            writes=[
                pb.MirrorWrite(
                    stream=write.name.stream, segment=write.segment, offset=write.offset, length=len(write.data),
                    staged=write.staged,
                )
                for write in part
            ],
        )  # fmt: skip
        # In its place: a message that is given to another one is copied into it.
        self._compressor.pack(request.data, [write.data for write in part], zstd=self._peer.compresses)
        reply = await self._peer.carry(MIRROR.mirrorWrite, request)
        if len(reply.written) != len(part):
            raise Invalid("the peer of the link answers a write with another number of results")
        return [Written(one.end, one.refused, messages.shown(one.reason)) for one in reply.written]

    async def finish(self, link: LinkIdentity, scope: str, rounds: Sequence[Round]) -> list[MirrorState]:
        """Decide rounds, and carry them out."""
        return await self._states(
            MIRROR.mirrorFinish, scope, rounds, messages.round_message,
            lambda made: pb.MirrorFinishRequest(scope=scope, link=messages.link_message(link), rounds=made),
        )  # fmt: skip

    async def drop(self, link: LinkIdentity, scope: str, segments: Sequence[tuple[StreamName, int]]) -> None:
        """Delete what is staged for segments."""
        for at in range(0, len(segments), MAX_MIRROR_STREAMS_PER_CALL):
            staged = [
                pb.MirrorStaged(stream=name.stream, segment=segment)
                for name, segment in segments[at : at + MAX_MIRROR_STREAMS_PER_CALL]
            ]
            request = pb.MirrorDropRequest(scope=scope, link=messages.link_message(link), segments=staged)
            await self._peer.call(MIRROR.mirrorDrop, request)

    async def restart(self, link: LinkIdentity, scope: str, facts: StreamFacts) -> MirrorState:
        """Begin a mirror again at another head."""
        request = pb.MirrorRestartRequest(
            scope=scope, link=messages.link_message(link), stream=messages.facts_message(facts)
        )
        reply = await self._peer.call(MIRROR.mirrorRestart, request)
        _check_part(reply.states, [facts.name.stream])
        return messages.state_of(reply.states[0], scope)

    async def promote(self, link: LinkIdentity, scope: str, names: Sequence[StreamName]) -> list[MirrorState]:
        """Make streams of mirrors."""
        return await self._of_names(MIRROR.mirrorPromote, link, scope, names)

    async def _of_names(
        self, method: Method, link: LinkIdentity, scope: str, names: Sequence[StreamName]
    ) -> list[MirrorState]:
        return await self._states(
            method, scope, [pb.MirrorHeld(stream=name.stream) for name in names], lambda held: held,
            lambda made: pb.MirrorNamesRequest(
                scope=scope, link=messages.link_message(link), streams=[held.stream for held in made]
            ),
        )  # fmt: skip

    async def _states(
        self, method: Method, scope: str, items: Sequence[T], message: Callable[[T], Any],
        request: Callable[[Sequence[Any]], Any],
    ) -> list[MirrorState]:  # fmt: skip
        """Call a method for items, in parts, and return the states of all."""
        found: list[MirrorState] = []
        for made in messages.parts(items, message):
            done = 0
            while done < len(made):
                reply = await self._peer.call(method, request(made[done:]))
                _check_part(reply.states, [each.stream for each in made[done:]])
                found += [messages.state_of(each, scope) for each in reply.states]
                done += len(reply.states)
        return found


def _has_failed(result: Written) -> bool:
    return result.refused or bool(result.reason)


def _batches(writes: Sequence[Write], most: int) -> Iterator[list[tuple[int, Write]]]:
    """Return writes in batches of `most` bytes, each with its place in `writes`.

    A staged write that is longer is cut into several; one that is not staged takes effect as a whole."""
    batch: list[tuple[int, Write]] = []
    size = 0
    for which, write in enumerate(writes):
        step = most if write.staged else max(len(write.data), 1)
        for at in range(0, max(len(write.data), 1), step):
            piece = replace(write, offset=write.offset + at, data=write.data[at : at + step])
            if batch and (size + len(piece.data) > most or len(batch) == MAX_MIRROR_STREAMS_PER_CALL):
                yield batch
                batch, size = [], 0
            batch.append((which, piece))
            size += len(piece.data)
    if batch:
        yield batch


def _texts(names: Sequence[StreamName]) -> list[str]:
    return [name.stream for name in names]


def _held(item: tuple[StreamName, Cut]) -> pb.MirrorHeld:
    name, cut = item
    return pb.MirrorHeld(stream=name.stream, cut=messages.cut_message(cut))


def _check_part(answered: Sequence[Any], asked: Sequence[str]) -> None:
    """Check that a reply has the first of the streams that were asked for, or entries without a name in their places.

    Raises Invalid."""
    if not 0 < len(answered) <= len(asked):
        raise Invalid(f"the peer of the link answers {len(asked)} entries with {len(answered)}")
    if any(each.stream not in ("", name) for each, name in zip(answered, asked, strict=False)):
        raise Invalid("the peer of the link answers with other streams than were asked for")
