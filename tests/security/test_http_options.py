"""The HTTP port of a running node with `--open-metrics`, and with certificates of clients."""

from __future__ import annotations

import json
import os
import ssl
import subprocess

import httpx
import pytest

from sarit.cli.dev_ca import make_certificates
from sarit.security.users import User, format_users, hash_password
from tests.nodes import SARIT, RunningNode

PASSWORD = "a password of this file"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("files")
    made = {name: str(path) for name, path in make_certificates(directory / "ours", (), 1).items()}
    other = make_certificates(directory / "other", (), 1)
    made |= {f"other {name}": str(path) for name, path in other.items()}
    (directory / "users").write_text(format_users([User("root", hash_password(PASSWORD), frozenset({"admin"}))]))
    (directory / "keys").write_text(os.urandom(32).hex() + "\n")
    (directory / "keys").chmod(0o600)
    return made | {"users": str(directory / "users"), "token keys": str(directory / "keys")}


def _node(tmp_path, files, *options):
    return RunningNode(
        tmp_path / "data", "--http-port", "0", "--users", files["users"], "--token-keys", files["token keys"],
        "--tls-cert", files["server"], "--tls-key", files["server key"], "--tls-ca", files["ca"], "--advertise",
        "localhost", "--containers", "1", *options,
    )  # fmt: skip


def _context(files, client: str | None = None) -> ssl.SSLContext:
    """Trusts our CA; `client`: whose certificate it shows."""
    context = ssl.create_default_context(cafile=files["ca"])
    if client is not None:
        context.load_cert_chain(files[client], files[f"{client} key"])
    return context


def _top(node, files, **environ) -> subprocess.CompletedProcess[str]:
    given = {name: value for name, value in os.environ.items() if not name.startswith("SARIT_")}
    return subprocess.run(
        [SARIT, "top", "--http", f"https://{_address(node)}", "--once", "--format", "json", "--interval", "0.2"],
        env={**given, "SARIT_CA_FILE": files["ca"], **environ},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def _address(node) -> str:
    return f"localhost:{node.http.rpartition(':')[2]}"


def test_open_metrics_are_for_everybody_and_nothing_else_is(tmp_path, files):
    with (
        _node(tmp_path, files, "--open-metrics") as node,
        httpx.Client(base_url=f"https://{_address(node)}", verify=_context(files)) as nobody,
    ):
        assert "sarit_build_info{" in nobody.get("/metrics").text
        assert nobody.get("/healthz").json()["ready"] is True
        assert nobody.get("/readyz").json() == {"status": "ready", "reasons": []}
        for path in ("/v1/scopes", "/admin/log-level", "/console/api/overview"):
            assert nobody.get(path).status_code == 401, path
        assert nobody.put("/admin/log-level", content="debug").status_code == 401
        assert nobody.post("/v1/scopes", json={"scopeName": "x"}).status_code == 401
        # A log-in that is wrong opens no more than none.
        assert nobody.get("/v1/scopes", auth=("root", "guess")).status_code == 401
        assert nobody.get("/v1/scopes", auth=("root", PASSWORD)).status_code == 200
        done = _top(node, files)
        assert (done.returncode, json.loads(done.stdout)[0]["ready"]) == (0, True), done.stderr


def test_metrics_that_are_not_open_need_a_user(tmp_path, files):
    with (
        _node(tmp_path, files) as node,
        httpx.Client(base_url=f"https://{_address(node)}", verify=_context(files)) as nobody,
    ):
        for path in ("/metrics", "/healthz"):
            assert nobody.get(path).status_code == 401, path
        assert nobody.get("/readyz").json() == {"status": "ready"}
        assert nobody.get("/metrics", auth=("root", PASSWORD)).status_code == 200
        assert "asks for a log-in" in _top(node, files).stdout


def test_port_asks_for_a_certificate_of_our_ca(tmp_path, files):
    with _node(tmp_path, files, "--tls-client-certs", "--open-metrics") as node:
        base = f"https://{_address(node)}"
        for shown in (None, "other client"):
            # In TLS 1.3 the server refuses after the handshake of the client: the first read fails.
            with (
                httpx.Client(base_url=base, verify=_context(files, shown)) as refused,
                pytest.raises(httpx.TransportError),
            ):
                refused.get("/livez")
        with httpx.Client(base_url=base, verify=_context(files, "client")) as shown:
            assert shown.get("/livez").text == "ok\n"
            assert "sarit_build_info{" in shown.get("/metrics").text
            # The certificate is no log-in; the node shows its own to its controller.
            assert shown.get("/v1/scopes").status_code == 401
            assert shown.get("/v1/scopes", auth=("root", PASSWORD)).status_code == 200
        own = {"SARIT_CERT_FILE": files["client"], "SARIT_KEY_FILE": files["client key"]}
        assert json.loads(_top(node, files, **own).stdout)[0]["ready"] is True
        done = _top(node, files)
        assert done.returncode == 1
        assert "does not answer" in done.stdout
        assert "Traceback" not in node.log()
