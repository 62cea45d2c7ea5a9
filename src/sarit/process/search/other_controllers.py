"""The other controllers of an installation, which answer for their shards of a search.

They check the right of whose search it is by that caller's own log-in, as they do for any call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.controller.authorized_caller import current_login
from sarit.core.errors import Invalid, Unavailable
from sarit.process.limits import HOLDER_ECHO_SECONDS, HOLDER_RETRY_SECONDS, MAX_SEARCH_SECONDS
from sarit.rpc.channel import CallLost, Channel
from sarit.rpc.search_methods import SEARCH
from sarit.rpc.status import CallFailed, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.controller.assignment import Address
    from sarit.env.ports import Clock
    from sarit.process.security import Security
    from sarit.rpc.generated import search_pb2 as pb


class OtherControllers:
    """The controllers of an installation besides this one.

    `members`: returns the addresses of all; `me`: that of this one."""

    def __init__(
        self, members: Callable[[], Sequence[Address]], me: Callable[[], Address], security: Security, clock: Clock
    ) -> None:  # fmt: skip
        self._members = members
        self._me = me
        self._security = security
        self._clock = clock
        self._channels: dict[Address, Channel] = {}
        self._away: dict[Address, float] = {}  # until when nothing is asked of them

    def __repr__(self) -> str:
        return f"<OtherControllers, {len(self._channels)} connected>"

    @property
    def me(self) -> Address:
        """The address of this controller."""
        return self._me()

    def present(self) -> list[Address]:
        """Return the controllers that may be asked, this one included."""
        now, members = self._clock.monotonic(), set(self._members()) | {self.me}
        self._away = {one: until for one, until in self._away.items() if until > now and one in members}
        for gone in self._channels.keys() - members:
            self._channels.pop(gone).close()
        return sorted(members - self._away.keys())

    async def ask(self, address: Address, request: pb.SearchShardsRequest) -> pb.SearchShardsResponse:
        """Return the answer of another controller for some shards.

        Raises Invalid: the search itself is refused; Unavailable: this controller cannot answer, another one may."""
        if (channel := self._channels.get(address)) is None:
            tls = self._security.own_tls()
            # A process that is paused, or a machine without power, closes no connection.
            context = None if tls is None else tls.context()
            channel = self._channels[address] = Channel(*address, HOLDER_ECHO_SECONDS, context)
        login = current_login.get()
        metadata = {} if login is None else {"authorization": login}
        try:
            reply: pb.SearchShardsResponse = await channel.call(
                SEARCH.searchShards, request, MAX_SEARCH_SECONDS, metadata
            )
            return reply
        except CallFailed as error:
            if error.status is Status.INVALID_ARGUMENT:
                raise Invalid(error.message) from None
            why = error.message or error.status.name
        except (CallLost, OSError, TimeoutError) as error:
            self._away[address] = self._clock.monotonic() + HOLDER_RETRY_SECONDS
            why = str(error)
        raise Unavailable(f"controller {address[0]}:{address[1]} does not answer for its shards: {why}")

    def close(self) -> None:
        """End all connections."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
