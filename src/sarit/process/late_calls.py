"""The calls of a service whose parts are made by its first call, so a process that nobody calls pays for none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from google.protobuf.message import Message

    from sarit.rpc.methods import Methods

    # Returns what has the call of a name as its method.
    Family = Callable[[str], Awaitable[object]]


def late_calls(service: Methods, family: Family) -> SimpleNamespace:
    """Return the calls of a service, each an attribute.  A call raises what `family` and the call itself raise."""
    return SimpleNamespace(**{name: _late(name, family) for name in service})


def _late(name: str, family: Family) -> Callable[[Message], Awaitable[Message]]:
    async def call(request: Message) -> Message:
        reply: Message = await getattr(await family(name), name)(request)
        return reply

    call.__name__ = name  # metrics and logs name a call by its method
    return call
