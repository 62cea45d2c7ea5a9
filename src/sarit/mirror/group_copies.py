"""Reader groups, from a source to its mirrors: their configurations, and where their readers would go on.

The source tells the cut at which another reader would continue if all readers of the group were lost.  The mirror's
group starts there once the mirrors have the bytes before it, as long as no reader has joined it at the mirror.  The id
of the group is the source's: by it a group that a link made is distinguished from one that a user made.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.limits import MAX_STREAMS_OF_GROUP
from sarit.controller.model import codec, streams
from sarit.controller.model import groups as decisions
from sarit.controller.model.cuts import follows, is_cut
from sarit.controller.model.epochs import known_segments
from sarit.controller.model.records import State
from sarit.core.errors import Conflict, Invalid, NotFound, SaritError, Unavailable
from sarit.core.names import SegmentId, is_user_name
from sarit.mirror.attachments import GroupFacts
from sarit.mirror.group_positions import cut_at, segments_read
from sarit.mirror.group_states import announce, begin, config_of, read_state
from sarit.mirror.limits import MAX_GROUP_GENERATION, MIRROR_BATCH_BYTES, MIRROR_TABLES_PER_PAGE
from sarit.mirror.mirror_rows import find_known

if TYPE_CHECKING:
    from sarit.controller.catalog import Catalog
    from sarit.controller.groups import Groups
    from sarit.controller.model.records import GroupRecord
    from sarit.controller.ports import Segments
    from sarit.core.names import StreamName
    from sarit.mirror.values import LinkIdentity

Cuts = tuple[tuple[int, int], ...]


class GroupSource:
    """The reader groups of this installation."""

    def __init__(self, catalog: Catalog, segments: Segments) -> None:
        self._catalog = catalog
        self._segments = segments

    async def groups(self, scope: str, after: str) -> list[GroupFacts]:
        """Return a page of groups; one whose position is not known has no starts."""
        found: list[GroupFacts] = []
        size, key = 0, keys.group_key(after) if after else b""
        while rows := await self._catalog.scan(scope, keys.GROUPS, key, MIRROR_TABLES_PER_PAGE):
            for key, value in rows:
                record = codec.decode_group(value.value)
                if record.state is not State.ACTIVE:
                    continue
                group = key.removeprefix(keys.GROUPS).decode()
                found.append(GroupFacts(group, await self._positioned(scope, group, record)))
                size += len(codec.encode_group(found[-1].record))
                if size > MIRROR_BATCH_BYTES:
                    return found
            if found:
                break
        return found

    async def _positioned(self, scope: str, group: str, record: GroupRecord) -> GroupRecord:
        """Return the record of a group with its position in place of its starts."""
        starts: list[tuple[StreamName, Cuts]] = []
        try:
            stored = await read_state(self._catalog, self._segments, scope, group)
            state = None if stored is None else stored.state
            if state is None or state.config.generation != record.generation:
                return replace(record, starts=(), leaving=())
            positions = state.positions()
            for name in dict.fromkeys(name for name, _ in record.starts):
                offsets = {one.segment.packed: at for one, at in positions.items() if one.stream == name}
                cut = await self._cut(name, offsets)
                if cut is None:
                    return replace(record, starts=(), leaving=())
                starts.append((name, tuple(sorted(cut.items()))))
        except Unavailable:
            raise
        except SaritError:  # deleted meanwhile, or damaged: the mirror tells that there is no position
            starts = []
        return replace(record, starts=tuple(starts), leaving=())

    async def _cut(self, name: StreamName, positions: dict[int, int]) -> dict[int, int] | None:
        record = (await self._catalog.require(name)).record
        head = streams.head(record)
        offsets = {segment: at for segment, at in positions.items() if at >= 0}
        if positions and not offsets:
            return head  # the segments that it read are deleted
        if not offsets and record.state is not State.SEALED:
            return None
        epochs = await self._catalog.epochs_of(name, record, [*head, *offsets])
        # A group that reads nothing of a sealed stream has read it to its end.
        wanted = segments_read(epochs, offsets) if offsets else [s.segment for s in record.current.segments]
        infos = await self._segments.infos([name.segment(SegmentId.unpack(segment)) for segment in wanted])
        ends: dict[int, int] = {}
        for segment, info in zip(wanted, infos, strict=True):
            if info is not None and not info.sealed:
                return None  # the state does not say that it was read
            ends[segment] = 0 if info is None else info.length
        return cut_at(epochs, head, offsets, ends) if offsets else ends


class GroupTarget:
    """The reader groups that links make in this installation."""

    def __init__(self, catalog: Catalog, groups: Groups, segments: Segments) -> None:
        self._catalog = catalog
        self._groups = groups
        self._segments = segments

    async def put(self, link: LinkIdentity, scope: str, facts: GroupFacts) -> str:
        """Have a group start at a position.  Returns why it was left out; empty: it was not.  Raises Unavailable."""
        wanted = replace(facts.record, state=State.ACTIVE, pending=False, leaving=())
        try:
            _check(scope, facts.group, wanted)
            starts: list[tuple[StreamName, Cuts]] = []
            is_promoted = False
            for name, cut in wanted.starts:
                at, promoted = await self._reached(link, name, dict(cut))
                if at is None:
                    return f"its position in {name} is not here yet"
                starts.append((name, tuple(sorted(at.items()))))
                is_promoted = is_promoted or promoted
            return await self._put(scope, facts.group, replace(wanted, starts=tuple(starts)), is_promoted)
        except Unavailable:
            raise
        except SaritError as error:  # one group must not keep others from being copied
            return str(error)

    async def _reached(
        self, link: LinkIdentity, name: StreamName, cut: dict[int, int]
    ) -> tuple[dict[int, int] | None, bool]:
        """Return where a group starts in a mirror, None if the mirror is not there, and whether it was promoted.

        Raises Invalid (no mirror of this link; no cut)."""
        known = await find_known(self._catalog, name)
        if known is None or known.row is None or known.row.link.link_id != link.link_id:
            raise Invalid(f"this link does not copy stream {name}, which the group reads")
        record, head = known.record, streams.head(known.record)
        is_promoted = not record.mirrored
        if min(cut, default=-1) < 0 or min(cut.values()) < 0:
            raise Invalid(f"the source sends no cut of {name}")
        segments = known_segments(await self._catalog.epochs_of(name, record, [*head, *cut]))
        if known.row.head or not cut.keys() <= segments.keys():
            return None, is_promoted  # epochs that are still to come
        if not is_cut(segments, cut):
            raise Invalid(f"the source sends a cut of {name} that does not cover the stream once")
        infos = await self._segments.infos([name.segment(SegmentId.unpack(segment)) for segment in cut])
        # A segment that is gone here was whole before.
        if any(info is not None and at > info.length for at, info in zip(cut.values(), infos, strict=True)):
            return None, is_promoted
        return (cut if follows(segments, head, cut) else head), is_promoted

    async def _put(self, scope: str, group: str, wanted: GroupRecord, is_promoted: bool) -> str:
        try:
            present = await self._groups.find(scope, group)
        except NotFound:
            if is_promoted:
                return ""  # users of this installation may have deleted it
            present = await self._groups.create(scope, group, wanted)
        if present.group_id != wanted.group_id:
            return "a reader group of this name was made here: it is left alone"
        stored = await read_state(self._catalog, self._segments, scope, group)
        if stored is None:
            return "the group is being deleted here"
        if stored.state is not None and (is_promoted or not stored.is_unused):
            return "" if is_promoted else "readers have joined it here: it is left alone"
        is_new = not is_promoted and replace(present, generation=wanted.generation) != wanted
        begun = stored.state is not None and stored.state.config.generation == present.generation
        if stored.state is not None and begun and not is_new and not stored.state.updating:
            return ""
        try:
            end = stored.end
            if is_new:
                if stored.state is not None:
                    # So that a reader that joins in this moment begins the next generation itself.
                    end = await announce(self._segments, stored)
                wanted = replace(wanted, generation=present.generation)
                present = replace(wanted, generation=await self._groups.update(scope, group, wanted))
            await begin(self._segments, stored.segment, end, present)
        except Conflict:
            return "the group is changed here at the moment"
        return ""


def _check(scope: str, group: str, record: GroupRecord) -> None:
    """Check what a source says of a group.  Raises Invalid."""
    if not is_user_name(group):
        raise Invalid("this is no name of a reader group")
    if not record.starts:
        raise Invalid("the source knows no position of it at the moment")
    decisions.check_names(record)
    for cuts in (record.starts, record.ends):
        names = {name for name, _ in cuts}
        if len(cuts) > MAX_STREAMS_OF_GROUP or len(names) != len(cuts):
            raise Invalid(f"it reads more than {MAX_STREAMS_OF_GROUP} streams, or one twice")
        if any(name.scope != scope for name in names):
            raise Invalid("it reads streams of another scope: make it here, from its stream cuts")
    # Readers count on from the generation, and it is stored in 64 bits.
    if not 0 <= record.generation < MAX_GROUP_GENERATION:
        raise Invalid("its generation is out of range")
    if any(segment < 0 for _, cut in record.ends for segment, _ in cut):
        raise Invalid("it ends at no cut")
    config_of(record)
