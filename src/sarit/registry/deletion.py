"""Deletion of versions and groups: softly, so that numbers and ids resolve still, and then permanently.

A permanent deletion of a group removes its versions in batches, the newest first.  One that stops half way leaves a
softly deleted group with fewer versions: it is completed by being repeated.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sarit.registry import decisions, keys, records
from sarit.registry.decisions import Change, Purged
from sarit.registry.errors import Missing, NotThere
from sarit.registry.limits import PURGED_VERSIONS_PER_BATCH
from sarit.registry.values import LATEST, Settings
from sarit.schemas.schema_text import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sarit.registry.changes import Changes
    from sarit.registry.decisions import GroupRows
    from sarit.registry.records import Counters
    from sarit.registry.rows import Rows
    from sarit.registry.values import GroupName, Version


class Deletions:
    """Deletes versions and groups."""

    def __init__(self, rows: Rows, changes: Changes) -> None:
        self._rows = rows
        self._changes = changes

    def __repr__(self) -> str:
        return f"<Deletions in {self._rows!r}>"

    async def version(self, name: GroupName, number: int) -> int:
        """Delete a version softly; return its number.  See `Registry.delete_version`."""
        return await self._changes.make(partial(self._delete_version, name, number))

    async def purge_version(self, name: GroupName, number: int) -> int:
        """Delete a version permanently; return its number.  See `Registry.delete_version`."""
        return await self._changes.make(partial(self._purge_version, name, number))

    async def group(self, name: GroupName) -> list[int]:
        """Delete a group softly; return the versions that were not deleted.  See `Registry.delete_group`."""
        return await self._changes.make(partial(self._delete_group, name))

    async def purge_group(self, name: GroupName) -> list[int]:
        """Delete a group permanently; return its versions.  See `Registry.delete_group`."""
        group = await self._rows.group(name)
        head = group.require_any()
        numbers = [one.number for one in await self._rows.versions(name, head)]
        left = list(reversed(numbers))
        while True:
            await self._changes.make(partial(self._purge_some, name, left[:PURGED_VERSIONS_PER_BATCH]))
            left = left[PURGED_VERSIONS_PER_BATCH:]
            if not left:
                return numbers

    async def _delete_version(self, name: GroupName, number: int, counters: Counters) -> Change[int]:
        group = await self._rows.group(name)
        head = group.require()
        if number == LATEST:
            if not head.latest:
                raise NotThere(Missing.VERSION, f"group {shown(str(name))} has no version")
            number = head.latest
        if number == head.latest:
            versions = await self._rows.versions(name, head)
        else:
            versions = await self._rows.some_versions(name, head, [number])
        referrers = [keys.parse_referrer(key) for key, _ in await self._rows.scan(keys.referrers_of(name, number))]
        referred = await self._in_use(referrers, live=True) is not None
        return decisions.delete_version(group, counters, versions, number, referred)

    async def _delete_group(self, name: GroupName, counters: Counters) -> Change[list[int]]:
        group = await self._rows.group(name)
        head = group.require_any()
        versions = await self._rows.versions(name, head)
        referred = await self._referred_from_outside(name, live=True)
        return decisions.delete_group(group, counters, versions, [] if referred is None else [referred])

    async def _purge_version(self, name: GroupName, number: int, counters: Counters) -> Change[int]:
        group = await self._rows.group(name)
        head = group.require_any()
        if number == LATEST:
            versions = (await self._rows.versions(name, head))[-1:]
        else:
            versions = await self._rows.some_versions(name, head, [number])
        if number == LATEST and versions:
            number = versions[0].number
        referrers = await self._rows.scan(keys.referrers_of(name, number), limit=1)
        decisions.check_purge(group, versions[0] if versions else None, number, bool(referrers))
        change = decisions.purge(group, counters, await self._purged(name, versions), _has_settings(group), end=False)
        return Change(number, change.counters, change.rows, change.removed)

    async def _purge_some(self, name: GroupName, numbers: Sequence[int], counters: Counters) -> Change[None]:
        group = await self._rows.group(name)
        head = group.require_any()
        decisions.check_group_purge(group, await self._referred_from_outside(name, live=False) is not None)
        versions = await self._rows.some_versions(name, head, numbers)
        end = head.versions == len(versions)
        return decisions.purge(group, counters, await self._purged(name, versions), _has_settings(group), end=end)

    async def _purged(self, name: GroupName, versions: Sequence[Version]) -> list[Purged]:
        by_schema: dict[int, int] = {}
        for one in versions:
            by_schema[one.schema] = by_schema.get(one.schema, 0) + 1
        # A schema goes with the last of its versions here, if there are no others.
        unheld = [
            id
            for id, count in by_schema.items()
            if len(await self._rows.scan(keys.holders_of(id), limit=count + 1)) == count
        ]
        schemas = await self._rows.schemas(unheld)
        found = []
        for one in versions:
            encodings: list[bytes] = []
            for key, row in await self._rows.scan(keys.encodings_by_version(name, one.number)):
                encodings += (key, keys.encoding_key(name, records.decode_id(row.value, records.name_of(key))))
            found.append(Purged(one, schemas.pop(one.schema, None), encodings))
        return found

    async def _referred_from_outside(self, name: GroupName, *, live: bool) -> int | None:
        """Return a version of a group that schemas held by other groups refer to; None if there is none.

        `live`: only by versions that are not deleted."""
        for key, _ in await self._rows.scan(keys.referrers_of_group(name)):
            if await self._in_use([keys.parse_referrer(key)], live=live, outside=name) is not None:
                return keys.parse_number(key[:-17])
        return None

    async def _in_use(self, ids: Sequence[int], *, live: bool, outside: GroupName | None = None) -> int | None:
        """Return the first of schemas that a version holds.  `live`: one that is not deleted.  `outside`: of another
        group."""
        for id in ids:
            holders = await self._rows.holders(id)
            if any(one.name != outside and not (live and one.deleted) for one in holders):
                return id
        return None


def _has_settings(group: GroupRows) -> bool:
    return group.levels[0] != Settings()
