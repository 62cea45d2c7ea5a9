"""Reads of the registry's table.  Without the table, which the first change creates, every row is missing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sarit.controller.catalog import PAGE
from sarit.core.errors import Corrupt, NotFound
from sarit.registry import keys, records
from sarit.registry.decisions import GroupRows
from sarit.registry.errors import Missing, NotThere
from sarit.registry.keys import REGISTRY_TABLE, after_prefix
from sarit.registry.limits import CACHED_SCHEMA_BYTES, CACHED_VALUE_SHARE_BYTES, LISTED_AT_ONCE, MAX_ROWS_PER_READ
from sarit.registry.values import LATEST, FoundVersion, Holder, Settings
from sarit.schemas.schema_text import shown
from sarit.serializers.recent_values import RecentValues

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from sarit.controller.ports import Tables, TableValue
    from sarit.registry.records import Head
    from sarit.registry.values import GroupName, Schema, Version

_ATTEMPTS: Final = 3  # of a read of several rows that a deletion may fall into


class Rows:
    """The rows of the registry.  All methods raise Unavailable and Corrupt."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._schemas: RecentValues[int, Schema] = RecentValues(CACHED_SCHEMA_BYTES, CACHED_VALUE_SHARE_BYTES)

    def __repr__(self) -> str:
        return f"<Rows, {self._schemas!r}>"

    async def get(self, wanted: Sequence[bytes]) -> list[TableValue | None]:
        """Return rows by key, None for a missing one."""
        found: list[TableValue | None] = []
        for at in range(0, len(wanted), MAX_ROWS_PER_READ):
            try:
                found += await self._tables.get(REGISTRY_TABLE, wanted[at : at + MAX_ROWS_PER_READ])
            except NotFound:
                return [None] * len(wanted)
        return found

    async def scan(
        self, prefix: bytes, start: bytes = b"", limit: int = 0, end: bytes | None = None
    ) -> list[tuple[bytes, TableValue]]:  # fmt: skip
        """Return up to `limit` (0: all) rows with a prefix, from the key `start` on, below `end`, in order."""
        found: list[tuple[bytes, TableValue]] = []
        start, end = max(start, prefix), end or after_prefix(prefix)
        while not limit or len(found) < limit:
            try:
                page = await self._tables.scan(
                    REGISTRY_TABLE, start, end, min(limit - len(found), PAGE) if limit else PAGE
                )
            except NotFound:
                break
            if not page:
                break
            found += page
            start = page[-1][0] + b"\0"
        return found

    # -- groups -------------------------------------------------------------------------------------

    async def group(self, name: GroupName) -> GroupRows:
        """Return the rows of a group, which need not exist, with all settings that apply to it."""
        return (await self.group_and(name, ()))[0]

    async def group_and(self, name: GroupName, others: Sequence[bytes]) -> tuple[GroupRows, list[TableValue | None]]:
        """Return the rows of a group as `group` does, and other rows, by one request."""
        levels = keys.settings_keys(name)
        found = await self.get([keys.head_key(name), keys.remains_key(name), *levels, *others])
        return group_rows(name, found[: 2 + len(levels)]), found[2 + len(levels) :]

    async def head(self, name: GroupName) -> Head | None:
        """Return the head of a group; None if there is none."""
        key = keys.head_key(name)
        (value,) = await self.get([key])
        return None if value is None else records.decode_head(value.value, records.name_of(key))

    async def heads(self, names: Sequence[GroupName]) -> dict[GroupName, Head]:
        """Return the heads of the groups that exist."""
        wanted = [keys.head_key(name) for name in names]
        return {
            name: records.decode_head(value.value, records.name_of(key))
            for name, key, value in zip(names, wanted, await self.get(wanted), strict=True)
            if value is not None
        }

    async def has_versions(self, level: GroupName) -> bool:
        """Return whether a group, or any group of a namespace (see `Registry.settings`), has versions."""
        if level.group:
            head = await self.head(level)
            return head is not None and head.versions > 0
        of = keys.groups_of(level.namespace) if level.namespace else keys.GROUPS
        async for _, head in self.all_heads(of):
            if head.versions:
                return True
        return False

    async def all_heads(
        self, prefix: bytes, start: bytes = b"", page: int = 0
    ) -> AsyncIterator[tuple[GroupName, Head]]:
        """Yield the heads of groups whose keys have a prefix, from the key `start` on, in order.

        `page`: how many are read at once; 0: the most."""
        page = min(page or LISTED_AT_ONCE, LISTED_AT_ONCE)
        while rows := await self.scan(prefix, start, page):
            for key, row in rows:
                yield keys.parse_head(key), records.decode_head(row.value, records.name_of(key))
            if len(rows) < page:
                break
            start = rows[-1][0] + b"\0"
            await asyncio.sleep(0)  # the event loop serves appends, too

    # -- versions -----------------------------------------------------------------------------------

    async def versions(self, name: GroupName, head: Head) -> list[Version]:
        """Return the versions of a group, ascending, deleted ones too."""
        found: list[Version] = []
        start = 0
        while rows := await self.scan(keys.versions_of(name), keys.version_key(name, start), LISTED_AT_ONCE):
            found += (
                records.decode_version(keys.parse_number(key), value.value, head, records.name_of(key))
                for key, value in rows
            )
            if len(rows) < LISTED_AT_ONCE:
                break
            start = found[-1].number + 1
            await asyncio.sleep(0)  # the event loop serves appends, too
        return found

    async def some_versions(self, name: GroupName, head: Head, numbers: Iterable[int]) -> list[Version]:
        """Return those of the versions that exist."""
        wanted = [(number, keys.version_key(name, number)) for number in numbers]
        return [
            records.decode_version(number, value.value, head, records.name_of(key))
            for (number, key), value in zip(wanted, await self.get([key for _, key in wanted]), strict=True)
            if value is not None
        ]

    async def latest(self, name: GroupName, head: Head) -> Version | None:
        """Return the highest version of a group that is not deleted; None if there is none."""
        found = await self.some_versions(name, head, [head.latest]) if head.latest else []
        return found[0] if found else None

    async def find_version(self, name: GroupName, number: int, *, deleted: bool = False) -> Version:
        """Return a version, or with LATEST the highest.  Raises NotThere(GROUP or VERSION)."""
        if number == LATEST:
            rows = GroupRows(name, await self.head(name), None)
            head = rows.require_any() if deleted else rows.require()
            if deleted:
                found = (await self.versions(name, head))[-1:]
            else:
                latest = await self.latest(name, head)
                found = [] if latest is None else [latest]
        else:
            key, version_key = keys.head_key(name), keys.version_key(name, number)
            first, second = await self.get([key, version_key])
            known = None if first is None else records.decode_head(first.value, records.name_of(key))
            rows = GroupRows(name, known, None)
            head = rows.require_any() if deleted else rows.require()
            what = records.name_of(version_key)
            found = [] if second is None else [records.decode_version(number, second.value, head, what)]
        if not found or (found[0].deleted and not deleted):
            which = "no version" if number == LATEST else f"no version {number}"
            raise NotThere(Missing.VERSION, f"group {shown(str(name))} has {which}")
        return found[0]

    async def found(self, name: GroupName, version: Version) -> FoundVersion | None:
        """Return a version with its schema; None if both were deleted permanently since the version was read."""
        for _ in range(_ATTEMPTS):
            schema = await self.schema(version.schema)
            if schema is not None:
                return FoundVersion(name, version, schema)
            (row,) = await self.get([keys.version_key(name, version.number)])
            if row is None:
                return None
        raise Corrupt(f"the registry's table is damaged: schema {version.schema} is missing, and a version holds it")

    async def holders(self, id: int) -> list[Holder]:
        """Return the versions that hold a schema, by name, deleted ones too."""
        return await self._holders([keys.parse_holder(key) for key, _ in await self.scan(keys.holders_of(id))])

    async def held(self, id: int, name: GroupName, head: Head) -> list[Version]:
        """Return the versions of a group that hold a schema, ascending, deleted ones too."""
        rows = await self.scan(keys.holders_in(id, name))
        return await self.some_versions(name, head, [keys.parse_number(key) for key, _ in rows])

    async def _holders(self, places: Sequence[tuple[GroupName, int]]) -> list[Holder]:
        heads = await self.heads(list(dict.fromkeys(name for name, _ in places)))
        places = [(name, number) for name, number in places if name in heads]
        wanted = [keys.version_key(name, number) for name, number in places]
        found = []
        for (name, number), key, row in zip(places, wanted, await self.get(wanted), strict=True):
            if row is not None:
                version = records.decode_version(number, row.value, heads[name], records.name_of(key))
                found.append(Holder(name, number, version.deleted))
        return sorted(found, key=lambda one: (one.name, one.version))

    # -- schemas ------------------------------------------------------------------------------------

    async def schema(self, id: int) -> Schema | None:
        """Return the schema of an id; None if there is none."""
        return (await self.schemas([id])).get(id)

    async def schemas(self, ids: Iterable[int]) -> dict[int, Schema]:
        """Return the schemas that exist, by id."""
        found: dict[int, Schema] = {}
        missing: list[int] = []
        for id in dict.fromkeys(ids):
            known = self._schemas.get(id)
            if known is None:
                missing.append(id)
            else:
                found[id] = known
        firsts = await self.get([keys.schema_key(id, 0) for id in missing])
        for id, first in zip(missing, firsts, strict=True):
            if first is None:
                continue
            further = [keys.schema_key(id, part) for part in range(1, 1 + records.further_parts(first.value))]
            rest = await self.get(further) if further else []
            if any(one is None for one in rest):
                continue  # the schema was deleted after its first row was read
            schema = records.decode_schema(id, [first.value, *(one.value for one in rest if one is not None)])
            self._schemas.put(id, schema, len(schema.text))
            found[id] = schema
        return found

    def forget(self, id: int) -> None:
        """Drop a schema that was deleted permanently."""
        self._schemas.drop(id)


def group_rows(name: GroupName, found: Sequence[TableValue | None]) -> GroupRows:
    """Return the rows of a group from those at its head, its remains and its levels of settings."""
    levels = keys.settings_keys(name)
    head, remains, *settings = found
    return GroupRows(
        name,
        None if head is None else records.decode_head(head.value, records.name_of(keys.head_key(name))),
        None if remains is None else records.decode_remains(remains.value, records.name_of(keys.remains_key(name))),
        tuple(
            Settings() if value is None else records.decode_settings(value.value, records.name_of(key))
            for key, value in zip(levels, settings, strict=True)
        ),
    )
