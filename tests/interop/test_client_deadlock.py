"""A client that takes no replies is distinguished from a server that sends none."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tests.interop.running import ClientStuck, finish

CLIENT = "import socket, sys, time; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); time.sleep(60)"


@pytest.mark.parametrize("answered", [True, False])
def test_deadlocked_client_is_distinguished_from_silent_server(answered):
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-c", CLIENT, str(server.getsockname()[1])]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        accepted, _ = server.accept()
        with accepted:
            if answered:
                accepted.sendall(b"a reply")
            with pytest.raises(AssertionError) as caught:
                finish("a client", process, 3, stuck_seconds=1)
    assert isinstance(caught.value, ClientStuck) == answered
    assert ("does not take" if answered else "still running") in str(caught.value)
