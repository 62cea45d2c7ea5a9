"""Pravega's encodings: numbers of versions with codecs, which its serializers put into events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.registry import decisions, keys, records
from sarit.registry.errors import Missing, NotThere
from sarit.registry.names import check_codec, check_group, check_properties
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.registry.changes import Changes
    from sarit.registry.decisions import Change
    from sarit.registry.records import Counters
    from sarit.registry.rows import Rows
    from sarit.registry.values import Encoding, GroupName


class Encodings:
    """The encodings and codecs of all groups.  All methods raise Unavailable and Corrupt besides what they name."""

    def __init__(self, rows: Rows, changes: Changes) -> None:
        self._rows = rows
        self._changes = changes

    def __repr__(self) -> str:
        return f"<Encodings in {self._rows!r}>"

    async def encode(self, name: GroupName, version: int, codec: str) -> int:
        """Return the number of the encoding of a version by a codec, made now if there is none.

        Raises NotThere(GROUP, VERSION, CODEC), ReadOnly, Full, Invalid."""
        check_group(name)
        check_codec(codec)

        async def decide(counters: Counters) -> Change[int]:
            number_key, version_key = keys.encoding_number_key(name, version, codec), keys.version_key(name, version)
            group, (known, row) = await self._rows.group_and(name, [number_key, version_key])
            number = None if known is None else records.decode_id(known.value, records.name_of(number_key))
            found = None
            if row is not None and group.head is not None:
                found = records.decode_version(version, row.value, group.head, records.name_of(version_key))
            return decisions.encode(group, counters, found, version, codec, number)

        return await self._changes.make(decide)

    async def get(self, name: GroupName, number: int) -> Encoding:
        """Return an encoding by its number, also of a version that is deleted softly.

        Raises NotThere(GROUP or ENCODING)."""
        check_group(name)
        key = keys.encoding_key(name, number)
        group, (row,) = await self._rows.group_and(name, [key])
        group.require_any()
        if row is None:
            raise NotThere(Missing.ENCODING, f"group {shown(str(name))} has no encoding {number}")
        return records.decode_encoding(number, row.value, records.name_of(key))

    async def all(self, name: GroupName) -> list[Encoding]:
        """Return the encodings of a group by number.  Raises NotThere(GROUP)."""
        check_group(name)
        (await self._rows.group(name)).require()
        rows = await self._rows.scan(keys.encodings_of(name))
        return [
            records.decode_encoding(keys.parse_number(key), value.value, records.name_of(key)) for key, value in rows
        ]

    async def add_codec(self, name: GroupName, codec: str, properties: Mapping[str, str]) -> None:
        """Add a codec to a group; one that is there is replaced.  Raises NotThere(GROUP), Full, ReadOnly, Invalid."""
        check_group(name)
        check_codec(codec)
        copy = check_properties(properties)

        async def decide(counters: Counters) -> Change[None]:
            return decisions.add_codec(await self._rows.group(name), counters, codec, copy)

        await self._changes.make(decide)
