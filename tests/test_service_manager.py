"""sd_notify, on a real socket, as systemd has it."""

from __future__ import annotations

import os
import signal
import socket
import time

import pytest

from tests.limits import HANG_SECONDS
from tests.nodes import RunningNode

WATCHDOG_SECONDS = 0.4


class Manager:
    """Receives what a process sends."""

    def __init__(self, address) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address)
        self.socket.settimeout(HANG_SECONDS)
        self.said: list[str] = []

    def until(self, text):
        """Receive until it has said that."""
        while text not in self.said:
            self.said += self.socket.recv(4096).decode().split("\n")

    def drain(self):
        """What is there now."""
        found = []
        self.socket.setblocking(False)
        try:
            while True:
                found += self.socket.recv(4096).decode().split("\n")
        except BlockingIOError:
            self.socket.settimeout(HANG_SECONDS)
            return found


@pytest.mark.parametrize(("abstract", "processes"), [(False, "1"), (True, "2")])
def test_service_manager_gets_start_watchdog_and_stop(tmp_path, abstract, processes):
    address = f"@sarit-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    manager = Manager("\0" + address[1:] if abstract else address)
    environ = {**os.environ, "NOTIFY_SOCKET": address, "WATCHDOG_USEC": str(int(WATCHDOG_SECONDS * 1e6))}
    with RunningNode(tmp_path / "data", "--processes", processes, env=environ) as node:
        manager.until("READY=1")
        assert manager.said[0].startswith("STATUS=starting: ")
        manager.said.clear()
        manager.until("WATCHDOG=1")
        # A process that stands still does not reach its manager, which restarts it.
        os.kill(node.pid, signal.SIGSTOP)
        time.sleep(WATCHDOG_SECONDS)
        manager.drain()
        time.sleep(2 * WATCHDOG_SECONDS)
        assert manager.drain() == []
        os.kill(node.pid, signal.SIGCONT)
        manager.said.clear()
        manager.until("WATCHDOG=1")
        os.kill(node.pid, signal.SIGTERM)
        manager.until("STOPPING=1")
        assert "READY=1" not in manager.said
    manager.socket.close()
    assert "is not notified" not in node.log()
