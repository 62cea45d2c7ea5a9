"""The controller as one object: its workflows, its background work, and the gRPC service in front of them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from sarit.controller.calls.groups import GroupCalls
from sarit.controller.calls.scopes import ScopeCalls
from sarit.controller.calls.segments import SegmentCalls
from sarit.controller.calls.streams import StreamCalls
from sarit.controller.calls.tables import TableCalls
from sarit.controller.calls.transactions import TransactionCalls
from sarit.controller.catalog import Catalog
from sarit.controller.groups import Groups
from sarit.controller.key_value_tables import KeyValueTables
from sarit.controller.runner import Runner
from sarit.controller.scopes import Scopes
from sarit.controller.service import ControllerService
from sarit.controller.streams import Streams
from sarit.controller.sweeper import Sweeper
from sarit.controller.transactions import Transactions
from sarit.controller.writers import Writers
from sarit.core.errors import Exists
from sarit.core.names import SYSTEM_SCOPE

if TYPE_CHECKING:
    from sarit.controller.ports import Segments, Tables
    from sarit.env.ports import Env


class Controller:
    """Stateless but for what its tables hold; several may run on the same tables.

    `advertised`: the address and port clients are told for this controller."""

    def __init__(self, tables: Tables, segments: Segments, env: Env, advertised: tuple[str, int]) -> None:
        self.advertised = advertised
        self.segments = segments
        runner = Runner(segments)
        self.catalog = Catalog(tables)
        self.streams = Streams(self.catalog, runner, env)
        self.groups = Groups(self.catalog, self.streams)
        self.tables = KeyValueTables(self.catalog, runner, env)
        self.scopes = Scopes(self.catalog, self.streams, self.groups, self.tables, env)
        self.transactions = Transactions(self.catalog, self.streams, runner, env)
        self.writers = Writers(self.catalog, self.streams)
        self.sweeper = Sweeper(self.catalog, self.scopes, self.streams, self.transactions, env)
        self._sweeping: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Controller at {self.advertised[0]}:{self.advertised[1]}>"

    async def start(self) -> None:
        """Create the controller's tables and the system scope where they are missing; begin to sweep.

        Raises Unavailable."""
        await self.catalog.start()
        with contextlib.suppress(Exists):
            await self.scopes.create(SYSTEM_SCOPE)
        self._sweeping = asyncio.ensure_future(self.sweeper.run())

    async def stop(self) -> None:
        """End the background work; what it leaves is finished by the next start, here or elsewhere."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await self.transactions.stop()

    def services(self) -> list[Any]:
        """What a grpclib server serves."""
        families = (
            ScopeCalls(self.catalog, self.scopes, lambda: self.advertised),
            StreamCalls(self.catalog, self.streams),
            SegmentCalls(self.streams, self.segments),
            TransactionCalls(self.catalog, self.transactions, self.writers),
            GroupCalls(self.groups),
            TableCalls(self.catalog, self.tables),
        )
        return [ControllerService(families)]
