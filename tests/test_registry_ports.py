"""The schema registry of a node, in each way to run one: its ports, users, health and metrics, and none without it."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import time

import httpx
import pytest

from sarit.cli.dev_ca import make_certificates
from sarit.security.users import User, format_users, hash_password
from tests import secured
from tests.limits import HANG_SECONDS
from tests.nodes import SARIT, RunningNode
from tests.test_processes import children

PASSWORD = "a password of this file"
pytestmark = pytest.mark.skipif(secured.ON, reason="these nodes have users of their own, or none")


def register(http: httpx.Client, path: str, schema: str = '"string"') -> httpx.Response:
    return http.post(f"{path}/versions", json={"schema": schema})


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_registry_is_on_both_ports_and_outlives_its_process(tmp_path, processes) -> None:
    options = ("--registry", "on", "--http-port", "0", "--processes", processes, "--containers", "2")
    with RunningNode(tmp_path / "data", *options, "--registry-port", "0") as node:
        with (
            httpx.Client(base_url=f"http://{node.registry}") as own,
            httpx.Client(base_url=f"http://{node.http}") as http,
        ):
            assert own.get("/").json() == {}
            assert register(own, "/subjects/s").json()["id"] == 1
            prefix = "/registry/confluent"
            assert http.get(f"{prefix}/subjects").json() == ["s"]
            assert register(http, f"{prefix}/subjects/t%2F", '"int"').json()["id"] == 2
            assert own.get("/subjects").json() == ["s", "t/"]
            assert "Console" in http.get("/", follow_redirects=True).text or http.get("/").status_code in (200, 307)
            assert http.get("/v1/scopes").status_code == 200
            assert own.get("/v1/scopes").json()["error_code"] == 404
            for each in (own, http):
                assert each.get("/ping").status_code == 200
                assert set(each.get("/v1/groups").json()["groups"]) == {"s", "t/"}
                assert each.get("/v1/namespace/n/groups").json()["groups"] == {}
            assert own.get("/livez").text.strip() == own.get("/readyz").json()["status"].replace("ready", "ok")
            metrics = http.get("/metrics").text
            line = 'sarit_registry_requests_total{api="confluent",call="register",status="200"} 2.0'
            assert line in metrics
            assert 'sarit_registry_registrations_total{outcome="new"} 2.0' in metrics
            assert "sarit_registry_schemas 2.0" in metrics
            assert "sarit_registry_groups 2.0" in metrics
            assert own.get("/", headers={"Host": "attacker.example"}).status_code == 421
        if processes != "1":
            os.kill(children(node)["controller"], signal.SIGKILL)
            deadline = time.monotonic() + HANG_SECONDS
            while _subjects(node) != ["s", "t/"]:
                assert time.monotonic() < deadline
                time.sleep(0.1)


def _subjects(node: RunningNode) -> object:
    try:
        answer = httpx.get(f"http://{node.registry}/subjects")
    except httpx.TransportError:
        return None
    return answer.json() if answer.status_code == 200 else None


def test_a_registry_without_an_http_port_has_one_of_its_own(tmp_path) -> None:
    with RunningNode(tmp_path / "data", "--registry", "on", "--registry-port", "0", "--containers", "1") as node:
        assert not node.http
        assert httpx.get(f"http://{node.registry}/subjects").json() == []
        assert httpx.get(f"http://{node.registry}/metrics").status_code == 404


def test_a_registry_may_be_on_the_http_port_alone(tmp_path) -> None:
    options = ("--registry", "on", "--registry-port", "off", "--http-port", "0", "--containers", "1")
    with RunningNode(tmp_path / "data", *options) as node:
        assert not node.registry
        assert httpx.get(f"http://{node.http}/registry/confluent/subjects").json() == []


def test_a_taken_port_is_named_with_its_option(tmp_path) -> None:
    with RunningNode(tmp_path / "one", "--registry", "on", "--registry-port", "0", "--containers", "1") as node:
        port = node.registry.rpartition(":")[2]
        done = subprocess.run(
            [
                SARIT, "standalone", "--data-dir", str(tmp_path / "two"), "--controller-port", "0", "--store-port", "0",
                "--registry", "on", "--registry-port", port,
            ],
            capture_output=True, text=True, timeout=HANG_SECONDS, check=False,
        )  # fmt: skip
    assert done.returncode != 0
    assert f"port {port} of 127.0.0.1 is taken (--registry-port)" in done.stderr


def test_users_of_a_registry(tmp_path) -> None:
    made = {name: str(path) for name, path in make_certificates(tmp_path / "ca", (), 1).items()}
    users, keys = tmp_path / "users", tmp_path / "keys"
    hashed = hash_password(PASSWORD)
    users.write_text(format_users([User("root", hashed, frozenset({"admin"})), User("ann", hashed, frozenset())]))
    keys.write_text(os.urandom(32).hex() + "\n")
    keys.chmod(0o600)
    audit = tmp_path / "audit"
    options = (
        "--registry", "on", "--registry-port", "0", "--containers", "1", "--users", str(users),
        "--token-keys", str(keys), "--tls-cert", made["server"], "--tls-key", made["server key"],
        "--tls-ca", made["ca"], "--advertise", "localhost", "--audit-log", str(audit),
    )  # fmt: skip
    with RunningNode(tmp_path / "data", *options) as node:
        url = f"https://localhost:{node.registry.rpartition(':')[2]}"
        context = ssl.create_default_context(cafile=made["ca"])
        with httpx.Client(base_url=url, verify=context) as http:
            answer = http.get("/subjects")
            assert (answer.status_code, answer.json()["error_code"]) == (401, 401)
            assert answer.headers["www-authenticate"].startswith("Basic")
            assert http.get("/livez").status_code == 200
            http.auth = ("root", PASSWORD)
            id = register(http, "/subjects/s").json()["id"]
            http.auth = ("ann", PASSWORD)
            assert http.get("/subjects").json() == []
            assert http.get(f"/schemas/ids/{id}").json()["error_code"] == 40403
            refused = register(http, "/subjects/s")
            assert (refused.status_code, refused.json()["error_code"]) == (403, 40301)
            assert "sarit acl grant" in refused.json()["message"]
            granted = subprocess.run(
                [SARIT, "acl", "grant", "user:ann", "prn::/namespace:/group:s", "READ", "--controller",
                 f"tls://{node.controller.replace('127.0.0.1', 'localhost')}"],
                env={**os.environ, "SARIT_USER": "root", "SARIT_PASSWORD": PASSWORD, "SARIT_CA_FILE": made["ca"]},
                capture_output=True, text=True, timeout=HANG_SECONDS, check=False,
            )  # fmt: skip
            assert granted.returncode == 0, granted.stderr
            deadline = time.monotonic() + HANG_SECONDS
            while http.get("/subjects").json() != ["s"]:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert http.get(f"/schemas/ids/{id}").json()["schema"] == '"string"'
            assert register(http, "/subjects/s").status_code == 403
    assert "registry: register" in audit.read_text()


def test_a_node_without_a_registry_loads_nothing_of_it(tmp_path) -> None:
    """Its modules are not imported, and nothing is at its paths."""
    log = tmp_path / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [SARIT, "standalone", "--data-dir", str(tmp_path / "data"), "--containers", "1", "--controller-port", "0",
             "--store-port", "0", "--http-port", "0"],
            env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}, stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
        try:
            assert process.stdout is not None
            console = next(line for line in process.stdout if line.startswith("console: "))
            assert httpx.get(f"{console.split()[1]}registry/confluent/subjects").status_code == 404
        finally:
            process.terminate()
            process.wait(HANG_SECONDS)
    imported = log.read_text()
    assert "sarit.admin.server" in imported
    for name in ("sarit.registry", "sarit.process.registry_role", "sarit.schemas"):
        assert name not in imported, name
