"""How transactions ended: the latest endings are listed, old ones forgotten."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from sarit.controller import keys
from sarit.controller.model import codec
from sarit.controller.ports import TableUpdate
from sarit.core.limits import MAX_LISTED_TRANSACTIONS, MAX_STREAMS_WITH_ENDINGS_COUNTED, NO_VERSION

if TYPE_CHECKING:
    from sarit.controller.catalog import Catalog
    from sarit.controller.model.records import TxnState
    from sarit.core.names import StreamName
    from sarit.env.ports import Env

_COMPLETED_MS: Final = 10 * 60 * 1000
_PRUNE_AFTER: Final = 200
_FIRST_SPAN_MS: Final = 1000
_SPAN_FACTOR: Final = 4


class CompletedTransactionLog:
    """Endings of transactions, by stream."""

    def __init__(self, catalog: Catalog, env: Env) -> None:
        self._catalog = catalog
        self._env = env
        self._since_prune: OrderedDict[StreamName, int] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Remembered, endings of {len(self._since_prune)} streams counted>"

    async def latest(self, name: StreamName) -> list[tuple[int, TxnState]]:
        """The transactions that ended last, at most MAX_LISTED_TRANSACTIONS.  Raises NotFound."""
        await self._catalog.require(name)
        # They are in order of time, and there may be a hundred thousand: look back further until there are enough.
        now, span = self._env.clock.wall_ms(), _FIRST_SPAN_MS
        last = await self._since(name, max(0, now - span))
        while len(last) < MAX_LISTED_TRANSACTIONS and span < now:
            span *= _SPAN_FACTOR
            last = await self._since(name, max(0, now - span))
        txns = [keys.transaction_of(key) for key in last]
        values = await self._catalog.get(name.scope, [keys.completed_key(name.stream, txn) for txn in txns])
        ends = {txn: value for txn, value in zip(txns, values, strict=True) if value is not None}
        return [(txn, codec.decode_completed(value.value).state) for txn, value in ends.items()]

    async def _since(self, name: StreamName, time_ms: int) -> list[bytes]:
        prefix, last = keys.of_stream(name.stream, keys.ENDINGS), list[bytes]()
        after = keys.ending_key(name.stream, time_ms, 0)
        while rows := await self._catalog.look(name.scope, prefix, after):
            after = rows[-1][0]
            last = [*last, *(key for key, _ in rows)][-MAX_LISTED_TRANSACTIONS:]
        return last

    async def prune(self, name: StreamName, count: int) -> None:
        """So many more have ended: forget how old ones did, when enough have."""
        since = self._since_prune.pop(name, 0) + count
        if since < _PRUNE_AFTER:
            self._since_prune[name] = since
            if len(self._since_prune) > MAX_STREAMS_WITH_ENDINGS_COUNTED:
                self._since_prune.popitem(last=False)
            return
        prefix, limit = keys.of_stream(name.stream, keys.ENDINGS), 10 * _PRUNE_AFTER
        rows = await self._catalog.scan(name.scope, prefix, limit=limit)
        latest = keys.ending_key(name.stream, max(0, self._env.clock.wall_ms() - _COMPLETED_MS), 0)
        old = [key for key, _ in rows[:-MAX_LISTED_TRANSACTIONS] if key < latest]
        updates = [TableUpdate(key, None, NO_VERSION) for key in old]
        updates += (TableUpdate(keys.completed_key(name.stream, keys.transaction_of(k)), None, NO_VERSION) for k in old)
        if updates:
            await self._catalog.update(name.scope, updates)
