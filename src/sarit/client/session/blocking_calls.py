"""Calls that block, such as those to a schema registry, made on a thread and repeated as calls of the client are."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from sarit.client.session.session import Backoff
from sarit.core.errors import Unavailable
from sarit.core.repeated_log import RepeatedLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from sarit.client.session.session import Session

log = logging.getLogger(__name__)

T = TypeVar("T")


async def off_loop(session: Session, call: Callable[[], T]) -> T:
    """Return the result of a call to a schema registry; repeat it while it raises Unavailable.  Raises what it raises.

    The thread lives as long as the call, of which there are few: a registry is asked once for each schema."""
    worker = session.env.threads.worker("schema-registry")
    # Not the session's outages, whose log names the controller.
    outages = RepeatedLog(log, session.env.clock.monotonic, counted=False), "the schema registry"
    backoff = Backoff(session.env, session.policy, outages, session.pauses).begin()
    try:
        while True:
            try:
                return await worker.run(call)
            except Unavailable as error:
                await backoff.wait(error, of_call=True)
    finally:
        # A cancelled call still runs on the thread, and is not waited for.
        session.background.spawn(worker.close(), "end a thread for a schema registry")
