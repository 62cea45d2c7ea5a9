"""Makes mirrors of streams, and decides which link may have which stream."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from sarit.controller import keys
from sarit.controller.model import codec
from sarit.controller.model.records import CreationRecord, State, StreamRecord
from sarit.controller.ports import TableUpdate
from sarit.core.errors import Exists, Invalid
from sarit.core.limits import NOT_EXISTS
from sarit.core.names import MARK_PREFIX, StreamName, is_user_name
from sarit.core.policies import RetentionType
from sarit.mirror.divergence import next_lineage
from sarit.mirror.mirror_checks import check_facts
from sarit.mirror.mirror_records import MirrorRecord, encode_mirror
from sarit.mirror.values import MirrorState, MirrorStatus
from sarit.wire.limits import NO_VERSION

if TYPE_CHECKING:
    from sarit.controller.scopes import Scopes
    from sarit.controller.streams import Streams
    from sarit.core.policies import StreamConfig
    from sarit.mirror.link_table import LinkTable
    from sarit.mirror.open_mirrors import Mirror, OpenMirrors
    from sarit.mirror.values import LinkIdentity, StreamFacts


def refusal(link: LinkIdentity, mirror: Mirror) -> MirrorState | None:
    """Return why a link may not write a stream; None: it may."""
    name, row = mirror.name, mirror.row
    if mirror.record.state is State.DELETING:
        return MirrorState(name, MirrorStatus.BUSY, reason=f"stream {name} is being deleted")
    if row.promoting is not None or not mirror.record.mirrored:
        lineages = row.lineages if row.promoting is None else (row.promoting,)
        if row.link.link_id == link.link_id and lineages:
            return MirrorState(name, MirrorStatus.PROMOTED, lineage=lineages[-1], version=row.version)
        return refused(
            name,
            f"there is a stream {name} that is no mirror of this link: leave it out of the link, or delete it there",
        )
    if row.link.link_id != link.link_id:
        return refused(
            name,
            f"stream {name} is the mirror of link {row.link.name}, and a stream has one source: delete that link here, "
            "or promote its mirrors",
        )
    return None


def refused(name: StreamName, reason: str) -> MirrorState:
    """Return that a link may not write a stream, for good."""
    return MirrorState(name, MirrorStatus.REFUSED, reason=reason)


class Beginnings:
    """Makes mirrors in one installation, and keeps what they know of their sources up to date."""

    def __init__(
        self, mirrors: OpenMirrors, streams: Streams, scopes: Scopes, installation: str, links: LinkTable | None
    ) -> None:  # fmt: skip
        self._mirrors = mirrors
        self._catalog = mirrors.catalog
        self._streams = streams
        self._scopes = scopes
        self._installation = installation
        self._links = links

    def __repr__(self) -> str:
        return f"<Beginnings in installation {self._installation}>"

    async def ensure_scope(self, scope: str) -> None:
        """Create a scope, if there is none.  Raises Unavailable."""
        if not await self._catalog.scope_exists(scope):
            with suppress(Exists):
                await self._scopes.create(scope)

    def impossible(self, scope: str, facts: StreamFacts) -> MirrorState | None:
        """Return why there can be no mirror of a stream here; None: there can."""
        try:
            check_facts(scope, facts)
        except Invalid as error:
            return refused(facts.name, f"its source says what cannot be: {error}")
        if facts.path[-1] == self._installation:
            return refused(facts.name, "this is a link of an installation to itself: give another peer")
        if self._installation in facts.path:
            return refused(facts.name, f"links form a loop: the stream came from {' → '.join(facts.path)}")
        return None

    async def refusal(self, link: LinkIdentity, facts: StreamFacts, mirror: Mirror) -> MirrorState | None:
        """Return why a stream cannot become or stay the mirror of a link; None: it can."""
        no = refusal(link, mirror)
        if no is not None and not (no.status is MirrorStatus.REFUSED and await self._is_abandoned(mirror)):
            return no
        if mirror.creation_id != facts.creation_id:
            return refused(
                facts.name,
                f"{facts.name} was created again at its source: the mirror is of the stream before; delete the mirror, "
                "or promote it under another name",
            )
        return None

    @staticmethod
    def is_former_source(link: LinkIdentity, facts: StreamFacts, mirror: Mirror) -> bool:
        """Return whether a stream that is no mirror is the same one that the facts are of, or was before a promotion.

        Not if the link wrote it until it was promoted: that link is answered with the promotion."""
        if mirror.record.mirrored or mirror.creation_id != facts.creation_id:
            return False
        promoted = mirror.row.link.link_id == link.link_id and bool(mirror.row.lineages or mirror.row.promoting)
        return not promoted or next_lineage(mirror.row.lineages, facts.lineages) is not None

    @staticmethod
    def is_current(link: LinkIdentity, facts: StreamFacts, mirror: Mirror) -> bool:
        """Return whether a mirror of a link has all that the facts say, and no work is left to be done."""
        row, record = mirror.row, mirror.record
        return (
            record.mirrored
            and row.link == link
            and row.decided is None
            and row.promoting is None
            and not record.pending
            and mirror.creation_id == facts.creation_id
            and facts.version <= row.version
            and facts.config.retention == row.retention
        )

    async def create(self, link: LinkIdentity, facts: StreamFacts) -> None:
        """Store a new mirror, whose segments are to be created.  Raises Conflict, QuotaExceeded, NotFound (scope)."""
        name, config = facts.name, facts.config
        if is_user_name(name.stream):
            await self._streams.admit(name.scope, 1, len(facts.first.segments))
        await self._index_retention(name, config)
        place = await self._catalog.numbers.place(name.scope)
        (number,) = await self._catalog.get(name.scope, [keys.number_key(name.stream)])
        head = {s.segment: facts.head.get(s.segment, 0) for s in facts.first.segments}
        record = StreamRecord(
            State.CREATING, config, facts.created_ms, facts.first_number, (facts.first,), head, link=link.name
        )
        row = MirrorRecord(
            link, facts.path, facts.lineages, facts.version, config.retention,
            head=dict(facts.head) if facts.head != head else {},
        )  # fmt: skip
        updates = [
            TableUpdate(keys.stream_key(name.stream), codec.encode_stream(record), NOT_EXISTS),
            TableUpdate(keys.number_key(name.stream), None, NOT_EXISTS if number is None else number.version),
            TableUpdate(
                keys.creation_key(name.stream),
                codec.encode_creation(CreationRecord(facts.first_number, facts.creation_id)),
                NO_VERSION,
            ),
            TableUpdate(keys.mirror_key(name.stream), encode_mirror(row), NO_VERSION),
            _properties(facts),
        ]
        updates += (TableUpdate(keys.tag_key(tag, name.stream), b"", NO_VERSION) for tag in config.tags)
        await self._catalog.update(name.scope, updates, place.table)
        await self._index_retention(name, config)  # maintenance may have removed the entry before the creation

    async def _is_abandoned(self, mirror: Mirror) -> bool:
        """Return whether the link of a mirror is gone: it was deleted here, so another one may go on with the mirror.

        What a caller says of itself does not count: anybody can say it."""
        if self._links is None or not mirror.record.mirrored or mirror.row.promoting is not None:
            return False
        return all(link.link_id != mirror.row.link.link_id for link in await self._links.list())

    async def mark_fits(self, link: LinkIdentity, name: StreamName) -> bool:
        """Return whether a stream may be made as far as its name goes: a stream of watermarks goes with its stream."""
        if not name.stream.startswith(MARK_PREFIX):
            return True
        of = StreamName(name.scope, name.stream.removeprefix(MARK_PREFIX))
        (stream,) = await self._mirrors.read(name.scope, [of])
        return stream is None or refusal(link, stream) is None

    async def take_over(self, link: LinkIdentity, facts: StreamFacts, mirror: Mirror) -> Mirror:
        """Give a mirror what its source has newly.  Raises Conflict."""
        record, row = mirror.record, mirror.row
        more: list[TableUpdate] = []
        retention = record.config.retention
        if facts.config.retention != row.retention:
            # The link gave another policy; otherwise the mirror keeps one of its own.
            retention = facts.config.retention
            row = replace(row, retention=retention)
        if facts.version > row.version:
            row = replace(row, path=facts.path, lineages=facts.lineages, version=facts.version)
            record = replace(record, config=facts.config)
            before, after = set(mirror.record.config.tags), set(facts.config.tags)
            tags = [(tag, None) for tag in before - after] + [(tag, b"") for tag in after - before]
            more = [TableUpdate(keys.tag_key(tag, mirror.name.stream), value, NO_VERSION) for tag, value in tags]
            more.append(_properties(facts))
        record = replace(record, config=replace(record.config, retention=retention), link=link.name)
        row = replace(row, link=link)
        if (record, row) == (mirror.record, mirror.row):
            return mirror
        await self._index_retention(mirror.name, record.config)
        return await self._mirrors.store(mirror, record=record, row=row, more=more)

    async def _index_retention(self, name: StreamName, config: StreamConfig) -> None:
        if config.retention.type is not RetentionType.NONE:
            await self._catalog.index_for_maintenance(keys.RETENTION_INDEX, name)


def _properties(facts: StreamFacts) -> TableUpdate:
    value = codec.encode_properties(facts.properties) if facts.properties else None
    return TableUpdate(keys.properties_key(facts.name.stream), value, NO_VERSION)
