"""`sarit.connect`: a blocking client with an event loop on a thread of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sarit.client import aio
from sarit.client.blocking.client import Client
from sarit.client.blocking.loop_thread import LoopThread
from sarit.client.limits import DEFAULT_RETRY_TIMEOUT_SECONDS
from sarit.client.session.guard import check_call
from sarit.core.errors import SaritError

if TYPE_CHECKING:
    from typing import Never

    from sarit.client.core.login import Credentials, Tls


def connect(
    address: str | None = None,
    *,
    retry_timeout: float = DEFAULT_RETRY_TIMEOUT_SECONDS,
    wait: float = 0.0,
    credentials: Credentials | None = None,
    tls: Tls | None = None,
    **retired: Never,
) -> Client:
    """Connect to the controller at `HOST:PORT`.  Raises Unreachable, TimedOut, Invalid (the address).

    Of a cluster, name several controllers with commas, as `HOST:PORT,HOST:PORT`: when one fails, its calls go to the
    next.
    Without an address it is found as that of a command: the variable SARIT_CONTROLLER; the context that SARIT_CONTEXT
    names; the one that `sarit context use` chose; 127.0.0.1:9090.  A context may say how to log in, too.
    `retry_timeout`: for how many seconds every call of the client goes on trying while the node does not answer, before
    it raises Unavailable; 0: one attempt.  `wait`: for how many seconds to wait for a node that is not there yet, as
    while it starts; without it the first failure is raised, so that a wrong address shows at once.
    `credentials`, `tls`: who we are, and how to know the server; without them the environment says so
    (`client/core/login.py`).  `tls://` before the address asks for TLS, too.
    """
    aio.refuse_retired(retired)
    check_call(aio.connect, address, retry_timeout=retry_timeout, wait=wait)  # before there is a thread
    thread = LoopThread()
    try:
        inner = thread.run(
            aio.open_client(address, retry_timeout=retry_timeout, wait=wait, credentials=credentials, tls=tls)
        )
        inner.session.shared_by_threads = True
        thread.running.session = inner.session
        return Client(thread, inner)
    except SaritError as error:
        thread.close()
        raise error.with_traceback(None) from None  # see `tracebacks.py`
    except BaseException:
        thread.close()
        raise
