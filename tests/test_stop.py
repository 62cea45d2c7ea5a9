"""The node stops within the deadline whenever it is asked to stop."""

from __future__ import annotations

import os
import signal
import socket
import subprocess

import pytest

from tests import fork_server
from tests.nodes import SARIT, STOP_SECONDS


def starting(tmp_path, *options, **env):
    command = [SARIT, "standalone", "--data-dir", str(tmp_path / "data"), "--controller-port", "0", "--store-port", "0"]
    return fork_server.start(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **env}
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_node_before_it_is_ready(tmp_path, number):
    """It waits for long-term storage that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(STOP_SECONDS)
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        node = starting(
            tmp_path, "--storage", "s3://bucket/prefix", AWS_ENDPOINT_URL=endpoint, AWS_REGION="us-east-1",
            AWS_ACCESS_KEY_ID="k", AWS_SECRET_ACCESS_KEY="s",
        )  # fmt: skip
        with silent.accept()[0]:  # it is asked for the mark of ownership
            node.send_signal(number)
            out, err = node.communicate(timeout=STOP_SECONDS)
    assert node.returncode == 0, err
    assert "ready" not in out
    assert "sarit stopped" in out
    assert "stopping before it was ready" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("option", ["--controller-port", "--store-port"])
def test_taken_port_is_reported_with_its_option(tmp_path, option):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        node = starting(tmp_path, option, str(port))
        out, err = node.communicate(timeout=STOP_SECONDS)
    assert node.returncode == 1
    assert f"port {port} of 127.0.0.1 is taken ({option})" in err
    assert "Traceback" not in err
    assert "ready" not in out


@pytest.mark.parametrize("advertised", [(), ("--advertise", "127.0.0.1")])
def test_host_of_all_addresses_without_advertised_address_is_warned_of(tmp_path, advertised):
    """The storage is refused: nothing is listened on."""
    node = starting(tmp_path, "--host", "0.0.0.0", "--storage", "memory://", *advertised)
    _, err = node.communicate(timeout=STOP_SECONDS)
    assert node.returncode == 1
    assert ("with --advertise" in err) == (not advertised)
