"""The controller as one object: its workflows, and the gRPC service in front of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sarit.controller.catalog import Catalog
from sarit.controller.groups import Groups
from sarit.controller.key_value_tables import KeyValueTables
from sarit.controller.scopes import Scopes
from sarit.controller.service import ControllerService
from sarit.controller.streams import Streams
from sarit.core.errors import Exists, NotFound
from sarit.core.names import SYSTEM_SCOPE, StreamName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sarit.controller.ports import Segments, Tables, TableUpdate
    from sarit.controller.records import StreamRecord
    from sarit.env.ports import Env

_SUCCESS, _INVALID_TIME, _INVALID_POSITION, _INTERNAL_ERROR = range(4)


class _Backwards(Exception):
    """A writer's note that does not advance; carries the status."""


class Controller:
    """Stateless but for what its tables hold; several may run on the same tables."""

    def __init__(self, tables: Tables, segments: Segments, env: Env, advertised: tuple[str, int]) -> None:
        self.advertised = advertised
        self.segments = segments
        self.catalog = Catalog(tables)
        self.streams = Streams(self.catalog, segments, env)
        self.groups = Groups(self.catalog, self.streams)
        self.tables = KeyValueTables(self.catalog, segments)
        self.scopes = Scopes(self.catalog, self.streams, self.groups, self.tables)

    def __repr__(self) -> str:
        return f"<Controller at {self.advertised[0]}:{self.advertised[1]}>"

    async def start(self) -> None:
        """Create the controller's tables and the system scope where they are missing."""
        await self.catalog.start()
        try:
            await self.scopes.create(SYSTEM_SCOPE)
        except Exists:
            return

    def services(self) -> list[Any]:
        """What a grpclib server serves."""
        return [ControllerService(self)]

    # -- event time: noted now, turned into watermarks later -----------------------------------------

    async def note_time(self, name: StreamName, writer: str, time: int, position: Mapping[int, int]) -> int:
        """Record a writer's time and position; the status of TimestampResponse."""

        def decide(record: StreamRecord) -> tuple[StreamRecord, list[TableUpdate]]:
            before = record.writers.get(writer)
            if before is not None:
                if time < before["time"]:
                    raise _Backwards(_INVALID_TIME)
                if any(position.get(int(s), offset) < offset for s, offset in before["position"].items()):
                    raise _Backwards(_INVALID_POSITION)
            note = {"time": time, "position": {str(s): offset for s, offset in position.items()}}
            return replace(record, writers={**record.writers, writer: note}), []

        try:
            await self.catalog.change(name, decide)
        except _Backwards as refusal:
            return int(refusal.args[0])
        except NotFound:
            return _INTERNAL_ERROR
        return _SUCCESS

    async def remove_writer(self, name: StreamName, writer: str) -> bool:
        """Forget a writer's notes; whether it was known.  Raises NotFound (stream)."""
        known = False

        def decide(record: StreamRecord) -> tuple[StreamRecord, list[TableUpdate]]:
            nonlocal known
            known = writer in record.writers
            return replace(record, writers={w: n for w, n in record.writers.items() if w != writer}), []

        await self.catalog.change(name, decide)
        return known
