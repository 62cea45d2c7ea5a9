"""Connections of a process to the stores of other processes, and which store has which container.

*Routing.*  A segment's container is a hash of its name, and a router knows the store of each container, without I/O.  A
store that does not own the container (any more) answers WrongHost; then the router is asked again.

Each connection begins with an introduction (`wire/commands/internal.py`).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from sarit.client.core.connection import ConnectionPool, first_request_id
from sarit.client.core.retry import NotSent, RetryPolicy
from sarit.client.session.session import Backoff, Pauses
from sarit.core.errors import Invalid, Unavailable
from sarit.process.limits import REMOTE_RETRY_SECONDS
from sarit.store.store import container_of
from sarit.wire import commands as wire

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sarit.client.core.connection import Connection
    from sarit.env.ports import Env
    from sarit.security.quotas import Quotas

Address = tuple[str, int]

QUOTAS: Final = "quotas"


class Router(Protocol):
    """The assignment of containers to stores, as this process knows it."""

    @property
    def containers(self) -> int:
        """How many containers there are."""

    def address(self, container: int) -> Address:
        """Return the host and port of the store of a container, without I/O.  Raises Unavailable: no store owns it."""


class FixedRouter:
    """A fixed assignment: of N stores, store c mod N serves container c."""

    def __init__(self, containers: int, stores: Sequence[Address]) -> None:
        self.containers = containers
        self.stores = list(stores)

    def __repr__(self) -> str:
        return f"<FixedRouter, {self.containers} containers on {len(self.stores)} stores>"

    def address(self, container: int) -> Address:
        """Return the host and port of a container's store.  Raises Unavailable: the stores do not serve yet."""
        if not self.stores:
            raise Unavailable("the stores of the node do not serve yet")
        return self.stores[container % len(self.stores)]


class StoreConnections:
    """Connections to all stores, and requests over them."""

    def __init__(self, env: Env, router: Router, secret: bytes, retry_seconds: float = REMOTE_RETRY_SECONDS) -> None:
        """`retry_seconds`: for how long a request is repeated that no store has accepted."""
        self.router = router
        self._env = env
        self._secret = secret
        self._policy = RetryPolicy(timeout=retry_seconds)
        self._pauses = Pauses()
        self._closed = False
        self._pool = ConnectionPool(
            env.network, self._policy, self._introduce,
            lambda: first_request_id(env.random),  # processes differ in a store's log
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<StoreConnections by {self.router!r}>"

    def now(self) -> float:
        """Return the monotonic time in seconds."""
        return self._env.clock.monotonic()

    def addresses(self) -> list[Address]:
        """Return the stores that serve any container, in order of their containers."""
        found: dict[Address, None] = {}
        for container in range(self.router.containers):
            try:
                found[self.router.address(container)] = None
            except Unavailable:
                continue
        return list(found)

    def address_of(self, segment: str) -> Address:
        """Return the host and port of a segment's store.  Raises Unavailable."""
        return self.router.address(container_of(segment, self.router.containers))

    async def ask(self, segment: str, make: Callable[[int], Any], purpose: str, *, repeatable: bool = False) -> Any:
        """Return the reply of a segment's store to `make(request_id)`.  `repeatable`: the request may be sent twice.

        Raises Unavailable; then, unless it is repeatable, the outcome may be unknown."""
        backoff = Backoff(self._env, self._policy, pauses=self._pauses).begin()
        while True:
            try:
                try:
                    address = self.address_of(segment)
                except Unavailable as error:  # no store owns the container now: its next owner will accept the request
                    raise NotSent(str(error)) from None
                return await self._attempt(address, segment, make, purpose)
            except NotSent as error:
                await backoff.wait(error)
            except Unavailable as error:
                if self._closed or not repeatable:
                    raise
                await backoff.wait(error)

    async def ask_at(self, address: Address, make: Callable[[int], Any], purpose: str) -> Any:
        """Return the reply of one store, by one attempt.  Raises Unavailable."""
        return await self._attempt(address, "", make, purpose)

    async def _attempt(self, address: Address, segment: str, make: Callable[[int], Any], purpose: str) -> Any:
        if self._closed:  # the client asks another controller, or this one after its restart
            raise Unavailable("this controller stops")
        try:
            connection = await self._pool.to(address, purpose)
        except Unavailable as error:
            raise NotSent(str(error)) from None
        try:
            reply = await connection.ask(make)
        except wire.ProtocolError as error:
            raise Invalid(f"segment {segment}: {error}") from None
        if type(reply) is wire.WrongHost:
            raise NotSent(f"segment {segment} is served by another store now")
        if type(reply) is wire.OutcomeUnknown:
            raise Unavailable(f"segment {segment}: {reply.message}")
        return reply

    async def _introduce(self, connection: Connection) -> None:
        try:
            reply = await connection.ask(lambda request_id: wire.Introduce(request_id, self._secret))
            if type(reply) is not wire.Introduced:
                text = reply.stack if type(reply) is wire.AuthTokenCheckFailed else type(reply).__name__
                raise Unavailable(f"{connection.name} does not take internal requests: {text}")
        except BaseException:
            connection.abort("it could not be introduced")
            raise

    async def use_quotas(self, quotas: Quotas) -> None:
        """Give quotas to all stores.  Raises Unavailable: not all stores have them."""
        addresses, lines = self.addresses(), tuple(quotas.encode())
        request = partial(wire.UseQuotas, stores=len(addresses), quotas=lines)
        answers = await asyncio.gather(
            *(self.ask_at(address, request, QUOTAS) for address in addresses), return_exceptions=True
        )
        for address, answer in zip(addresses, answers, strict=True):
            if not isinstance(answer, wire.QuotasUsed):
                raise Unavailable(f"the store at {address[0]}:{address[1]} does not know the newest quotas: {answer}")

    async def close(self) -> None:
        """Close all connections.  Later calls raise Unavailable."""
        self._closed = True
        await self._pool.close()
