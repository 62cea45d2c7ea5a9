"""Checks what a link says of its streams, before any of it is stored: it comes from another installation."""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.limits import CREATION_ID_BYTES
from sarit.controller.model import codec
from sarit.controller.model.cuts import is_cut
from sarit.controller.model.epochs import creation_epoch, known_segments
from sarit.controller.model.records import State, StreamRecord
from sarit.core import properties
from sarit.core.errors import Invalid
from sarit.core.keyspace import KeyRange, tiles
from sarit.core.names import MARK_PREFIX, SYSTEM_SCOPE, SegmentId, is_internal_name, is_user_name
from sarit.mirror.limits import (
    LINK_ID_BYTES,
    MAX_LINK_NAME_CHARACTERS,
    MAX_MIRROR_LINEAGES,
    MAX_MIRROR_OFFSET_BYTES,
    MAX_MIRROR_PATH,
    MAX_ROUND_SEGMENTS,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sarit.controller.model.cuts import Cut
    from sarit.controller.model.epochs import Epoch, SegmentRange
    from sarit.mirror.values import Lineage, LinkIdentity, Round, StreamFacts

_MAX_NUMBER = (1 << 30) - 1


def check_link(link: LinkIdentity) -> None:
    """Check the link on whose behalf a call is made.  Raises Invalid."""
    if len(link.link_id) != LINK_ID_BYTES:
        raise Invalid(f"the id of a link has {LINK_ID_BYTES} bytes")
    for text in (link.name, link.installation):
        if not 0 < len(text) <= MAX_LINK_NAME_CHARACTERS or not text.isprintable():
            raise Invalid(f"a link and its installation have names of at most {MAX_LINK_NAME_CHARACTERS} characters")


def check_scope(scope: str) -> None:
    """Check that a scope may have mirrors.  Raises Invalid."""
    if not is_internal_name(scope) or scope == SYSTEM_SCOPE or not is_user_name(scope):
        raise Invalid("mirrors are in the scopes of users")


def check_facts(scope: str, facts: StreamFacts) -> None:
    """Check what a source says of a stream in `scope`.  Raises Invalid."""
    name = facts.name
    if name.scope != scope or not is_user_name(name.stream.removeprefix(MARK_PREFIX)):
        raise Invalid("a mirror has the name of a user's stream of the scope, or of the watermarks of one")
    if len(facts.creation_id) != CREATION_ID_BYTES:
        raise Invalid(f"the creation id of {name} has not {CREATION_ID_BYTES} bytes")
    if not 0 < len(facts.path) <= MAX_MIRROR_PATH or len(facts.lineages) > MAX_MIRROR_LINEAGES:
        raise Invalid(f"{name} came through no installation, or through too many")
    for text in facts.path:
        if not 0 < len(text) <= MAX_LINK_NAME_CHARACTERS or not text.isprintable():
            raise Invalid(f"{name} came through an installation without a proper name")
    for number in (facts.created_ms, facts.version):
        if not 0 <= number <= MAX_MIRROR_OFFSET_BYTES:
            raise Invalid(f"{name} has the number {number}")
    if not 0 <= facts.first_number <= _MAX_NUMBER:
        raise Invalid(f"{name} has the first number {facts.first_number}")
    facts.config.scaling.check()
    facts.config.retention.check()
    for tag in facts.config.tags:
        keys.tag_prefix(tag)
    properties.changed({}, dict(facts.properties))
    for lineage in facts.lineages:
        _check_lineage(lineage)
    if sum(len(lineage.ends) for lineage in facts.lineages) > MAX_ROUND_SEGMENTS:
        raise Invalid(f"the promotions of {name} have too many segments")
    _check_epoch(facts.first, None)
    _check_cut(facts.head, MAX_ROUND_SEGMENTS)
    _check_head(facts)
    try:
        codec.encode_stream(
            StreamRecord(State.ACTIVE, facts.config, facts.created_ms, facts.first_number, (facts.first,))
        )
    except struct.error as error:
        raise Invalid(f"the configuration of {name} has a number out of range: {error}") from None


def _check_head(facts: StreamFacts) -> None:
    begun = {s: at for s, at in facts.head.items() if s in facts.first.ids}
    later = facts.head.keys() - begun.keys()
    if not begun or any(creation_epoch(s) <= facts.first.number for s in later):
        raise Invalid(f"{facts.name} begins at a cut that does not fit epoch {facts.first.number}")
    if not later and not is_cut(known_segments([facts.first]), facts.head):
        raise Invalid(f"{facts.name} begins at what is no cut of it")


def _check_lineage(lineage: Lineage) -> None:
    if len(lineage.lineage_id) != LINK_ID_BYTES or not 0 <= lineage.epoch <= _MAX_NUMBER:
        raise Invalid("a promotion has an id and an epoch")
    if len(lineage.installation) > MAX_LINK_NAME_CHARACTERS:
        raise Invalid("a promotion names an installation with too long a name")
    _check_cut(lineage.ends, MAX_ROUND_SEGMENTS)


def _check_epoch(epoch: Epoch, before: Epoch | None) -> None:
    """Check an epoch that follows `before`; None: the first one."""
    if not 0 <= epoch.number <= _MAX_NUMBER or not 0 <= epoch.created_ms <= MAX_MIRROR_OFFSET_BYTES:
        raise Invalid(f"epoch {epoch.number} is out of range")
    if len(epoch.segments) > MAX_ROUND_SEGMENTS or len(epoch.ids) != len(epoch.segments):
        raise Invalid(f"epoch {epoch.number} has too many segments, or one twice")
    if list(epoch.segments) != sorted(epoch.segments) or not tiles([KeyRange(s.low, s.high) for s in epoch.segments]):
        raise Invalid(f"the segments of epoch {epoch.number} do not tile the key space in order")
    known = {} if before is None else known_segments([before])
    for s in epoch.segments:
        if not 0 <= s.segment <= MAX_MIRROR_OFFSET_BYTES or SegmentId.unpack(s.segment).number > _MAX_NUMBER:
            raise Invalid(f"epoch {epoch.number} has the segment {s.segment}")
        stays = known.get(s.segment) == s if before is not None else creation_epoch(s.segment) <= epoch.number
        if not stays and creation_epoch(s.segment) != epoch.number:
            raise Invalid(f"epoch {epoch.number} has segment {SegmentId.unpack(s.segment)}, which it does not create")


def _check_cut(cut: Mapping[int, int], most: int) -> None:
    if len(cut) > most:
        raise Invalid(f"a cut has {len(cut)} segments; the most is {most}")
    if any(not 0 <= n <= MAX_MIRROR_OFFSET_BYTES for pair in cut.items() for n in pair):
        raise Invalid("a cut has an offset or a segment out of range")


def before_head(segment: SegmentRange, head: Cut, known: Mapping[int, SegmentRange]) -> bool:
    """Return whether a segment lies before a cut, of whose segments those created later may be unknown still."""
    if segment.segment in head:
        return False
    near = [known[s] for s in head if s in known and known[s].overlaps(segment)]
    return all(creation_epoch(s.segment) > creation_epoch(segment.segment) for s in near)


def check_round(
    one: Round, current: Epoch, lengths: Mapping[int, int], starts: Cut, head: Cut, known: Mapping[int, SegmentRange]
) -> None:
    """Check a round behind the epoch `current`.  Raises Invalid.

    `lengths`: of the segments of the mirror's position.  `starts`: where segments to come begin, if that is not 0.
    `head`: the cut before which segments have no bytes; empty: there are none.  `known`: all segments of the mirror."""
    if sum(len(epoch.segments) for epoch in one.epochs) > MAX_ROUND_SEGMENTS:
        raise Invalid("a round has too many epochs or segments")
    _check_cut(one.after, 2 * MAX_ROUND_SEGMENTS)
    for before, epoch in itertools.pairwise((current, *one.epochs)):
        if epoch.number <= before.number:
            raise Invalid(f"epoch {epoch.number} does not follow epoch {before.number}")
        _check_epoch(epoch, before)
    bases = dict(lengths)
    every = dict(known) | known_segments(one.epochs)
    for epoch in one.epochs:
        for s in epoch.segments:
            if s.segment in known or s.segment in bases:
                continue
            if s.segment in one.after:
                bases[s.segment] = starts.get(s.segment, 0)
            elif not head or not before_head(s, head, every):
                raise Invalid(f"a round leaves out segment {SegmentId.unpack(s.segment)}")
    if bases.keys() != one.after.keys() or any(at < bases[s] for s, at in one.after.items()):
        raise Invalid("a round ends before the mirror does, or in segments that the mirror has not")


def order_of(streams: Sequence[StreamFacts]) -> list[int]:
    """Return the order in which to make mirrors: streams of watermarks first, since readers of a stream need its."""
    return sorted(range(len(streams)), key=lambda at: not streams[at].name.stream.startswith(MARK_PREFIX))
