"""Health of real nodes, as probes see it."""

from __future__ import annotations

import http.client
import json
import subprocess

from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode


def get(address, path):
    connection = http.client.HTTPConnection(address, timeout=HANG_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read().decode()
        return answer.status, json.loads(body) if body.startswith("{") else body
    finally:
        connection.close()


def test_node_that_serves_is_alive_and_ready(tmp_path):
    with RunningNode(tmp_path / "data", "--http-port", "0") as node:
        assert get(node.http, "/livez") == (200, "ok\n")
        assert get(node.http, "/readyz") == (200, {"status": "ready", "reasons": []})
        status, found = get(node.http, "/healthz")
        assert (status, found["state"], found["ready"]) == (200, "ready", True)
        assert [entry["state"] for entry in found["containers"]] == ["serving"] * 4
        assert get(node.http, "/nothing")[0] == 404


def test_http_port_that_is_taken_is_named_with_its_option(tmp_path):
    with RunningNode(tmp_path / "data", "--http-port", "0") as node:
        port = node.http.rpartition(":")[2]
        command = [SARIT, "standalone", "--data-dir", str(tmp_path / "other"), "--controller-port", "0"]
        command += ["--store-port", "0", "--http-port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)
        assert done.returncode == 1
        assert f"port {port} of 127.0.0.1 is taken (--http-port)" in done.stderr


def test_processes_answer_each_on_a_port_of_its_own(tmp_path):
    with RunningNode(tmp_path / "data", "--http-port", "0", "--processes", "2") as node:
        assert get(node.http, "/readyz")[0] == 200
        assert get(node.http, "/healthz")[1]["name"] == "controller"
