"""Delegation tokens that a client holds: one for each stream, renewed before they expire.

The controller gives them out; stores ask for them.  How long one lasts is read from it and counted from when it came,
by our own clock: the clock of the server may be wrong, or ours.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import math
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from sarit.client.limits import MAX_CACHED_TOKENS, TOKEN_RENEWAL
from sarit.core.bounded_json import parse_json
from sarit.env.background import ignore_outcome, shielded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sarit.core.names import StreamName
    from sarit.env.ports import Clock


class _Held(NamedTuple):
    token: str
    renew_at: float  # of the monotonic clock


class DelegationTokens:
    """The tokens of one client.  `fetch`: asks the controller for one."""

    def __init__(self, fetch: Callable[[StreamName], Awaitable[str]], clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._held: OrderedDict[StreamName, _Held] = OrderedDict()
        self._fetching: dict[StreamName, asyncio.Future[str]] = {}

    def __repr__(self) -> str:
        return f"DelegationTokens({len(self._held)})"

    def current(self, stream: StreamName) -> str:
        """Return the token of a stream at once, renewed in the background when that is due; empty if there was none.

        One that has expired meanwhile is refused by the store, and then asked for again."""
        held = self._held.get(stream)
        if held is None:
            return ""
        if self._clock.monotonic() >= held.renew_at:
            self._renew(stream)
        return held.token

    async def get(self, stream: StreamName) -> str:
        """Return the token of a stream, for some time to come.  Raises what the controller answers."""
        held = self._held.get(stream)
        if held is None or self._clock.monotonic() >= held.renew_at:
            return await shielded(self._renew(stream))
        return held.token

    def forget(self) -> None:
        """Forget all tokens, since a store refused one: they are fetched again."""
        self._held.clear()

    def _renew(self, stream: StreamName) -> asyncio.Future[str]:
        # Many segments of one stream are set up at once: one call for all of them.
        running = self._fetching.get(stream)
        if running is None:
            running = self._fetching[stream] = asyncio.ensure_future(self._ask(stream))
            running.add_done_callback(lambda _: self._fetching.pop(stream, None))
            # Its error goes to whoever waits, and perhaps nobody does.
            running.add_done_callback(ignore_outcome)
        return running

    async def _ask(self, stream: StreamName) -> str:
        now = self._clock.monotonic()
        token = await self._fetch(stream)
        seconds = lifetime(token)
        self._held[stream] = _Held(token, math.inf if seconds is None else now + TOKEN_RENEWAL * seconds)
        self._held.move_to_end(stream)
        if len(self._held) > MAX_CACHED_TOKENS:
            self._held.popitem(last=False)
        return token


def lifetime(token: str) -> float | None:
    """Return for how many seconds a token is valid from when it was made, or None if it does not say so."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = parse_json(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"] - claims["iat"])
    except (binascii.Error, ValueError, KeyError, TypeError):
        return None
