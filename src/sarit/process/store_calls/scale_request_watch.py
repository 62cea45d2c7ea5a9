"""Watches the stores of other processes for segments whose rates require scaling."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from sarit.client.core.replies import expect
from sarit.client.session.session import background
from sarit.core.errors import SaritError
from sarit.core.metering import ScaleAdvice
from sarit.core.repeated_log import RepeatedLog
from sarit.process.limits import STORES_POLL_SECONDS
from sarit.wire import commands as wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sarit.env.ports import Env
    from sarit.process.store_calls.store_connections import Address, StoreConnections

_log = logging.getLogger("sarit.process")

_WAITING: Final = "waiting"
_ADVICE: Final = {1: ScaleAdvice.SPLIT, 2: ScaleAdvice.MERGE}


class ScaleRequestWatch:
    """Waits at every store for segments whose rates require scaling, and reports them to the controller."""

    def __init__(self, stores: StoreConnections, env: Env, report: Callable[[str, ScaleAdvice], None]) -> None:
        self._stores = stores
        self._report = report
        self._repeated = RepeatedLog(_log, env.clock.monotonic)
        self._waiting: dict[Address, asyncio.Task[None]] = {}
        self._background = background()

    def __repr__(self) -> str:
        return f"<ScaleRequestWatch at {len(self._waiting)} stores>"

    async def run(self) -> None:
        """Wait for ever."""
        try:
            while True:
                self._follow(self._stores.addresses())
                await asyncio.sleep(STORES_POLL_SECONDS)
        finally:
            await self._background.close()

    def _follow(self, addresses: Iterable[Address]) -> None:
        current = dict.fromkeys(addresses)
        for address in [address for address in self._waiting if address not in current]:
            self._waiting.pop(address).cancel()
        for address in current:
            if address not in self._waiting:
                name = f"scale requests of {address[0]}:{address[1]}"
                self._waiting[address] = self._background.spawn(self._wait_at(address), name)

    async def _wait_at(self, address: Address) -> None:
        while True:
            try:
                reply = await self._stores.ask_at(address, wire.AwaitScaleRequests, _WAITING)
                for segment, advice in expect(reply, wire.ScaleRequests, "").requests:
                    self._report(segment, _ADVICE.get(advice, ScaleAdvice.NONE))
            except SaritError as error:
                # A lost request does no harm: stores repeat it.
                self._repeated.info(str(address), f"no requests to scale come from {address[0]}:{address[1]}: {error}")
                await asyncio.sleep(STORES_POLL_SECONDS)
