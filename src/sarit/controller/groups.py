"""Reader groups (their configuration; their state lives in the `_RG` stream) and subscribers."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sarit.controller import model
from sarit.controller.records import ReaderGroupRecord, StreamRecord, group_key
from sarit.core.errors import Conflict, Exists, Invalid, NotFound
from sarit.core.limits import NO_VERSION
from sarit.core.names import READER_GROUP_PREFIX, StreamName, is_user_name
from sarit.core.policies import StreamConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.controller.catalog import Catalog
    from sarit.controller.ports import TableUpdate
    from sarit.controller.streams import Streams

_RETENTION_NONE = 0


class Groups:
    """Workflows on reader groups.  A configuration is a dictionary of the API message's fields."""

    def __init__(self, catalog: Catalog, streams: Streams) -> None:
        self._catalog = catalog
        self._streams = streams

    async def create(self, scope: str, group: str, config: dict[str, Any]) -> dict[str, Any]:
        """The configuration in force: the one there was, when the group exists.

        Raises Invalid (name), NotFound (scope)."""
        if not is_user_name(group):
            raise Invalid(f"{group!r} is not a reader group name")
        if not await self._catalog.scope_exists(scope):
            raise NotFound(f"scope {scope} does not exist")
        found = await self._catalog.get(scope, group_key(group))
        if found is not None:
            return ReaderGroupRecord.decode(found[0]).config
        with suppress(Exists):
            await self._streams.create(StreamName(scope, READER_GROUP_PREFIX + group), StreamConfig())
        if config.get("retentionType", _RETENTION_NONE) != _RETENTION_NONE:
            await self._subscribe(f"{scope}/{group}", config, config)
        try:
            await self._catalog.insert(scope, [(group_key(group), ReaderGroupRecord(config).encode())])
        except Conflict:
            return await self.find(scope, group)
        return config

    async def find(self, scope: str, group: str) -> dict[str, Any]:
        """Raises NotFound."""
        found = await self._catalog.get(scope, group_key(group))
        if found is None:
            raise NotFound(f"reader group {scope}/{group} does not exist")
        return ReaderGroupRecord.decode(found[0]).config

    async def update(self, scope: str, group: str, config: dict[str, Any]) -> int:
        """The new generation.  Raises NotFound, Conflict (generation or id)."""
        found = await self._catalog.get(scope, group_key(group))
        if found is None:
            raise NotFound(f"reader group {scope}/{group} does not exist")
        present = ReaderGroupRecord.decode(found[0]).config
        for field in ("generation", "readerGroupId"):
            if str(present.get(field, 0)) != str(config.get(field, 0)):
                raise Conflict(
                    f"reader group {scope}/{group}: {field} is {present.get(field)}", actual=present.get(field)
                )
        generation = int(present.get("generation", 0)) + 1
        new = {**config, "generation": str(generation)}
        await self._subscribe(f"{scope}/{group}", present, new)
        await self._catalog.put(scope, group_key(group), ReaderGroupRecord(new).encode(), found[1])
        return generation

    async def delete(self, scope: str, group: str, group_id: str | None = None) -> None:
        """Raises NotFound, also when the id is another's."""
        config = await self.find(scope, group)
        if group_id and config.get("readerGroupId") != group_id:
            raise NotFound(f"reader group {scope}/{group} has another id")
        await self._subscribe(f"{scope}/{group}", config, {})
        stream = StreamName(scope, READER_GROUP_PREFIX + group)
        with suppress(NotFound):
            await self._streams.seal(stream)
            await self._streams.delete(stream)
        await self._catalog.put(scope, group_key(group), None, NO_VERSION)

    # -- subscribers ------------------------------------------------------------------------------

    async def _subscribe(self, subscriber: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Enter the group as a subscriber of its streams, and take it out of those it left."""
        old, new = _subscribed(before), _subscribed(after)
        entry = {"generation": int(after.get("generation", 0)), "id": after.get("readerGroupId", ""), "cut": {}}
        for name in sorted(old | new):

            def decide(record: StreamRecord, name: StreamName = name) -> tuple[StreamRecord, list[TableUpdate]]:
                subscribers = {k: v for k, v in record.subscribers.items() if k != subscriber}
                if name in new:
                    cut = record.subscribers.get(subscriber, {}).get("cut", {})
                    subscribers[subscriber] = {**entry, "cut": cut}
                return replace(record, subscribers=subscribers), []

            with suppress(NotFound):
                await self._catalog.change(name, decide)

    async def note_cut(
        self, name: StreamName, subscriber: str, generation: int, group_id: str, cut: Mapping[int, int]
    ) -> None:
        """Record how far a subscriber has consumed.

        Raises NotFound (stream), LookupError (subscriber), Invalid (cut), Conflict (generation)."""
        history = await self._catalog.history(name)

        def decide(record: StreamRecord) -> tuple[StreamRecord, list[TableUpdate]]:
            present = record.subscribers.get(subscriber)
            if present is None or present["id"] != group_id:
                raise LookupError(subscriber)
            if present["generation"] != generation:
                raise Conflict(f"subscriber {subscriber} is of generation {present['generation']}")
            if not model.is_cut(history, cut):
                raise Invalid(f"the segments of the cut do not cover stream {name} exactly once")
            subscribers = {**record.subscribers, subscriber: {**present, "cut": {str(k): v for k, v in cut.items()}}}
            return replace(record, subscribers=subscribers), []

        await self._catalog.change(name, decide)


def _subscribed(config: Mapping[str, Any]) -> set[StreamName]:
    if config.get("retentionType", _RETENTION_NONE) == _RETENTION_NONE:
        return set()
    cuts = config.get("startingStreamCuts", [])
    return {StreamName(cut["streamInfo"]["scope"], cut["streamInfo"]["stream"]) for cut in cuts}
