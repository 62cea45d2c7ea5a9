"""`sarit.connect`: a blocking client with an event loop on a thread of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.client import aio
from sarit.client.blocking.client import Client
from sarit.client.blocking.loop_thread import LoopThread
from sarit.core.limits import DEFAULT_RETRY_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from typing import Never


def connect(
    address: str = "127.0.0.1:9090",
    *,
    retry_timeout: float = DEFAULT_RETRY_TIMEOUT_SECONDS,
    wait: float = 0.0,
    **retired: Never,
) -> Client:
    """Connect to the controller at `HOST:PORT`.  Raises Unavailable when no controller answers, Invalid (the address).

    `retry_timeout`: for how many seconds writers and readers retry before they raise Unavailable.  `wait`: for how
    many seconds to retry when no controller answers yet, as while a node starts.
    """
    aio.refuse_retired(retired)
    thread = LoopThread()
    try:
        return Client(thread, thread.run(aio.connect(address, retry_timeout=retry_timeout, wait=wait)))
    except BaseException:
        thread.close()
        raise
