"""Wraps kazoo: makes its client, translates its errors, keeps watches.  kazoo calls back on threads of its own."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sarit.coordination.limits import ZOOKEEPER_RETRY_SECONDS, ZOOKEEPER_SOCKET_SECONDS
from sarit.core.errors import Conflict, Exists, Invalid, NotFound, SaritError, Unavailable
from sarit.core.extras import require
from sarit.env.small_files import read_secret

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from sarit.env.ports import Clock

ZOOKEEPER_VARIABLE: Final = "SARIT_ZOOKEEPER_AUTH"


class ZooKeeperWatch:
    """A watch of a node of ZooKeeper.  ZooKeeper's own watches fire once, so this one is set again before `changed` is
    called.

    Calls of a session are executed in order, so whatever `changed` reads is read after the watch is set."""

    def __init__(
        self, client: Any, watches: dict[ZooKeeperWatch, None], post: Callable[..., None], path: str,
        changed: Callable[[], None], *, children: bool,
    ) -> None:  # fmt: skip
        self._client = client
        self._watches = watches
        self._post = post
        self._path = path
        self._changed = changed
        self._children = children
        self._armed = 0

    def close(self) -> None:
        self._watches.pop(self, None)

    def arm(self) -> None:
        """Ask ZooKeeper for the next change."""
        self._armed += 1
        fired = partial(self._on_event, self._armed)
        if not self._children:
            self._client.exists_async(self._path, watch=fired)
            return
        self._client.get_children_async(self._path, watch=fired).rawlink(
            lambda result: self._arm_for_parent(result, fired)
        )

    def on_connected(self) -> None:
        """Set the watch again, and call `changed`, for changes while there was no connection."""
        self.arm()
        self._changed()

    def _arm_for_parent(self, result: Any, fired: Callable[[Any], None]) -> None:
        """Watch the node's existence instead, if it does not exist yet.  Runs on a thread of kazoo."""
        from kazoo.exceptions import NoNodeError

        if isinstance(result.exception, NoNodeError):
            self._client.exists_async(self._path, watch=fired)

    def _on_event(self, armed: int, event: Any) -> None:
        """Handle an event of ZooKeeper.  Runs on a thread of kazoo."""
        if event.type != "NONE":  # NONE: the connection was lost; the next one sets the watch again
            self._post(self._on_fired, armed)

    def _on_fired(self, armed: int) -> None:
        if self in self._watches and armed == self._armed:
            self.arm()
            self._changed()


def make_client(hosts: str, session_seconds: float) -> Any:
    """Return a client of kazoo, not started.  Raises Invalid: kazoo is not installed."""
    require("cluster", "ZooKeeper")
    from kazoo.client import KazooClient
    from kazoo.handlers.threading import SequentialThreadingHandler

    logger = logging.getLogger("sarit.coordination.kazoo")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)  # Sarit logs the states itself; kazoo would log every attempt
    handler = SequentialThreadingHandler()
    create_connection = handler.create_connection

    def create_soon(*arguments: Any, **options: Any) -> Any:
        # Bound each attempt, so that one machine that does not answer does not use up the session.
        options["timeout"] = min(options.get("timeout") or ZOOKEEPER_SOCKET_SECONDS, ZOOKEEPER_SOCKET_SECONDS)
        return create_connection(*arguments, **options)

    handler.create_connection = create_soon
    retry = {"max_tries": -1, "delay": ZOOKEEPER_RETRY_SECONDS / 5, "max_delay": ZOOKEEPER_RETRY_SECONDS}
    return KazooClient(
        hosts, session_seconds, handler=handler, connection_retry=retry, logger=logger, **login_options()
    )


def login_options(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the options with which kazoo logs in and makes nodes that only its user may change; none without a file.

    Raises Invalid: the file cannot be read, others can read it, too, or it has no user and password."""
    path = environ.get(ZOOKEEPER_VARIABLE)
    if not path:
        return {}
    from kazoo.security import CREATOR_ALL_ACL

    line = read_secret(path, "--zookeeper-auth", "who could change the cluster").partition(b"\n")[0].strip()
    user, colon, password = line.partition(b":")
    if not user or not colon or not password:
        raise Invalid(f"--zookeeper-auth: the first line of {path} is not USER:PASSWORD")
    try:
        return {"auth_data": [("digest", line.decode())], "default_acl": CREATOR_ALL_ACL}
    except UnicodeDecodeError:
        raise Invalid(f"--zookeeper-auth: the first line of {path} is not text in UTF-8") from None


def open_acl(client: Any) -> dict[str, Any]:
    """Return the access list for a node that bookies change, too: open to everybody, even if other nodes are not."""
    if not getattr(client, "default_acl", None):
        return {}
    from kazoo.security import OPEN_ACL_UNSAFE

    return {"acl": OPEN_ACL_UNSAFE}


def report_sessions(client: Any, clock: Clock, report: Callable[[float, float], None]) -> None:
    """Call `report` at every new connection with the length of the session, and when it was requested.

    The server chooses the length, and kazoo has no public way to read it."""
    connect = client._connection._connect

    def noting(*arguments: Any) -> Any:
        asked = clock.monotonic()
        read_timeout_ms, connect_timeout_ms = connect(*arguments)
        report(read_timeout_ms * 1.5 / 1000, asked)  # kazoo reads for two thirds of the session
        return read_timeout_ms, connect_timeout_ms

    client._connection._connect = noting


def get_after_sync(client: Any, path: str) -> Any:
    """Begin to read a node after its server has caught up with the leader: calls are executed in order."""
    client.sync_async("/")
    return client.get_async(path)


def drop_connection(client: Any) -> None:
    """Drop kazoo's connection, so that it connects again."""
    from kazoo.protocol.connection import _CONNECTION_DROP

    client._call(_CONNECTION_DROP, client.handler.async_result())


def stop_client(client: Any) -> None:
    """End the session.  Blocks."""
    with suppress(Exception):  # the client may be in any state
        client.stop()
    with suppress(Exception):
        client.close()


def deliver(future: asyncio.Future[Any], result: Any) -> None:
    """Set the result of a kazoo call on the future that waits for it."""
    if future.done():
        return
    error = result.exception
    if error is None:
        future.set_result(result.value)
    else:
        future.set_exception(error)


def errors() -> tuple[type[Exception], ...]:
    """Return the types of errors that calls of kazoo raise."""
    from kazoo.exceptions import KazooException

    return (KazooException,)


def translate(error: Exception, path: str) -> SaritError:
    """Translate an error of kazoo to one of `core.errors`."""
    from kazoo import exceptions as kazoo

    if isinstance(error, kazoo.NoNodeError):
        return NotFound(f"ZooKeeper has no node {path}")
    if isinstance(error, kazoo.NodeExistsError):
        return Exists(f"ZooKeeper has a node {path} already")
    if isinstance(error, kazoo.NotEmptyError):
        return Exists(f"the node {path} of ZooKeeper has children")
    if isinstance(error, kazoo.BadVersionError):
        return Conflict(f"the node {path} of ZooKeeper was changed")
    if isinstance(error, (kazoo.NoAuthError, kazoo.AuthFailedError, kazoo.InvalidACLError)):
        return Invalid(
            f"ZooKeeper does not allow {path}: {type(error).__name__}; it is of another user than --zookeeper-auth says"
        )
    return Unavailable(f"ZooKeeper: {type(error).__name__} {error}".rstrip())
