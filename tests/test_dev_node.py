"""`sarit standalone --dev` leaves nothing behind, and a node whose port is taken makes nothing."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from contextlib import contextmanager

import pytest

import sarit
from benchmarks.peers.ports import free_ports
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, hears_signals


@contextmanager
def dev_node(temporary, *options, **variables):
    """The process, and the lines that it printed until the one with the address."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SARIT_")}
    process = subprocess.Popen(
        [SARIT, "standalone", "--dev", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**environ, "TMPDIR": str(temporary), **variables}, cwd=temporary, preexec_fn=hears_signals,
    )  # fmt: skip
    try:
        lines = []
        while not lines or not lines[-1].startswith("export "):
            lines.append(process.stdout.readline())
            assert lines[-1], process.stderr.read()
        yield process, lines
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("processes", [1, 2])
def test_it_prints_its_address_and_its_directory_is_gone_at_the_end(tmp_path, how, processes):
    with dev_node(tmp_path, "--processes", str(processes)) as (process, lines):
        assert [line.split(" ")[0] for line in lines] == ["sarit", "console:", "export"]
        assert re.fullmatch(r"console: http://127\.0\.0\.1:\d+/\n", lines[1])
        assert ":9090" not in lines[0], "free ports"
        (directory,) = tmp_path.iterdir()
        address = lines[2].strip().removeprefix("export SARIT_CONTROLLER=")
        with sarit.connect(address) as client:
            client.create_scope("demo")
            client.create_stream("demo/events")
            with client.writer("demo/events") as writer:
                writer.write(b"1")
        logs = [path for path in (directory / "log").rglob("*") if path.is_file()]
        assert 0 < sum(path.stat().st_size for path in logs) < 16 << 20, "small logs"
        process.send_signal(how)
        out, err = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 0, err
    assert f"deleted {directory}" in out
    assert not list(tmp_path.iterdir())


def test_a_directory_that_is_named_stays_and_options_win(tmp_path):
    (port,) = free_ports(1)
    options = ("--data-dir", str(tmp_path / "mine"), "--controller-port", str(port))
    with dev_node(tmp_path, *options, SARIT_HTTP_PORT="off") as (process, lines):
        assert [line.split(" ")[0] for line in lines] == ["sarit", "export"], "no HTTP port, no console"
        assert lines[-1] == f"export SARIT_CONTROLLER=127.0.0.1:{port}\n"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=HANG_SECONDS)
    assert (tmp_path / "mine/meta").exists()


def test_data_elsewhere_is_refused(tmp_path):
    command = [SARIT, "standalone", "--dev", "--storage", f"file://{tmp_path}/chunks"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert done.returncode == 2
    assert "--storage: what --dev keeps there stays" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("option", ["--controller-port", "--store-port", "--http-port"])
def test_taken_port_is_one_line_and_nothing_was_made(tmp_path, option, processes):
    """Logs of a node that never served were left, and the message came after a line for each container."""
    ports = {"--controller-port": "0", "--store-port": "0", "--http-port": "0"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports[option] = str(taken.getsockname()[1])
        command = [SARIT, "standalone", "--data-dir", tmp_path / "data", "--processes", str(processes)]
        command += [part for pair in ports.items() for part in pair]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_SECONDS)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"sarit: port {ports[option]} of 127.0.0.1 is taken ({option})")
    assert not (tmp_path / "data").exists()
