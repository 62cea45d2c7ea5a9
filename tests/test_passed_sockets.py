"""Sockets of systemd: a port that stays open while its process restarts."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
from contextlib import ExitStack

import pytest

from sarit.cli.dev_ca import make_certificates
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode, passed_descriptors, passing

HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
WIRE = bytes.fromhex("ffffff81 00000008 00000011 00000005")  # Hello
SETTINGS = 4


@pytest.fixture
def held():
    """Two sockets that listen, as a socket unit has them."""
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]


def options_of(held):
    return [
        text
        for option, each in zip(("--controller-port", "--store-port"), held, strict=False)
        for text in (option, str(each.getsockname()[1]))
    ]


@pytest.mark.parametrize("tls", [False, True])
def test_connections_made_while_a_node_is_away_wait_for_the_next_one(tmp_path, held, tls):
    options, context = options_of(held), ssl.create_default_context()
    if tls:
        files = make_certificates(tmp_path / "certificates", (), 1)
        options += ["--tls-cert", str(files["server"]), "--tls-key", str(files["server key"])]
        context.load_verify_locations(files["ca"])
    with RunningNode(tmp_path / "data", *options, passed=held) as node:
        assert [int(each.rpartition(":")[2]) for each in (node.controller, node.store)] == [
            each.getsockname()[1] for each in held
        ]
        for end in (node.stop, node.kill):
            end()
            with ExitStack() as stack:
                waiting = [stack.enter_context(socket.create_connection(each.getsockname())) for each in held]
                node.start()
                for connection, hello in zip(waiting, (HTTP2, WIRE), strict=True):
                    connection.settimeout(HANG_SECONDS)
                    if tls:
                        context.set_alpn_protocols(["h2"] if hello is HTTP2 else [])
                        connection = stack.enter_context(context.wrap_socket(connection, server_hostname="localhost"))
                    connection.sendall(hello)
                    answer = connection.recv(64)
                    assert answer[3] == SETTINGS if hello is HTTP2 else answer[:8] == WIRE[:8]
    assert "Traceback" not in node.log()


def test_socket_at_another_address_ends_the_process_with_one_error(tmp_path, held):
    command = [SARIT, "standalone", "--data-dir", str(tmp_path / "data"), *options_of(held)[:2], "--store-port", "0"]
    descriptors = passed_descriptors(held)
    done = subprocess.run(
        [*passing(descriptors), *command], pass_fds=descriptors, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    first, second = (each.getsockname()[1] for each in held)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == (
        f"sarit: the service manager passes a socket at 127.0.0.1:{second}, and this process listens at "
        f"127.0.0.1:{first} and 127.0.0.1:0: name that in ListenStream="
    )
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("command", ["store", "standalone"])
def test_process_that_uses_no_sockets_refuses_them(tmp_path, held, command):
    options = {
        "store": ["--cluster", "zookeeper://127.0.0.1:1/none"],
        "standalone": ["--data-dir", str(tmp_path / "data"), "--processes", "2"],
    }[command]
    descriptors = passed_descriptors(held)
    done = subprocess.run(
        [*passing(descriptors), SARIT, command, *options], pass_fds=descriptors, capture_output=True, text=True,
        timeout=HANG_SECONDS,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.strip().endswith("and this process uses none: stop the socket unit")


def test_variables_for_another_process_are_not_used(tmp_path):
    with RunningNode(tmp_path / "data", env={**os.environ, "LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2"}) as node:
        assert node.controller
