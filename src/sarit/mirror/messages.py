"""The values of `mirror/values.py` as messages of mirror.proto, and back.

A message comes from another installation, which may be wrong or hostile: what is read from it is bounded, and has the
form of its value.  Whether it fits a stream is checked by who uses it.  All readers raise Invalid.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeVar

from sarit.controller.jobs import printable
from sarit.controller.model.epochs import Epoch, SegmentRange
from sarit.core import properties
from sarit.core.errors import Invalid
from sarit.core.names import StreamName, is_internal_name
from sarit.core.texts import cut_text
from sarit.mirror.limits import (
    MAX_LINK_NOTE_CHARACTERS,
    MAX_MIRROR_LINEAGES,
    MAX_MIRROR_PATH,
    MAX_MIRROR_STREAMS_PER_CALL,
    MIRROR_ID_BYTES,
    MIRROR_MESSAGE_BYTES,
)
from sarit.mirror.values import (
    Lineage,
    LinkIdentity,
    MirrorState,
    MirrorStatus,
    Offer,
    Position,
    Range,
    Round,
    StreamFacts,
)
from sarit.rpc import convert
from sarit.rpc.generated import mirror_pb2 as pb
from sarit.rpc.limits import MAX_REQUEST_TEXT_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from sarit.controller.model.cuts import Cut

T = TypeVar("T")


def stream_of(scope: str, name: str) -> StreamName:
    """Return the name of a stream."""
    if not is_internal_name(scope) or not is_internal_name(name):
        raise Invalid("a message between the sides of a link names no stream")
    return StreamName(scope, name)


def bounded(items: Collection[object], most: int = MAX_MIRROR_STREAMS_PER_CALL) -> None:
    """Check that a list is not too long."""
    if len(items) > most:
        raise Invalid(f"a message between the sides of a link has {len(items)} entries: the most is {most}")


def shown(text: str) -> str:
    """Return a text of the other side, for logs and people: short, and on one line."""
    return printable(cut_text(text, MAX_LINK_NOTE_CHARACTERS))


def _positive(*numbers: int) -> None:
    if min(numbers) < 0:
        raise Invalid("a message between the sides of a link has a number below 0")


def _random_id(value: bytes) -> bytes:
    if len(value) != MIRROR_ID_BYTES:
        raise Invalid(f"an id in a message between the sides of a link has {len(value)} bytes, not {MIRROR_ID_BYTES}")
    return value


# -- parts of streams ------------------------------------------------------------------------------


def cut_message(cut: Mapping[int, int]) -> pb.MirrorCut:
    """Return a cut as a message."""
    return pb.MirrorCut(segments=cut.keys(), offsets=cut.values())


def cut_of(message: pb.MirrorCut) -> Cut:
    """Return the cut in a message."""
    segments, offsets = message.segments, message.offsets
    if len(segments) != len(offsets):
        raise Invalid("a cut in a message between the sides of a link has other offsets than segments")
    cut = dict(zip(segments, offsets, strict=True))
    if len(cut) != len(segments):
        raise Invalid("a cut in a message between the sides of a link has a segment twice")
    if cut:
        _positive(min(segments), min(offsets))
    return cut


def _segments_of(segments: Sequence[int]) -> frozenset[int]:
    if segments:
        _positive(min(segments))
    return frozenset(segments)


def epoch_message(epoch: Epoch) -> pb.MirrorEpoch:
    """Return an epoch as a message."""
    segments = epoch.segments
    return pb.MirrorEpoch(
        number=epoch.number, createdMs=epoch.created_ms, segments=[s.segment for s in segments],
        low=[s.low for s in segments], high=[s.high for s in segments],
    )  # fmt: skip


def epoch_of(message: pb.MirrorEpoch) -> Epoch:
    """Return the epoch in a message."""
    segments, low, high = message.segments, message.low, message.high
    if not len(segments) == len(low) == len(high):
        raise Invalid("an epoch in a message between the sides of a link has other bounds than segments")
    _positive(message.number, message.createdMs, *segments)
    if not all(math.isfinite(bound) and 0 <= bound <= 1 for bounds in (low, high) for bound in bounds):
        raise Invalid("an epoch in a message between the sides of a link has a bound outside of 0 to 1")
    return Epoch(message.number, tuple(map(SegmentRange, low, high, segments)), message.createdMs)


def lineage_message(lineage: Lineage) -> pb.MirrorLineage:
    """Return a promotion as a message."""
    return pb.MirrorLineage(
        lineageId=lineage.lineage_id, epoch=lineage.epoch, installation=lineage.installation,
        ends=cut_message(lineage.ends),
    )  # fmt: skip


def lineage_of(message: pb.MirrorLineage) -> Lineage:
    """Return the promotion in a message."""
    _positive(message.epoch)
    return Lineage(_random_id(message.lineageId), message.epoch, message.installation, cut_of(message.ends))


# -- streams ---------------------------------------------------------------------------------------


def facts_message(facts: StreamFacts | None) -> pb.MirrorFacts:
    """Return the facts of a stream as a message; None: one without a name."""
    if facts is None:
        return pb.MirrorFacts()
    return pb.MirrorFacts(
        stream=facts.name.stream, creationId=facts.creation_id, firstNumber=facts.first_number,
        createdMs=facts.created_ms, version=facts.version, config=convert.config_message(facts.name, facts.config),
        properties=facts.properties, sealed=facts.sealed, fenced=facts.fenced, head=cut_message(facts.head),
        first=epoch_message(facts.first), path=facts.path, lineages=map(lineage_message, facts.lineages),
    )  # fmt: skip


def facts_of(message: pb.MirrorFacts, scope: str) -> StreamFacts:
    """Return the facts in a message."""
    bounded(message.path, MAX_MIRROR_PATH)
    bounded(message.lineages, MAX_MIRROR_LINEAGES)
    _positive(message.firstNumber, message.createdMs, message.version)
    found = dict(message.properties)
    bounded(found, properties.MAX_PROPERTIES)
    # Whether a stream may have them is checked by who makes the mirror, for each stream alone.
    if any(len(text) > MAX_REQUEST_TEXT_BYTES for pair in found.items() for text in pair):
        raise Invalid(
            f"a property in a message between the sides of a link has more than {MAX_REQUEST_TEXT_BYTES} bytes"
        )
    config = convert.stream_config(message.config)
    return StreamFacts(
        stream_of(scope, message.stream), _random_id(message.creationId), message.firstNumber, message.createdMs,
        message.version, config, found, message.sealed, message.fenced, cut_of(message.head), epoch_of(message.first),
        tuple(message.path), tuple(map(lineage_of, message.lineages)),
    )  # fmt: skip


def position_message(position: Position) -> pb.MirrorPosition:
    """Return a position as a message."""
    return pb.MirrorPosition(stream=position.name.stream, epoch=position.epoch, lengths=cut_message(position.lengths))


def position_of(message: pb.MirrorPosition, scope: str) -> Position:
    """Return the position in a message."""
    _positive(message.epoch)
    return Position(stream_of(scope, message.stream), message.epoch, cut_of(message.lengths))


def offer_message(offer: Offer | None) -> pb.MirrorOffer:
    """Return an offer as a message; None: one without a name."""
    if offer is None:
        return pb.MirrorOffer()
    return pb.MirrorOffer(
        stream=offer.name.stream, lengths=cut_message(offer.lengths), sealed=offer.sealed,
        starts=cut_message(offer.starts), epochs=map(epoch_message, offer.epochs), more=offer.more,
        version=offer.version, behind=offer.behind, oldestMs=offer.oldest_ms,
    )  # fmt: skip


def offer_of(message: pb.MirrorOffer, scope: str) -> Offer:
    """Return the offer in a message."""
    _positive(message.version, message.behind, message.oldestMs)
    return Offer(
        stream_of(scope, message.stream), cut_of(message.lengths), _segments_of(message.sealed),
        cut_of(message.starts), tuple(map(epoch_of, message.epochs)), message.more, message.version, message.behind,
        message.oldestMs,
    )  # fmt: skip


def range_message(wanted: Range) -> pb.MirrorRange:
    """Return a range of bytes as a message."""
    return pb.MirrorRange(stream=wanted.name.stream, segment=wanted.segment, offset=wanted.offset, length=wanted.length)


def range_of(message: pb.MirrorRange, scope: str) -> Range:
    """Return the range of bytes in a message."""
    _positive(message.segment, message.offset, message.length)
    return Range(stream_of(scope, message.stream), message.segment, message.offset, message.length)


def round_message(step: Round) -> pb.MirrorRound:
    """Return a round as a message."""
    return pb.MirrorRound(
        stream=step.name.stream, before=cut_message(step.before), after=cut_message(step.after), sealed=step.sealed,
        epochs=map(epoch_message, step.epochs), ends=step.ends, head=cut_message(step.head),
    )  # fmt: skip


def round_of(message: pb.MirrorRound, scope: str) -> Round:
    """Return the round in a message."""
    return Round(
        stream_of(scope, message.stream), cut_of(message.before), cut_of(message.after), _segments_of(message.sealed),
        tuple(map(epoch_of, message.epochs)), message.ends, cut_of(message.head),
    )  # fmt: skip


def state_message(state: MirrorState) -> pb.MirrorState:
    """Return the state of a mirror as a message."""
    made = pb.MirrorState(
        stream=state.name.stream, status=int(state.status), staged=cut_message(state.staged), reason=state.reason,
        version=state.version, head=cut_message(state.head),
    )  # fmt: skip
    if state.position is not None:
        made.position.CopyFrom(position_message(state.position))
    if state.lineage is not None:
        made.lineage.CopyFrom(lineage_message(state.lineage))
    return made


def state_of(message: pb.MirrorState, scope: str) -> MirrorState:
    """Return the state of a mirror in a message."""
    try:
        status = MirrorStatus(message.status)
    except ValueError:
        raise Invalid(f"a mirror has the unknown status {message.status}: the peer is of another version") from None
    return MirrorState(
        stream_of(scope, message.stream),
        status,
        position_of(message.position, scope) if message.HasField("position") else None,
        cut_of(message.staged),
        shown(message.reason),
        lineage_of(message.lineage) if message.HasField("lineage") else None,
        message.version,
        cut_of(message.head),
    )


# -- links -----------------------------------------------------------------------------------------


def link_message(link: LinkIdentity) -> pb.MirrorLink:
    """Return a link as a message."""
    return pb.MirrorLink(linkId=link.link_id, name=link.name, installation=link.installation)


def link_of(message: pb.MirrorLink, own: str = "") -> LinkIdentity:
    """Return the link in a message.  `own`: this installation, whose links do not call it over the network."""
    if own and message.installation == own:
        raise Invalid("a message of another installation says that it is of a link of this one")
    if not is_internal_name(message.name) or not is_internal_name(message.installation):
        raise Invalid("a message between the sides of a link names no link and no installation")
    return LinkIdentity(_random_id(message.linkId), message.name, message.installation)


def names_of(names: Iterable[str], scope: str) -> list[StreamName]:
    """Return the names of streams in a message."""
    found = [stream_of(scope, name) for name in names]
    bounded(found)
    return found


def parts(items: Sequence[T], message: Callable[[T], Any]) -> Iterator[list[Any]]:
    """Return the messages of items, in lists for one request each."""
    made: list[Any] = []
    size = 0
    for item in items:
        one = message(item)
        if made and (size + one.ByteSize() > MIRROR_MESSAGE_BYTES or len(made) == MAX_MIRROR_STREAMS_PER_CALL):
            yield made
            made, size = [], 0
        made.append(one)
        size += one.ByteSize()
    if made:
        yield made
