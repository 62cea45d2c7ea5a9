"""Requests to containers that move between stores: when a request waits, and when it may be answered.

A request waits while its container is opened here, or leaves: so no client is sent to another store in vain, and no
connection closes.

A container may leave between a change and its answer.  The client's answer must not depend on that: after
WrongHost it would make the change again, and take the refusal of the second attempt for an answer to the first.

A waiting request is a task of its connection.  It holds the memory of its command, which counts against the bounds
of the connection (`connection.py`), and nothing else: no reply slot, no segment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sarit.core.coverage_probes import coverage_probe
from sarit.core.errors import SaritError, Unavailable
from sarit.store.hosting.health import Opening
from sarit.store.limits import OPENING_WAIT_SECONDS
from sarit.wire import commands as wire

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from sarit.store.store import SegmentStore

T = TypeVar("T")
R = TypeVar("R")

# Replies that prove the ownership of the container, since the frame of the change is durable in its log.  Replies that
# a read alone may give (the segment was sealed before) are not among them.
_MADE: Final = (
    wire.SegmentCreated,
    wire.SegmentDeleted,
    wire.SegmentTruncated,
    wire.SegmentPolicyUpdated,
    wire.SegmentsMerged,
    wire.TableEntriesUpdated,
    wire.TableKeysRemoved,
    wire.AppendedAt,
    wire.TableChangedAt,
)

# A function that answers requests of one command, or raises one of `core.errors`.
Handler = Callable[[Any], Coroutine[Any, Any, wire.Command]]


async def answer_request(
    store: SegmentStore, segment: str, handler: Handler, command: Any, refusal: Callable[[Exception], R]
) -> wire.Command | R:
    """Return the reply of `handler`, or `refusal(error)`, once this store is proved to own the container of `segment`.

    Raises Opening when the container is being opened or leaves: nothing was done, and the request has to wait."""
    try:
        if segment and store.placed:
            return await answer_of_owner(store, segment, handler(command))
        return await handler(command)
    except Opening:
        raise
    except (SaritError, NotImplementedError) as error:
        return refusal(error)


async def answer_of_owner(
    store: SegmentStore, segment: str, answering: Coroutine[Any, Any, wire.Command]
) -> wire.Command:
    """Return the result of `answering` once it is proved that no other store owned the container meanwhile.

    Raises what `answering` raises, after the same proof; and as `SegmentStore.container`."""
    try:
        # Keep the object, since a newer container object of this number cannot confirm what this one answered.
        container = store.container(segment)
    except SaritError:
        answering.close()
        raise
    try:
        answer = await answering
    except SaritError:
        await container.confirm()
        raise
    if not _says_made(answer):
        await container.confirm()
    return answer


def _says_made(answer: wire.Command) -> bool:
    return isinstance(answer, _MADE) or (isinstance(answer, wire.SegmentAttributeUpdated) and answer.success)


async def when_hosted(attempt: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `attempt`, which is repeated whenever it raises Opening, once the container serves or is
    known not to.

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
