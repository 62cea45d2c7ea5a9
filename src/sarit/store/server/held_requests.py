"""The requests of a store that shares its containers with others: who waits, and who may be answered.

Requests wait while their container is opened here, or leaves: nobody is sent away in vain, and no connection closes.

A request that waits is a task of its connection.  It holds the memory of its command, which counts against the bounds
of the connection (`connection.py`), and nothing else: no reply slot, no segment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import SaritError, Unavailable
from sarit.core.limits import OPENING_WAIT_SECONDS
from sarit.store.health import Opening
from sarit.wire import commands as wire

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sarit.store.store import SegmentStore

T = TypeVar("T")
R = TypeVar("R")

# Answers requests of one command, or raises a kind of `core.errors`.
Handler = Callable[[Any], Coroutine[Any, Any, wire.Command]]


async def answer_request(
    store: SegmentStore, segment: str, handler: Handler, command: Any, refusal: Callable[[Exception], R]
) -> wire.Command | R:
    """The reply of `handler`, or `refusal(error)`; as the owner of `segment`, if the request is about one.

    Raises Opening: nothing was done, and the connection lets the request wait."""
    try:
        if segment and store.placed:
            return await answer_of_owner(store, segment, handler(command))
        return await handler(command)
    except Opening:
        raise
    except (SaritError, NotImplementedError) as error:
        return refusal(error)


async def answer_of_owner(store: SegmentStore, segment: str, answering: Coroutine[Any, Any, T]) -> T:
    """The answer, of a container that no other store can have changed when it was made.

    Raises what `answering` raises, as the answer of the owner, too; and as `SegmentStore.container`."""
    try:
        # The object: a newer one of this number does not know what this one answered.
        container = store.container(segment)
    except SaritError:
        answering.close()
        raise
    try:
        answer = await answering
    except SaritError:
        await container.confirm()
        raise
    await container.confirm()
    return answer


async def when_hosted(attempt: Callable[[], Awaitable[T]]) -> T:
    """The result of `attempt`, which is made again each time that it raised Opening and the container is decided.

    Raises what `attempt` raises, and Unavailable after OPENING_WAIT_SECONDS."""
    try:
        return await attempt()
    except Opening as error:
        opening = error
    coverage_probe("request_held_while_its_container_opens")
    try:
        async with asyncio.timeout(OPENING_WAIT_SECONDS):
            while True:
                await opening.wait()
                try:
                    return await attempt()
                except Opening as error:
                    opening = error
    except TimeoutError:
        raise Unavailable(str(opening)) from None
