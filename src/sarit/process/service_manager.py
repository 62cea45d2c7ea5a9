"""Notifies the service manager (systemd) of the life of a process: sd_notify(3), by its datagram socket.

`Type=notify` counts the service as started at READY=1.  With `WatchdogSec=` it is restarted when the event loop does
not turn for that long.  Without NOTIFY_SOCKET nothing is sent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from sarit.core.repeated_log import RepeatedLog
from sarit.process.limits import NOTIFY_RETRY_SECONDS
from sarit.process.observation.health import READY, STARTING, STOPPING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from sarit.env.ports import Clock
    from sarit.process.observation.health import Health

_log = logging.getLogger("sarit.process")


class ServiceManager:
    """The socket to it, and what it knows.  `environ`: of the process."""

    def __init__(self, health: Health, environ: Mapping[str, str], clock: Clock) -> None:
        self._health = health
        address = environ.get("NOTIFY_SOCKET", "")
        # An abstract socket is written with "@" for its zero byte.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket: socket.socket | None = None
        self._sent = ""
        self._repeated = RepeatedLog(_log, clock.monotonic)
        mine = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = environ.get("WATCHDOG_USEC", "")
        self.watchdog_seconds = int(usec) / 1e6 if mine and usec.isdecimal() else 0.0

    def __repr__(self) -> str:
        return f"<ServiceManager at {self._address!r}>"

    def open(self) -> None:
        """Notify of each change from now on."""
        if not self._address:
            return
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._health.watch(self.changed)
        self.changed()

    def changed(self) -> None:
        """Notify of the state of now, if it is new."""
        state = self._health.state()
        status = {STARTING: f"starting: {self._health.step}", READY: "serving", STOPPING: "stopping: flushing"}[state]
        known = {STARTING: "", READY: "READY=1\n", STOPPING: "STOPPING=1\n"}[state]
        text = f"{known}STATUS={status}"
        if text != self._sent and self._send(text):
            self._sent = text

    async def keep_alive(self) -> None:
        """Let the watchdog know that the event loop turns, twice in its time, until cancelled.

        A state that could not be sent is sent again."""
        while self._socket is not None:
            self.changed()
            if self.watchdog_seconds:
                self._send("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_seconds / 2 or NOTIFY_RETRY_SECONDS)

    def close(self) -> None:
        """Notify of nothing any more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, text: str) -> bool:
        if self._socket is None:
            return False
        try:
            self._socket.sendto(text.encode(), self._address)
            return True
        except BlockingIOError:  # the service manager has not taken the earlier messages
            return False
        except OSError as error:  # the service manager is away: the process serves all the same
            self._repeated.warning("", f"the service manager at {self._address} is not notified: {error}")
            return False


@asynccontextmanager
async def service_manager(health: Health, clock: Clock) -> AsyncIterator[None]:
    """Notify the service manager of this process as long as the block lasts."""
    manager = ServiceManager(health, os.environ, clock)
    manager.open()
    alive = asyncio.ensure_future(manager.keep_alive())
    try:
        yield
    finally:
        alive.cancel()
        manager.close()
