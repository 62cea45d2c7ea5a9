"""`sarit top` and `sarit doctor` beside a node with users and TLS."""

from __future__ import annotations

import asyncio

import pytest

from sarit.cli.top import scrape
from sarit.ops.doctor import FAIL, GRPC, HTTP, OK, WIRE, Port, check_port
from tests.security.http_serving import serving
from tests.security.running import PASSWORD


@pytest.mark.parametrize("tls", [False, True])
def test_top_logs_in_and_doctor_knows_whose_ports_they_are(tls, tmp_path, monkeypatch):
    for name in ("SARIT_USER", "SARIT_PASSWORD", "SARIT_TOKEN", "SARIT_CA_FILE"):
        monkeypatch.delenv(name, raising=False)

    async def main():
        async with serving(tmp_path, tls=tls) as http:
            port = http.admin.port
            address = f"{'localhost' if tls else '127.0.0.1'}:{port}"
            if tls:
                found = await asyncio.to_thread(scrape, f"https://{address}")
                assert "certificate verify failed" in found.error
                monkeypatch.setenv("SARIT_CA_FILE", str(tmp_path / "certificates" / "ca.pem"))
            found = await asyncio.to_thread(scrape, address)
            assert found.error.startswith("it asks for a log-in: set SARIT_USER")
            monkeypatch.setenv("SARIT_USER", "alice")
            monkeypatch.setenv("SARIT_PASSWORD", PASSWORD)
            found = await asyncio.to_thread(scrape, address)
            assert "needs the role metrics" in found.error
            monkeypatch.setenv("SARIT_USER", "scrape")
            found = await asyncio.to_thread(scrape, address)
            assert not found.error
            assert found.health["ready"]
            assert found.total("sarit_build_info") == 1
            # The doctor needs no log-in.
            made = tmp_path / "certificates"
            files = (str(made / "server.pem"), str(made / "server-key.pem")) if tls else None
            ports = ((HTTP, port), (WIRE, http.node.store_port), (GRPC, http.node.controller_port))
            for protocol, number in ports:
                finding = await asyncio.to_thread(check_port, "127.0.0.1", Port("--port", number, protocol), files)
                assert finding.level == OK, finding
                assert "answered by Sarit: a" in finding.text
            finding = await asyncio.to_thread(check_port, "127.0.0.1", Port("--port", ports[1][1], GRPC), files)
            assert finding.level == FAIL

    asyncio.run(main())
